"""The log of one partition: append, read, look up, mark, retain, compact.

One thread, one writer: no method waits for anything but the disk, and none may be called from two threads (only
`CompactionJob.run` may run elsewhere). Appends go to the page cache, as in Kafka: killing the process loses nothing;
full segments are made durable in the background, `flush` and `close` wait for it.

Invariants: what `append` returned is in the file whole; offsets never go back, not even when every segment was
deleted; a failed append leaves no trace.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from broker.base.clock import Clock
from broker.errors import CorruptRecords, LogStorageError, OffsetOutOfRange, OutOfOrderSequence
from broker.log import compaction
from broker.log.compaction import CompactionJob
from broker.log.config import UNLIMITED, LogConfig
from broker.log.disk import OS_DISK, Disk
from broker.log.producers import ProducedBatch
from broker.log.readable import ReadableLog
from broker.log.replicated import checked_batches, runs, write_run
from broker.log.results import AppendResult
from broker.log.retention import is_full, segments_to_delete, unsegmented
from broker.log.segment import Segment
from broker.log.store import LogStore
from broker.log.stored import holds_other_records
from broker.log.validation import AppendOrigin, check_batch
from broker.wire.batch import BatchHeader, patch_base_offset, patch_leader_epoch, patch_log_append_time, peek
from broker.wire.buffers import Buffer
from broker.wire.records import Control, ControlKind, OpeningLimits, control_batch

__all__ = ["AppendOrigin", "PartitionLog"]

NO_TIME_MS = -1


class PartitionLog(ReadableLog):
    def __init__(self, store: LogStore, config: LogConfig, clock: Clock) -> None:
        """Use `open`."""
        super().__init__(store, config)
        # Called after every append and every marker, to wake fetches that wait for data.
        self.append_listeners: list[Callable[[], None]] = []
        self._clock = clock
        # Producers with a batch that the disk refused: they are to send it again.
        self._owing: set[int] = set()

    @classmethod
    def open(cls, directory: Path, config: LogConfig, clock: Clock, disk: Disk = OS_DISK) -> "PartitionLog":
        """Creates the log or recovers it (opening.py). Raises LogStorageError, and LogDamaged for files no crash
        explains.
        """
        try:
            store = LogStore(directory, config, disk, clock.now_ms())
        except OSError as error:
            raise LogStorageError(f"cannot open {directory}: {error}") from error
        return cls(store, config, clock)

    def update_config(self, config: LogConfig) -> None:
        """Holds from the next append, retention or compaction on."""
        self._config = config

    # -- appending -----------------------------------------------------------------------------------------------

    def check(self, batch: memoryview, limits: OpeningLimits) -> BatchHeader:
        """What `append` checks of a client's batch beside its producer; may run in a thread. Raises RecordsRefused (and
        its kinds), BatchBeyondLimits.
        """
        return check_batch(batch, self._config, AppendOrigin.CLIENT, self._clock.now_ms(), limits)

    def append(
        self,
        records: memoryview | bytearray,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked: BatchHeader | None = None,
    ) -> AppendResult:
        """Appends the one batch that `records` is, as it came: base offset and leader epoch are patched in place.

        The buffer must be writable and is the log's during the call. `checked` is what `check` found in it. Raises
        RecordsRefused and ProducerRefused (and their kinds) with nothing written, BatchBeyondLimits, and
        LogStorageError when the disk failed, with what it took cut off again.
        """
        batch = memoryview(records)
        now_ms = self._clock.now_ms()
        header = checked or check_batch(batch, self._config, origin, now_ms)
        if header.producer_id >= 0 and not header.is_control:
            if origin is AppendOrigin.CLIENT and (seen := self._store.producers.duplicate_of(header)) is not None:
                self._check_repeat(batch, header, seen)
                time_ms = seen.timestamp_ms if self._config.log_append_time else NO_TIME_MS
                return AppendResult(seen.first_offset, time_ms, self.log_start_offset, seen.last_offset, duplicate=True)
            self._check_sequence(header)
        log_append_time_ms = NO_TIME_MS
        if self._config.log_append_time and not header.is_control:
            patch_log_append_time(batch, now_ms)
            log_append_time_ms = now_ms
        header = self._write(batch, leader_epoch)
        return AppendResult(
            header.base_offset, log_append_time_ms, self.log_start_offset, header.last_offset, duplicate=False
        )

    def _check_repeat(self, batch: Buffer, header: BatchHeader, seen: ProducedBatch) -> None:
        """Raises OutOfOrderSequence for other records under the sequence of some that are here, as far as the log can
        tell.

        Kafka takes them for a repeat, and acknowledges what it does not have. librdkafka sends such when a transaction
        was aborted before it knew what became of a batch. KafkaJS gives a batch that it repeats other times. What is
        sent anew after an abort is no repeat either, though it may be the same: it would end as aborted as the first.
        """
        if header.is_transactional and not self._store.producers.is_open(header.producer_id, seen.first_offset):
            raise OutOfOrderSequence(
                f"sequence {header.base_sequence} of producer {header.producer_id} is that of records at offset "
                f"{seen.first_offset}, whose transaction has ended"
            )
        if seen.first_offset < self.log_start_offset:
            return
        found = self.read(seen.first_offset, 0, up_to=seen.last_offset + 1, at_least_one=True).records
        is_there = bool(found) and peek(found[0]).base_offset == seen.first_offset  # compaction may have taken it
        if is_there and holds_other_records(found[0], batch):
            raise OutOfOrderSequence(
                f"sequence {header.base_sequence} of producer {header.producer_id} is that of other records, which are "
                f"at offset {seen.first_offset}"
            )

    def _check_sequence(self, header: BatchHeader) -> None:
        """Raises ProducerRefused; and LogStorageError, as of the batch before it, where that one was refused so."""
        try:
            self._store.producers.check_batch(header)
        except OutOfOrderSequence as error:
            if header.producer_id in self._owing:
                raise LogStorageError(f"the disk refused the batch before this one: {error}") from error
            raise
        self._owing.discard(header.producer_id)

    def write_marker(
        self, *, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, leader_epoch: int
    ) -> int:
        """Ends the producer's transaction here and raises its epoch, also where it never wrote: the offset of the
        marker.

        From then on batches of a lower epoch are refused. Raises ProducerRefused for an epoch that is itself behind,
        CoordinatorFenced for a coordinator that is, LogStorageError.
        """
        self._store.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        control = Control(ControlKind.COMMIT if commit else ControlKind.ABORT, coordinator_epoch)
        batch = control_batch(
            control.kind,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        return self._write(memoryview(batch), leader_epoch, control).base_offset

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Notes that this broker leads from the log end on, before anything is written in the epoch. Raises
        LogStorageError.
        """
        self._owing.clear()
        try:
            self._store.lead(leader_epoch)
        except OSError as error:
            raise self._guard.failed(error) from error

    def _write(self, batch: memoryview, leader_epoch: int, marker: Control | None = None) -> BatchHeader:
        """Puts the batch at the log end, then notes it; a failed write is as if it had not been asked for. `marker`:
        what it says, where it was just made.
        """
        # Epochs in a log never go down, also where the metadata was restored from an older copy.
        leader_epoch = max(leader_epoch, self.leader_epoch)
        patch_base_offset(batch, self.log_end_offset)
        patch_leader_epoch(batch, leader_epoch)
        header = peek(batch)
        try:
            segment = self._segment_for(header)
            self._store.begin_epoch(leader_epoch)
            segment.append(batch, header, self._config.index_interval_bytes)
        except OSError as error:
            if header.base_sequence >= 0:
                self._owing.add(header.producer_id)
            raise self._guard.failed(error) from error
        self._guard.written()
        if header.producer_id >= 0:
            producers, now_ms = self._store.producers, self._clock.now_ms()
            if marker is not None:
                aborted = producers.apply_marker(header, marker, now_ms)
            else:
                aborted = producers.apply(header, lambda: batch, now_ms)
            if aborted is not None:
                segment.aborted.append(aborted)
        for listener in self.append_listeners:
            listener()
        return header

    def append_as_follower(self, records: Buffer, *, leader_epoch: int) -> int:
        """Appends the batches that a leader gave, as they are, and leaves out what the log has already: the log end.

        Raises CorruptRecords with nothing written; LogStorageError when the disk failed, with what it took before kept.
        """
        batches = checked_batches(memoryview(records), leader_epoch=leader_epoch)
        batches = [batch for batch in batches if batch.header.next_offset > self.log_end_offset]
        if batches and not self._make_way(batches[0].header.base_offset):
            return self.log_end_offset
        if batches and batches[0].header.partition_leader_epoch < self.leader_epoch:
            raise CorruptRecords(
                f"a batch of leader epoch {batches[0].header.partition_leader_epoch} behind one of {self.leader_epoch}"
            )
        pieces = list(runs(batches, self._store.segments[-1], self._config))
        if any(run.rolls for run in pieces) and self._has_few_files_left():
            pieces = list(runs(batches, self._store.segments[-1], unsegmented(self._config)))
        for run in pieces:
            with self._guard.errors():
                write_run(self._store, run, self._config, self._clock.now_ms())
        if batches:
            self._guard.written()
            for listener in self.append_listeners:
                listener()
        return self.log_end_offset

    def _make_way(self, base_offset: int) -> bool:
        """For a batch that begins before our end and goes on behind it: where the leader's log starts inside of it,
        what is before that start was not compared. False where the log has to be fetched from its new end.
        """
        if base_offset >= self.log_end_offset:
            return True
        if base_offset < self.log_start_offset:
            self.start_anew(base_offset)
        return self.truncate_to(base_offset) == base_offset

    def _segment_for(self, header: BatchHeader) -> Segment:
        active = self._store.segments[-1]

        def is_full_by(config: LogConfig) -> bool:
            return is_full(
                config,
                size_bytes=active.size_bytes,
                base_offset=active.base_offset,
                first_timestamp_ms=active.first_timestamp_ms,
                batch=header,
                log_end_offset=active.next_offset,
            )

        full = is_full_by(self._config)
        if full and self._has_few_files_left():
            full = is_full_by(unsegmented(self._config))
        return self._store.roll() if full else active

    def _has_few_files_left(self) -> bool:
        """Then the last segment grows: one that cannot be begun would refuse records, and a broker without any file
        left can neither tell ZooKeeper that it lives nor let anybody in.
        """
        with self._guard.errors():
            few = self._store.disk.has_few_files_left()
        self._guard.told_of_files(few)
        return few

    # -- what goes -----------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Moves the log start up to `offset`, durably: the log start. Segments before it go; time and size delete
        nothing here. Raises OffsetOutOfRange above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is above the high watermark {self.high_watermark}")
        self._advance_log_start(offset, durable=True)
        return self.log_start_offset

    def follow_log_start(self, offset: int) -> None:
        """As the leader's moved, of which it is told again after a crash. Raises LogStorageError."""
        self._advance_log_start(min(offset, self.high_watermark), durable=False)

    def _advance_log_start(self, offset: int, *, durable: bool) -> None:
        if offset > self.log_start_offset:
            with self._guard.errors():
                self._store.advance_log_start(offset, durable=durable)
            self._delete_segments(replace(self._config, retention_ms=UNLIMITED, retention_bytes=UNLIMITED))

    def enforce_retention(self) -> int:
        """Deletes the segments whose time has come and forgets expired producers: how many segments. Raises
        LogStorageError.
        """
        self._store.producers.expire(self._clock.now_ms())
        # First, and with as little written as can be: on a full disk this is what makes room.
        count = self._delete_segments(self._config)
        with self._guard.errors():
            self._store.save_recovery_point()
        return count

    def _delete_segments(self, config: LogConfig) -> int:
        with self._guard.errors():
            count = segments_to_delete(
                self._store.facts(),
                config,
                now_ms=self._clock.now_ms(),
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
            )
            left = count
            if count == len(self._store.segments):
                if count > 1:
                    self._store.delete_oldest(count - 1)
                self._store.roll()
                left = 1
            if left:
                self._store.delete_oldest(left)
        return count

    def truncate_to(self, offset: int) -> int:
        """Removes every batch that reaches `offset` or beyond (a follower whose leader lacks them): the log end. Epochs
        that begin there are forgotten, also where they wrote nothing.

        Raises OffsetOutOfRange below the log start, LogStorageError.
        """
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(f"cannot truncate to {offset}, below the log start {self.log_start_offset}")
        with self._guard.errors():
            if offset < self.log_end_offset:
                self._store.truncate_to(offset, self._clock.now_ms())
            self._store.forget_epochs_from(self.log_end_offset)
        if self._high_watermark is not None:
            self.high_watermark = min(self._high_watermark, self.log_end_offset)
        return self.log_end_offset

    def start_anew(self, offset: int) -> None:
        """Removes everything, and goes on as an empty log from `offset` on (a follower whose leader has nothing before
        it). Raises LogStorageError.
        """
        with self._guard.errors():
            self._store.start_anew(offset)
        if self._high_watermark is not None:
            self.high_watermark = offset

    def begin_compaction(self) -> CompactionJob | None:
        """The compaction that is due, or None; to be `run` (in a thread within `reading_apart`) and finished."""
        with self._guard.errors():
            return compaction.plan(
                self._store.segments,
                self._config,
                self._store.disk,
                first_dirty_offset=self._store.first_dirty_offset,
                last_stable_offset=self.last_stable_offset,
                now_ms=self._clock.now_ms(),
            )

    def finish_compaction(self, job: CompactionJob) -> bool:
        """Puts the job's outcome in place; False when the segments changed since it began, and nothing was done. Raises
        LogStorageError: a part of it may be in place.
        """
        try:
            if self._store.closed:
                return False
            with self._guard.errors():
                # The file says, from before the first gap on, that this log has had a compaction.
                self._store.save_first_dirty(self._store.first_dirty_offset)
                if not compaction.install(self._store.segments, job):
                    return False
                self._store.save_first_dirty(max(job.end_offset, self._store.first_dirty_offset))
                # What a start checks again it counts producers from, and the last batches of some are gone now.
                self._store.save_recovery_point()
        finally:
            job.discard()
        return True

    def compact(self) -> bool:
        """Runs the compaction that is due, if any, here and now. Raises LogStorageError."""
        if (job := self.begin_compaction()) is None:
            return False
        with self._guard.errors():
            job.run()
        return self.finish_compaction(job)

    def flush(self) -> None:
        """Waits until everything appended so far is on the disk. Raises LogStorageError."""
        with self._guard.errors():
            self._store.flush()

    def close(self) -> None:
        """Flushes and marks the files as whole, so that the next start need not check them. May be called again."""
        with self._guard.errors():
            self._store.close()

    def retire(self) -> Path:
        """Ends the log: its directory has another name now, and may be removed. Raises LogStorageError."""
        with self._guard.errors():
            return self._store.retire()
