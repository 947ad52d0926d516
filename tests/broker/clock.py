"""Clocks that move only when a test moves them, or waits on them."""

from __future__ import annotations

import asyncio

from broker.base.clock import SystemClock


class ManualClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._suspended_ms = 0
        self._wrong_ms = 0

    def now_ms(self) -> int:
        return self._now_ms + self._wrong_ms

    def monotonic(self) -> float:
        return (self._now_ms - self._suspended_ms) / 1000

    def boottime(self) -> float:
        return self._now_ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits on a clock that only the test moves, and not {seconds} s")

    def advance(self, by_ms: int) -> None:
        self._now_ms += by_ms

    def set_wall(self, by_ms: int) -> None:
        """Somebody sets the wall clock, on (or back), and no time passes."""
        self._wrong_ms += by_ms

    def suspend(self, for_ms: int) -> None:
        """The machine: `monotonic` stands still."""
        self._now_ms += for_ms
        self._suspended_ms += for_ms


class PausesAlone(SystemClock):
    """Time passes by pauses, and not by how slow the machine is."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        self._now_s += seconds
        await asyncio.sleep(0)
