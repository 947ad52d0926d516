import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Each line of standard input is a name in DER, or rules and a name; all in hex, as what is printed: the name as Kafka
 * has it from a certificate, or whom its rules make of it.
 */
public class PrincipalNames {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String found;
            if (words.length == 1) {
                found = new X500Principal(bytes(words[0])).getName();
            } else {
                String name = new String(bytes(words[1]), "UTF-8");
                found = SslPrincipalMapper.fromRules(new String(bytes(words[0]), "UTF-8")).getName(name);
            }
            StringBuilder hex = new StringBuilder();
            byte[] text = found.getBytes("UTF-8");
            for (int i = 0; i < text.length; i++) {
                hex.append(String.format("%02x", new Object[] {Byte.valueOf(text[i])}));
            }
            System.out.println(hex);
        }
    }

    private static byte[] bytes(String hex) {
        byte[] found = new byte[hex.length() / 2];
        for (int i = 0; i < found.length; i++) {
            found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return found;
    }
}
