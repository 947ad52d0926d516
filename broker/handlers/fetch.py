"""Fetch, v4-17: whole batches from an offset on, waiting for data when there is too little.

v4 isolation level; v5 log start offset; v7 sessions (KIP-227, `broker/topics/fetch_sessions.py`); v9 the client's
leader epoch is checked (KIP-320); v12 the last fetched epoch is checked, and where the logs part is said in the answer
(KIP-595); v13 topics are named by their ids (KIP-516), so that one which was made anew is not taken for the old one;
v16 a reader with an old idea of the leader is told the new one (KIP-951). The first batch is the one that *contains*
the offset, and the first partition with data gives at least one batch however large it is (KIP-74), or a consumer
could stand still for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from broker.broker import Broker
from broker.errors import BrokerError, OffsetOutOfRange
from broker.handlers.handler import Handler, RequestContext
from broker.limits import UNSENT_ANSWERS_BYTES_MAX
from broker.topics.errors import InvalidTopicRequest, TopicError
from broker.topics.fetch_sessions import NO_SESSION, Fetched, FetchPlan, FetchSessionError, TopicKey
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
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from broker.wire.vocabulary import IsolationLevel

LAST_FETCHED_EPOCH_UNKNOWN = -1
TOPIC_IDS_SINCE_VERSION = 13
LEADERS_SINCE_VERSION = 16
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class _Answer:
    """`read` are the partitions that can be waited for. `urgent`: it says something that the client must know now,
    however few bytes it has.
    """

    found: list[tuple[Fetched, PartitionData]] = field(default_factory=list)
    read: list[Partition] = field(default_factory=list)
    size_bytes: int = 0
    urgent: bool = False


async def handle(broker: Broker, request: FetchRequest, context: RequestContext) -> FetchResponse:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    try:
        plan = broker.fetch_sessions.plan(request, by_id=context.api_version >= TOPIC_IDS_SINCE_VERSION)
    except FetchSessionError as error:
        return FetchResponse(error_code=error.error_code)
    by_whom = context.api_version >= LEADERS_SINCE_VERSION
    while True:
        answer = _read(broker, request, plan, by_whom)
        if answer.urgent or answer.size_bytes >= request.min_bytes or loop.time() >= deadline:
            break
        if not await _wait_for_data(broker, request, answer, deadline):
            answer = _read(broker, request, plan, by_whom)
            break
    return _response(broker, plan, answer)


def _read(broker: Broker, request: FetchRequest, plan: FetchPlan, by_whom: bool) -> _Answer:
    answer = _Answer()
    room_bytes = max(0, UNSENT_ANSWERS_BYTES_MAX - broker.unsent_bytes)
    limit_bytes = min(request.max_bytes, broker.config.fetch_max_bytes, room_bytes)
    for fetched in plan.partitions.values():
        partition = None
        try:
            partition = _find(broker, fetched)
            _check(request, fetched.asked)
            data = _read_partition(partition, fetched.asked, request.isolation_level, limit_bytes, answer)
            answer.read.append(partition)
        except BrokerError as error:
            data = _refusal(partition, fetched.asked.partition, error)
            if partition is not None and error.error_code in LED_ELSEWHERE and by_whom:
                data.current_leader = LeaderIdAndEpoch(broker.config.node_id, partition.leader_epoch)
            answer.urgent = True
        answer.found.append((fetched, data))
    if not plan.partitions:
        # Nothing can come: an empty request is answered at once, not after its whole wait.
        answer.urgent = True
    return answer


def _find(broker: Broker, fetched: Fetched) -> Partition:
    """Raises UnknownTopic."""
    topic = fetched.topic
    name = topic if isinstance(topic, str) else broker.manager.require_by_id(topic).name
    return broker.require_partition(name, fetched.asked.partition)


def _response(broker: Broker, plan: FetchPlan, answer: _Answer) -> FetchResponse:
    """What of the answer goes to the client: in a session that goes on, only what is news to it."""
    session_id, found = NO_SESSION, answer.found
    if plan.begins or plan.session is not None:
        news = [pair for pair in found if pair[0].take_news(pair[1])]
        session = plan.session or broker.fetch_sessions.begin(plan)
        if session is not None:
            session_id = session.session_id
            session.move_back((one.topic, one.asked.partition) for one, data in found if data.records)
        if plan.session is not None:
            found = news
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    for fetched, data in found:
        topic = topics.get(fetched.topic)
        if topic is None:
            topic = topics[fetched.topic] = FetchableTopicResponse()
            if isinstance(fetched.topic, str):
                topic.topic = fetched.topic
            else:
                topic.topic_id = fetched.topic
        topic.partitions.append(data)
    response = FetchResponse(session_id=session_id, responses=list(topics.values()))
    if any(data.current_leader is not None for _, data in found):
        response.node_endpoints = [NodeEndpoint(broker.config.node_id, *broker.advertised, broker.config.rack)]
    return response


def _check(request: FetchRequest, asked: FetchPartition) -> None:
    """Raises TopicError for what no reader may ask."""
    check_isolation_level(request.isolation_level)
    if request.max_bytes < 0 or asked.partition_max_bytes < 0:
        raise InvalidTopicRequest("A fetch of less than 0 bytes.")
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    if replica_id >= 0:
        raise TopicError(
            f"Broker {replica_id} is no replica of the partition.",
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


def _refusal(partition: Partition | None, index: int, error: BrokerError) -> PartitionData:
    data = PartitionData(index, error.error_code, -1, records=b"")
    data.aborted_transactions = [] if partition is None else None
    return data


async def _wait_for_data(broker: Broker, request: FetchRequest, answer: _Answer, deadline: float) -> bool:
    """Until the logs have grown by what is missing, or one of the partitions went; False when the time is up.

    The growth of the logs is compared, not read, so that many small appends cost a waiting fetch little. What a
    read_committed fetch may see grows by a marker of a few bytes, so there any growth counts.
    """
    partitions = answer.read
    missing_bytes = request.min_bytes - answer.size_bytes
    if request.isolation_level == IsolationLevel.READ_COMMITTED:
        missing_bytes = 1
    size_bytes = _size_bytes(partitions)
    event = asyncio.Event()
    for partition in partitions:
        partition.waiters.add(event)
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                await event.wait()
                event.clear()
                if any(broker.partition(p.topic, p.index) is not p or p.offline is not None for p in partitions):
                    return True
                grown_bytes = _size_bytes(partitions) - size_bytes
                if grown_bytes < 0 or grown_bytes >= missing_bytes:
                    return True
    except TimeoutError:
        return False
    finally:
        for partition in partitions:
            partition.waiters.discard(event)


def _size_bytes(partitions: list[Partition]) -> int:
    """Of those that are online."""
    return sum(partition.log.size_bytes for partition in partitions if partition.offline is None)


HANDLER = Handler(api=ApiKey.FETCH, versions=(4, 17), handle=handle)
