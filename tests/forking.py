"""farshore's processes, each forked from one that has imported what it needs: a run of the tests starts more than a
thousand, and the imports of each would keep a processor busy for most of a second.

`python -m tests.forking FD` is the process that forks: it reads requests from the socket FD, with the files that are
to be the new process's stdin, stdout and stderr, and a pipe on which to say how it ended. What the new one finds is
what a process has that was started by `python -m deploy.cli`: its own session, folder, environment and arguments.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from broker.base.children import die_with_parent
from broker.wire.compiler import decoder, encoder
from broker.wire.schema import Message
from deploy.cli.root import main
from tests.rubbish import look_for_garbage_rarely

ROOT: Final = Path(__file__).resolve().parents[1]
FARSHORE: Final = [sys.executable, "-m", "deploy.cli"]
"""What is not forked is started so."""
PRELOADED: Final = (
    *("deploy.cli.broker", "deploy.cli.mirror", "deploy.cli.status", "deploy.cli.link", "deploy.cli.failover"),
    *("deploy.cli.operation", "deploy.cli.site_roles", "deploy.cli.topic", "deploy.cli.stranded"),
    *("deploy.cli.failback", "deploy.cli.apply", "deploy.cli.drill", "deploy.cli.group", "deploy.cli.offsets"),
    "deploy.config",
)
"""The commands that tests run most, and what the root of all commands imports for whichever is run."""
REQUEST_BYTES_MAX: Final = 1 << 20
CODE_BYTES: Final = 4


class ForkedProcess:
    """As `subprocess.Popen`, of a process that another one is the parent of."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._ended], [], [], timeout_s)[0]:
                told = os.read(self._ended, CODE_BYTES)
                os.close(self._ended)
                # Nothing is told where the one that forks has gone: then all that it forked went with it.
                self.returncode = int.from_bytes(told, signed=True) if told else -signal.SIGKILL
            return self.returncode


class Forking:
    """The process that forks. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Ends when nobody has the other end of its socket: to the kernel its parent is this thread, which may go.
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.forking", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], files: tuple[int, int, int]
    ) -> ForkedProcess:
        """`farshore ARGUMENTS`; `files` as its stdin, stdout and stderr."""
        ended, theirs = os.pipe()
        try:
            asked = json.dumps([list(arguments), str(folder), dict(environment)]).encode()
            with self._lock:
                socket.send_fds(self._requests, [asked], [*files, theirs])
                told = self._requests.recv(CODE_BYTES)
        finally:
            os.close(theirs)
        assert told, "the process that forks has ended; what it said stands above"
        return ForkedProcess(int.from_bytes(told), ended)

    def close(self) -> None:
        self._requests.close()
        self._server.wait()


@cache
def forking() -> Forking:
    """One for the whole run."""
    made = Forking()
    atexit.register(made.close)
    return made


def start_farshore(
    arguments: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str] | None = None
) -> ForkedProcess:
    """`farshore ARGUMENTS` as a service that says all into its log, in the place of `python -m deploy.cli`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(os.devnull, "rb") as nothing, log.open("ab") as sink:
        files = (nothing.fileno(), sink.fileno(), sink.fileno())
        return forking().start(arguments, folder, os.environ if environment is None else environment, files)


def serve(requests: socket.socket) -> None:
    """Returns in each process that was forked; in this one when nobody is left to ask, by SystemExit."""
    running: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    # A signal only wakes the loop: a second one amid a handler that buries would bury what the first has in its hands.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready = select.select([requests.fileno(), woken], [], [])[0]
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, REQUEST_BYTES_MAX)
            tell_ends(running)
        if requests.fileno() not in ready:
            continue
        asked, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 4)
        if not asked:
            sys.exit()
        child = os.fork()
        if not child:
            become(json.loads(asked), files[:3])
            return
        *inputs, running[child] = files
        for file in inputs:
            os.close(file)
        requests.send(child.to_bytes(CODE_BYTES))


def tell_ends(running: dict[int, int]) -> None:
    """To the pipe of each process that has ended, which leaves `running`."""
    for pid, pipe in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            os.write(pipe, os.waitstatus_to_exitcode(status).to_bytes(CODE_BYTES, signed=True))
            os.close(running.pop(pid))


def become(asked: tuple[list[str], str, dict[str, str]], files: Sequence[int]) -> None:
    """What `subprocess` does between fork and exec, and Python when it starts."""
    die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    arguments, folder, environment = asked
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["farshore", *arguments]
    if "PYTHONFAULTHANDLER" in environment:
        faulthandler.enable()


def compile_messages() -> None:
    """For the newest versions, which ours speak with each other."""
    waiting = [Message]
    while waiting:
        waiting += (message := waiting.pop()).__subclasses__()
        if message.__name__.endswith(("Request", "Response")):
            encoder(message, message.VERSIONS[1])
            decoder(message, message.VERSIONS[1])


def run() -> None:
    """`main`, and its end as Python ends, but for taking all apart that was imported: for that a forked one first gets
    a copy of every page of the one that forks, a quarter of a second for a broker.
    """
    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        # As `multiprocessing` ends what it forks.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code or 0)


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    compile_messages()
    look_for_garbage_rarely()
    serve(socket.socket(fileno=int(sys.argv[1])))
    run()
