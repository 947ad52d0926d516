"""DeleteGroups, v0-2: forget empty groups and their offsets. NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""

from __future__ import annotations

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(name, await _delete(broker, name, context.rights))
            for name in dict.fromkeys(request.groups_names)
        ]
    )


async def _delete(broker: Broker, group_id: str, rights: Rights) -> ErrorCode:
    try:
        rights.require(AclOperation.DELETE, AclResource.GROUP, group_id)
        return await broker.groups.ask(group_id, lambda at: at.delete(group_id))
    except BrokerError as error:
        return error.error_code


HANDLER = Handler(api=ApiKey.DELETE_GROUPS, versions=(0, 2), handle=handle)
