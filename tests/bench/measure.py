"""CPU and wall time of processes, and how they are printed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GB = 1_000_000_000
MB = 1_000_000
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Measured:
    """`payload_bytes` of records moved, in `cpu_s` of the measured process and `wall_s` of time."""

    payload_bytes: int
    cpu_s: float
    wall_s: float

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.payload_bytes / GB)

    @property
    def mb_per_s(self) -> float:
        return self.payload_bytes / MB / self.wall_s


def cpu_seconds(pid: int) -> float:
    """User and system time that a living process has used, its ended threads included, to the nanosecond.

    `/proc/PID/stat` counts in hundredths of a second: too coarse for a mirror that moves a GB in a tenth of one.
    """
    clock = ctypes.c_int()
    if error := ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessLookupError(error, os.strerror(error))
    return time.clock_gettime(clock.value)


def family_cpu_seconds(pid: int) -> float:
    """`cpu_seconds` of a process and of all its children, those that ended included (to hundredths of a second)."""
    total = 0.0
    for each in _family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total += cpu_seconds(each) + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return total


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                yield from _family(int(child))


def peak_rss_mb(pid: int) -> float:
    """Highest resident memory of a living process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / MB
    raise ValueError(f"process {pid} has no memory left to measure")


@contextlib.contextmanager
def spawn_python(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m module arguments` with its output readable; ended with the context."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        if process.stdout:
            process.stdout.close()


def wait_for_line(process: subprocess.Popen[str]) -> str:
    """The process's next line; RuntimeError when it ended instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
    return line.strip()
