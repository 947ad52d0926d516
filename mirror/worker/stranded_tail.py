"""What of one partition only a promoted link's source has, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Gap, GapKind, GapStatus


@dataclass(frozen=True, slots=True)
class StrandedTail:
    """Source offsets [first_offset, end_offset) of one partition that hold records which the target lacks.

    `records` are counted by reading; None: a transaction is open there, and what becomes of it is not known, or where
    the tail ends is not known (`is_end_known`), so that new records of the active site stand in the range. `left`: a
    person decided that they stay at the source. `target_wrote`: producers of the target wrote behind the last mirrored
    record, so that the tail would come behind newer records. `mirrored_target_next`: where that was (-1: never).
    """

    topic: str
    partition: int
    target_topic: str
    first_offset: int
    end_offset: int
    records: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    left: bool
    target_wrote: bool
    mirrored_target_next: int
    is_end_known: bool = True
    open_from: int | None = None
    """Where a transaction begins that is open in it, or before it; None: none is."""
    read_to: int | None = None
    """The time was over there, and `records_at_least` were counted before it; None: it was read to its end."""
    records_at_least: int | None = None
    is_shown: bool = True
    """Not so: the leader has them, and not all replicas in sync, or fewer than min.insync.replicas: nobody is shown
    what they are, nor whether they are kept.
    """

    @property
    def where(self) -> TopicPartition:
        """In the source."""
        return TopicPartition(self.topic, self.partition)

    def as_left(self, now_ms: int, reason: str) -> Gap:
        """The entry of the gap ledger that lets the link go on behind them."""
        return Gap(
            topic=self.topic,
            partition=self.partition,
            kind=GapKind.STRANDED,
            source_from=self.first_offset,
            source_to=self.end_offset,
            target_offset=self.mirrored_target_next,
            status=GapStatus.ACCEPTED,
            at_ms=now_ms,
            detail=reason,
        )
