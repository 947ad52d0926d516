"""One partition of a link while a session runs: what is planned, on its way, and proved. One session owns it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Block, Checkpoint, Gap, Writer
from mirror.offsets.intervals import End, intervals_for
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.recovery import SEQUENCE_MASK
from mirror.worker.budget import Lease
from mirror.worker.plan import Cursor, Obstacle, Outgoing, Rules


class ForeignBatch(Exception):
    """The target put a batch elsewhere than predicted: somebody else wrote to an exclusive target."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"expected target offset {expected}, the batch landed at {found}")


class Flow:
    """Batches wait in `waiting` until their intervals are durable, then in `ready`, then in `in_flight`."""

    __slots__ = (
        "_acknowledged_sequence",
        "_shared",
        "acknowledged_bytes",
        "acknowledged_records",
        "buffered_bytes",
        "changed",
        "cursor",
        "gap",
        "in_flight",
        "leases",
        "map",
        "obstacle",
        "ready",
        "rules",
        "source",
        "source_end_offset",
        "source_timestamp_ms",
        "target",
        "waiting",
    )

    def __init__(
        self, source: TopicPartition, target: TopicPartition, found: PartitionMap, rules: Rules, *, shared: bool
    ) -> None:
        assert found.end is not None
        self.source = source
        self.target = target
        self.map = found
        self.rules = rules
        self.cursor = Cursor(found.position, found.end, 0)
        self.waiting: deque[Outgoing] = deque()
        self.ready: deque[Outgoing] = deque()
        self.in_flight: deque[Outgoing] = deque()
        self.leases: dict[int, Lease] = {}
        self.buffered_bytes = 0
        self.gap: Gap | None = None
        self.obstacle: Obstacle | None = None
        self.source_end_offset = -1
        self.source_timestamp_ms = -1
        self.changed = False
        self.acknowledged_records = 0
        self.acknowledged_bytes = 0
        self._acknowledged_sequence = 0
        self._shared = shared

    @property
    def writer(self) -> Writer:
        return self.rules.writer

    @property
    def is_moving(self) -> bool:
        """Whether it is to be fetched: it neither stands still nor is about to, at an obstacle it has read."""
        return self.gap is None and self.obstacle is None

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way."""
        return not (self.in_flight or self.ready or self.waiting)

    def enqueue(self, outgoing: Iterable[Outgoing], lease: Lease) -> list[Block]:
        """Take planned batches -> the blocks that must be durable before `release(count)`."""
        blocks = []
        for planned in outgoing:
            lease.hold()
            self.leases[id(planned)] = lease
            self.buffered_bytes += len(planned.batch)
            self.waiting.append(planned)
            if planned.intervals:
                blocks.append(planned.block(*self.source, self.writer))
        return blocks

    def release(self, count: int) -> None:
        """The first `count` waiting batches may be produced now."""
        for _ in range(min(count, len(self.waiting))):
            self.ready.append(self.waiting.popleft())

    def send(self) -> Outgoing:
        """The next batch to produce; it is in flight from here on."""
        outgoing = self.ready.popleft()
        self.in_flight.append(outgoing)
        return outgoing

    def acknowledge(self, base_offset: int) -> Block | None:
        """The oldest batch in flight landed -> a block to correct what was written ahead for it, if it was wrong.

        Raises ForeignBatch where only this link may write.
        """
        outgoing = self.in_flight.popleft()
        self._drop(outgoing)
        shift = base_offset - outgoing.target_base
        if shift:
            if not self._shared:
                raise ForeignBatch(outgoing.target_base, base_offset)
            self._shift(shift)
            outgoing.target_base = base_offset
        end = self.map.end
        assert end is not None
        intervals = intervals_for(end, outgoing.pieces, base_offset)
        self.map.advance(intervals, End(outgoing.source_next, base_offset + outgoing.count))
        self._acknowledged_sequence = (outgoing.sequence + outgoing.count) & SEQUENCE_MASK
        self.acknowledged_records += outgoing.count
        self.acknowledged_bytes += len(outgoing.batch)
        self.source_timestamp_ms = max(self.source_timestamp_ms, outgoing.source_timestamp_ms)
        self.changed = True
        self.settle()
        if intervals == outgoing.intervals:
            return None
        outgoing.intervals = intervals
        return outgoing.block(*self.source, self.writer) if intervals else None

    def settle(self) -> None:
        """Nothing is on its way: what was left out behind the last record is done with, too."""
        if self.is_idle and self.map.position < self.cursor.position:
            self.map.position = self.cursor.position
            self.changed = True

    def stop(self, gap: Gap) -> None:
        """Stand still: forget what was not sent. What is in flight may still land; its answers do not count."""
        self.gap = gap
        for outgoing in (*self.waiting, *self.ready, *self.in_flight):
            self._drop(outgoing)
        self.waiting.clear()
        self.ready.clear()
        self.in_flight.clear()

    def checkpoint(self, now_ms: int) -> Checkpoint:
        """What is proved now."""
        end = self.map.end
        assert end is not None
        return Checkpoint(
            topic=self.source.topic,
            partition=self.source.partition,
            end=end,
            position=self.map.position,
            writer=self.writer,
            sequence=self._acknowledged_sequence,
            source_end_offset=self.source_end_offset,
            source_timestamp_ms=self.source_timestamp_ms,
            observed_at_ms=now_ms,
        )

    def _drop(self, outgoing: Outgoing) -> None:
        self.buffered_bytes -= len(outgoing.batch)
        self.leases.pop(id(outgoing)).release()

    def _shift(self, shift: int) -> None:
        """Others wrote `shift` records before our batch: all predictions behind it move."""
        for outgoing in (*self.in_flight, *self.ready, *self.waiting):
            outgoing.target_base += shift
        end = self.cursor.end
        self.cursor.end = End(end.source_next, end.target_next + shift)
