"""JoinGroup, v0-9: enter a group, or come back in a rebalance; answered when the rebalance closes.

v1 rebalance timeout; v4 the first join only gives a member id (KIP-394); v5 static members (KIP-345); v7 protocol type;
v9 skip_assignment (KIP-814). The coordinator does not look into the protocol's metadata: Connect works as consumers do.
"""

from __future__ import annotations

from uuid import uuid4

from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.model import GroupProtocol, JoinAsk, JoinResult
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    prefix = request.group_instance_id or context.client_id or ""
    ask = JoinAsk(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=context.client_host,
        protocol_type=request.protocol_type,
        protocols=tuple(GroupProtocol(p.name, p.metadata) for p in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        # v0 had one timeout for both.
        rebalance_timeout_ms=request.rebalance_timeout_ms if context.api_version >= 1 else request.session_timeout_ms,
        new_member_id=f"{prefix}-{uuid4()}",
        requires_known_member_id=context.api_version >= 4,
        supports_skipping_assignment=context.api_version >= 9,
    )
    try:
        context.rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
        result = await broker.groups.wait_for(request.group_id, lambda at: at.join(request.group_id, ask))
    except BrokerError as failed:
        result = JoinResult(failed.error_code, request.member_id)
    # Before v7 the protocol could not be null.
    name = result.protocol_name if context.api_version >= 7 else result.protocol_name or ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[JoinGroupResponseMember(m.member_id, m.instance_id, m.metadata) for m in result.members],
    )


HANDLER = Handler(api=ApiKey.JOIN_GROUP, versions=(0, 9), handle=handle)
