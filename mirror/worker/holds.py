"""Partitions that a session does not mirror although it should: which, why, since when, and when each is tried again.

A hold stops one partition for the rest of the session; a new session takes it in. A new session fences anew, so one is
begun for a held partition only when both sites can be asked about it again, and after a pause that grows with every
time that the partition failed: what no question shows (a right to write that is missing) must not fence in a loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from broker.base.clock import Clock
from broker.client.errors import ClientError
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.doubt import is_in_doubt
from mirror.offsets.hold_entries import Hold, VoidHold
from mirror.offsets.state_writer import Change
from mirror.topics.seen import HoldKey, hold_for_error
from mirror.worker.limits import WorkerLimits

PAUSE_GROWTH = 4


@dataclass(frozen=True, slots=True)
class _Failure:
    """How often in a row, and when (steady seconds) it may be tried again."""

    count: int
    due_s: float


class Attempts:
    """What failed and when it is tried again, over all sessions of a link, by partition or topic."""

    def __init__(self, limits: WorkerLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._failures: dict[Hashable, _Failure] = {}

    def failed(self, key: Hashable, *, passing: bool) -> None:
        """It failed now. `passing`: what is in the way may go away by itself, so the first pause is short."""
        limits, now_s = self._limits, self._clock.monotonic()
        last = self._failures.get(key)
        healthy = last is None or now_s - last.due_s > limits.healthy_after_ms / 1000
        count = 0 if last is None or healthy else last.count + 1
        first_ms = limits.hold_pause_ms if passing else limits.hold_refused_pause_ms
        pause_ms = min(first_ms * PAUSE_GROWTH**count, limits.hold_pause_max_ms)
        self._failures[key] = _Failure(count, now_s + pause_ms / 1000)

    def is_due(self, key: Hashable) -> bool:
        """Whether it may be tried now; what never failed may."""
        failure = self._failures.get(key)
        return failure is None or failure.due_s <= self._clock.monotonic()

    def next_due_s(self, keys: Iterable[Hashable]) -> float | None:
        """In how many seconds the next of those becomes due; None when all are."""
        now_s = self._clock.monotonic()
        waits = [f.due_s - now_s for key in keys if (f := self._failures.get(key)) is not None and f.due_s > now_s]
        return min(waits, default=None)


class Holds:
    """The holds of one session, as they stand in the link's state or are about to."""

    def __init__(self, attempts: Attempts, clock: Clock) -> None:
        self.attempts = attempts
        self.current: dict[HoldKey, Hold] = {}
        self.doubted: frozenset[TopicPartition] = frozenset()
        """Held once for a reason that puts their offsets in doubt: until a new session has compared their logs."""
        self._clock = clock

    def add(self, hold: Hold, *, passing: bool = True) -> Hold:
        """A partition is held from now on -> the hold as it is kept."""
        self.attempts.failed((hold.topic, hold.partition), passing=passing)
        return self._keep(hold)

    def add_error(self, where: TopicPartition, error: ClientError, *, at_source: bool) -> Hold:
        """One of the sites answered with this error for the source partition -> the hold."""
        hold = hold_for_error(*where, error, self._clock.now_ms(), at_source=at_source)
        return self.add(hold, passing=error.retriable)

    def begin(self, known: Mapping[HoldKey, Hold]) -> list[Change]:
        """The session begins; `known` stood in the state -> what must be written."""
        self.current = {key: _since(hold, known.get(key)) for key, hold in self.current.items()}
        written: list[Change] = [hold for key, hold in self.current.items() if known.get(key) != hold]
        return [*written, *(VoidHold(*key) for key in known if key not in self.current)]

    def review(self, found: Mapping[HoldKey, Hold]) -> list[Change]:
        """What is in the way now -> what must be written. Whole topics with nothing in the way are not held any more.

        A partition stays held, for the reason that was there last: only a new session can take it in.
        """
        changes: list[Change] = []
        for key, hold in found.items():
            before = self.current.get(key)
            if before is None or (before.reason, before.detail) != (hold.reason, hold.detail):
                changes.append(self._keep(hold))
        for key in [key for key in self.current if key[1] is None and key not in found]:
            del self.current[key]
            changes.append(VoidHold(*key))
        return changes

    def _keep(self, hold: Hold) -> Hold:
        key = (hold.topic, hold.partition)
        if hold.partition is not None and is_in_doubt(hold):
            self.doubted |= {TopicPartition(hold.topic, hold.partition)}
        kept = self.current[key] = _since(hold, self.current.get(key))
        return kept


def _since(hold: Hold, before: Hold | None) -> Hold:
    """With the time since when it is held for that reason."""
    return replace(hold, at_ms=before.at_ms) if before is not None and before.reason is hold.reason else hold
