"""When a retriable error is tried again, and when it is enough."""

from __future__ import annotations

from collections.abc import Callable

from broker.base.clock import Clock
from broker.client.errors import ClientError, ClusterUnreachable, KafkaError
from broker.client.limits import ClientLimits
from broker.wire.errors import ErrorCode


def backoff_seconds(attempt: int, limits: ClientLimits, jitter: float) -> float:
    """Pause before try `attempt` + 1: doubled from the start, capped, between half and all of it by `jitter` [0, 1)."""
    whole = min(limits.retry_backoff_ms << min(attempt, 16), limits.retry_backoff_max_ms)
    return float(whole) * (0.5 + jitter / 2) / 1000


class Retry:
    """The retries of one operation; its time begins when this is made, and is `patience_ms` long at most."""

    def __init__(
        self, limits: ClientLimits, clock: Clock, jitter: Callable[[], float], patience_ms: int | None = None
    ) -> None:
        self._limits = limits
        self._patience_ms = limits.retry_timeout_ms if patience_ms is None else patience_ms
        self._clock = clock
        self._jitter = jitter
        self._started = clock.monotonic()
        self._attempt = 0

    def pause_seconds(self, attempt: int) -> float:
        return backoff_seconds(attempt, self._limits, self._jitter())

    async def pause(self, error: ClientError) -> None:
        """Wait before the next try, or raise `error` when trying again is useless or the time is over.

        ClusterUnreachable was already tried for its own time and is raised at once.
        """
        pause = self.pause_seconds(self._attempt)
        spent = self._clock.monotonic() - self._started
        if not error.retriable or isinstance(error, ClusterUnreachable) or spent + pause > self._limit_seconds(error):
            raise error
        self._attempt += 1
        await self._clock.sleep(pause)

    def _limit_seconds(self, error: ClientError) -> float:
        young = isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        limit_ms = self._limits.unknown_topic_timeout_ms if young else self._limits.retry_timeout_ms
        return min(limit_ms, self._patience_ms) / 1000
