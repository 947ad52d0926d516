"""Fetch, v4-17: whole batches from an offset on, waiting for data when there is too little.

v4 isolation level; v5 log start offset; v7 sessions (KIP-227, `broker/topics/fetch_sessions.py`); v9 the client's
leader epoch is checked (KIP-320); v11 a consumer that says its rack is sent to a replica there, which answers up to its
own high watermark (KIP-392); v12 the last fetched epoch is checked, and where the logs part is said in the answer
(KIP-595); v13 topics are named by their ids (KIP-516), so that one which was made anew is not taken for the old one;
v16 a reader with an old idea of the leader is told the new one (KIP-951). The first batch is the one that *contains*
the offset, and the first partition with data gives at least one batch however large it is (KIP-74), or a consumer
could stand still for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from broker.access.authorizer import NotAuthorized, Rights
from broker.base.clock import steady_ms
from broker.base.time_limits import timeout_at
from broker.broker import Broker
from broker.errors import BrokerError, OffsetOutOfRange
from broker.handlers.handler import Handler, RequestContext
from broker.limits import ITEMS_PER_TURN, UNSENT_ANSWERS_BYTES_MAX
from broker.replication.leading import Leading
from broker.topics.fetch_sessions import (
    NEVER_TOLD,
    Fetched,
    FetchPlan,
    FetchSession,
    FetchSessionError,
    TopicKey,
    by_topic,
)
from broker.topics.partition import Partition, Waiters
from broker.topics.reading import Reader, read_partition, reader_of, reads_any_replica, replica_id_of
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.fetch_epochs import NO_SESSION
from broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from broker.wire.vocabulary import AclOperation, AclResource, IsolationLevel

TOPIC_IDS_SINCE_VERSION = 13
LEADERS_SINCE_VERSION = 16
LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class _Answer:
    """`read` are the partitions that can be waited for. `urgent`: it says something that the client must know now,
    however few bytes it has. `overtaken`: while it waited something happened, be it too little to answer for.
    """

    found: list[tuple[Fetched, PartitionData]] = field(default_factory=list)
    read: list[Partition] = field(default_factory=list)
    reader: Reader | None = None
    size_bytes: int = 0
    throttled_bytes: int = 0
    urgent: bool = False
    overtaken: bool = False

    def is_enough(self, request: FetchRequest) -> bool:
        return self.urgent or self.size_bytes >= request.min_bytes or request.max_wait_ms <= 0

    def is_stale(self) -> bool:
        """Whether another look may find more. A follower is not woken for a high watermark that rises."""
        return (
            self.overtaken
            or len(self.read) < len(self.found)
            or any(
                data.high_watermark != of.log.high_watermark
                for (_, data), of in zip(self.found, self.read, strict=True)
            )
        )


async def handle(broker: Broker, request: FetchRequest, context: RequestContext) -> FetchResponse:
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    follower = context.inter_broker and replica_id_of(request) >= 0
    try:
        plan = broker.fetch_sessions.plan(request, by_id=by_id, privileged=follower)
    except FetchSessionError as error:
        return FetchResponse(error_code=error.error_code)
    if plan.session is not None and _is_woken(request, context):
        answer = await _find_news(broker, request, plan, plan.session, context)
    else:
        answer = await _find(broker, request, plan, context)
    if context.quota is not None and (rest_ms := context.quota.fetched(answer.size_bytes)):
        # Nothing of it counts as told: it is read again.
        session_id = NO_SESSION if plan.session is None else plan.session.session_id
        return FetchResponse(rest_ms, session_id=session_id)
    if answer.throttled_bytes:
        broker.leader_quota.record(answer.throttled_bytes, steady_ms(broker.clock))
    return _response(broker, plan, answer, context)


async def _find(broker: Broker, request: FetchRequest, plan: FetchPlan, context: RequestContext) -> _Answer:
    """Looks at all partitions, again and again."""
    deadline: float | None = None
    while True:
        answer = await _read(broker, request, plan.partitions.values(), context)
        # Where nothing can come: an empty request is answered at once, not after its whole wait.
        if not plan.partitions or answer.is_enough(request):
            return answer
        now = asyncio.get_running_loop().time()
        if deadline is None:
            deadline = now + request.max_wait_ms / 1000
        if now >= deadline:
            return answer
        with _counted(broker, answer):
            woken = await _wait_for_data(request, answer, deadline, context)
        if not woken and not answer.is_stale():
            return answer
        del answer  # or its records were held beside those of the next look, and counted nowhere
        if not woken:
            return await _read(broker, request, plan.partitions.values(), context)


def _is_woken(request: FetchRequest, context: RequestContext) -> bool:
    """Whether the partitions tell of all that a session's fetch may find. They do not tell of rights or of replicas
    nearer by, and a follower's fetch is more than a look; who waits for many bytes is not woken for each.
    """
    reads_leaders = replica_id_of(request) < 0 and not reads_any_replica(request)
    return reads_leaders and request.min_bytes <= 1 and not context.rights.is_limited


async def _find_news(
    broker: Broker, request: FetchRequest, plan: FetchPlan, session: FetchSession, context: RequestContext
) -> _Answer:
    """Looks at those partitions of the session that may have news, and then at those that are woken: what it costs does
    not grow with what is quiet.
    """
    found: dict[Fetched, PartitionData] = {}
    deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
    looked_at = session.look(request.isolation_level)
    while True:
        answer = await _read(broker, request, looked_at, context)
        found.update(answer.found)
        answer.found = list(found.items())
        if answer.is_enough(request) or not await _wait_for_news(session, deadline, context):
            return answer
        looked_at = session.look_again()


async def _wait_for_news(session: FetchSession, deadline: float, context: RequestContext) -> bool:
    """Until a partition of the session is woken; False when the time is up, or as in `_wait_for_data`."""
    with suppress(TimeoutError), _woken_by([session.waiters], context) as event:
        async with timeout_at(deadline):
            while not session.woken and not context.behind:
                await event.wait()
                event.clear()
    return bool(session.woken)


@contextmanager
def _woken_by(waited_on: Collection[Waiters], context: RequestContext) -> Iterator[asyncio.Event]:
    """Set by each of these, and by another request of the connection."""
    event = asyncio.Event()
    for waiters in waited_on:
        waiters[event] = None
    context.behind_waiters[event] = None
    try:
        yield event
    finally:
        for waiters in waited_on:
            waiters.pop(event, None)
        context.behind_waiters.pop(event, None)


@contextmanager
def _counted(broker: Broker, answer: _Answer) -> Iterator[None]:
    """While others may run what it holds is unsent, too: they must not take the same room."""
    broker.unsent_bytes += answer.size_bytes
    try:
        yield
    finally:
        broker.unsent_bytes -= answer.size_bytes


async def _read(
    broker: Broker, request: FetchRequest, looked_at: Collection[Fetched], context: RequestContext
) -> _Answer:
    """In turns with others when it is known not to wait: who waits must miss nothing that comes meanwhile."""
    answer, refused = _Answer(), dict[TopicKey, NotAuthorized]()
    room_bytes = UNSENT_ANSWERS_BYTES_MAX - broker.unsent_bytes
    limit_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
    if context.quota is not None:
        limit_bytes = int(min(limit_bytes, context.quota.fetch_bytes_max))
    version, inter_broker = context.api_version, context.inter_broker
    now_ms = steady_ms(broker.clock)
    for number, fetched in enumerate(tuple(looked_at)):  # of a session that others may change meanwhile
        if answer.urgent and number % ITEMS_PER_TURN == 0:
            with _counted(broker, answer):
                await asyncio.sleep(0)
            room_bytes = UNSENT_ANSWERS_BYTES_MAX - broker.unsent_bytes
        asked = fetched.asked
        partition = None
        try:
            if context.rights.is_limited:
                _check_rights(broker, fetched, request, context.rights, refused)
            partition = _replica(broker, fetched, any_replica=reads_any_replica(request))
            fetched.watch(partition.waiters)
            if answer.reader is None:
                answer.reader = reader_of(request, api_version=version, inter_broker=inter_broker, now_ms=now_ms)
            if request.rack_id and (closest := _closest(broker, partition, asked, request.rack_id)) is not None:
                answer.found.append((fetched, _elsewhere(partition, asked, closest)))
                answer.urgent = True
                continue
            throttled = answer.reader.follows and partition.is_throttled_here
            held_back = throttled and _is_held_back(broker, partition, answer.reader)
            left_bytes = 0 if held_back else max(0, min(limit_bytes, room_bytes) - answer.size_bytes)
            first = answer.size_bytes == 0 and not held_back
            data, size_bytes = read_partition(
                partition, asked, answer.reader, room_bytes=left_bytes, at_least_one=first
            )
            answer.size_bytes += size_bytes
            answer.throttled_bytes += size_bytes if throttled else 0
            if data.diverging_epoch is not None:
                answer.urgent = True
            elif answer.reader.follows:
                _note_follower(broker, partition, answer, fetched, data)
            if not held_back:
                answer.read.append(partition)
        except BrokerError as error:
            data = _refusal(partition, asked.partition, error)
            if partition is not None:
                _say_more(broker, partition, data, error, answer.reader, version)
            answer.urgent = True
        answer.found.append((fetched, data))
    return answer


def _is_held_back(broker: Broker, partition: Partition, reader: Reader) -> bool:
    """Whether a replica that catches up gets nothing of it now (KIP-73)."""
    return reader.replica_id not in partition.isr and broker.leader_quota.is_exceeded(reader.now_ms)


def _note_follower(
    broker: Broker, partition: Partition, answer: _Answer, fetched: Fetched, data: PartitionData
) -> None:
    """It may be in sync now. Where records were deleted somebody waits until it has deleted them too, and where
    consumers read from followers, for its high watermark.
    """
    if answer.reader is not None and answer.reader.replica_id not in partition.isr:
        broker.in_sync.fetched(partition, answer.reader.replica_id)
    if fetched.log_start_offset not in (NEVER_TOLD, data.log_start_offset):
        answer.urgent = True
    read_there = partition.leading is not None and partition.leading.read_at_followers
    if read_there and fetched.high_watermark not in (NEVER_TOLD, data.high_watermark):
        answer.urgent = True


def _say_more(
    broker: Broker,
    partition: Partition,
    data: PartitionData,
    error: BrokerError,
    reader: Reader | None,
    version: int,
) -> None:
    """What helps the reader on: the leader to ask; to a follower the start of the log, where it begins anew."""
    if error.error_code in LED_ELSEWHERE and version >= LEADERS_SINCE_VERSION:
        data.current_leader = LeaderIdAndEpoch(broker.config.node_id, partition.leader_epoch)
    if reader is not None and reader.follows and isinstance(error, OffsetOutOfRange):
        data.log_start_offset = partition.log.log_start_offset


def _check_rights(
    broker: Broker, fetched: Fetched, request: FetchRequest, rights: Rights, refused: dict[TopicKey, NotAuthorized]
) -> None:
    """Who says that he is a broker needs the right to be one (CVE-2018-1288). `refused`: what was of this request, of
    which nobody is asked again. Raises NotAuthorized, UnknownTopic.
    """
    if (known := refused.get(fetched.topic)) is not None:
        raise known.with_traceback(None)
    try:
        if replica_id_of(request) < 0:
            rights.require(AclOperation.READ, AclResource.TOPIC, _name(broker, fetched))
        elif not rights.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
            raise NotAuthorized(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    except NotAuthorized as error:
        refused[fetched.topic] = error
        raise


def _name(broker: Broker, fetched: Fetched) -> str:
    """Raises UnknownTopic."""
    topic = fetched.topic
    return topic if isinstance(topic, str) else broker.view.require_by_id(topic).name


def _replica(broker: Broker, fetched: Fetched, *, any_replica: bool) -> Partition:
    """One that is led here; `any_replica`: or followed. Raises UnknownTopic, PartitionOffline, NotLeading."""
    name, index = _name(broker, fetched), fetched.asked.partition
    if any_replica and (here := broker.partition(name, index)) is not None and here.is_followed:
        return here
    return broker.require_partition(name, index)


def _closest(broker: Broker, partition: Partition, asked: FetchPartition, rack: str) -> int | None:
    """The replica in the consumer's rack that it is to fetch from (KIP-392); None: this one."""
    leading, brokers = partition.leading, broker.view.brokers
    if leading is None or broker.config.rack == rack:
        return None
    in_rack = [
        node for node in partition.isr if (found := brokers.get(node)) is not None and found.registration.rack == rack
    ]
    return leading.best_follower(in_rack, asked.fetch_offset)


def _elsewhere(partition: Partition, asked: FetchPartition, node_id: int) -> PartitionData:
    """Raises LeaderEpochMismatch, PartitionOffline."""
    partition.check_leader_epoch(asked.current_leader_epoch)
    log = partition.log
    return PartitionData(
        asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        preferred_read_replica=node_id,
        records=b"",
    )


def _response(broker: Broker, plan: FetchPlan, answer: _Answer, context: RequestContext) -> FetchResponse:
    session_id, told = broker.fetch_sessions.tell(plan, answer.found)
    response = FetchResponse(session_id=session_id, responses=by_topic(told))
    if any(data.current_leader is not None for _, data in told):
        response.node_endpoints = [
            NodeEndpoint(broker.config.node_id, *broker.advertised_at(context.listener), broker.config.rack)
        ]
    return response


def _refusal(partition: Partition | None, index: int, error: BrokerError) -> PartitionData:
    data = PartitionData(index, error.error_code, -1, records=b"")
    data.aborted_transactions = [] if partition is None else None
    return data


async def _wait_for_data(request: FetchRequest, answer: _Answer, deadline: float, context: RequestContext) -> bool:
    """Until the logs have grown by what is missing, or one of the partitions went; False when the time is up, or
    another request of the connection waits for this one's answer.

    The growth of the logs is compared, not read, so that many small appends cost a waiting fetch little. What a
    read_committed fetch may see grows by a marker of a few bytes, and what is behind a high watermark that lags is not
    counted: there any news is looked at.
    """
    partitions = answer.read
    follows = answer.reader is not None and answer.reader.follows
    missing_bytes = request.min_bytes - answer.size_bytes
    if request.isolation_level == IsolationLevel.READ_COMMITTED:
        missing_bytes = 1
    elif not follows and any(p.log.high_watermark < p.log.log_end_offset for p in partitions):
        missing_bytes = 0
    size_bytes = _size_bytes(partitions)
    led = [_leads_from(partition, follows) for partition in partitions]
    waited_on = [partition.replica_waiters if follows else partition.waiters for partition in partitions]
    with _woken_by(waited_on, context) as event:
        try:
            async with timeout_at(deadline):
                while not context.behind:
                    await event.wait()
                    event.clear()
                    answer.overtaken = True
                    if [_leads_from(partition, follows) for partition in partitions] != led:
                        return True
                    grown_bytes = _size_bytes(partitions) - size_bytes
                    if grown_bytes < 0 or grown_bytes >= missing_bytes:
                        return True
        except TimeoutError:
            answer.overtaken |= event.is_set()
    return False


def _leads_from(partition: Partition, follows: bool) -> tuple[Leading | None, int, int]:
    """Who waits is told when that changes: consumers of the leadership, followers also of the log's start, and of the
    high watermark where consumers read from them.
    """
    leading = partition.leading
    if leading is None or not follows:
        return leading, 0, 0
    return leading, partition.log.log_start_offset, leading.high_watermark if leading.read_at_followers else 0


def _size_bytes(partitions: list[Partition]) -> int:
    """Of those that are online."""
    return sum(partition.log.size_bytes for partition in partitions if partition.offline is None)


HANDLER = Handler(api=ApiKey.FETCH, versions=(4, 17), handle=handle)
