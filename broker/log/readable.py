"""A log as its readers see it: where it begins and ends, how far it is replicated, its batches, epochs and times."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from broker.errors import LogDamaged, OffsetOutOfRange
from broker.log import lookup
from broker.log.config import LogConfig
from broker.log.guard import StorageGuard
from broker.log.lookup import Found, TimeLookup
from broker.log.producers import ProducerState
from broker.log.results import LogSlice
from broker.log.store import LogStore


class ReadableLog:
    """Of one partition; who writes to it is another class (partition_log.py)."""

    def __init__(self, store: LogStore, config: LogConfig) -> None:
        self._store = store
        self._config = config
        self._guard = StorageGuard(store.directory, store.release)
        self._high_watermark: int | None = None

    @property
    def damage_listeners(self) -> list[Callable[[LogDamaged], None]]:
        """Called once, when files turn out not to be as they were written: this log has ended."""
        return self._guard.damage_listeners

    @property
    def failure_listeners(self) -> list[Callable[[OSError], None]]:
        """Called each time that the disk fails in a way that time alone does not mend; the log goes on."""
        return self._guard.failure_listeners

    def end_damaged(self, error: LogDamaged) -> None:
        """This log has ended, for that reason; its files are let go of."""
        self._guard.end_damaged(error)

    @property
    def directory(self) -> Path:
        return self._store.directory

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def log_start_offset(self) -> int:
        return self._store.log_start_offset

    @property
    def is_empty(self) -> bool:
        return self.log_start_offset == self.log_end_offset

    @property
    def log_end_offset(self) -> int:
        return self._store.segments[-1].next_offset

    @property
    def high_watermark(self) -> int:
        """What is before it is replicated. The log end until somebody sets it, who then does so with every append."""
        end = self.log_end_offset
        return end if self._high_watermark is None else min(self._high_watermark, end)

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = offset
        self._store.producers.replicated(offset)

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest transaction begins whose end is not replicated, at most the high watermark: the end for
        read_committed.
        """
        producers, stable = self._store.producers, self.high_watermark
        if self._high_watermark is None:
            producers.replicated(stable)
        if (unstable := producers.first_unstable_offset) is not None:
            stable = min(stable, unstable)
        if (unreplicated := producers.first_unreplicated_offset) is not None:
            stable = min(stable, unreplicated)
        return stable

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._store.segments)

    @property
    def leader_epoch(self) -> int:
        """The newest epoch that this log knows, -1 for none."""
        return self._store.epochs.latest

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """Each with the offset at which it begins; both ascend."""
        return self._store.epochs.entries

    @property
    def producers(self) -> Iterable[ProducerState]:
        return self._store.producers

    def producer(self, producer_id: int) -> ProducerState | None:
        return self._store.producers.get(producer_id)

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> LogSlice:
        """Whole batches, the first of which contains `offset`, of at most `max_bytes` together and before `up_to`.

        With `at_least_one` the first batch comes whatever its size (KIP-74). `up_to` must be the log end, the high
        watermark or the last stable offset: the start of a batch. Raises OffsetOutOfRange, LogDamaged,
        LogStorageError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is outside of {self.log_start_offset}..{self.log_end_offset}")
        buffers: list[memoryview | bytes] = []
        next_offset, left_bytes = offset, max_bytes
        for segment in self._store.segments[self._store.segment_at(offset) :]:
            if segment.base_offset >= up_to or next_offset >= up_to:
                break
            with self._guard.errors():
                data, reached = segment.read(
                    next_offset, left_bytes, up_to=up_to, at_least_one=at_least_one and not buffers
                )
            next_offset = max(next_offset, reached)
            if len(data):
                buffers.append(data)
                left_bytes -= len(data)
            if left_bytes <= 0 or next_offset < segment.next_offset:
                break
        return LogSlice(buffers, next_offset)

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of every aborted transaction that overlaps [start, end), by first offset."""
        found = [
            (entry.first_offset, entry.producer_id)
            for segment in self._store.segments[self._store.segment_at(start) :]
            for entry in segment.aborted
            if entry.last_offset >= start and entry.first_offset < end
        ]
        return [(producer_id, first_offset) for first_offset, producer_id in sorted(found)]

    def find_time(self, look: Callable[[TimeLookup], Found]) -> Found:
        """What a lookup in the event loop finds. Raises BatchBeyondLimits (lookup.py), LogDamaged, LogStorageError."""
        with self._guard.errors():
            return look(TimeLookup(self._store.segments, log_start_offset=self.log_start_offset, at_once=True))

    def time_lookups_apart(self, timestamp_ms: int) -> Iterator[TimeLookup]:
        """For lookups in a thread (lookup.py), to be taken and made within `reading_apart`. Raises OSError."""
        return lookup.lookups_apart(self._store, timestamp_ms)

    def reading_apart(self) -> AbstractContextManager[None]:
        """Around what a thread reads in files opened for it: what fails is this log's while it has its segments."""
        held = list(self._store.segments)
        return self._guard.errors(lambda: not self._store.closed and self._store.segments[: len(held)] == held)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset), (-1, -1) where unknown (OffsetForLeaderEpoch)."""
        return self._store.epochs.end_offset_for(epoch, self.log_end_offset)
