"""When each group next has something to do: a heap with at most one live entry per group.

Deadlines mostly move away (each heartbeat), so an entry that comes up too early is put back, not moved.
"""

from __future__ import annotations

import heapq
from math import inf


class Deadlines:
    """Times are milliseconds on one monotonic scale."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._live: dict[str, float] = {}

    def set_at_most(self, key: str, deadline_ms: float) -> bool:
        """Look at `key` at that time or before -> whether it is now the earliest of all."""
        if deadline_ms == inf or self._live.get(key, inf) <= deadline_ms:
            return False
        self._live[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, key))
        return self._heap[0] == (deadline_ms, key)

    def next_ms(self) -> float:
        return self._heap[0][0] if self._heap else inf

    def pop_due(self, now_ms: float) -> list[str]:
        """The keys whose time has come; each must be set again if it has a later deadline."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, key = heapq.heappop(self._heap)
            if self._live.get(key) == deadline_ms:
                del self._live[key]
                due.append(key)
        return due
