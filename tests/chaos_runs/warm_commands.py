"""farshore's command as a person runs it to its end, in forked processes: hundreds in a run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.forking import ForkedProcess, Forking, forking
from tests.interop.servers import ROOT

COMMAND_TIMEOUT_S = 480


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


@dataclass
class Begun:
    """A command that runs, and what it says until it ends."""

    process: ForkedProcess
    out: IO[bytes]
    err: IO[bytes]

    def end(self, timeout_s: float = COMMAND_TIMEOUT_S) -> Said:
        """Wait for it. Raises subprocess.TimeoutExpired, and it runs no more."""
        with self.out, self.err:
            try:
                code = self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
            self.out.seek(0)
            self.err.seek(0)
            return Said(code, self.out.read().decode(), self.err.read().decode())


class WarmCommands:
    """Runs farshore's command, each time in a process of its own; use as a context manager. Safe between threads."""

    def __init__(self, forking: Forking | None = None) -> None:
        self._forking = forking or Forking()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forking.close()

    def run(
        self,
        arguments: Sequence[str],
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        typed: str = "",
    ) -> Said:
        """Run the command there to its end, whatever its exit code. Raises subprocess.TimeoutExpired."""
        return self.begin(arguments, folder, environment, typed).end()

    def begin(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, typed: str = ""
    ) -> Begun:
        """The command runs; `typed` is its standard input, which is no terminal."""
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  # what is begun closes them
        with tempfile.TemporaryFile() as given:
            given.write(typed.encode())
            given.seek(0)
            files = (given.fileno(), out.fileno(), err.fileno())
            return Begun(self._forking.start(arguments, folder, environment or os.environ, files), out, err)


@cache
def warm_commands() -> WarmCommands:
    """One for the whole run."""
    return WarmCommands(forking())
