"""Time as the mirror sees it. Passed in everywhere, so that tests can move it."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol


class Clock(Protocol):
    """Wall clock, steady clock, and waiting on them."""

    def now_ms(self) -> int:
        """Unix time in milliseconds, as Kafka's timestamps."""
        ...

    def monotonic(self) -> float:
        """Seconds from a fixed but unknown start; never goes back. May stand still while the machine is suspended."""
        ...

    def boottime(self) -> float:
        """As `monotonic`, and goes on while the machine is suspended: for what others count meanwhile."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait this long on the steady clock."""
        ...


def steady_ms(clock: Clock) -> float:
    """`Clock.monotonic` in milliseconds."""
    return clock.monotonic() * 1000


_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has it; where it is missing, a suspended machine is not noticed by this clock."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
