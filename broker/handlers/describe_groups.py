"""DescribeGroups, v0-5: state and members of groups. An unknown group is described as Dead, without an error.

Metadata and assignments are shown of a stable group only, as in Kafka: in a rebalance they are about to change.
v4 static members.
"""

from __future__ import annotations

from broker.access.authorizer import NotAuthorized, Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group import Group
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.handlers.metadata import NOT_ASKED
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from broker.wire.vocabulary import AclOperation, AclResource, GroupState


async def handle(broker: Broker, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    show, rights = request.include_authorized_operations, context.rights
    return DescribeGroupsResponse(
        groups=[
            await _at_its_coordinator(broker, group_id, rights, show)
            async for group_id in in_turns(dict.fromkeys(request.groups))
        ]
    )


async def _at_its_coordinator(broker: Broker, group_id: str, rights: Rights, show: bool) -> DescribedGroup:
    operations = rights.operations(AclResource.GROUP, group_id) if show else NOT_ASKED
    try:
        rights.require(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        return await broker.groups.ask(group_id, lambda at: _describe(at, group_id, operations))
    except NotAuthorized as error:
        return DescribedGroup(error.error_code, group_id)
    except BrokerError as error:
        return DescribedGroup(error.error_code, group_id, authorized_operations=operations)


def _describe(at: GroupCoordinator, group_id: str, operations: int) -> DescribedGroup:
    group = at.groups.get(group_id)
    if group is None:
        return DescribedGroup(ErrorCode.NONE, group_id, GroupState.DEAD.value, authorized_operations=operations)
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        ErrorCode.NONE,
        group_id,
        group.state.value,
        group.protocol_type or "",
        (group.protocol_name or "") if stable else "",
        _members(group, stable),
        operations,
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
