"""ConsumerGroupHeartbeat, v0-1 (KIP-848): a member joins, says what it has, and is told what it should have.

In v0 a member that joins may leave its id to the coordinator. v1 regular expressions, matched here. As with Kafka 4
topics that a member names it must be able to see, and those that it may not see match no expression of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.consumer.model import JOIN_EPOCH, HeartbeatAsk, Slot, Slots
from broker.groups.consumer.records import by_topic
from broker.groups.limits import CONSUMER_HEARTBEAT_INTERVAL_MS
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from broker.wire.vocabulary import AclOperation, AclResource


@dataclass(frozen=True)
class _Sees:
    """Topics whose names a regular expression may match for this member."""

    rights: Rights

    def __call__(self, topic: str) -> bool:
        return self.rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic, quietly=True)


async def handle(
    broker: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    joins_without_id = context.api_version == 0 and request.member_epoch == JOIN_EPOCH and not request.member_id
    ask = HeartbeatAsk(
        member_id=str(uuid4()) if joins_without_id else request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=context.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        names=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request),
        sees=None if broker.acls.authorizer is None else _Sees(context.rights),
    )
    try:
        _check_rights(context.rights, request)
        result = await broker.groups.ask(request.group_id, lambda at: at.consumer_heartbeat(request.group_id, ask))
    except BrokerError as refused:
        return ConsumerGroupHeartbeatResponse(error_code=refused.error_code, error_message=str(refused))
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        # One that left is to send no more.
        heartbeat_interval_ms=CONSUMER_HEARTBEAT_INTERVAL_MS if result.member_epoch >= 0 else 0,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _check_rights(rights: Rights, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises NotAuthorized, also where a topic that is named may not be seen."""
    rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
    for name in request.subscribed_topic_names or ():
        rights.require(AclOperation.DESCRIBE, AclResource.TOPIC, name)


def _owned(request: ConsumerGroupHeartbeatRequest) -> Slots | None:
    if request.topic_partitions is None:
        return None
    return frozenset(Slot(topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def _assignment(slots: Slots) -> Assignment:
    return Assignment([TopicPartitions(topic_id, partitions) for topic_id, partitions in by_topic(slots).items()])


HANDLER = Handler(api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), handle=handle)
