"""ConsumerGroupDescribe, v0-1 (KIP-848): members, what they have and what they should have. Of consumer groups only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.consumer.model import NOTHING, ConsumerGroup, ConsumerMember, Slots
from broker.groups.consumer.records import by_topic
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.metadata import NOT_ASKED
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    DescribedMember,
    TopicPartitions,
)
from broker.wire.vocabulary import AclOperation, AclResource

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


async def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    names = {topic.topic_id: name for name, topic in broker.view.topics.items()}
    show, rights = request.include_authorized_operations, context.rights
    described = []
    for group_id in dict.fromkeys(request.group_ids):
        operations = rights.operations(AclResource.GROUP, group_id) if show else NOT_ASKED
        described.append(await _at_its_coordinator(broker, group_id, names, operations, rights))
    return ConsumerGroupDescribeResponse(groups=described)


async def _at_its_coordinator(
    broker: Broker, group_id: str, names: Mapping[UUID, str], operations: int, rights: Rights
) -> DescribedConsumerGroup:
    try:
        rights.require(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        if not group_id:
            return DescribedConsumerGroup(ErrorCode.INVALID_GROUP_ID, "Group id must not be empty.", group_id)
        found = await broker.groups.ask(group_id, lambda at: _describe(at, group_id, names, operations))
        _check_topics(found, rights)
        return found
    except BrokerError as error:
        return DescribedConsumerGroup(error.error_code, str(error), group_id)


def _check_topics(group: DescribedConsumerGroup, rights: Rights) -> None:
    """Raises NotAuthorized where the group would show a topic that may not be seen."""
    if not rights.is_limited:
        return
    for member in group.members:
        named = [
            one.topic_name for had in (member.assignment, member.target_assignment) for one in had.topic_partitions
        ]
        for name in dict.fromkeys((*member.subscribed_topic_names, *named)):
            rights.require(AclOperation.DESCRIBE, AclResource.TOPIC, name)


def _describe(
    at: GroupCoordinator, group_id: str, names: Mapping[UUID, str], operations: int
) -> DescribedConsumerGroup:
    group = at.consumer.groups.get(group_id)
    if group is not None:
        return _described(group, names, operations)
    text = f"Group {group_id} is not a consumer group." if at.exists(group_id) else None
    return DescribedConsumerGroup(ErrorCode.GROUP_ID_NOT_FOUND, text or f"Group {group_id} not found.", group_id)


def _described(group: ConsumerGroup, names: Mapping[UUID, str], operations: int) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        ErrorCode.NONE,
        None,
        group.group_id,
        group.state.value,
        group.epoch,
        group.target_epoch,
        group.assignor,
        [_member(member, group.target.get(member.member_id, NOTHING), names) for member in group.members.values()],
        operations,
    )


def _member(member: ConsumerMember, target: Slots, names: Mapping[UUID, str]) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.subscription.names),
        member.subscription.regex or "",
        _assignment(member.assigned, names),
        _assignment(target, names),
        CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(slots: Slots, names: Mapping[UUID, str]) -> Assignment:
    """Without topics that were deleted since: they have no name to show."""
    return Assignment(
        [
            TopicPartitions(topic_id, names[topic_id], partitions)
            for topic_id, partitions in by_topic(slots).items()
            if topic_id in names
        ]
    )


HANDLER = Handler(api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), handle=handle)
