"""DescribeGroups, v0-5: state and members of groups. An unknown group is described as Dead, without an error.

Metadata and assignments are shown of a stable group only, as in Kafka: in a rebalance they are about to change.
v4 static members.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.groups.group import Group
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from broker.wire.vocabulary import GroupState


async def handle(broker: Broker, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_describe(broker, group_id) for group_id in request.groups])


def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(ErrorCode.INVALID_GROUP_ID, group_id, GroupState.DEAD.value)
    group = broker.groups.groups.get(group_id)
    if group is None:
        return DescribedGroup(ErrorCode.NONE, group_id, GroupState.DEAD.value)
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        ErrorCode.NONE,
        group_id,
        group.state.value,
        group.protocol_type or "",
        (group.protocol_name or "") if stable else "",
        _members(group, stable),
    )


def _members(group: Group, stable: bool) -> list[DescribedGroupMember]:
    return [
        DescribedGroupMember(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.metadata(group.protocol_name) if stable else b"",
            m.assignment if stable else b"",
        )
        for m in group.members.values()
    ]


HANDLER = Handler(api=ApiKey.DESCRIBE_GROUPS, versions=(0, 5), handle=handle)
