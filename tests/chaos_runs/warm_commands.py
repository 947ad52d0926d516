"""farshore's command in processes that are forked from one that has imported it: hundreds of commands in a run.

`python -m tests.chaos_runs.warm_commands` reads a request per line on stdin and answers each on stdout.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.base.children import die_with_parent
from deploy.cli.root import COMMANDS, main
from tests.interop.servers import ROOT
from tests.rubbish import look_for_garbage_rarely

COMMAND_TIMEOUT_S = 150
PRELOADED = ("status", "link", "failover", "operation", "site", "topic", "stranded", "failback", "apply", "drill")


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


class WarmCommands:
    """Runs farshore's command, each time in a process of its own; use as a context manager. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.chaos_runs.warm_commands"]
        self._server = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()
        self._server.communicate()

    def run(self, arguments: Sequence[str], folder: Path = ROOT) -> Said:
        """Run the command there to its end, whatever its exit code."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._lock, tempfile.TemporaryDirectory() as answers:
            out, err = Path(answers) / "out", Path(answers) / "err"
            asked = [list(arguments), str(folder), str(out), str(err)]
            print(json.dumps(asked), file=self._server.stdin, flush=True)
            code = int(self._server.stdout.readline())
            return Said(code, out.read_text(), err.read_text())


@cache
def warm_commands() -> WarmCommands:
    """One for the whole run."""
    commands = WarmCommands().__enter__()
    atexit.register(commands.__exit__, None, None, None)
    return commands


def serve() -> None:
    for name in PRELOADED:
        importlib.import_module(COMMANDS[name].module)
    look_for_garbage_rarely()
    for line in sys.stdin:
        arguments, folder, out, err = json.loads(line)
        child = os.fork()
        if not child:
            _be_the_command(arguments, folder, out, err)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be_the_command(arguments: list[str], folder: str, out: str, err: str) -> None:
    """Never returns. A command that takes too long is ended by the alarm, and its exit code says so."""
    code = 70
    try:
        signal.alarm(COMMAND_TIMEOUT_S)
        os.chdir(folder)
        for number, path in ((0, os.devnull), (1, out), (2, err)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
        sys.argv = ["farshore", *arguments]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 as the interpreter tells what nobody caught
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
