"""ListGroups, v0-5: all groups of this broker. v4 filter by state, v5 by type ("classic" is the only one here)."""

from __future__ import annotations

from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUP_TYPE = "classic"


async def handle(broker: Broker, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and GROUP_TYPE not in types:
        return ListGroupsResponse()
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value, GROUP_TYPE)
            for group in broker.groups.groups.values()
            if not states or group.state.value.lower() in states
        ]
    )


HANDLER = Handler(api=ApiKey.LIST_GROUPS, versions=(0, 5), handle=handle)
