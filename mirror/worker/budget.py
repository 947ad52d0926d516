"""The bytes that a link holds in memory: counted by received frame, since a frame lives as long as its last batch."""

from __future__ import annotations

import asyncio


class Budget:
    """Counts bytes in use against a limit; one per link."""

    def __init__(self, limit_bytes: int, room_min_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._room_min_bytes = room_min_bytes
        self._used_bytes = 0
        self._changed = asyncio.Event()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def free_bytes(self) -> int:
        return max(0, self._limit_bytes - self._used_bytes)

    async def wait_room(self) -> int:
        """Wait until a fetch is worth its while -> the free bytes."""
        while self.free_bytes < self._room_min_bytes:
            await self.wait_release()
        return self.free_bytes

    async def wait_release(self) -> None:
        """Wait until something is given back."""
        self._changed.clear()
        await self._changed.wait()

    def wake(self) -> None:
        """Who waits looks again, though nothing was given back: there is more to move."""
        self._changed.set()

    def take(self, size_bytes: int) -> None:
        self._used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes
        self._changed.set()


class Lease:
    """A share of the budget that several batches hold together; given back with the last of them."""

    __slots__ = ("_budget", "_holders", "_size_bytes")

    def __init__(self, budget: Budget, size_bytes: int) -> None:
        self._budget = budget
        self._size_bytes = size_bytes
        self._holders = 1
        budget.take(size_bytes)

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._budget.give(self._size_bytes)
