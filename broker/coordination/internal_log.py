"""A coordinator's state as a compacted topic: written by key, read back whole at start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.coordination.host import CoordinatorHost, HostPartition
from broker.coordination.limits import COORDINATOR_BATCH_BYTES_MAX, COORDINATOR_LOAD_BYTES, COORDINATOR_SEGMENT_BYTES
from broker.errors import BrokerError, LogDamaged, LogStorageError, RecordsTooLarge
from broker.log.validation import AppendOrigin
from broker.topics.errors import PartitionOffline
from broker.wire.batch import BatchHeader, iter_batches
from broker.wire.coordinator_keys import partition_for
from broker.wire.errors import ErrorCode
from broker.wire.records import Control, Record, decode_control, decode_records, encode_batch

TRANSACTIONS_TOPIC = "__transaction_state"

_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(COORDINATOR_SEGMENT_BYTES),
    "max.message.bytes": str(COORDINATOR_BATCH_BYTES_MAX),
}


class Producer(NamedTuple):
    """Who writes: a producer id with its epoch."""

    producer_id: int
    producer_epoch: int


class Entry(NamedTuple):
    """A key with its newest value; None is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """One batch as it stands in the log: records, or the control that ends a transaction."""

    partition: int
    header: BatchHeader
    records: list[Record]
    control: Control | None


class InternalLog:
    """`partitions` is the count to make the topic with; an existing topic keeps its own, or keys would move."""

    def __init__(self, host: CoordinatorHost, topic: str, partitions: int) -> None:
        self.topic = topic
        self.topic_configs = _TOPIC_CONFIGS
        self.wanted_partitions = partitions
        self._host = host
        self._partitions = 0

    def ensure(self) -> int:
        """Make the topic if need be -> its partition count. Raises BrokerError, retriable."""
        if self._partitions == 0:
            if self._host.partition(self.topic, 0) is None:
                self._host.ensure_internal_topic(self.topic, self.wanted_partitions, self.topic_configs)
            self._partitions = self._count()
        return self._partitions

    def _count(self) -> int:
        count = 0
        while self._host.partition(self.topic, count) is not None:
            count += 1
        return count

    def partition_for(self, key: str) -> int:
        return partition_for(key, self.ensure())

    def leader_epoch(self, partition: int) -> int:
        """The coordinator's epoch, which fences markers of an older coordinator (WriteTxnMarkers)."""
        return self._partition(partition).leader_epoch

    def _partition(self, index: int) -> HostPartition:
        found = self._host.partition(self.topic, index)
        if found is None:
            raise BrokerError(
                f"{self.topic} has no partition {index}",
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                hint=f"was {self.topic} deleted? restart the broker",
            )
        return found

    def append(self, key: str, entries: Sequence[Entry], *, producer: Producer | None = None) -> int:
        """Write one batch to the partition of `key` -> its base offset. With `producer` it belongs to a transaction.

        Raises BrokerError with the code a coordinator's client understands: COORDINATOR_NOT_AVAILABLE when the disk
        failed (it looks the coordinator up again and retries), INVALID_COMMIT_OFFSET_SIZE when it is too large,
        NOT_COORDINATOR when this broker may lead nothing any more.
        """
        try:
            self._host.check_leading()
        except BrokerError as error:
            raise BrokerError(str(error), error_code=ErrorCode.NOT_COORDINATOR, hint=error.hint) from error
        partition = self._partition(self.partition_for(key))
        now_ms = self._host.clock.now_ms()
        batch = encode_batch(
            [Record(0, now_ms, entry.key, entry.value) for entry in entries],
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.producer_epoch if producer else -1,
            transactional=producer is not None,
        )
        try:
            return partition.log.append(
                memoryview(batch), leader_epoch=partition.leader_epoch, origin=AppendOrigin.COORDINATOR
            ).base_offset
        except (LogStorageError, PartitionOffline) as error:
            raise BrokerError(str(error), error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, hint=error.hint) from error
        except RecordsTooLarge as error:
            raise BrokerError(
                str(error), error_code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE, hint="commit fewer partitions at once"
            ) from error

    def replay(self) -> Iterator[LoadedBatch]:
        """Every batch of every partition, each partition in order; nothing when the topic does not exist. Raises
        LogDamaged where a log cannot be read to its end: what was committed behind that point is not known.
        """
        for index in range(self._count()):
            log = self._partition(index).log
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                piece = log.read(offset, COORDINATOR_LOAD_BYTES, up_to=log.log_end_offset, at_least_one=True)
                for buffer in piece.records:
                    for header, batch in iter_batches(buffer):
                        control = decode_control(batch) if header.is_control else None
                        records = [] if header.is_control else decode_records(batch)
                        yield LoadedBatch(index, header, records, control)
                if piece.next_offset <= offset:
                    raise LogDamaged(
                        f"{self.topic}-{index} cannot be read on from offset {offset}, it ends at {log.log_end_offset}"
                    )
                offset = piece.next_offset
