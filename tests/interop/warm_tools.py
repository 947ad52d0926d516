"""Kafka's tools in a Java that goes on running, one for each release: a run of the tests starts some two hundred of
them, and what each spends on its own Java before it does anything is the better part of a second of a processor.

The tool is the same, from its `main` on, and finds fresh what it keeps in static fields (see WarmTools.java).
"""

from __future__ import annotations

import atexit
import contextlib
import select
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.starting import start_process

PROGRAM: Final = Path(__file__).with_name("WarmTools.java")
JANINO: Final = "org.codehaus.janino.SimpleCompiler"
"""Among Spark's jars: it compiles and runs a file without a JDK."""


class Said(NamedTuple):
    code: int
    out: str
    err: str

    def out_of(self, expect: int, *words: str) -> str:
        """AssertionError with all that it said where it ended otherwise."""
        shown = " ".join(words)
        assert self.code == expect, f"{shown}\nended with {self.code}:\n{self.out}\n{self.err}"
        return self.out


class WarmTools:
    """One Java; `command` is its program, options and class path."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, words: Sequence[str], stdin: str, timeout_s: float) -> Said | None:
        """The tool's class and its arguments. None where this Java is busy: two wait for each other, it may be.

        Raises subprocess.TimeoutExpired.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._run(words, stdin, timeout_s)
        finally:
            self._lock.release()

    def _run(self, words: Sequence[str], stdin: str, timeout_s: float) -> Said:
        with tempfile.TemporaryDirectory(prefix="farshore-tool-") as folder:
            files = [Path(folder, name) for name in ("in", "out", "err")]
            files[0].write_text(stdin)
            asked = [word.encode() for word in (*map(str, files), *words)]
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(struct.pack(">i", len(asked)))
            for word in asked:
                process.stdin.write(struct.pack(">H", len(word)) + word)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], timeout_s)[0]:
                self.close(at_once=True)
                raise subprocess.TimeoutExpired(list(words), timeout_s)
            told = process.stdout.read(4)
            # A tool that ends its Java some other way has its exit code from that, and the next one has another Java.
            code = struct.unpack(">i", told)[0] if told else self.close()
            out, err = (file.read_text() if file.exists() else "" for file in files[1:])
            return Said(code, out, err)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = start_process(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def close(self, *, at_once: bool = False) -> int:
        """The exit code of its Java."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if at_once:
            process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()
        return process.returncode


@cache
def warm_tools(java: tuple[str, ...], class_path: str) -> WarmTools:
    """One for the whole run."""
    made = WarmTools(command_of(java, class_path, PROGRAM))
    atexit.register(made.close)
    return made


def command_of(java: Sequence[str], class_path: str, program: Path) -> list[str]:
    """Of a program in one file of Java, whose class is called as the file."""
    jars = sorted(str(jar) for name in ("janino", "commons-compiler") for jar in _spark_jars().glob(f"{name}-*.jar"))
    return [*java, "-cp", ":".join([class_path, *jars]), JANINO, str(program), program.stem]


def _spark_jars() -> Path:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return Path(spark.origin).parent / "jars"
