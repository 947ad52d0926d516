"""A client that hangs by a fault of its library is told from one that waits for the brokers."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

from tests.chaos_runs.hanging import closed, known_hang


def what_is_said_of_the_caller() -> str | None:
    return known_hang(sys._getframe(1))


def test_the_call_that_a_thread_stands_at_tells_it() -> None:
    library = SimpleNamespace(
        send_offsets_to_transaction=what_is_said_of_the_caller,
        commit_transaction=what_is_said_of_the_caller,
    )
    assert "5511" in str(library.send_offsets_to_transaction())
    assert library.commit_transaction() is None


def test_a_client_that_never_closes_keeps_nobody() -> None:
    never = threading.Event()
    try:
        assert not closed(SimpleNamespace(close=never.wait), 0.05)
    finally:
        never.set()
    assert closed(SimpleNamespace(close=never.wait))
