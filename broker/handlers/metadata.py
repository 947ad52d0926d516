"""Metadata, v0-12: the brokers, and the topics asked for.

v1 a null list asks for all topics (v0: an empty one); v4 the client may forbid auto-creation; v7 leader epochs; v8
authorised operations; v10 topic ids; v12 topics by id.
Departure: a topic that is made on demand is answered with its leader at once instead of LEADER_NOT_AVAILABLE; it
has one. What is told is what the controller told this broker (`cluster/view.py`). A topic of which the store's metadata
cannot be read is answered with LEADER_NOT_AVAILABLE, also among all; Kafka has no controller then.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from broker.access.authorizer import NotAuthorized, Rights
from broker.broker import Broker
from broker.cluster.metadata import PartitionState, TopicState
from broker.controller.requests import NewTopic
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.limits import AUTO_CREATE_TIMEOUT_MS
from broker.topics.errors import TopicExists, UnknownTopic
from broker.topics.naming import INTERNAL_TOPICS, check_name
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
from broker.wire.vocabulary import NO_LEADER, AclOperation, AclResource

BY_ID_SINCE_VERSION: Final = 12
NOT_ASKED: Final = -(2**31)
NO_CONTROLLER: Final = -1


async def handle(broker: Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    show, rights = request.include_topic_authorized_operations, context.rights
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [
            _describe(broker, topic, rights, show)
            for topic in list(broker.view.topics.values())
            if rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name, quietly=True)
        ]
        topics += [
            _refused(name, ErrorCode.LEADER_NOT_AVAILABLE)
            for name in sorted(broker.view.unreadable - broker.view.topics.keys())
            if rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, quietly=True)
        ]
    else:
        # Before it is described: a topic of many partitions that is named 100,000 times would not fit into memory.
        named = {(asked.topic_id, asked.name): asked for asked in request.topics}
        create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        answers = [await _answer(broker, asked, create, show, context) async for asked in in_turns(named.values())]
        # A topic that is named twice, or by name and by id, is answered once.
        topics = list({(answer.topic_id, answer.name): answer for answer in answers}.values())
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id, endpoint.host, endpoint.port, rack)
            for node_id, (endpoint, rack) in broker.view.endpoints(context.listener).items()
        ],
        cluster_id=broker.cluster_id,
        controller_id=NO_CONTROLLER if broker.view.controller is None else broker.view.controller,
        topics=topics,
        cluster_authorized_operations=cluster_operations(rights, show=request.include_cluster_authorized_operations),
    )


def cluster_operations(rights: Rights, *, show: bool) -> int:
    """Nothing to who may not describe the cluster."""
    if not show:
        return NOT_ASKED
    may = rights.may(AclOperation.DESCRIBE, AclResource.CLUSTER)
    return rights.operations(AclResource.CLUSTER) if may else 0


async def _answer(
    broker: Broker, asked: MetadataRequestTopic, create: bool, show: bool, context: RequestContext
) -> MetadataResponseTopic:
    rights = context.rights
    if asked.topic_id != ZERO_UUID and context.api_version < BY_ID_SINCE_VERSION:
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
        )
    if asked.topic_id != ZERO_UUID:
        topic = broker.view.by_id(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        if not rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name):
            return _hidden(None, asked.topic_id, NOT_ASKED)
        return _describe(broker, topic, rights, show)
    name = asked.name or ""
    try:
        rights.require(AclOperation.DESCRIBE, AclResource.TOPIC, name)
        return _describe(broker, await _find_or_create(broker, name, create, rights), rights, show)
    except NotAuthorized:
        return _hidden(name, ZERO_UUID, rights.operations(AclResource.TOPIC, name) if show else NOT_ASKED)
    except BrokerError as error:
        return _refused(name, error.error_code)


def _refused(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _hidden(name: str | None, topic_id: UUID, operations: int) -> MetadataResponseTopic:
    """Whether there is such a topic is not told."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, topic_authorized_operations=operations)


async def _find_or_create(broker: Broker, name: str, create: bool, rights: Rights) -> TopicState:
    if name in broker.view.topics or name in broker.view.unreadable:
        return broker.view.require(name)
    if create and not rights.may(AclOperation.CREATE, AclResource.CLUSTER, quietly=True):
        rights.require(AclOperation.CREATE, AclResource.TOPIC, name)
    check_name(name)
    # The coordinators make their topics themselves, with their own configs.
    if not create or name in INTERNAL_TOPICS:
        raise UnknownTopic(f"Topic '{name}' does not exist.")
    try:
        return await broker.controller.create_topic(NewTopic(name), AUTO_CREATE_TIMEOUT_MS)
    except TopicExists:
        # Another client asked for it while this one waited its turn.
        return broker.view.require(name)


def _describe(broker: Broker, topic: TopicState, rights: Rights, show: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            describe_partition(broker, topic.name, index, state) for index, state in enumerate(topic.partitions)
        ],
        topic_authorized_operations=rights.operations(AclResource.TOPIC, topic.name) if show else NOT_ASKED,
    )


def describe_partition(broker: Broker, topic: str, index: int, state: PartitionState) -> MetadataResponsePartition:
    """A leader that is not there, or whose files this broker knows to be damaged, is none. The ISR then names, as with
    Kafka, who has all that was acknowledged: one of them has to come back.
    """
    here, brokers = broker.partition(topic, index), broker.view.brokers
    damaged = here is not None and here.offline is not None
    offline = [node for node in state.replicas if node not in brokers or (damaged and node == broker.config.node_id)]
    if state.leader == NO_LEADER or state.leader in offline:
        return MetadataResponsePartition(
            ErrorCode.LEADER_NOT_AVAILABLE,
            index,
            leader_id=NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=offline,
        )
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=offline,
    )


HANDLER = Handler(api=ApiKey.METADATA, versions=(0, 12), handle=handle)
