"""What a follower takes from its leader: whole batches as the leader has them, checked before one byte is written.

Offsets and epochs were given by the leader. Offsets rise; where compaction took records at the leader there are gaps.
Epochs never go back, and none is above the one that the leader leads in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.errors import CorruptRecords
from broker.log.config import LogConfig
from broker.log.retention import is_full
from broker.log.segment import Segment
from broker.log.store import LogStore
from broker.wire.batch import BatchHeader, iter_batches, verify_crc
from broker.wire.errors import CorruptBatch


class Batch(NamedTuple):
    header: BatchHeader
    data: memoryview

    def read(self) -> memoryview:
        return self.data


class Run(NamedTuple):
    """Batches that are written at once, into one segment; `rolls`: into a new one. Of one epoch."""

    batches: list[Batch]
    rolls: bool
    has_gaps: bool

    @property
    def leader_epoch(self) -> int:
        return self.batches[0].header.partition_leader_epoch


def checked_batches(records: memoryview, *, leader_epoch: int) -> list[Batch]:
    """The batches; one that was cut off by the limits of the fetch is left out. Raises CorruptRecords: nothing of it is
    to be taken.
    """
    found: list[Batch] = []
    try:
        for header, data in iter_batches(records):
            verify_crc(data)
            before = found[-1].header if found else header
            if header.last_offset_delta < 0 or (found and header.base_offset < before.next_offset):
                raise CorruptRecords(f"a batch at offset {header.base_offset} follows {before.last_offset}")
            if not before.partition_leader_epoch <= header.partition_leader_epoch <= leader_epoch:
                raise CorruptRecords(
                    f"a batch of leader epoch {header.partition_leader_epoch} behind {before.partition_leader_epoch}, "
                    f"from the leader of epoch {leader_epoch}"
                )
            found.append(Batch(header, data))
    except CorruptBatch as error:
        raise CorruptRecords(str(error)) from error
    return found


def runs(batches: list[Batch], active: Segment, config: LogConfig) -> Iterator[Run]:
    """The batches, in the pieces in which they are written behind `active`."""
    size_bytes, base_offset, first_ms = active.size_bytes, active.base_offset, active.first_timestamp_ms
    end_offset, current = active.next_offset, Run([], rolls=False, has_gaps=False)
    for batch in batches:
        header = batch.header
        full = is_full(
            config,
            size_bytes=size_bytes,
            base_offset=base_offset,
            first_timestamp_ms=first_ms,
            batch=header,
            log_end_offset=header.base_offset,
        )
        gap = header.base_offset > end_offset
        new_epoch = bool(current.batches) and header.partition_leader_epoch != current.leader_epoch
        if full or new_epoch or (gap and not current.has_gaps):
            if current.batches:
                yield current
            current = Run([], rolls=full, has_gaps=gap)
        if full:
            size_bytes, base_offset = 0, end_offset
        if size_bytes == 0:
            first_ms = header.max_timestamp
        current.batches.append(batch)
        size_bytes += header.size_bytes
        end_offset = header.next_offset
    if current.batches:
        yield current


def write_run(store: LogStore, run: Run, config: LogConfig, now_ms: int) -> None:
    """Raises OSError; the log then ends where it ended before."""
    segment = store.roll() if run.rolls else store.segments[-1]
    if run.has_gaps:
        store.note_gaps(store.segments[-1])
    headers = [batch.header for batch in run.batches]
    store.begin_epoch(run.leader_epoch, headers[0].base_offset)
    data = run.batches[0].data if len(headers) == 1 else memoryview(b"".join(batch.data for batch in run.batches))
    segment.append_all(data, headers, config.index_interval_bytes)
    for batch in run.batches:
        if batch.header.producer_id >= 0:
            aborted = store.producers.apply(batch.header, batch.read, now_ms)
            if aborted is not None:
                segment.aborted.append(aborted)
