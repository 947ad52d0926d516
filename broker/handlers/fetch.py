"""Fetch, v4-12: whole batches from an offset on, waiting for data when there is too little.

v4 isolation level; v5 log start offset; v7 sessions: always answered with session id 0, which makes every request a
full one (KIP-227 allows it); v9 the client's leader epoch is checked (KIP-320); v12 the last fetched epoch is
checked, and where the logs part is said in the answer (KIP-595). Topic ids (v13) are not served. The first batch is
the one that *contains* the offset, and the first partition with data gives at least one batch however large it is
(KIP-74), or a consumer could stand still for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from broker.broker import Broker
from broker.errors import BrokerError, OffsetOutOfRange
from broker.handlers.handler import Handler, RequestContext
from broker.topics.errors import InvalidTopicRequest, TopicError
from broker.topics.partition import Partition, check_isolation_level
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from broker.wire.vocabulary import IsolationLevel

LAST_FETCHED_EPOCH_UNKNOWN = -1


@dataclass(slots=True)
class _Answer:
    """`urgent`: it says something that the client must know now, however few bytes it has."""

    responses: list[FetchableTopicResponse]
    size_bytes: int = 0
    urgent: bool = False


async def handle(broker: Broker, request: FetchRequest, context: RequestContext) -> FetchResponse:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        answer = _read(broker, request)
        if answer.urgent or answer.size_bytes >= request.min_bytes or loop.time() >= deadline:
            break
        if not await _wait_for_data(broker, request, request.min_bytes - answer.size_bytes, deadline):
            answer = _read(broker, request)
            break
    return FetchResponse(responses=answer.responses)


def _read(broker: Broker, request: FetchRequest) -> _Answer:
    answer = _Answer([])
    limit_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
    for topic, asked_partitions in _asked(request).items():
        partitions = []
        for asked in asked_partitions.values():
            try:
                partition = broker.require_partition(topic, asked.partition)
                _check(request, asked)
                data = _read_partition(partition, asked, request.isolation_level, limit_bytes, answer)
            except BrokerError as error:
                data = _refusal(broker, topic, asked.partition, error)
                answer.urgent = True
            partitions.append(data)
        answer.responses.append(FetchableTopicResponse(topic, partitions))
    if not request.topics:
        # Nothing can come: an empty request is answered at once, not after its whole wait.
        answer.urgent = True
    return answer


def _asked(request: FetchRequest) -> dict[str, dict[int, FetchPartition]]:
    """What is asked of each partition: once, though it be named twice."""
    found: dict[str, dict[int, FetchPartition]] = {}
    for topic in request.topics:
        found.setdefault(topic.topic, {}).update((asked.partition, asked) for asked in topic.partitions)
    return found


def _check(request: FetchRequest, asked: FetchPartition) -> None:
    """Raises TopicError for what no reader may ask."""
    check_isolation_level(request.isolation_level)
    if request.max_bytes < 0 or asked.partition_max_bytes < 0:
        raise InvalidTopicRequest("A fetch of less than 0 bytes.")
    if request.replica_id >= 0:
        raise TopicError(
            f"Broker {request.replica_id} is no replica of the partition.",
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            hint="this cluster has one broker, and no followers",
        )


def _read_partition(
    partition: Partition, asked: FetchPartition, isolation_level: int, limit_bytes: int, answer: _Answer
) -> PartitionData:
    """Raises BrokerError."""
    partition.check_leader_epoch(asked.current_leader_epoch)
    log = partition.log
    end = partition.visible_end(isolation_level)
    data = PartitionData(
        asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        records=b"",
        aborted_transactions=[] if isolation_level == IsolationLevel.READ_COMMITTED else None,
    )
    if asked.last_fetched_epoch != LAST_FETCHED_EPOCH_UNKNOWN:
        data.diverging_epoch = _divergence(partition, asked)
        if data.diverging_epoch is not None:
            answer.urgent = True
            return data
    room_bytes = min(asked.partition_max_bytes, limit_bytes - answer.size_bytes)
    nothing_yet = end <= asked.fetch_offset <= log.log_end_offset
    if nothing_yet or (room_bytes <= 0 and answer.size_bytes):
        return data
    found = log.read(asked.fetch_offset, room_bytes, up_to=end, at_least_one=answer.size_bytes == 0)
    if found.records:
        data.records = found.records
        answer.size_bytes += found.size_bytes
        if isolation_level == IsolationLevel.READ_COMMITTED:
            aborted = log.aborted_transactions(asked.fetch_offset, found.next_offset)
            data.aborted_transactions = [AbortedTransaction(*transaction) for transaction in aborted]
    return data


def _divergence(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the client's log parts from ours, if it does. Raises OffsetOutOfRange when that is not known any more."""
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRange(f"epoch {asked.last_fetched_epoch} is not known")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def _refusal(broker: Broker, topic: str, index: int, error: BrokerError) -> PartitionData:
    partition = broker.partition(topic, index)
    data = PartitionData(index, error.error_code, -1, records=b"")
    data.aborted_transactions = [] if partition is None else None
    if partition is not None and error.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
        data.log_start_offset = partition.log.log_start_offset
        data.high_watermark = partition.log.high_watermark
    return data


async def _wait_for_data(broker: Broker, request: FetchRequest, missing_bytes: int, deadline: float) -> bool:
    """Until the logs have grown by what is missing, or one of the partitions went; False when the time is up.

    The growth of the logs is compared, not read, so that many small appends cost a waiting fetch little. What a
    read_committed fetch may see grows by a marker of a few bytes, so there any growth counts.
    """
    partitions = [
        partition
        for topic in request.topics
        for asked in topic.partitions
        if (partition := broker.partition(topic.topic, asked.partition)) is not None
    ]
    if request.isolation_level == IsolationLevel.READ_COMMITTED:
        missing_bytes = 1
    size_bytes = sum(partition.log.size_bytes for partition in partitions)
    event = asyncio.Event()
    for partition in partitions:
        partition.waiters.add(event)
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                await event.wait()
                event.clear()
                if any(broker.partition(p.topic, p.index) is not p for p in partitions):
                    return True
                grown_bytes = sum(partition.log.size_bytes for partition in partitions) - size_bytes
                if grown_bytes < 0 or grown_bytes >= missing_bytes:
                    return True
    except TimeoutError:
        return False
    finally:
        for partition in partitions:
            partition.waiters.discard(event)


HANDLER = Handler(api=ApiKey.FETCH, versions=(4, 12), handle=handle)
