"""The files of one partition as a whole: rolling, checkpoints, flushing, truncating, closing, deleting.

`PartitionLog` decides; this does. Every method raises OSError where the disk fails: the log is then as it was, or
Unfinished, and it has ended.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.limits import PRODUCER_SNAPSHOTS_KEPT
from broker.log import layout
from broker.log.config import LogConfig
from broker.log.disk import CLOSED_DISK, Disk
from broker.log.epochs import LeaderEpochs
from broker.log.guard import Unfinished, all_of_it
from broker.log.opening import clean_marker, forget_cleaned_from, open_log, read_offset, write_offset
from broker.log.producers import ProducerStates
from broker.log.replay import producers_at, remove_snapshots_after
from broker.log.retention import SegmentFacts
from broker.log.segment import Segment
from broker.log.snapshots import encode_snapshot


class LogStore:
    """`segments` is never empty; the last one is appended to. Offsets and positions as everywhere in the log."""

    def __init__(self, directory: Path, config: LogConfig, disk: Disk, now_ms: int) -> None:
        """Opens or creates the log (opening.py). Raises LogDamaged for files that no crash explains."""
        self.directory = directory
        self.disk = self._folders_disk = disk
        self.closed = False
        self._epochs_saved = True
        opened = open_log(directory, config, disk, now_ms)
        self.segments = opened.segments
        self.producers = opened.producers
        self.epochs = opened.epochs
        self.log_start_offset = opened.log_start_offset
        self.first_dirty_offset = opened.first_dirty_offset
        self._recovery_point = opened.recovery_point
        self._gaps_before = read_offset(self.directory / layout.GAPS, self.disk)
        self.save_recovery_point()

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].next_offset

    def segment_at(self, offset: int) -> int:
        """Which segment holds `offset`: the last that begins at or before it."""
        if offset >= self.segments[-1].base_offset:
            return len(self.segments) - 1
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def facts(self) -> list[SegmentFacts]:
        # A segment reaches to the next one, also where compaction took its last records, or all of them.
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.log_end_offset]
        return [
            SegmentFacts(end_offset, segment.size_bytes, self._largest_timestamp_ms(segment))
            for end_offset, segment in zip(ends, self.segments, strict=True)
        ]

    def roll(self) -> Segment:
        """Opens a new segment at the log end. Where that fails the log goes on in the old one; where what is before it
        did not get to the disk, or the recovery point cannot be moved, the new one is there all the same.
        """
        self.segments[-1].seal()
        self._write_snapshot()
        try:
            segment = Segment(self.directory, self.log_end_offset, self.disk)
        except OSError:
            # Its file may be there: a start would end the log where it begins, whatever the old segment has behind it.
            with self._all_of_it():
                self.disk.unlink(layout.file_at(self.directory, self.log_end_offset, layout.LOG))
            raise
        self.segments.append(segment)
        self.save_recovery_point()
        return segment

    def lead(self, leader_epoch: int) -> None:
        """Notes from where on an epoch leads. An empty log keeps that to itself until its first batch: a start of
        thousands of empty partitions then writes nothing.
        """
        if self.log_end_offset > 0:
            self.begin_epoch(leader_epoch)
        elif self.epochs.assign(leader_epoch, 0):
            self._epochs_saved = False

    def begin_epoch(self, leader_epoch: int, start_offset: int | None = None) -> None:
        """Notes, before any batch of it, from where on an epoch writes (None: the log end); older ones are no news.

        Not waited for: every broker start does this for every partition, and batches tell what a torn file does not.
        """
        if self._epochs_saved and leader_epoch <= self.epochs.latest:
            return
        known = LeaderEpochs(list(self.epochs.entries))
        known.assign(leader_epoch, self.log_end_offset if start_offset is None else start_offset)
        self.disk.write_file(self.directory / layout.LEADER_EPOCHS, known.text(), durable=False)
        self.epochs = known
        self._epochs_saved = True

    def note_gaps(self, segment: Segment) -> None:
        """Before the first gap is written to the newest segment, or one with gaps becomes the newest."""
        base_offset = segment.base_offset
        if base_offset >= self._gaps_before:
            write_offset(self.directory / layout.GAPS, self.disk, base_offset + 1, durable=True)
            self._gaps_before = base_offset + 1

    def advance_log_start(self, offset: int, *, durable: bool) -> None:
        write_offset(self.directory / layout.LOG_START, self.disk, offset, durable=durable)
        self.log_start_offset = offset
        self._start_moved()

    def delete_oldest(self, count: int) -> None:
        """Oldest first: a crash in between leaves a log that only starts later."""
        try:
            for segment in self.segments[:count]:
                segment.delete()
                del self.segments[0]
        finally:
            self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self._start_moved()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Removes every batch that reaches `offset` or beyond, newest segment first. Where nothing from the log start
        on is left, the log goes on empty there.
        """
        keep = self.segment_at(offset)
        cut = self.segments[keep]
        last = cut.shortened(cut.position_of(offset))
        has_none = last.next_offset < self.log_start_offset
        end_offset = self.log_start_offset if has_none else last.next_offset
        producers = self._producers_at(keep, last, now_ms)
        # What is cut is no longer to be trusted, should a crash come before the end of this.
        self._lower_recovery_point(cut.base_offset)
        if cut is not self.segments[-1] and (self.directory / layout.CLEANER).exists():
            self.note_gaps(cut)
        forget_cleaned_from(self.directory, self.disk, end_offset)
        remove_snapshots_after(self.directory, self.disk, last.next_offset)
        self.forget_epochs_from(end_offset)
        with self._all_of_it():
            for segment in reversed(self.segments if has_none else self.segments[keep + 1 :]):
                segment.delete()
            if has_none:
                last.close()
                last = Segment(self.directory, end_offset, self.disk)
            else:
                last.cut()
        cut.close()
        self.segments = [last] if has_none else [*self.segments[:keep], last]
        self.producers = producers
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)

    def _producers_at(self, keep: int, last: Segment, now_ms: int) -> ProducerStates:
        """What is known of producers when `last` takes the place of the segment `keep`, and is the last one."""
        behind = (
            header
            for segment in self.segments[keep:]
            for _, header in segment.headers(last.size_bytes if segment.base_offset == last.base_offset else 0)
        )
        if all(header.producer_id < 0 for header in behind):
            return self.producers
        # As at a start: a snapshot of what was never made durable may be of another log, which a power cut took.
        trusted_end = min(max(self._recovery_point, self.segments[0].base_offset), last.base_offset)
        return producers_at(self.directory, self.disk, self.segments, last.next_offset, trusted_end, now_ms)

    def forget_epochs_from(self, offset: int) -> None:
        """Epochs that begin at or after `offset`, the log end, wrote nothing: as if they had not been."""
        known = LeaderEpochs(list(self.epochs.entries))
        if known.truncate_from_end(offset):
            if self._epochs_saved:
                self.disk.write_file(self.directory / layout.LEADER_EPOCHS, known.text(), durable=False)
            self.epochs = known

    def start_anew(self, offset: int) -> None:
        """Removes all there is, and begins an empty log at `offset`.

        Newest first, so that a crash leaves a prefix, or an empty log at the old start or at the new one. Snapshots
        before it all: none may tell of producers of a log that is gone.
        """
        self._lower_recovery_point(0)
        with self._all_of_it():
            remove_snapshots_after(self.directory, self.disk, -1)
            for segment in reversed(self.segments):
                segment.delete()
            for name in (layout.LEADER_EPOCHS, layout.CLEANER, layout.GAPS):
                self.disk.unlink(self.directory / name)
            write_offset(self.directory / layout.LOG_START, self.disk, offset, durable=True)
            self.segments = [Segment(self.directory, offset, self.disk)]
        self.producers, self.epochs = ProducerStates(), LeaderEpochs()
        self._epochs_saved = True
        self.log_start_offset, self.first_dirty_offset, self._gaps_before = offset, 0, 0

    def _lower_recovery_point(self, offset: int) -> None:
        if offset < self._recovery_point:
            write_offset(self.directory / layout.RECOVERY_POINT, self.disk, offset, durable=True)
            self._recovery_point = offset

    @contextmanager
    def _all_of_it(self) -> Iterator[None]:
        """As `all_of_it`; the files are let go of then."""
        try:
            with all_of_it():
                yield
        except Unfinished:
            self.release()
            raise

    def save_recovery_point(self) -> None:
        """Moves the recovery point to the first segment that is not known to be on the disk; old snapshots go."""
        sealed = (segment for segment in self.segments[:-1] if not segment.durable)
        first = next(sealed, self.segments[-1]).base_offset
        if first == self._recovery_point:
            return
        write_offset(self.directory / layout.RECOVERY_POINT, self.disk, first, durable=False)
        self._recovery_point = first
        # Recovery needs the newest snapshot at or before the recovery point; one more in case a power cut tore it.
        older = [o for o in layout.offsets_of(self.directory, layout.SNAPSHOT) if o <= first]
        for offset in older[:-PRODUCER_SNAPSHOTS_KEPT]:
            self.disk.unlink(layout.file_at(self.directory, offset, layout.SNAPSHOT))

    def save_first_dirty(self, offset: int) -> None:
        write_offset(self.directory / layout.CLEANER, self.disk, offset, durable=False)
        self.first_dirty_offset = offset

    def flush(self) -> None:
        """Waits until everything appended so far is on the disk."""
        for segment in self.segments:
            segment.flush()
        self.save_recovery_point()

    def close(self) -> None:
        """Flushes, and leaves word that the files can be trusted. Closing again does nothing."""
        if self.closed:
            return
        self.flush()
        self._write_snapshot()
        self.disk.write_file(self.directory / layout.CLEAN_SHUTDOWN, clean_marker(self.segments[-1]), durable=False)
        self.release()

    def retire(self) -> Path:
        """Takes the directory's name away, so that half of it is never opened as a log again: what is to be removed."""
        self.release()
        return layout.retire(self.directory, self._folders_disk)

    def release(self) -> None:
        """Lets go of the files as they are, as a kill would: the next start looks at them again."""
        if not self.closed:
            self.closed = True
            self.disk = CLOSED_DISK
            for segment in self.segments:
                segment.close()

    def _write_snapshot(self) -> None:
        path = layout.file_at(self.directory, self.log_end_offset, layout.SNAPSHOT)
        self.disk.write_file(path, encode_snapshot(self.producers), durable=False)

    def _start_moved(self) -> None:
        self.first_dirty_offset = max(self.first_dirty_offset, self.segments[0].base_offset)
        if self.epochs.truncate_from_start(self.log_start_offset):
            self.disk.write_file(self.directory / layout.LEADER_EPOCHS, self.epochs.text(), durable=False)

    def _largest_timestamp_ms(self, segment: Segment) -> int:
        if segment.max_timestamp_ms >= 0:
            return segment.max_timestamp_ms
        return self.disk.modified_ms(segment.path(layout.LOG))


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
