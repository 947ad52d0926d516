"""What a mirror did to the canary's records: a state machine over (sent, seen, time passes, the mirror has passed).

A run judges its own records and no other's. A record that was acknowledged at the source and did not arrive within the
deadline is *late*: the mirror may be behind. It is *lost* when that is proved, because the mirror's position is behind
it and all that was mirrored has been looked through, or when a much longer time is over. A second arrival is a
*duplicate*. An arrival with a lower sequence than one that was seen before is an *order break*. A record whose write
was not acknowledged may arrive or not: neither is a finding. Nor is a record that was under way when the link's target
was promoted: it is *stranded*, and comes when the link is resumed, or never.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from broker.base.percentile import percentile
from monitoring import limits
from monitoring.canary.record import CanaryRecord


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """Counts since the start. Latencies are from the moment of writing to the sight at the target, in milliseconds.

    `late_records` did not arrive within the deadline and are not lost, whether they came since or not; those that did
    not come yet are the `overdue_records`, which `waiting_records` counts, too. `stranded_records` were under way when
    the link's target was promoted: nothing is said of them.
    """

    link: str
    run: str
    sent_records: int
    unacknowledged_records: int
    received_records: int
    waiting_records: int
    overdue_records: int
    lost_records: int
    late_records: int
    duplicate_records: int
    order_breaks: int
    stranded_records: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None

    @property
    def holds(self) -> bool:
        """Whether the mirror kept its promise: records were seen, all, once and in order; some may have been late."""
        broken = self.lost_records + self.overdue_records + self.duplicate_records + self.order_breaks
        return broken == 0 and self.received_records > 0


@dataclass(slots=True)
class _Flight:
    """A record at the source that was not seen at the target. `offset`: at the source."""

    sent_ms: int
    offset: int
    overdue: bool = False


class CanaryJudge:
    """Keeps the score of one run on one link. All times are milliseconds since 1970 and passed in.

    `overdue_ever`, `lost_ever` and `stranded_ever` count records that once were so, and never fall.
    """

    def __init__(
        self,
        link: str,
        run: str,
        *,
        deadline_ms: int = limits.CANARY_DEADLINE_MS,
        lost_after_ms: int = limits.CANARY_LOST_AFTER_MS,
    ) -> None:
        self.link = link
        self.run = run
        self.overdue_ever = 0
        self.lost_ever = 0
        self.stranded_ever = 0
        self._deadline_ms = deadline_ms
        self._lost_after_ms = lost_after_ms
        self._highest = -1
        self._waiting: dict[int, _Flight] = {}
        self._unacknowledged: dict[int, int] = {}
        self._lost: dict[int, int] = {}
        self._stranded: set[int] = set()
        self._sent = 0
        self._refused = 0
        self._received = 0
        self._found = 0
        self._duplicates = 0
        self._order_breaks = 0
        self._latencies: deque[int] = deque(maxlen=limits.CANARY_LATENCIES_KEPT)

    def sending(self, record: CanaryRecord) -> None:
        """The record is handed to the producer; call before it can arrive."""
        self._sent += 1
        self._unacknowledged[record.sequence] = record.sent_ms

    def acknowledged(self, record: CanaryRecord, offset: int) -> None:
        """The source has it, at this offset: from now on it must arrive."""
        sent_ms = self._unacknowledged.pop(record.sequence, None)
        # None: it was seen at the target before the acknowledgement came.
        if sent_ms is not None:
            self._waiting[record.sequence] = _Flight(sent_ms, offset)

    def refused(self, record: CanaryRecord) -> None:
        """The write failed or its outcome is unknown; it may still arrive."""
        self._refused += 1

    def seen(self, record: CanaryRecord, at_ms: int) -> int | None:
        """A record arrived at the target. Returns its latency in milliseconds if it is a first arrival of ours."""
        if record.run != self.run:
            return None  # another canary's, before us or beside us, keeps its own score
        if record.sequence in self._stranded:
            self._stranded.discard(record.sequence)
            return None
        flight = self._waiting.pop(record.sequence, None)
        sent_ms = flight.sent_ms if flight is not None else self._unacknowledged.pop(record.sequence, None)
        if sent_ms is None and record.sequence in self._lost:
            sent_ms = self._lost.pop(record.sequence)
            self._found += 1
        if sent_ms is None:
            self._duplicates += 1
            return None
        self._received += 1
        if record.sequence < self._highest:
            self._order_breaks += 1
        self._highest = max(self._highest, record.sequence)
        latency_ms = max(0, at_ms - sent_ms)
        self._latencies.append(latency_ms)
        return latency_ms

    def strand(self) -> None:
        """The link's target was promoted: nobody carries what is under way, and of it nothing is promised."""
        under_way = self._waiting.keys() | self._unacknowledged.keys()
        self._stranded |= under_way
        self.stranded_ever += len(under_way)
        self._waiting.clear()
        self._unacknowledged.clear()

    def passed(self, source_next: int) -> None:
        """The mirror's position is `source_next`, and everything it has brought has been `seen`: the rest is lost."""
        self._lose([n for n, flight in self._waiting.items() if flight.offset < source_next])

    def expire(self, now_ms: int) -> None:
        """Records that have waited longer than the deadline are overdue; after the much longer time they are lost."""
        for flight in self._waiting.values():
            if not flight.overdue and now_ms - flight.sent_ms > self._deadline_ms:
                flight.overdue = True
                self.overdue_ever += 1
        self._lose([n for n, flight in self._waiting.items() if now_ms - flight.sent_ms > self._lost_after_ms])
        # An unacknowledged record is given up; whether it was written is not known.
        for sequence in [n for n, sent_ms in self._unacknowledged.items() if now_ms - sent_ms > self._lost_after_ms]:
            del self._unacknowledged[sequence]

    def _lose(self, sequences: list[int]) -> None:
        for sequence in sequences:
            flight = self._waiting.pop(sequence)
            self.overdue_ever += not flight.overdue
            self._lost[sequence] = flight.sent_ms
            self.lost_ever += 1
        while len(self._lost) > limits.CANARY_LOST_KEPT:
            self._lost.pop(next(iter(self._lost)))

    @property
    def waiting_records(self) -> int:
        """Acknowledged at the source, not yet seen at the target, not lost."""
        return len(self._waiting)

    @property
    def overdue_records(self) -> int:
        """Those of the waiting that should have come by now."""
        # Of a copy that is made in one step: /metrics is read in another thread than records come in.
        return sum(flight.overdue for flight in list(self._waiting.values()))

    def report(self) -> CanaryReport:
        latencies = self._latencies
        lost = self.lost_ever - self._found
        return CanaryReport(
            self.link,
            self.run,
            self._sent,
            self._refused,
            self._received,
            self.waiting_records,
            self.overdue_records,
            lost,
            self.overdue_ever - lost,
            self._duplicates,
            self._order_breaks,
            self.stranded_ever,
            percentile(latencies, 0.50),
            percentile(latencies, 0.99),
            float(max(latencies)) if latencies else None,
        )
