"""What a mirror did to the canary's records: a state machine over (sent, seen, time passes).

A record is *lost* when it was acknowledged at the source and did not arrive within the deadline; when it does arrive
later, it is *late* and no longer lost. A second arrival is a *duplicate*. An arrival with a lower sequence than one
that was seen before is an *order break*. A record whose write was not acknowledged may arrive or not: neither is a
finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.base.percentile import percentile
from monitoring import limits
from monitoring.canary.record import CanaryRecord


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """Counts since the start. Latencies are from the moment of writing to the sight at the target, in milliseconds."""

    link: str
    run: str
    sent_records: int
    unacknowledged_records: int
    received_records: int
    waiting_records: int
    lost_records: int
    late_records: int
    duplicate_records: int
    order_breaks: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None

    @property
    def holds(self) -> bool:
        """Whether the mirror kept its promise: records were seen, none was lost or seen twice, and in order."""
        broken = self.lost_records + self.duplicate_records + self.order_breaks
        return broken == 0 and self.received_records > 0


@dataclass(slots=True)
class _Run:
    """What is known of one run: sequences under way with their time, and the highest one seen."""

    highest: int = -1
    waiting: dict[int, int] = field(default_factory=dict)
    unacknowledged: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)


class CanaryJudge:
    """Keeps the score of one link. All times are milliseconds since 1970 and passed in."""

    def __init__(self, link: str, run: str, *, loss_deadline_ms: int = limits.CANARY_LOSS_DEADLINE_MS) -> None:
        self.link = link
        self.run = run
        self._loss_deadline_ms = loss_deadline_ms
        self._runs: dict[str, _Run] = {run: _Run()}
        self._sent = 0
        self._unacknowledged = 0
        self._received = 0
        self._lost = 0
        self._late = 0
        self._duplicates = 0
        self._order_breaks = 0
        self._latencies: deque[int] = deque(maxlen=limits.CANARY_LATENCIES_KEPT)

    def adopt(self, at_source: Iterable[CanaryRecord], at_target: Iterable[CanaryRecord]) -> None:
        """Take over an earlier run's records that were under way when it stopped, from the tails of both topics."""
        seen = {(record.run, record.sequence) for record in at_target}
        highest: dict[str, int] = {}
        for run, sequence in seen:
            highest[run] = max(sequence, highest.get(run, -1))
        for record in at_source:
            if record.run == self.run:
                continue
            state = self._runs.setdefault(record.run, _Run(highest=highest.get(record.run, -1)))
            if (record.run, record.sequence) not in seen:
                state.waiting[record.sequence] = record.sent_ms

    def sending(self, record: CanaryRecord) -> None:
        """The record is handed to the producer; call before it can arrive."""
        self._sent += 1
        self._runs[record.run].unacknowledged[record.sequence] = record.sent_ms

    def acknowledged(self, record: CanaryRecord) -> None:
        """The source has it: from now on its absence is a loss."""
        state = self._runs[record.run]
        sent_ms = state.unacknowledged.pop(record.sequence, None)
        # None: it was seen at the target before the acknowledgement came.
        if sent_ms is not None:
            state.waiting[record.sequence] = sent_ms

    def refused(self, record: CanaryRecord) -> None:
        """The write failed or its outcome is unknown; it may still arrive."""
        self._unacknowledged += 1

    def seen(self, record: CanaryRecord, at_ms: int) -> int | None:
        """A record arrived at the target. Returns its latency in milliseconds if it is a first arrival of ours."""
        state = self._runs.get(record.run)
        if state is None:
            # Another canary of the same link, started after us: its own process keeps its score.
            return None
        sent_ms = state.waiting.pop(record.sequence, None)
        if sent_ms is None:
            sent_ms = state.unacknowledged.pop(record.sequence, None)
        if sent_ms is None and record.sequence in state.lost:
            sent_ms = state.lost.pop(record.sequence)
            self._lost -= 1
            self._late += 1
        if sent_ms is None:
            # A foreign run's later records are its own process's; what that run sent before us was adopted.
            if record.run == self.run or record.sequence <= state.highest:
                self._duplicates += 1
            return None
        self._received += 1
        if record.sequence < state.highest:
            self._order_breaks += 1
        state.highest = max(state.highest, record.sequence)
        latency_ms = max(0, at_ms - sent_ms)
        self._latencies.append(latency_ms)
        return latency_ms

    def expire(self, now_ms: int) -> None:
        """Records that have waited longer than the deadline are lost."""
        for state in self._runs.values():
            overdue = [n for n, sent_ms in state.waiting.items() if now_ms - sent_ms > self._loss_deadline_ms]
            for sequence in overdue:
                state.lost[sequence] = state.waiting.pop(sequence)
                self._lost += 1
            while len(state.lost) > limits.CANARY_LOST_KEPT:
                state.lost.pop(next(iter(state.lost)))
            # An unacknowledged record is given up after the same time; whether it was written is not known.
            for sequence in [
                n for n, sent_ms in state.unacknowledged.items() if now_ms - sent_ms > 2 * self._loss_deadline_ms
            ]:
                del state.unacknowledged[sequence]

    @property
    def waiting_records(self) -> int:
        """Acknowledged at the source, not yet seen at the target, not yet lost."""
        return sum(len(state.waiting) for state in self._runs.values())

    def report(self) -> CanaryReport:
        latencies = self._latencies
        return CanaryReport(
            self.link,
            self.run,
            self._sent,
            self._unacknowledged,
            self._received,
            self.waiting_records,
            self._lost,
            self._late,
            self._duplicates,
            self._order_breaks,
            percentile(latencies, 0.50),
            percentile(latencies, 0.99),
            float(max(latencies)) if latencies else None,
        )
