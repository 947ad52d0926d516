"""Opening a log: after a clean close its files are trusted, after a crash the tail is read again and a torn end is
cut off.

- Segments below the recovery point were made durable; their index files are trusted. From the recovery point on every
  batch's length, CRC and offset are checked; the log ends before the first that is wrong, and later segments are
  removed, as in Kafka.
- A damaged batch below the recovery point is not the work of a crash: LogDamaged is raised, nothing is removed.
- Producers: the newest usable snapshot, then the headers from its offset on.
- Aborted transactions: where a segment's index does not vouch for itself, the headers from the newest usable snapshot
  before it on. Only then is a recovered segment sealed: what is on the disk as its index is believed at later starts.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from broker.errors import LogDamaged
from broker.log import layout
from broker.log.compaction import finish_swaps
from broker.log.config import LogConfig
from broker.log.disk import Disk
from broker.log.epochs import LeaderEpochs
from broker.log.indexes import OffsetIndex, TimeIndex, decode_aborted
from broker.log.producers import ProducerStates
from broker.log.replay import replay
from broker.log.segment import Segment
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
    segments, unindexed, checked_from = _open_segments(directory, config, disk, None if clean else recovery_point)
    if not segments or segments[-1].next_offset < log_start_offset:
        # Empty, or what is left ends before the log start, which was told to clients: offsets must not go back.
        for segment in segments:
            segment.delete()
        segments, unindexed = [Segment(directory, log_start_offset, disk)], []
    log_end_offset = segments[-1].next_offset
    epochs, complete = _read_epochs(directory, disk)
    if not complete:
        _replay_epochs(segments, epochs)
    producers = replay(directory, disk, segments, unindexed, epochs, min(checked_from, log_end_offset), now_ms)
    for segment in segments[:-1]:
        if not segment.durable:
            segment.seal()
        elif segment in unindexed:
            segment.save_aborted()
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
) -> tuple[list[Segment], list[Segment], int]:
    """All segments; those whose aborted transactions are not known; and the base offset of the first that was checked
    batch by batch. `recovery_point` None: trust all.
    """
    bases = layout.offsets_of(directory, layout.LOG)
    segments: list[Segment] = []
    unindexed: list[Segment] = []
    checked_from = 2**63 - 1
    for number, base_offset in enumerate(bases):
        segment = Segment(directory, base_offset, disk)
        segments.append(segment)
        is_last = number == len(bases) - 1
        trusted = recovery_point is None or (not is_last and bases[number + 1] <= recovery_point)
        if trusted and _load_indexes(segment, disk):
            segment.mark_durable()
            if not _load_aborted(segment, disk):
                unindexed.append(segment)
            continue
        unindexed.append(segment)
        whole = scan(segment, config)
        if trusted:
            if not whole:
                raise LogDamaged(f"{segment.path(layout.LOG)} is damaged at byte {segment.size_bytes}")
        else:
            checked_from = min(checked_from, base_offset)
        if not whole:
            segment.cut(segment.size_bytes)
            _remove_segments(directory, disk, bases[number + 1 :])
            break
    return segments, unindexed, checked_from


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
    segment.restore(offset_index, time_index, next_offset=last.next_offset, first=first[1])
    return True


def _load_aborted(segment: Segment, disk: Disk) -> bool:
    """Takes the index of aborted transactions; False when it is missing or does not vouch for itself."""
    try:
        segment.aborted = decode_aborted(disk.read_file(segment.path(layout.TXN_INDEX)), segment.size_bytes)
    except (FileNotFoundError, ValueError):
        return False
    return True


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
