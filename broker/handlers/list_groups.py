"""ListGroups, v0-5: the groups that this broker coordinates; an error while one of its partitions is not loaded.

v4 filter by state, v5 by type ("classic", "consumer").
"""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.groups.coordinator import GroupCoordinator
from broker.groups.subscriptions import CONSUMER_PROTOCOL
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    rights = context.rights
    sees_all = rights.may(AclOperation.DESCRIBE, AclResource.CLUSTER, quietly=True)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    try:
        found = await broker.groups.ask_all(_all)
    except BrokerError as error:
        return ListGroupsResponse(error_code=error.error_code)
    return ListGroupsResponse(
        groups=[
            group
            for part in found
            for group in part
            if sees_all or rights.may(AclOperation.DESCRIBE, AclResource.GROUP, group.group_id, quietly=True)
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ]
    )


def _all(at: GroupCoordinator) -> list[ListedGroup]:
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, "classic")
        for group in at.groups.values()
    ] + [
        ListedGroup(group.group_id, CONSUMER_PROTOCOL, group.state.value, "consumer")
        for group in at.consumer.groups.values()
    ]


HANDLER = Handler(api=ApiKey.LIST_GROUPS, versions=(0, 5), handle=handle)
