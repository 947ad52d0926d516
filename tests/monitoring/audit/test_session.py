"""Ctrl-C while Spark is being asked: an interruption, not an error of Java's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from monitoring.audit.session import interrupts_kept

ROOT = Path(__file__).resolve().parents[3]


def swallow(_number: int, _frame: object) -> None:
    """A library's handler that makes something else of Ctrl-C."""


def call_java(interrupted_by: signal.Signals) -> None:
    """Fail as Py4J does when the signal comes in the middle of a call."""
    signal.signal(interrupted_by, swallow)
    os.kill(os.getpid(), interrupted_by)
    raise RuntimeError("an error occurred while calling Java")


def test_an_interrupt_that_a_library_turned_into_an_error_is_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        call_java(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_errors_and_other_signals_stay_what_they_are() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with pytest.raises(RuntimeError, match="Java"), interrupts_kept():
            call_java(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_thread_gets_no_signals_and_needs_no_care() -> None:
    found: list[str] = []

    def work() -> None:
        with interrupts_kept():
            found.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["done"]


def test_spark_leaves_nothing_in_the_folder_where_it_ran(tmp_path: Path) -> None:
    """In a process of its own: Spark looks at its folder only when its Java starts."""
    program = (
        "from monitoring.audit.session import SparkSettings, spark_session\n"
        "settings = SparkSettings(master='local[1]', options={'spark.jars.packages': ''})\n"
        "with spark_session(settings) as spark:\n"
        "    assert spark.range(3).count() == 3\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert list(tmp_path.iterdir()) == []
