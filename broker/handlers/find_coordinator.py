"""FindCoordinator, v0-4: which broker coordinates a group (key type 0) or a transactional id (1).

It is the leader of the partition of the coordinator's topic that has the key; nobody where that cannot be loaded.
v1 key type; v4 many keys in one request. Share groups (key type 2, v6) are not served.
"""

from __future__ import annotations

from typing import Final

from broker.access.authorizer import NotAuthorized
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.vocabulary import GROUP_COORDINATOR, TRANSACTION_COORDINATOR, AclOperation, AclResource

_KINDS: Final = {
    GROUP_COORDINATOR: AclResource.GROUP,
    TRANSACTION_COORDINATOR: AclResource.TRANSACTIONAL_ID,
}


async def handle(broker: Broker, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version >= 4:
        found = [
            await _find(broker, request.key_type, key, context) async for key in in_turns(request.coordinator_keys)
        ]
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(broker, request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: Broker, key_type: int, key: str, context: RequestContext) -> Coordinator:
    kind = _KINDS.get(key_type)
    if kind is None:
        return _nowhere(key, ErrorCode.INVALID_REQUEST)
    try:
        context.rights.require(AclOperation.DESCRIBE, kind, key)
    except NotAuthorized as error:
        return _nowhere(key, error.error_code)
    coordinators = broker.groups if key_type == GROUP_COORDINATOR else broker.transactions
    try:
        await coordinators.require(key)
        index = await coordinators.partition_for(key)
        leader = broker.leader_address(coordinators.topic.name, index, context.listener)
    except BrokerError as error:
        # Clients ask again on this code, and on hardly any other.
        return _nowhere(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
    if leader is None:
        return _nowhere(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key, *leader, ErrorCode.NONE, None)


def _nowhere(key: str, error: ErrorCode, text: str | None = None) -> Coordinator:
    return Coordinator(key, -1, "", -1, error, text or error.description)


HANDLER = Handler(api=ApiKey.FIND_COORDINATOR, versions=(0, 4), handle=handle)
