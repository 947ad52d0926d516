"""LeaveGroup, v0-5: members leave, which starts a rebalance for the others. v3 many members, also by instance id."""

from __future__ import annotations

from broker.broker import Broker
from broker.groups.model import Leaver
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse


async def handle(broker: Broker, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if context.api_version < 3:
        (error,) = broker.groups.leave(request.group_id, [Leaver(request.member_id, None)])
        return LeaveGroupResponse(error_code=error)
    leavers = [Leaver(each.member_id, each.group_instance_id) for each in request.members]
    errors = broker.groups.leave(request.group_id, leavers)
    return LeaveGroupResponse(
        members=[
            MemberResponse(who.member_id, who.instance_id, error) for who, error in zip(leavers, errors, strict=True)
        ]
    )


HANDLER = Handler(api=ApiKey.LEAVE_GROUP, versions=(0, 5), handle=handle)
