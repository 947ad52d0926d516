"""What a start learns by reading batches' headers once more: the producers, and which transactions were aborted."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from broker.log import layout
from broker.log.disk import Disk
from broker.log.epochs import LeaderEpochs
from broker.log.producers import AbortedTransaction, ProducerState, ProducerStates
from broker.log.segment import Segment
from broker.log.snapshots import decode_snapshot
from broker.wire.batch import BatchHeader


def replay(
    directory: Path,
    disk: Disk,
    segments: Sequence[Segment],
    unindexed: Sequence[Segment],
    epochs: LeaderEpochs,
    checked_from: int,
    now_ms: int,
) -> ProducerStates:
    """The producers at the log end. Segments in `unindexed` get their aborted transactions noted again, `epochs` what
    it lacks. Raises OSError, CorruptBatch.
    """
    remove_snapshots_after(directory, disk, segments[-1].next_offset)
    producers, offset = _snapshot_before(directory, disk, checked_from)
    if unindexed and unindexed[0].base_offset < offset:
        # The snapshot that tells of the producers is too new to tell which transactions of these were aborted.
        earlier, earlier_offset = _snapshot_before(directory, disk, unindexed[0].base_offset)
        for segment, _, aborted in _applied(segments, earlier, earlier_offset, offset, now_ms):
            if aborted is not None and segment in unindexed:
                segment.aborted.append(aborted)
    for segment, header, aborted in _applied(segments, producers, offset, segments[-1].next_offset, now_ms):
        epochs.assign(header.partition_leader_epoch, header.base_offset)
        if aborted is not None and segment in unindexed:
            segment.aborted.append(aborted)
    return producers


def _applied(
    segments: Sequence[Segment], producers: ProducerStates, start: int, end: int, now_ms: int
) -> Iterator[tuple[Segment, BatchHeader, AbortedTransaction | None]]:
    """Applies every batch that begins in [start, end) to `producers`, and gives it with what it aborted."""
    for segment in segments:
        if segment.next_offset <= start:
            continue
        for position, header in segment.headers(segment.position_of(start)):
            if header.base_offset >= end:
                return
            yield segment, header, producers.apply(header, partial(segment.batch_at, position), now_ms)


def producers_at(
    directory: Path, disk: Disk, segments: Sequence[Segment], end: int, trusted_end: int, now_ms: int
) -> ProducerStates:
    """The producers where only what is before `end`, the start of a batch, had been written; of the snapshots those up
    to `trusted_end` may be used. Raises OSError, CorruptBatch, LogDamaged.
    """
    producers, offset = _snapshot_before(directory, disk, trusted_end)
    for _ in _applied(segments, producers, offset, end, now_ms):
        pass
    producers.expire(now_ms)
    return producers


def remove_snapshots_after(directory: Path, disk: Disk, log_end_offset: int) -> None:
    """They tell of batches that are in the log no more."""
    for offset in layout.offsets_of(directory, layout.SNAPSHOT):
        if offset > log_end_offset:
            disk.unlink(layout.file_at(directory, offset, layout.SNAPSHOT))


def _snapshot_before(directory: Path, disk: Disk, offset: int) -> tuple[ProducerStates, int]:
    """The newest usable snapshot at or before `offset`, and its offset; no producers at offset 0 when there is none."""
    for at in reversed(layout.offsets_of(directory, layout.SNAPSHOT)):
        if at > offset:
            continue
        path = layout.file_at(directory, at, layout.SNAPSHOT)
        states: list[ProducerState]
        try:
            states = decode_snapshot(disk.read_file(path))
        except ValueError:
            # Torn by a power cut: the one before it and more of the log say the same.
            disk.unlink(path)
            continue
        return ProducerStates(states), at
    return ProducerStates(), 0
