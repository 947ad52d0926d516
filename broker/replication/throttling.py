"""How fast replicas that are held back are copied (KIP-73): by their leaders, and by those who follow.

Which ones are is set on their topic, how fast on each broker, once for each direction. A replica that is in sync counts
and is never held back. Kafka takes the mean of eleven seconds; here what was too much is waited for whole, so that the
rate holds also where one answer is more than eleven seconds of it.
"""

from __future__ import annotations

from collections.abc import Set
from math import ceil, inf
from typing import Final

ALL: Final = "*"
UNLIMITED: Final = 2**63 - 1
UNUSED_MS: Final = 1000
"""So long what was not used may be used later: a waiting fetch looks again only at its end."""


def is_listed(replicas: Set[str], index: int, node_id: int) -> bool:
    """Whether `replicas`, a topic's throttled ones (PARTITION:BROKER, or ALL), hold this one."""
    return bool(replicas) and (ALL in replicas or f"{index}:{node_id}" in replicas)


class ReplicationQuota:
    """Of one broker, in one direction. Times are steady, in ms; pure."""

    def __init__(self) -> None:
        self._bytes_per_s = UNLIMITED
        self._excess_bytes = 0.0
        self._at_ms = 0.0

    def limit(self, bytes_per_s: int, now_ms: float) -> None:
        """From now on; 0 lets nothing through. What was too much before is waited for at the new rate."""
        if bytes_per_s != self._bytes_per_s:
            self._pass(now_ms)
            self._bytes_per_s = bytes_per_s

    def record(self, size_bytes: int, now_ms: float) -> None:
        """What was copied."""
        self._pass(now_ms)
        self._excess_bytes += size_bytes

    def is_exceeded(self, now_ms: float) -> bool:
        return self.over_in_ms(now_ms) > 0

    def over_in_ms(self, now_ms: float) -> float:
        """How long nothing more is to be copied, in whole ms; 0: not at all."""
        if not self._bytes_per_s:
            return inf
        self._pass(now_ms)
        return max(0, ceil(round(self._excess_bytes * 1000 / self._bytes_per_s, 3)))

    def _pass(self, now_ms: float) -> None:
        passed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        left_bytes = self._excess_bytes - self._bytes_per_s * passed_ms / 1000
        self._excess_bytes = max(left_bytes, -self._bytes_per_s * UNUSED_MS / 1000)
