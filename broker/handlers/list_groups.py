"""ListGroups, v0-5: all groups of this broker. v4 filter by state, v5 by type ("classic", "consumer")."""

from __future__ import annotations

from collections.abc import Iterator

from broker.broker import Broker
from broker.groups.subscriptions import CONSUMER_PROTOCOL
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(broker: Broker, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=[
            group
            for group in _all(broker)
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ]
    )


def _all(broker: Broker) -> Iterator[ListedGroup]:
    for classic in broker.groups.groups.values():
        yield ListedGroup(classic.group_id, classic.protocol_type or "", classic.state.value, "classic")
    for group in broker.groups.consumer.groups.values():
        yield ListedGroup(group.group_id, CONSUMER_PROTOCOL, group.state.value, "consumer")


HANDLER = Handler(api=ApiKey.LIST_GROUPS, versions=(0, 5), handle=handle)
