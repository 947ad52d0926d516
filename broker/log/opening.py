"""Opening a log: after a clean close its files are trusted, after a crash the tail is read again and a torn end is
cut off.

- Segments below the recovery point were made durable; their index files are trusted. From the recovery point on every
  batch's length, CRC and offset are checked; the log ends before the first that is wrong, and later segments are
  removed, as in Kafka.
- A damaged batch below the recovery point is not the work of a crash: LogDamaged is raised, nothing is removed.
- Producers: the newest usable snapshot, then the headers from its offset on.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from broker.errors import LogDamaged
from broker.log import layout
from broker.log.compaction import finish_swaps
from broker.log.config import LogConfig
from broker.log.disk import Disk
from broker.log.epochs import LeaderEpochs
from broker.log.indexes import OffsetIndex, TimeIndex, decode_aborted
from broker.log.producers import AbortedTransaction, ProducerState, ProducerStates
from broker.log.segment import Segment
from broker.log.snapshots import decode_snapshot
from broker.wire.batch import peek, verify_crc
from broker.wire.errors import CorruptBatch


@dataclass(slots=True)
class OpenedLog:
    """What the files of a partition say. `segments` has at least one; the last is the one to append to."""

    segments: list[Segment]
    producers: ProducerStates
    epochs: LeaderEpochs
    log_start_offset: int
    first_dirty_offset: int
    recovery_point: int


def open_log(directory: Path, config: LogConfig, disk: Disk, now_ms: int) -> OpenedLog:
    """Raises OSError, and LogDamaged for files that no crash explains."""
    directory.mkdir(parents=True, exist_ok=True)
    finish_swaps(directory, disk)
    clean = _take_clean_marker(directory, disk)
    log_start_offset = read_offset(directory / layout.LOG_START, disk)
    recovery_point = read_offset(directory / layout.RECOVERY_POINT, disk)
    segments, checked_from = _open_segments(directory, config, disk, None if clean else recovery_point)
    if not segments or segments[-1].next_offset < log_start_offset:
        # Empty, or what is left ends before the log start, which was told to clients: offsets must not go back.
        for segment in segments:
            segment.delete()
        segments = [Segment(directory, log_start_offset, disk)]
    log_end_offset = segments[-1].next_offset
    epochs, complete = _read_epochs(directory, disk)
    if not complete:
        _replay_epochs(segments, epochs)
    producers = load_producers(directory, disk, segments, epochs, min(checked_from, log_end_offset), now_ms)
    producers.expire(now_ms)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    first_dirty = min(read_offset(directory / layout.CLEANER, disk), log_end_offset)
    return OpenedLog(segments, producers, epochs, log_start_offset, first_dirty, recovery_point)


def read_offset(path: Path, disk: Disk) -> int:
    """The offset that a checkpoint file holds; 0, the safe answer for all of them, when it is missing or was torn by
    a power cut.
    """
    try:
        return max(0, int(disk.read_file(path)))
    except (FileNotFoundError, ValueError):
        return 0


def write_offset(path: Path, disk: Disk, offset: int, *, durable: bool) -> None:
    disk.write_file(path, b"%d\n" % offset, durable=durable)


def clean_marker(segment: Segment) -> bytes:
    """What a clean close leaves: a marker that names another end (a power cut brought it back) is not believed."""
    return b"%d %d\n" % (segment.base_offset, segment.size_bytes)


def _take_clean_marker(directory: Path, disk: Disk) -> bool:
    path = directory / layout.CLEAN_SHUTDOWN
    try:
        said = disk.read_file(path)
    except FileNotFoundError:
        return False
    disk.unlink(path)
    bases = layout.offsets_of(directory, layout.LOG)
    return bool(bases) and said == b"%d %d\n" % (
        bases[-1],
        layout.file_at(directory, bases[-1], layout.LOG).stat().st_size,
    )


def _open_segments(
    directory: Path, config: LogConfig, disk: Disk, recovery_point: int | None
) -> tuple[list[Segment], int]:
    """All segments, and the base offset of the first that was checked batch by batch. `recovery_point` None: trust
    all.
    """
    bases = layout.offsets_of(directory, layout.LOG)
    segments: list[Segment] = []
    checked_from = 2**63 - 1
    for number, base_offset in enumerate(bases):
        segment = Segment(directory, base_offset, disk)
        segments.append(segment)
        is_last = number == len(bases) - 1
        trusted = recovery_point is None or (not is_last and bases[number + 1] <= recovery_point)
        if trusted and _load_indexes(segment, disk):
            segment.mark_durable()
            continue
        whole = scan(segment, config)
        if trusted:
            if not whole:
                raise LogDamaged(f"{segment.path(layout.LOG)} is damaged at byte {segment.size_bytes}")
            segment.aborted = _read_aborted(segment, disk)
        else:
            checked_from = min(checked_from, base_offset)
        if not whole:
            segment.cut(segment.size_bytes)
            _remove_segments(directory, disk, bases[number + 1 :])
            break
        if not is_last:
            segment.seal()
    return segments, checked_from


def scan(segment: Segment, config: LogConfig) -> bool:
    """Reads and checks every batch and builds the indexes; False when the file holds more than the good batches
    found.
    """
    file_bytes = segment.size_bytes
    segment.forget()
    for position, batch in segment.batches(0, file_bytes):
        try:
            header = peek(batch)
            verify_crc(batch)
        except CorruptBatch:
            break
        if header.base_offset < segment.next_offset or header.last_offset_delta < 0:
            break
        segment.note(header, position, config.index_interval_bytes)
    return segment.size_bytes == file_bytes


def _load_indexes(segment: Segment, disk: Disk) -> bool:
    """Takes the index files and walks from the last entry to the end; False when they are missing or wrong."""
    file_bytes = segment.size_bytes
    try:
        offset_index = OffsetIndex.decode(
            segment.base_offset, disk.read_file(segment.path(layout.OFFSET_INDEX)), file_bytes
        )
        time_index = TimeIndex.decode(segment.base_offset, disk.read_file(segment.path(layout.TIME_INDEX)))
        aborted = _read_aborted(segment, disk)
        first = next(segment.headers(), None)
        # The few batches after the last indexed one; only the last of them is of interest.
        tail = deque(segment.headers(offset_index.last_position), maxlen=1)
    except (FileNotFoundError, ValueError, LogDamaged):
        return False
    if first is None or not tail:
        return file_bytes == 0
    position, last = tail[0]
    if position + last.size_bytes != file_bytes:
        return False
    segment.restore(offset_index, time_index, aborted, next_offset=last.next_offset, first=first[1])
    return True


def _read_aborted(segment: Segment, disk: Disk) -> list[AbortedTransaction]:
    try:
        return decode_aborted(disk.read_file(segment.path(layout.TXN_INDEX)))
    except FileNotFoundError:
        return []


def _remove_segments(directory: Path, disk: Disk, bases: list[int]) -> None:
    for base_offset in bases:
        for suffix in (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.TXN_INDEX, layout.LOG):
            disk.unlink(layout.file_at(directory, base_offset, suffix))


def _read_epochs(directory: Path, disk: Disk) -> tuple[LeaderEpochs, bool]:
    """The checkpoint, and whether it is one: where not, the batches say the epochs."""
    try:
        return LeaderEpochs.parse(disk.read_file(directory / layout.LEADER_EPOCHS)), True
    except (FileNotFoundError, ValueError, IndexError):
        return LeaderEpochs(), False


def _replay_epochs(segments: list[Segment], epochs: LeaderEpochs) -> None:
    for segment in segments:
        for _, header in segment.headers():
            epochs.assign(header.partition_leader_epoch, header.base_offset)


def load_producers(
    directory: Path, disk: Disk, segments: list[Segment], epochs: LeaderEpochs, checked_from: int, now_ms: int
) -> ProducerStates:
    """The producers at the log end. Segments from `checked_from` on get their aborted transactions noted again."""
    states, offset = _read_snapshot(directory, disk, checked_from, segments[-1].next_offset)
    producers = ProducerStates(states)
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        for position, header in segment.headers(segment.position_of(offset)):
            epochs.assign(header.partition_leader_epoch, header.base_offset)
            aborted = producers.apply(header, partial(segment.batch_at, position), now_ms)
            if aborted is not None and header.base_offset >= checked_from:
                segment.aborted.append(aborted)
    return producers


def _read_snapshot(
    directory: Path, disk: Disk, checked_from: int, log_end_offset: int
) -> tuple[list[ProducerState], int]:
    """The newest usable snapshot at or before `checked_from`, and its offset; no state at offset 0 when there is none.

    Snapshots after the log end tell of batches that a crash took away: they go.
    """
    for offset in reversed(layout.offsets_of(directory, layout.SNAPSHOT)):
        path = layout.file_at(directory, offset, layout.SNAPSHOT)
        if offset > log_end_offset:
            disk.unlink(path)
        elif offset <= checked_from:
            try:
                return decode_snapshot(disk.read_file(path)), offset
            except ValueError:
                # Torn by a power cut: the one before it and more of the log say the same.
                disk.unlink(path)
    return [], 0
