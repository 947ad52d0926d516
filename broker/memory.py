"""A budget for the memory of requests, shared by all connections (Kafka's queued.max.request.bytes).

Memory is asked for as a frame grows. Frames that wait for each other's memory would wait for ever, so when the
budget is used up the longest waiting owner may go beyond it, one at a time: the bound is the budget plus one frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class _Waiter(NamedTuple):
    owner: object
    size_bytes: int
    granted: Callable[[], None]


class RequestMemory:
    """`owner` is any object that can be told apart; it says itself how much it holds when it gives back."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._overdrawn_by: object | None = None
        self._waiters: deque[_Waiter] = deque()

    def charge(self, size_bytes: int) -> None:
        """Count what is in memory already: a small frame, which came in one read."""
        self.used_bytes += size_bytes

    def acquire(self, owner: object, size_bytes: int, granted: Callable[[], None]) -> bool:
        """True: the memory is the owner's. False: `granted` will be called when it is."""
        if owner is self._overdrawn_by or (not self._waiters and self._may_have(owner, size_bytes)):
            self.used_bytes += size_bytes
            return True
        self._waiters.append(_Waiter(owner, size_bytes, granted))
        return False

    def release(self, size_bytes: int) -> None:
        """Give back what a handled frame had; those who wait may have it."""
        self.used_bytes -= size_bytes
        if self.used_bytes <= self.limit_bytes:
            self._overdrawn_by = None
        while self._waiters and self._may_have(self._waiters[0].owner, self._waiters[0].size_bytes):
            waiter = self._waiters.popleft()
            self.used_bytes += waiter.size_bytes
            waiter.granted()

    def abandon(self, owner: object, size_bytes: int) -> None:
        """`release` for an owner that is gone and waits for nothing any more."""
        self._waiters = deque(waiter for waiter in self._waiters if waiter.owner is not owner)
        if self._overdrawn_by is owner:
            self._overdrawn_by = None
        self.release(size_bytes)

    def _may_have(self, owner: object, size_bytes: int) -> bool:
        """Whether it fits, or this owner may be the one that goes beyond; then it is from now on."""
        if self.used_bytes + size_bytes <= self.limit_bytes:
            return True
        if self._overdrawn_by is None:
            self._overdrawn_by = owner
        return self._overdrawn_by is owner
