"""Opening a log: after a clean close its files are trusted, after a crash the tail is read again and a torn end is
cut off.

- Segments below the recovery point were made durable; their index files are trusted. From the recovery point on every
  batch's length, CRC, offset and leader epoch are checked (recovery.py); the log ends before the first that is wrong,
  as in Kafka. What follows is kept under another name.
- A segment that is empty, missing or misnumbered ends the log there wherever it lies: readers would pass over the hole.
- A batch below the recovery point whose bytes are wrong is not the work of a crash: LogDamaged is raised, nothing is
  touched.
- Producers: the newest usable snapshot, then the headers from its offset on.
- Aborted transactions: where a segment's index does not vouch for itself, the headers from the newest usable snapshot
  before it on. Only then is a recovered segment sealed: what is on the disk as its index is believed at later starts.
"""

import logging
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
from broker.log.recovery import Bounds, Damage, copy_tail, scan, set_aside
from broker.log.replay import replay
from broker.log.segment import Segment

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OpenedLog:
    """What the files of a partition say. `segments` has at least one; the last is the one to append to."""

    segments: list[Segment]
    producers: ProducerStates
    epochs: LeaderEpochs
    log_start_offset: int
    first_dirty_offset: int
    recovery_point: int


@dataclass(slots=True)
class _Segments:
    """`unindexed`: whose aborted transactions are not known; `checked_from`: the base offset of the first that was
    checked batch by batch, because its end was not known.
    """

    segments: list[Segment]
    unindexed: list[Segment]
    checked_from: int


def open_log(directory: Path, config: LogConfig, disk: Disk, now_ms: int) -> OpenedLog:
    """Raises OSError, and LogDamaged for files that no crash explains."""
    if not directory.is_dir():
        directory.mkdir(parents=True)
    if not layout.holds_a_log(directory):
        return OpenedLog([Segment(directory, 0, disk)], ProducerStates(), LeaderEpochs(), 0, 0, 0)
    finish_swaps(directory, disk)
    clean = _take_clean_marker(directory, disk)
    log_start_offset = read_offset(directory / layout.LOG_START, disk)
    recovery_point = read_offset(directory / layout.RECOVERY_POINT, disk)
    epochs, complete = _read_epochs(directory, disk)
    # Where a compaction ran once, records may be missing between any two batches before the segment that is written;
    # where it ran at the leader, in that segment too.
    compacted = config.compacted or any((directory / name).exists() for name in (layout.CLEANER, layout.GAPS))
    gaps_before = (
        max(read_offset(directory / name, disk) for name in (layout.CLEANER, layout.GAPS)) if compacted else None
    )
    read = _open_segments(
        *(directory, config, disk, None if clean else recovery_point), gaps_before, epochs if complete else None
    )
    segments, unindexed = read.segments, read.unindexed
    if not segments or segments[-1].next_offset < log_start_offset:
        # Empty, or what is left ends before the log start, which was told to clients: offsets must not go back.
        for segment in segments:
            segment.delete()
        segments, unindexed = [Segment(directory, log_start_offset, disk)], []
    log_end_offset = segments[-1].next_offset
    if not complete:
        _replay_epochs(segments, epochs)
    producers = replay(directory, disk, segments, unindexed, epochs, min(read.checked_from, log_end_offset), now_ms)
    for segment in segments[:-1]:
        if not segment.durable:
            segment.seal()
        elif segment in unindexed:
            segment.save_aborted()
    producers.expire(now_ms)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if epochs.truncate_from_end(log_end_offset):
        disk.write_file(directory / layout.LEADER_EPOCHS, epochs.text(), durable=False)
    epochs.truncate_from_start(log_start_offset)
    forget_cleaned_from(directory, disk, log_end_offset)
    first_dirty = read_offset(directory / layout.CLEANER, disk)
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


def forget_cleaned_from(directory: Path, disk: Disk, end_offset: int) -> None:
    """What is written behind the end of a log that was cut has not been compacted: its tombstones would go too early.
    Raises OSError.
    """
    if read_offset(directory / layout.CLEANER, disk) > end_offset:
        write_offset(directory / layout.CLEANER, disk, end_offset, durable=True)


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
    directory: Path,
    config: LogConfig,
    disk: Disk,
    recovery_point: int | None,
    gaps_before: int | None,
    epochs: LeaderEpochs | None,
) -> _Segments:
    """The segments of the good prefix. `recovery_point` None: trust all; `epochs` None: not known. Gaps may be in all
    but the last segment, and in that where it begins before `gaps_before`; None: nowhere. Raises OSError, LogDamaged.
    """
    bases = layout.offsets_of(directory, layout.LOG)
    read = _Segments([], [], 2**63 - 1)
    for number, base_offset in enumerate(bases):
        segment = Segment(directory, base_offset, disk)
        read.segments.append(segment)
        next_base_offset = bases[number + 1] if number + 1 < len(bases) else None
        gaps = gaps_before is not None and (next_base_offset is not None or base_offset < gaps_before)
        bounds = Bounds(gaps, next_base_offset, epochs)
        trusted = recovery_point is None or (next_base_offset is not None and next_base_offset <= recovery_point)
        if trusted and _load_indexes(segment, disk, bounds):
            segment.mark_durable()
            if not _load_aborted(segment, disk):
                read.unindexed.append(segment)
            continue
        read.unindexed.append(segment)
        file_bytes = segment.size_bytes
        damage = scan(segment, config.index_interval_bytes, bounds)
        if trusted and damage is not None and not damage.misplaced:
            raise LogDamaged(f"{segment.path(layout.LOG)} is damaged at byte {segment.size_bytes}: {damage.value}")
        if not trusted or damage is not None:
            read.checked_from = min(read.checked_from, base_offset)
        if damage is not None:
            _end_log_at(segment, file_bytes, damage, bases[number + 1 :], disk)
            break
    return read


def _end_log_at(segment: Segment, file_bytes: int, damage: Damage, later: list[int], disk: Disk) -> None:
    """Makes the log end where the good part of `segment` ends. A torn end goes, as every crash may leave one; what else
    is cut off is kept under another name, and the log says so.
    """
    path, cut_bytes = segment.path(layout.LOG), file_bytes - segment.size_bytes
    if later or damage is not Damage.TORN:
        log.warning(
            "%s: %s, at byte %d; the log now ends at offset %d, %d bytes and %d segments behind it are kept as *%s",
            *(path, damage.value, segment.size_bytes, segment.next_offset, cut_bytes, len(later), layout.DAMAGED),
        )
        if cut_bytes:
            copy_tail(segment, file_bytes, disk)
    set_aside(segment.directory, disk, later)
    segment.cut()


def _load_indexes(segment: Segment, disk: Disk, bounds: Bounds) -> bool:
    """Takes the index files and walks from the last entry to the end; False when they are missing or wrong, or when the
    segment does not fit to what lies around it.
    """
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
        return file_bytes == 0 and not bounds.leaves_hole(segment.base_offset)
    position, last = tail[0]
    if position + last.size_bytes != file_bytes or bounds.rules_out(last) or bounds.leaves_hole(last.next_offset):
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
