"""A coordinator's state as a compacted topic: written by key, read back whole when its leadership begins.

Each partition is a `StateLog` while this broker leads it. What is appended counts at once for the coordinator, and is
told to others only when it is replicated: nobody has seen what the next leader does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.coordination.host import CoordinatorHost, HostPartition
from broker.coordination.limits import (
    COORDINATOR_BATCH_BYTES_MAX,
    COORDINATOR_LOAD_BYTES,
    COORDINATOR_SEGMENT_BYTES,
    REPLICATION_TIMEOUT_MS,
)
from broker.errors import BrokerError, LogDamaged, LogStorageError, RecordsTooLarge
from broker.log.validation import AppendOrigin
from broker.topics.errors import NotEnoughReplicas, NotLeading, PartitionOffline
from broker.wire.batch import BatchHeader, iter_batches
from broker.wire.errors import ErrorCode
from broker.wire.records import Control, Record, decode_control, decode_records, encode_batch

TRANSACTIONS_TOPIC = "__transaction_state"

INTERNAL_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(COORDINATOR_SEGMENT_BYTES),
    "max.message.bytes": str(COORDINATOR_BATCH_BYTES_MAX),
}


class NotCoordinator(BrokerError):
    """The state that was asked for is kept by another broker."""

    error_code = ErrorCode.NOT_COORDINATOR
    retriable = True
    hint = "ask any broker for the coordinator (FindCoordinator), and then that one"


class CoordinatorOffline(PartitionOffline):
    """The state that was asked for is kept here, in a log that is offline."""

    error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


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

    header: BatchHeader
    records: list[Record]
    control: Control | None


class StateLog:
    """One partition of a coordinator's topic for as long as this broker leads it in one epoch."""

    def __init__(self, host: CoordinatorHost, topic: str, index: int, leader_epoch: int) -> None:
        self.name = f"{topic}-{index}"
        self.index = index
        self.leader_epoch = leader_epoch
        """Also the coordinator's epoch, which fences markers of an older coordinator (WriteTxnMarkers)."""
        self.is_over = False
        self.is_read = False
        """Whether its end was reached: what others write here before that (markers), `replay` comes to in its order."""
        self._host = host
        self._topic = topic
        # By key where its newest entry ends, until that is known to be replicated.
        self._ends: dict[str, int] = {}

    def check_leading(self) -> None:
        """Raises NotCoordinator, CoordinatorOffline."""
        self._partition()

    def _partition(self) -> HostPartition:
        if self.is_over:
            raise NotCoordinator(f"{self.name} is not led here any more")
        try:
            found = self._host.require_partition(self._topic, self.index)
        except PartitionOffline as error:
            # Before the controller has heard of it, too: what is known in memory may be old when another one leads.
            raise CoordinatorOffline(str(error), hint=error.hint) from error
        except BrokerError as error:
            raise NotCoordinator(str(error)) from error
        if found.leader_epoch != self.leader_epoch:
            raise NotCoordinator(f"{self.name} is not led here in epoch {self.leader_epoch} any more")
        return found

    def append(self, key: str, entries: Sequence[Entry], *, producer: Producer | None = None) -> int:
        """Write one batch -> its base offset. `key` is the group or transactional id that it is about; with `producer`
        the batch belongs to a transaction.

        Raises BrokerError with the code a coordinator's client understands: COORDINATOR_NOT_AVAILABLE when the disk
        failed, or too few replicas are in sync (it looks the coordinator up again and retries),
        INVALID_COMMIT_OFFSET_SIZE when it is too large, NOT_COORDINATOR when this broker does not lead the partition
        any more.
        """
        partition = self._partition()
        now_ms = self._host.clock.now_ms()
        batch = encode_batch(
            [Record(0, now_ms, entry.key, entry.value) for entry in entries],
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.producer_epoch if producer else -1,
            transactional=producer is not None,
        )
        try:
            partition.check_may_append()
            base = partition.log.append(
                memoryview(batch), leader_epoch=partition.leader_epoch, origin=AppendOrigin.COORDINATOR
            ).base_offset
        except (LogStorageError, PartitionOffline, NotEnoughReplicas) as error:
            raise BrokerError(str(error), error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, hint=error.hint) from error
        except RecordsTooLarge as error:
            raise BrokerError(
                str(error), error_code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE, hint="commit fewer partitions at once"
            ) from error
        self.changed(key, base + len(entries))
        return base

    def changed(self, key: str, end_offset: int) -> None:
        """What is known of `key` follows from what stands before `end_offset`."""
        self._ends[key] = end_offset

    async def replicated(self, key: str) -> None:
        """Returns when all that was appended about `key` until now is replicated. Raises BrokerError: NOT_COORDINATOR
        when the leadership ends before, COORDINATOR_NOT_AVAILABLE while it is not known.
        """
        end_offset = self._ends.get(key)
        if end_offset is None:
            return
        await self._wait(end_offset)
        if self._ends.get(key) == end_offset:
            del self._ends[key]

    async def all_replicated(self, timeout_ms: int = REPLICATION_TIMEOUT_MS) -> None:
        """As `replicated`, of all that stands in the log."""
        await self._wait(self._partition().log.log_end_offset, timeout_ms)

    async def _wait(self, end_offset: int, timeout_ms: int = REPLICATION_TIMEOUT_MS) -> None:
        try:
            await self._partition().wait_replicated(end_offset, timeout_ms, self.leader_epoch)
        except NotLeading as error:
            raise NotCoordinator(str(error)) from error
        except NotCoordinator:
            raise
        except BrokerError as error:
            raise BrokerError(str(error), error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, hint=error.hint) from error

    @property
    def is_empty(self) -> bool:
        """Raises NotCoordinator, CoordinatorOffline."""
        log = self._partition().log
        return log.log_start_offset == log.log_end_offset

    def replay(self) -> Iterator[LoadedBatch]:
        """Every batch, in order, also those that are appended meanwhile; `is_read` when there are no more. Raises
        NotCoordinator, CoordinatorOffline, and LogDamaged where the log cannot be read to its end: what was committed
        behind that point is not known.
        """
        offset = self._partition().log.log_start_offset
        while offset < (log := self._partition().log).log_end_offset:
            piece = log.read(offset, COORDINATOR_LOAD_BYTES, up_to=log.log_end_offset, at_least_one=True)
            for buffer in piece.records:
                for header, batch in iter_batches(buffer):
                    control = decode_control(batch) if header.is_control else None
                    records = [] if header.is_control else decode_records(batch)
                    yield LoadedBatch(header, records, control)
            if piece.next_offset <= offset:
                raise LogDamaged(f"{self.name} cannot be read on from offset {offset}, it ends at {log.log_end_offset}")
            offset = piece.next_offset
        self.is_read = True
