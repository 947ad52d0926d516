"""What adopting a target partition writes into a link's state: as if the link had mirrored what is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Gap,
    GapStatus,
    LastRecord,
    TopicIds,
    VoidBlock,
    Writer,
)
from mirror.offsets.intervals import End, Interval
from mirror.offsets.limits import BLOCK_INTERVALS_MAX
from mirror.offsets.pages import Page, VoidPage


@dataclass(frozen=True, slots=True)
class Adoption:
    """A target partition whose records were found to be the source's: the map of them, and where the link goes on.

    `target_read_to` is the target's log end when it was read: what is behind it was not looked at. `writers` are the
    producer ids of links from the same source.
    """

    gap: Gap
    target: TopicPartition
    intervals: tuple[Interval, ...]
    first: Interval
    end: End
    last: LastRecord
    records: int
    topic_ids: TopicIds
    target_read_to: int
    writers: frozenset[int]
    source_end_offset: int
    source_timestamp_ms: int

    @property
    def passed(self) -> Gap:
        """The gap behind which the link goes on: only what lies before the map's beginning is not mirrored."""
        source_to = max(self.gap.source_from, self.first.source_start)
        detail = f"{self.gap.detail}; adopted: {self.records} records are those of the source"
        return replace(self.gap, status=GapStatus.PASSED, source_to=source_to, detail=detail)

    def changes(
        self, writer: Writer, stale: Iterable[Block], stale_pages: Sequence[Page], now_ms: int
    ) -> list[Block | VoidBlock | VoidPage | Checkpoint | Gap]:
        """In the order in which they must be durable; `stale` is the partition's map in the state as it is."""
        topic, partition = self.gap.topic, self.gap.partition
        blocks = [
            Block(topic, partition, writer, 0, self.intervals[start : start + BLOCK_INTERVALS_MAX])
            for start in range(0, len(self.intervals), BLOCK_INTERVALS_MAX)
        ]
        checkpoint = Checkpoint(
            topic=topic,
            partition=partition,
            end=self.end,
            position=self.end.source_next,
            writer=writer,
            sequence=0,
            source_end_offset=self.source_end_offset,
            source_timestamp_ms=self.source_timestamp_ms,
            observed_at_ms=now_ms,
            last=self.last,
            topic_ids=self.topic_ids,
        )
        voids = [VoidBlock(topic, partition, block.key_source) for block in stale]
        voided = [VoidPage(topic, partition, page.key_source) for page in reversed(stale_pages)]
        return [*voids, *voided, *blocks, checkpoint, self.passed]
