"""Time as the mirror sees it. Passed in everywhere, so that tests can move it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock, steady clock, and waiting on them."""

    def now_ms(self) -> int:
        """Unix time in milliseconds, as Kafka's timestamps."""
        ...

    def monotonic(self) -> float:
        """Seconds from a fixed but unknown start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait this long on the steady clock."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
