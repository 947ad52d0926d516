"""SyncGroup, v0-5: the leader brings the assignment, every member takes its part; answered once it is stored.

v3 static members; v5 protocol type and name, which must be the group's.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.model import SyncAsk, SyncResult
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    if context.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ask = SyncAsk(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type if context.api_version >= 5 else None,
        protocol_name=request.protocol_name if context.api_version >= 5 else None,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    try:
        context.rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
        result = await broker.groups.wait_for(request.group_id, lambda at: at.sync(request.group_id, ask))
    except BrokerError as failed:
        result = SyncResult(failed.error_code)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


HANDLER = Handler(api=ApiKey.SYNC_GROUP, versions=(0, 5), handle=handle)
