"""Waking those who wait for any change."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from broker.base.time_limits import timeout


class Bell:
    """Is rung when anything changed; who waits takes `next` before looking, so that no ring is missed."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        self.next.set()
        self.next = asyncio.Event()


async def heard(rung: asyncio.Event, timeout_s: float) -> None:
    """Until it was rung, or for so long."""
    with suppress(TimeoutError):
        async with timeout(timeout_s):
            await rung.wait()
