"""How fast logs grow: the fullest stretch of a second among looks at them. Pure."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

FASTEST_OVER_MS: Final = 1_000
"""The fastest pace is that of the fullest stretch of this length."""
WATCHED_MS: Final = 60_000
"""So far back looks are kept."""
NOT_SEEN: Final = -1


class TopicPace:
    """The ends of one topic's logs at each look of the last minute: eight bytes for each partition and look."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, array[int]]] = deque()

    def add(self, steady_ms: float, ends: Sequence[int], *, changed: bool) -> None:
        """`ends` by partition, NOT_SEEN where none was told yet; not `changed`: as at the look before."""
        is_same = not changed and self._looks and len(self._looks[-1][1]) == len(ends)
        self._looks.append((steady_ms, self._looks[-1][1] if is_same else array("q", ends)))
        while self._looks[0][0] < steady_ms - WATCHED_MS:
            self._looks.popleft()

    def fastest_per_s(self, partition: int) -> float | None:
        """Offsets a second of the one log; None where it was not seen twice."""
        looks = [(at_ms, ends[partition]) for at_ms, ends in self._looks if partition < len(ends)]
        looks = [look for look in looks if look[1] != NOT_SEEN]
        return fastest_per_s(looks) if len(looks) > 1 else None


def fastest_per_s(looks: Iterable[tuple[float, int]]) -> float:
    """Of looks at something that only grows, in order: when (steady milliseconds), and how much there was."""
    samples, fastest, first = list(looks), 0.0, 0
    for last, (at_ms, total) in enumerate(samples):
        while first + 1 < last and samples[first + 1][0] <= at_ms - FASTEST_OVER_MS:
            first += 1
        since_ms, before = samples[first]
        if at_ms > since_ms:
            fastest = max(fastest, (total - before) * 1000 / max(at_ms - since_ms, FASTEST_OVER_MS))
    return fastest
