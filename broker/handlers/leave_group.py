"""LeaveGroup, v0-5: members leave, which starts a rebalance for the others. v3 many members, also by instance id."""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.model import Leaver
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    leavers = [Leaver(each.member_id, each.group_instance_id) for each in request.members]
    if context.api_version < 3:
        leavers = [Leaver(request.member_id, None)]
    try:
        context.rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        errors = await broker.groups.ask(request.group_id, lambda at: at.leave(request.group_id, leavers))
    except BrokerError as failed:
        return LeaveGroupResponse(error_code=failed.error_code)
    if context.api_version < 3:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(who.member_id, who.instance_id, error) for who, error in zip(leavers, errors, strict=True)
        ]
    )


HANDLER = Handler(api=ApiKey.LEAVE_GROUP, versions=(0, 5), handle=handle)
