"""A partition of a simulated cluster: a log of real record batches, with Kafka's rules for who may append what.

What is known of producers and leader epochs are the broker's own pure values; the log is a list in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.errors import OffsetOutOfRange, RecordsRefused, RecordsTooLarge
from broker.log.epochs import LeaderEpochs
from broker.log.producers import AbortedTransaction, ProducerStates
from broker.wire.batch import BatchHeader, patch_base_offset, patch_leader_epoch, peek, verify_crc
from broker.wire.buffers import Buffer
from broker.wire.errors import CorruptBatch, ErrorCode
from broker.wire.records import ControlKind, control_batch, decode_records, encode_batch
from broker.wire.vocabulary import NO_OFFSET, NO_TIMESTAMP, IsolationLevel, TopicPartition
from tests.mirror.simulation.truth import Content, content_of

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588


class Stored(NamedTuple):
    """One batch as it lies in the log."""

    header: BatchHeader
    data: bytes


class Slice(NamedTuple):
    """What one read brought."""

    data: bytes
    next_offset: int


@dataclass(eq=False)
class SimulatedPartition:
    """`watchers` are called with every batch that is appended, `wake` with nothing after every change.

    What is appended is at once on all replicas: the high watermark is the log end.
    """

    where: TopicPartition
    configs: dict[str, str]
    now_ms: Callable[[], int]
    leader: int
    leader_epoch: int = 0
    log_start: int = 0
    log_end: int = 0
    batches: list[Stored] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerStates = field(default_factory=ProducerStates)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    parked: dict[object, Callable[[], None]] = field(default_factory=dict)
    watchers: list[Callable[[Stored], None]] = field(default_factory=list)
    read_max_bytes: int = 1 << 62
    """A broker that gives no more in an answer; always one batch."""
    is_there: bool = True
    tells_epochs: bool = True
    """Whether its leader answers where an epoch ended: it is what only a start, or who joins, asks."""

    @property
    def stable_end(self) -> int:
        unstable = self.producers.first_unstable_offset
        return self.log_end if unstable is None else unstable

    def visible_end(self, isolation_level: int) -> int:
        return self.stable_end if isolation_level == IsolationLevel.READ_COMMITTED else self.log_end

    # -- writing

    def append(self, batch: Buffer) -> int:
        """A client's batch -> the offset of its first record. Raises BrokerError."""
        data = bytearray(batch)
        header = self._checked(data)
        if header.producer_id >= 0:
            repeated = self.producers.duplicate_of(header)
            if repeated is not None:
                return repeated.first_offset
            self.producers.check_batch(header)
        return self._store(data)

    def append_marker(self, kind: ControlKind, producer_id: int, producer_epoch: int) -> int:
        """Raises BrokerError for a marker out of the past."""
        self.producers.check_marker(producer_id, producer_epoch, 0)
        return self._store(
            control_batch(
                kind,
                coordinator_epoch=0,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp_ms=self.now_ms(),
            )
        )

    def _checked(self, data: bytearray) -> BatchHeader:
        try:
            header = peek(data)
            verify_crc(data)
        except CorruptBatch as error:
            raise RecordsRefused(str(error), error_code=ErrorCode.CORRUPT_MESSAGE) from error
        if header.size_bytes != len(data) or header.is_control or header.base_offset:
            raise RecordsRefused("one batch of a client, from offset 0 on, was expected")
        if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
            raise RecordsRefused("the record count is not what the offsets say")
        if len(data) > int(self.configs.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)):
            raise RecordsTooLarge(f"a batch of {len(data)} bytes")
        if "compact" in self.configs.get("cleanup.policy", "") and any(r.key is None for r in decode_records(data)):
            raise RecordsRefused("a compacted topic takes no records without a key")
        return header

    def _store(self, data: bytearray) -> int:
        base_offset = self.log_end
        patch_base_offset(data, base_offset)
        patch_leader_epoch(data, self.leader_epoch)
        stored = Stored(peek(data), bytes(data))
        self.epochs.assign(self.leader_epoch, base_offset)
        self.batches.append(stored)
        self.log_end = stored.header.next_offset
        self._note(stored)
        for watch in self.watchers:
            watch(stored)
        self.wake()
        return base_offset

    def _note(self, stored: Stored) -> None:
        aborted = self.producers.apply(stored.header, lambda: stored.data, self.now_ms())
        if aborted is not None:
            self.aborted.append(aborted)

    # -- reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> Slice:
        """Whole batches from the one that holds `offset` on. Raises OffsetOutOfRange."""
        max_bytes = min(max_bytes, self.read_max_bytes)
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(f"offset {offset} is outside of {self.log_start}..{self.log_end}")
        found: list[bytes] = []
        next_offset, left_bytes = offset, max_bytes
        for stored in self.batches[self._index_of(offset) :]:
            if stored.header.base_offset >= up_to:
                break
            if len(stored.data) > left_bytes and (found or not at_least_one):
                break
            found.append(stored.data)
            left_bytes -= len(stored.data)
            next_offset = stored.header.next_offset
        return Slice(b"".join(found), next_offset)

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that overlap [start, end)."""
        return [
            (a.producer_id, a.first_offset) for a in self.aborted if a.last_offset >= start and a.first_offset < end
        ]

    def at_timestamp(self, timestamp_ms: int, up_to: int) -> tuple[int, int]:
        for stored in self.batches:
            if stored.header.base_offset >= up_to:
                break
            if stored.header.max_timestamp >= timestamp_ms:
                for record in decode_records(stored.data):
                    if record.timestamp >= timestamp_ms and record.offset >= self.log_start:
                        return record.offset, record.timestamp
        return NO_OFFSET, NO_TIMESTAMP

    def latest_timestamp(self) -> tuple[int, int]:
        latest = max((s.header.max_timestamp for s in self.batches), default=NO_TIMESTAMP)
        return (NO_OFFSET, NO_TIMESTAMP) if latest < 0 else self.at_timestamp(latest, self.log_end)

    def contents(self) -> Iterator[tuple[int, Content]]:
        """All records by offset, but what is in transactions."""
        for stored in self.batches:
            if not stored.header.is_control and not stored.header.is_transactional:
                for record in decode_records(stored.data):
                    yield record.offset, content_of(record)

    def _index_of(self, offset: int) -> int:
        """Of the first batch that ends behind `offset`."""
        index = max(0, bisect_right(self.batches, offset, key=_base_offset) - 1)
        while index < len(self.batches) and self.batches[index].header.next_offset <= offset:
            index += 1
        return index

    # -- what happens to a log

    def lead(self, node_id: int) -> None:
        """A new leader that has all records."""
        self.leader = node_id
        self.leader_epoch += 1
        self.wake()

    def lead_unclean(self, node_id: int, end: int) -> None:
        """A new leader that lacks what lies at `end`, the start of a batch, and behind it."""
        self.batches = [stored for stored in self.batches if stored.header.next_offset <= end]
        self.log_end = end
        self.log_start = min(self.log_start, end)
        self.epochs.truncate_from_end(end)
        self.producers, self.aborted = ProducerStates(), []
        for stored in self.batches:
            self._note(stored)
        self.lead(node_id)

    def delete_before(self, offset: int) -> None:
        """Retention, or DeleteRecords: the log starts at `offset` now."""
        self.log_start = max(self.log_start, offset)
        self.batches = [stored for stored in self.batches if stored.header.next_offset > self.log_start]
        self.epochs.truncate_from_start(self.log_start)
        self.wake()

    def compact(self, index: int, drop: Callable[[int], bool]) -> None:
        """Take records out of batch `index`, by their offsets; a batch that holds nothing any more stays, empty."""
        header, data = self.batches[index]
        kept = [record for record in decode_records(data) if not drop(record.offset)]
        batch = encode_batch(
            kept,
            compression=header.compression,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            dense=False,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
        self.batches[index] = Stored(peek(batch), bytes(batch))

    def wake(self) -> None:
        """Whoever waits for this partition looks again."""
        parked, self.parked = self.parked, {}
        for look_again in parked.values():
            look_again()


def _base_offset(stored: Stored) -> int:
    return stored.header.base_offset
