"""What one Fetch reads of one partition: a consumer up to the high watermark, a follower up to the end of the log.

A follower's position counts for the high watermark, so it is taken only where the follower is known to have what we
have up to there: of this leader epoch, with the epoch of its last record compared (KIP-101, KIP-279, KIP-595), and
inside of our log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.errors import OffsetOutOfRange
from broker.topics.errors import InvalidTopicRequest, NotLeading
from broker.topics.partition import Partition, check_isolation_level
from broker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from broker.wire.vocabulary import DEBUGGING_CONSUMER, NO_LEADER_EPOCH, IsolationLevel

FOLLOWERS_SINCE_VERSION: Final = 12
"""Of Fetch: before it a follower cannot say of which epoch its last record is."""


class Reader(NamedTuple):
    """Who asks. `replica_id` is the node id of a broker that follows, below 0 for a consumer; `broker_epoch` that of
    its registration, -1 where it does not say.
    """

    replica_id: int
    broker_epoch: int
    follows: bool
    isolation_level: int
    now_ms: float


def reader_of(request: FetchRequest, *, api_version: int, inter_broker: bool, now_ms: float) -> Reader:
    """Raises InvalidTopicRequest, NotLeading for what no reader may ask; anybody may say that he is a replica, so that
    counts between brokers only (CVE-2018-1288).
    """
    check_isolation_level(request.isolation_level)
    state, replica_id = request.replica_state, replica_id_of(request)
    if request.max_bytes < 0:
        raise InvalidTopicRequest("A fetch of less than 0 bytes.")
    if replica_id >= 0 and (not inter_broker or api_version < FOLLOWERS_SINCE_VERSION):
        raise _no_replica(replica_id)
    broker_epoch = -1 if state is None else state.replica_epoch
    return Reader(replica_id, broker_epoch, replica_id >= 0, request.isolation_level, now_ms)


def reads_any_replica(request: FetchRequest) -> bool:
    """A consumer that says its rack (KIP-392), or one that compares replicas, as `kafka-replica-verification` does."""
    return bool(request.rack_id) or replica_id_of(request) == DEBUGGING_CONSUMER


def replica_id_of(request: FetchRequest) -> int:
    """As whom the reader asks; anybody may say that he is a broker."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def read_partition(
    partition: Partition, asked: FetchPartition, reader: Reader, *, room_bytes: int, at_least_one: bool
) -> tuple[PartitionData, int]:
    """The answer, and how many bytes of records it has: at most `room_bytes`, but a first batch of any size with
    `at_least_one`. Raises BrokerError.
    """
    if asked.partition_max_bytes < 0:
        raise InvalidTopicRequest("A fetch of less than 0 bytes.")
    partition.check_leader_epoch(asked.current_leader_epoch)
    log = partition.log
    diverging = None
    if asked.last_fetched_epoch != NO_LEADER_EPOCH:
        diverging = _divergence(partition, asked)
    if reader.follows and diverging is None:
        _take_position(partition, asked, reader)
    committed = reader.isolation_level == IsolationLevel.READ_COMMITTED
    data = PartitionData(
        asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=diverging,
        records=b"",
        aborted_transactions=[] if committed else None,
    )
    if diverging is not None:
        return data, 0
    end = log.log_end_offset if reader.follows else partition.visible_end(reader.isolation_level)
    nothing_yet = end <= asked.fetch_offset <= log.log_end_offset
    room_bytes = min(asked.partition_max_bytes, room_bytes)
    if nothing_yet or (room_bytes <= 0 and not at_least_one):
        return data, 0
    found = log.read(asked.fetch_offset, room_bytes, up_to=end, at_least_one=at_least_one)
    if not found.records:
        return data, 0
    data.records = found.records
    if committed:
        aborted = log.aborted_transactions(asked.fetch_offset, found.next_offset)
        data.aborted_transactions = [AbortedTransaction(*transaction) for transaction in aborted]
    return data, found.size_bytes


def _take_position(partition: Partition, asked: FetchPartition, reader: Reader) -> None:
    """Raises NotLeading, InvalidTopicRequest, OffsetOutOfRange."""
    leading, log = partition.leading, partition.log
    if leading is None or leading.follower(reader.replica_id) is None:
        raise _no_replica(reader.replica_id)
    if asked.current_leader_epoch == NO_LEADER_EPOCH:
        raise InvalidTopicRequest("A follower must name the leader epoch in which it follows.")
    if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
        raise OffsetOutOfRange(
            f"offset {asked.fetch_offset} is outside of {log.log_start_offset}..{log.log_end_offset}"
        )
    partition.follower_fetched(
        reader.replica_id, asked.fetch_offset, asked.log_start_offset, reader.now_ms, reader.broker_epoch
    )


def _divergence(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the reader's log parts from ours, if it does. Raises OffsetOutOfRange when that is not known any more."""
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRange(f"epoch {asked.last_fetched_epoch} is not known")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def _no_replica(replica_id: int) -> NotLeading:
    return NotLeading(
        f"Broker {replica_id} is no replica of the partition.",
        hint="only a broker that has a replica may follow, on the listener between brokers",
    )
