"""Ctrl-C while Spark is being asked: an interruption, not an error of Java's."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from monitoring.audit.session import interrupts_kept


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
