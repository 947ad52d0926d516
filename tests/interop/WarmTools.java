import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools one after the other in this process, each as if in one of its own. It reads what to run from its
 * standard input: how many words, then the words (files for a tool's stdin, stdout and stderr, its class, its
 * arguments), and answers each with the tool's exit code. Compiled by Janino, in whose Java there are no lambdas.
 */
public class WarmTools {
    /** Ends the tool's main thread where Exit.exit() is called. */
    static class Ended extends ThreadDeath {}

    static class SwitchedOut extends OutputStream {
        volatile OutputStream to;

        public void write(int one) throws IOException {
            to.write(one);
        }

        public void write(byte[] bytes, int from, int count) throws IOException {
            to.write(bytes, from, count);
        }

        public void flush() throws IOException {
            to.flush();
        }
    }

    static class SwitchedIn extends InputStream {
        volatile InputStream from;

        public int read() throws IOException {
            return from.read();
        }

        public int read(byte[] bytes, int at, int count) throws IOException {
            return from.read(bytes, at, count);
        }
    }

    /** A tool's own classes anew: some count in static fields. */
    static class Fresh extends ClassLoader {
        Fresh(ClassLoader parent) {
            super(parent);
        }

        protected Class loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("kafka.") && !name.startsWith("org.apache.kafka.tools.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class found = findLoadedClass(name);
                return found != null ? found : define(name);
            }
        }

        private Class define(String name) throws ClassNotFoundException {
            InputStream file = getParent().getResourceAsStream(name.replace('.', '/') + ".class");
            if (file == null) throw new ClassNotFoundException(name);
            try {
                byte[] bytes = file.readAllBytes();
                file.close();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException failed) {
                throw new ClassNotFoundException(name, failed);
            }
        }
    }

    static final SwitchedIn IN = new SwitchedIn();
    static final SwitchedOut OUT = new SwitchedOut();
    static final SwitchedOut ERR = new SwitchedOut();
    static final List HOOKS = new ArrayList();
    static Integer code;

    public static void main(String[] none) throws Exception {
        DataInputStream asked = new DataInputStream(System.in);
        DataOutputStream told = new DataOutputStream(System.out);
        System.setIn(IN);
        System.setOut(new PrintStream(OUT, true));
        System.setErr(new PrintStream(ERR, true));
        Exit.Procedure end = new Exit.Procedure() {
            public void execute(int status, String message) {
                if (code == null) code = Integer.valueOf(status);
                throw new Ended();
            }
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder(new Exit.ShutdownHookAdder() {
            public void addShutdownHook(String name, Runnable hook) {
                HOOKS.add(hook);
            }
        });
        while (true) {
            String[] words;
            try {
                words = new String[asked.readInt()];
            } catch (EOFException over) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int at = 0; at < words.length; ++at) words[at] = asked.readUTF();
            told.writeInt(run(words));
            told.flush();
        }
    }

    static int run(String[] words) throws Exception {
        IN.from = new FileInputStream(words[0]);
        OUT.to = new FileOutputStream(words[1], true);
        ERR.to = new FileOutputStream(words[2], true);
        HOOKS.clear();
        code = null;
        String[] arguments = new String[words.length - 4];
        System.arraycopy(words, 4, arguments, 0, arguments.length);
        ClassLoader fresh = new Fresh(WarmTools.class.getClassLoader());
        Thread.currentThread().setContextClassLoader(fresh);
        try {
            fresh.loadClass(words[3]).getMethod("main", new Class[] {String[].class}).invoke(null, new Object[] {arguments});
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Ended)) {
                failed.getCause().printStackTrace();
                if (code == null) code = Integer.valueOf(1);
            }
        }
        for (int at = 0; at < HOOKS.size(); ++at) {
            try {
                ((Runnable) HOOKS.get(at)).run();
            } catch (Ended ended) {
                // It has ended already.
            }
        }
        System.out.flush();
        System.err.flush();
        IN.from.close();
        OUT.to.close();
        ERR.to.close();
        return code == null ? 0 : code.intValue();
    }
}
