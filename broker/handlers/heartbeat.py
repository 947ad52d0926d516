"""Heartbeat, v0-4: a member's sign of life; the answer tells it of a rebalance. v3 static members."""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    # It is told nothing that its next request would not find out: it does not wait for replicas, nor does its session.
    try:
        context.rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
        coordinator = await broker.groups.at(request.group_id)
        error = coordinator.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except BrokerError as failed:
        error = failed.error_code
    return HeartbeatResponse(error_code=error)


HANDLER = Handler(api=ApiKey.HEARTBEAT, versions=(0, 4), handle=handle)
