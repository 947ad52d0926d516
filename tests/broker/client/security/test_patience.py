"""A call that hangs is left alone, and what hangs does not pile up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from broker.client.security import patience
from broker.client.security.patience import call_within


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """Set, it lets go whoever hangs on it."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


async def test_what_ends_in_time_gives_its_result_or_its_error() -> None:
    assert await call_within(60.0, lambda: "a ticket") == "a ticket"
    with pytest.raises(ZeroDivisionError):
        await call_within(60.0, lambda: 1 // 0)


async def test_who_is_stopped_leaves_it_too_and_nobody_is_refused_for_what_may_yet_end(
    hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_left", [])
    waiting = [asyncio.create_task(call_within(3600.0, hung.wait)) for _ in range(patience.LEFT_MAX)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*waiting, return_exceptions=True)
    )
    assert len(patience._left) == patience.LEFT_MAX
    assert await call_within(60.0, lambda: "a ticket") == "a ticket"


async def test_what_hangs_is_left_and_begun_no_more_where_many_do(
    hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_left", [])
    begun: list[int] = []

    def hang() -> None:
        begun.append(1)
        hung.wait()

    for _ in range(patience.LEFT_MAX + 1):
        with pytest.raises(TimeoutError):
            await call_within(0.01, hang)
    assert len(begun) == patience.LEFT_MAX
    hung.set()
    for left in patience._left:
        left.thread.join()
    assert await call_within(60.0, lambda: "a ticket") == "a ticket"
