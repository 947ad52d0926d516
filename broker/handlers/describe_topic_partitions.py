"""DescribeTopicPartitions, v0 (KIP-966): what Metadata says of topics, by name, a page of partitions at a time.

The cursor is the first partition that did not fit, of a topic that is asked for; topics before it are left out. No
replica that is out of sync may become the leader, so there are no eligible ones to name.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.cluster.metadata import TopicState
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.metadata import describe_partition
from broker.limits import DESCRIBED_PARTITIONS_MAX
from broker.topics.naming import INTERNAL_TOPICS, check_name
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    start = request.cursor or Cursor()
    asked = {topic.name for topic in request.topics}
    response = DescribeTopicPartitionsResponse()
    if start.partition_index < 0 or (request.cursor is not None and asked and start.topic_name not in asked):
        response.topics = [
            DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name) for name in sorted(asked)
        ]
        return response
    rights = context.rights
    room = max(1, min(request.response_partition_limit, DESCRIBED_PARTITIONS_MAX))
    for name in sorted(asked or broker.view.topics.keys() | broker.view.unreadable):
        if name < start.topic_name:
            continue
        if not rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, quietly=not asked):
            if asked:
                response.topics.append(_hidden(name))
            continue
        if room == 0:
            response.next_cursor = Cursor(name, 0)
            break
        topic, first = broker.view.topics.get(name), start.partition_index if name == start.topic_name else 0
        if topic is None:
            response.topics.append(_unknown(broker, name, rights))
            continue
        shown = range(len(topic.partitions))[first:][:room]
        response.topics.append(_describe(broker, topic, shown, rights))
        room -= len(shown)
        if shown and shown[-1] + 1 < len(topic.partitions):
            response.next_cursor = Cursor(name, shown[-1] + 1)
            break
    return response


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Whether there is such a topic is not told."""
    return DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)


def _unknown(broker: Broker, name: str, rights: Rights) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
        broker.view.require(name)
    except BrokerError as error:
        code = error.error_code
    answer = DescribeTopicPartitionsResponseTopic(code, name)
    answer.topic_authorized_operations = rights.operations(AclResource.TOPIC, name)
    return answer


def _describe(
    broker: Broker, topic: TopicState, indexes: Iterable[int], rights: Rights
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe_partition(broker, topic, index) for index in indexes],
        topic_authorized_operations=rights.operations(AclResource.TOPIC, topic.name),
    )


def _describe_partition(broker: Broker, topic: TopicState, index: int) -> DescribeTopicPartitionsResponsePartition:
    said = describe_partition(broker, topic.name, index, topic.partitions[index])
    return DescribeTopicPartitionsResponsePartition(
        said.error_code,
        said.partition_index,
        said.leader_id,
        said.leader_epoch,
        said.replica_nodes,
        said.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=said.offline_replicas,
    )


HANDLER = Handler(api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), handle=handle)
