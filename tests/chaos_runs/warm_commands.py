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
from typing import Self

from tests.forking import Forking, forking
from tests.interop.servers import ROOT

COMMAND_TIMEOUT_S = 480


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


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

    def run(self, arguments: Sequence[str], folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> Said:
        """Run the command there to its end, whatever its exit code. Raises subprocess.TimeoutExpired."""
        with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            files = (nothing.fileno(), out.fileno(), err.fileno())
            process = self._forking.start(arguments, folder, environment or os.environ, files)
            try:
                code = process.wait(COMMAND_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            out.seek(0)
            err.seek(0)
            return Said(code, out.read().decode(), err.read().decode())


@cache
def warm_commands() -> WarmCommands:
    """One for the whole run."""
    return WarmCommands(forking())
