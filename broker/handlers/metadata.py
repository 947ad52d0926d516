"""Metadata, v0-12: the brokers, and the topics asked for.

v1 a null list asks for all topics (v0: an empty one); v4 the client may forbid auto-creation; v7 leader epochs; v8
authorised operations (all, as nobody is refused anything here); v10 topic ids; v12 topics by id.
Departure: a topic that is made on demand is answered with its leader at once instead of LEADER_NOT_AVAILABLE; it
has one.
"""

from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.topics.errors import TopicExists, UnknownTopic
from broker.topics.naming import INTERNAL_TOPICS, check_name
from broker.topics.partition import Partition, Topic
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.wire.schema import ZERO_UUID
from broker.wire.vocabulary import NO_LEADER

BY_ID_SINCE_VERSION: Final = 12
NOT_ASKED: Final = -(2**31)
# Bits are Kafka's AclOperation codes: read 3, write 4, create 5, delete 6, alter 7, describe 8, cluster action 9,
# describe configs 10, alter configs 11, idempotent write 12.
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


async def handle(broker: Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [_describe(topic, operations) for topic in broker.topics.values()]
    else:
        # Before it is described: a topic of many partitions that is named 100,000 times would not fit into memory.
        named = {(asked.topic_id, asked.name): asked for asked in request.topics}
        create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        answers = [
            await _answer(broker, asked, create, operations, context) async for asked in in_turns(named.values())
        ]
        # A topic that is named twice, or by name and by id, is answered once.
        topics = list({(answer.topic_id, answer.name): answer for answer in answers}.values())
    host, port = broker.advertised
    return MetadataResponse(
        brokers=[MetadataResponseBroker(broker.config.node_id, host, port, broker.config.rack)],
        cluster_id=broker.cluster_id,
        controller_id=broker.config.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _answer(
    broker: Broker, asked: MetadataRequestTopic, create: bool, operations: int, context: RequestContext
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_UUID and context.api_version < BY_ID_SINCE_VERSION:
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
        )
    if asked.topic_id != ZERO_UUID:
        topic = broker.manager.by_id(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        return _describe(topic, operations)
    name = asked.name or ""
    try:
        return _describe(await _find_or_create(broker, name, create), operations)
    except BrokerError as error:
        return MetadataResponseTopic(error_code=error.error_code, name=name, is_internal=name in INTERNAL_TOPICS)


async def _find_or_create(broker: Broker, name: str, create: bool) -> Topic:
    check_name(name)
    found = broker.topics.get(name)
    if found is not None:
        return found
    # The coordinators make their topics themselves, with their own configs.
    if not create or name in INTERNAL_TOPICS:
        raise UnknownTopic(f"Topic '{name}' does not exist.")
    try:
        return await broker.manager.create(name, broker.config.num_partitions, {})
    except TopicExists:
        # Another client asked for it while this one waited its turn.
        return broker.manager.require(name)


def _describe(topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[describe_partition(partition) for partition in topic.partitions],
        topic_authorized_operations=operations,
    )


def describe_partition(partition: Partition) -> MetadataResponsePartition:
    state = partition.state
    if partition.offline is not None:
        return MetadataResponsePartition(
            ErrorCode.LEADER_NOT_AVAILABLE,
            partition.index,
            leader_id=NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=[],
            offline_replicas=list(state.replicas),
        )
    return MetadataResponsePartition(
        partition_index=partition.index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
    )


HANDLER = Handler(api=ApiKey.METADATA, versions=(0, 12), handle=handle)
