"""Partitions that a session does not mirror although it should: which, why, since when, and when each is tried again.

A hold stops one partition for the rest of the session; a new session takes it in. A new session fences anew, so one is
begun for a held partition only when both sites can be asked about it again, and after a pause that grows with every
time that the partition failed: what no question shows (a right to write that is missing) must not fence in a loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from broker.base.clock import Clock
from broker.client.errors import ClientError, ReadUnfinished
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.doubt import is_in_doubt
from mirror.offsets.hold_entries import Hold, HoldReason, VoidHold
from mirror.offsets.state_writer import Change
from mirror.topics.seen import HoldKey, hold_for_error
from mirror.worker.limits import WorkerLimits

PAUSE_GROWTH = 4
TOPIC_REASONS = frozenset({HoldReason.TOPIC_NOT_CREATED, HoldReason.TOPIC_NOT_GROWN})
UNTRIED_REASONS = frozenset({HoldReason.NAME_TOO_LONG, HoldReason.PAUSED})
"""No try would show whether they are gone."""
TOLD_APART_MS = 1_000
"""Two times so near to each other are not worth a new entry."""


def is_at_source(hold: Hold) -> bool:
    """Whether only the source is in the way: the target's partition can be written to."""
    return hold.reason in (HoldReason.NO_LEADER_AT_SOURCE, HoldReason.ERROR_AT_SOURCE, HoldReason.PAUSED)


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
        self._seen: dict[Hashable, Hashable] = {}

    def failed(self, key: Hashable, *, passing: bool) -> None:
        """It failed now. `passing`: what is in the way may go away by itself, so the first pause is short."""
        limits, now_s = self._limits, self._clock.monotonic()
        last = self._failures.get(key)
        healthy = last is None or now_s - last.due_s > limits.healthy_after_ms / 1000
        count = 0 if last is None or healthy else last.count + 1
        first_ms = limits.hold_pause_ms if passing else limits.hold_refused_pause_ms
        pause_ms = min(first_ms * PAUSE_GROWTH**count, limits.hold_pause_max_ms)
        self._failures[key] = _Failure(count, now_s + pause_ms / 1000)

    def see(self, key: Hashable, surroundings: Hashable) -> None:
        """What a look shows of who serves it. Once that is another, what was in the way may be gone: it is due now."""
        before = self._seen.get(key)
        self._seen[key] = surroundings
        failure = self._failures.get(key)
        if failure is not None and before not in (None, surroundings):
            self._failures[key] = replace(failure, due_s=min(failure.due_s, self._clock.monotonic()))

    def next_try_at_ms(self, key: Hashable) -> int:
        """The wall clock's time when it becomes due; now, when it is."""
        failure, now_ms = self._failures.get(key), self._clock.now_ms()
        left_s = 0.0 if failure is None else failure.due_s - self._clock.monotonic()
        return now_ms + max(0, math.ceil(1000 * left_s))

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
        self.doubted: set[TopicPartition] = set()
        """Held once for a reason that puts their offsets in doubt: until a new session has compared their logs."""
        self.late: set[TopicPartition] = set()
        """Those that the session is about to take in, as soon as it has looked at their logs."""
        self.late_due = asyncio.Event()
        """Set when one becomes late."""
        self._clock = clock

    def add(self, hold: Hold, *, passing: bool = True) -> Hold:
        """A partition is held from now on -> the hold as it is kept."""
        if hold.reason not in TOPIC_REASONS | {HoldReason.PAUSED}:
            self.attempts.failed((hold.topic, hold.partition), passing=passing)
        return self._keep(hold)

    def note_topics(self, failures: Mapping[str, ClientError]) -> None:
        """The targets of these source topics could not be made or grown now; it is tried for a topic as a whole."""
        for topic, error in failures.items():
            self.attempts.failed((topic, None), passing=error.retriable)

    def add_error(self, where: TopicPartition, error: ClientError, *, at_source: bool) -> Hold:
        """One of the sites answered with this error for the source partition -> the hold."""
        hold = hold_for_error(*where, error, self._clock.now_ms(), at_source=at_source)
        return self.add(hold, passing=error.retriable)

    def add_late(self, where: TopicPartition, unfinished: ReadUnfinished) -> Hold:
        """What was mirrored of it is not compared yet -> the hold. It is no failure, and ends when that is done."""
        self.make_late(where)
        text = f"still being compared: {unfinished}"
        return self._keep(Hold(*where, HoldReason.LOGS_NOT_COMPARED, text, self._clock.now_ms()))

    def make_late(self, where: TopicPartition) -> None:
        """The session is to look at a partition that is held, or new, and to take it in."""
        self.late.add(where)
        self.late_due.set()

    def end_late(self, hold: Hold) -> Hold:
        """Its logs could not be compared, for this reason -> the hold as it is kept."""
        self.late -= {(hold.topic, hold.partition)}
        return self._keep(hold)

    def release(self, where: TopicPartition) -> None:
        """Nothing is in its way any more, its logs were compared, and the state says so."""
        self.late.discard(where)
        self.doubted.discard(where)
        self.current.pop(where, None)

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
            is_same = before is not None and (before.reason, before.detail) == (hold.reason, hold.detail)
            if before is None or not is_same or self._is_put_off(before):
                changes.append(self._keep(hold))
        for key in [key for key in self.current if key[1] is None and key not in found]:
            del self.current[key]
            changes.append(VoidHold(*key))
        return changes

    def _keep(self, hold: Hold) -> Hold:
        key = (hold.topic, hold.partition)
        hold = replace(hold, next_try_at_ms=self._next_try_at_ms(hold))
        if hold.partition is not None and is_in_doubt(hold):
            self.doubted.add(TopicPartition(hold.topic, hold.partition))
        kept = self.current[key] = _since(hold, self.current.get(key))
        return kept

    def _is_put_off(self, hold: Hold) -> bool:
        """Whether it was tried again since this was written, and is due later now."""
        next_try_at_ms = self._next_try_at_ms(hold)
        return next_try_at_ms > max(hold.next_try_at_ms, self._clock.now_ms()) + TOLD_APART_MS

    def _next_try_at_ms(self, hold: Hold) -> int:
        if hold.reason in UNTRIED_REASONS or (hold.topic, hold.partition) in self.late:
            return -1
        return self.attempts.next_try_at_ms((hold.topic, None if hold.reason in TOPIC_REASONS else hold.partition))


def _since(hold: Hold, before: Hold | None) -> Hold:
    """With the time since when it is held for that reason."""
    return replace(hold, at_ms=before.at_ms) if before is not None and before.reason is hold.reason else hold
