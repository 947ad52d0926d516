"""What a failover loses or leaves behind, stated per partition with how sure the statement is. Pure.

The source's log end is known exactly only while it answers. When it is gone, the mirror's last observation of it
gives a lower bound: what was written after that observation cannot be known, and is said to be unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from failover.snapshot import PartitionView


class Certainty(StrEnum):
    """How much of a loss statement is known."""

    EXACT = "exact"
    AT_LEAST = "at_least"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PartitionLoss:
    """Source offsets [first_offset, end_offset) that the target does not have.

    `records` counts offsets: the number of records wherever the source's log has no offset gaps. With certainty
    AT_LEAST more may have been written after `seen_at_ms`; with UNKNOWN nothing is known of the source's end at all.
    Timestamps are the records' own, Unix milliseconds, None where they cannot be known.
    """

    topic: str
    partition: int
    certainty: Certainty
    records: int | None
    first_offset: int | None
    end_offset: int | None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    seen_at_ms: int | None = None

    @property
    def is_none(self) -> bool:
        """True only where it is known that nothing is lost."""
        return self.certainty is Certainty.EXACT and self.records == 0


def state_loss(view: PartitionView, taken_at_ms: int) -> PartitionLoss:
    """The loss statement of one partition, without the timestamps that only a living source can give."""
    if not view.trusted:
        return PartitionLoss(view.topic, view.partition, Certainty.UNKNOWN, None, None, view.source_end)
    first = view.mirrored_source_next
    if first is None:
        first = view.source_start or 0
    if view.source_end is not None:
        return PartitionLoss(
            view.topic,
            view.partition,
            Certainty.EXACT,
            max(0, view.source_end - first),
            first,
            max(first, view.source_end),
            seen_at_ms=taken_at_ms,
        )
    if view.seen_source_end is None:
        return PartitionLoss(view.topic, view.partition, Certainty.UNKNOWN, None, view.mirrored_source_next, None)
    records = max(0, view.seen_source_end - first)
    return PartitionLoss(
        view.topic,
        view.partition,
        Certainty.AT_LEAST,
        records,
        first,
        max(first, view.seen_source_end),
        last_timestamp_ms=view.seen_timestamp_ms if records else None,
        seen_at_ms=view.seen_at_ms,
    )


@dataclass(frozen=True, slots=True)
class LossTotal:
    """The sum over partitions: `records` known to be lost, and whether more may be."""

    records: int
    partitions_with_loss: int
    certainty: Certainty


def total_loss(losses: Iterable[PartitionLoss]) -> LossTotal:
    """Sum the statements; one partition that is not exact makes the sum a lower bound."""
    records = partitions = 0
    certainty = Certainty.EXACT
    for loss in losses:
        records += loss.records or 0
        partitions += bool(loss.records)
        if loss.certainty is not Certainty.EXACT:
            certainty = Certainty.AT_LEAST
    return LossTotal(records, partitions, certainty)
