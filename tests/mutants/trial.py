"""Running tests in a forked child, with a bug planted or without: which fails first, or takes too long.

The parent has imported all tests and run none: a fork of a process with threads lacks them. What a test may take goes
by what it took without a bug, and what the child waits for a processor does not count.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

OPTIONS = (
    *("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow", "-o", "timeout=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # a library that this one has imported before pytest
)
GRACE_S = 10.0
"""What any test may take, however quick it is; starting and ending a child too."""
TIMES_MAX = 8.0
"""And how many times what it took without a bug."""
FIRST_SLICE = 25
LOOK_S = 0.25
_DIES_WITH_PARENT = 1


@dataclass(frozen=True, slots=True)
class End:
    """How a child's tests ended: nothing failed, this one failed (`how` says what), or it took too long."""

    test: str | None
    how: str
    seconds: float
    late: bool = False

    @property
    def found(self) -> bool:
        return self.test is not None


class Told:
    """pytest's hooks in the child: tests in the order given, and what begins and fails goes to the parent at once."""

    def __init__(self, tests: list[str], pipe: int) -> None:
        self._order = {test: place for place, test in enumerate(tests)}
        self._pipe = pipe

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._order), key=lambda it: self._order[it.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell(test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._tell(failed=report.nodeid, how=(crash.message if crash else str(report.longrepr))[:200])

    def _tell(self, **said: str) -> None:
        os.write(self._pipe, _line(**said))


def _line(**said: str) -> bytes:
    return json.dumps(said).encode() + b"\n"


def in_child(work: Callable[[], object]) -> int:
    """Fork -> the child's process id; it leads a group of its own, and does not outlive this process."""
    if child := os.fork():
        return child
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
        work()
        status = 0
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)  # nobody's exit handlers, no waiting for threads


def quietly(log: Path) -> None:
    """What is printed goes to this file."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)


def run_pytest(tests: list[str], pipe: int) -> int:
    files = sorted({test.partition("::")[0] for test in tests})
    return int(pytest.main([*OPTIONS, *files], plugins=[Told(tests, pipe)]))


def attempt(
    tests: list[str], clean_s: dict[str, float], log: Path, before: Callable[[], None], patience: float = 1.0
) -> End:
    """Run these in a child, quickest first, after `before` was called there, until one fails or takes too long.

    `clean_s` is what each takes without a bug; what it may take is multiplied by `patience`.
    """
    quickest = sorted(tests, key=lambda test: clean_s[test])
    slices = [sorted(some, key=lambda test: test.partition("::")[0]) for some in _slices(quickest)]
    read, write = os.pipe()

    def work() -> None:
        os.close(read)
        quietly(log)
        before()
        gc.freeze()
        for some in slices:
            if code := run_pytest(some, write):
                os.write(write, _line(failed="", how=f"pytest's exit code {code}"))
                break

    child = in_child(work)
    os.close(write)
    try:
        return _watch(child, read, clean_s, patience)
    finally:
        os.close(read)
        _kill(child)


def _slices(tests: list[str]) -> Iterator[list[str]]:
    """Collecting all tests takes longer than running the quick ones; and tests of one file share what it sets up."""
    start, size = 0, FIRST_SLICE
    while start < len(tests):
        yield tests[start : start + size]
        start, size = start + size, size * 4


def _watch(child: int, pipe: int, clean_s: dict[str, float], patience: float) -> End:
    """Read what the child tells until it is silent for ever, or for too long."""
    test, since, waited, begun = "", time.monotonic(), _waited_s(child), time.monotonic()
    buffered = b""
    while True:
        if select.select([pipe], [], [], LOOK_S)[0]:
            said = os.read(pipe, 65536)
            if not said:
                return End(*_death(child, test), time.monotonic() - begun)
            *lines, buffered = (buffered + said).split(b"\n")
            for line in map(json.loads, lines):
                if "failed" in line:
                    return End(line["failed"] or test, line["how"], time.monotonic() - begun)
                test, since, waited = line["test"], time.monotonic(), _waited_s(child)
        took_s = time.monotonic() - since - (_waited_s(child) - waited)
        if took_s > (GRACE_S + TIMES_MAX * clean_s.get(test, 0)) * patience:
            return End(test, f"not ended after {took_s:.0f} s", time.monotonic() - begun, late=True)


def _death(child: int, test: str) -> tuple[str | None, str]:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return (None, "") if status == 0 else (test, f"the process ended with {status}")


def _waited_s(child: int) -> float:
    """How long the child's main thread has waited for a processor; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{child}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _kill(child: int) -> None:
    """With what it started, as far as that is in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
