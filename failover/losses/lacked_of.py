"""The statement of loss with what the target lost of its own, and only the source has. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from failover.losses.statements import Certainty, PartitionLoss, state_loss
from failover.observing.snapshot import Lacked, Snapshot
from mirror.api import SourceParting


def state_losses(snapshot: Snapshot) -> tuple[PartitionLoss, ...]:
    """Of all partitions."""
    return with_lacked((state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions), snapshot.lacked)


def with_told(now: Iterable[SourceParting], before: Iterable[SourceParting]) -> tuple[SourceParting, ...]:
    """What is told now; of what cannot be compared any more, what was told before."""
    told = {one.where: one for one in before}
    return tuple(one if one.is_known else told.get(one.where, one) for one in now)


def with_counted(now: Iterable[Lacked], before: Iterable[Lacked]) -> tuple[Lacked, ...]:
    """As `with_told`; and of what cannot be counted any more, what was."""
    counted = {(one.topic, one.partition): one for one in before}
    return tuple(one if one.records is not None else counted.get((one.topic, one.partition), one) for one in now)


def with_lacked(losses: Iterable[PartitionLoss], lacked: Iterable[Lacked]) -> tuple[PartitionLoss, ...]:
    """The statements with it; also of partitions that the link does not carry."""
    found = {(loss.topic, loss.partition): loss for loss in losses}
    for one in lacked:
        at = one.topic, one.partition
        none = PartitionLoss(*at, Certainty.EXACT, 0, 0, one.first_offset, one.end_offset)
        found[at] = _with_lacked(found.get(at, none), one)
    return tuple(found.values())


def _with_lacked(loss: PartitionLoss, lacked: Lacked) -> PartitionLoss:
    if lacked.first_offset is None:
        return replace(loss, certainty=Certainty.UNKNOWN, records=None, lacked_records=None)
    if not lacked.offsets:
        return loss
    has_end = loss.offsets or loss.unclear_offsets or loss.open_offsets or loss.certainty is Certainty.UNKNOWN
    is_known = loss.records is not None and lacked.records is not None
    firsts = [at for at in (loss.first_offset, lacked.first_offset) if at is not None]
    return replace(
        loss,
        offsets=(loss.offsets or 0) + lacked.offsets,
        records=(loss.records or 0) + (lacked.records or 0) if is_known else None,
        first_offset=min(firsts),
        end_offset=loss.end_offset if has_end else lacked.end_offset,
        first_timestamp_ms=None,
        lacked_offsets=lacked.offsets,
        lacked_records=lacked.records,
    )
