"""AlterClientQuotas, v0-1 (KIP-546): quotas set on users, client ids and addresses, and taken away; of each all or
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from broker.access.entities import Entity, path_of
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.describe_client_quotas import entity_data
from broker.handlers.handler import Handler, RequestContext
from broker.quotas.settings import QuotaInvalid, altered, check_entity
from broker.wire.api import ApiKey
from broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    OpData,
)
from broker.wire.vocabulary import AclOperation, AclResource

_Name = tuple[tuple[str, str | None], ...]


async def handle(
    broker: Broker, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    done: dict[_Name, AlteredQuota] = {}
    for entry in request.entries:
        entity: Entity = {one.entity_type: one.entity_name for one in entry.entity}
        name = tuple(sorted(entity.items(), key=lambda item: item[0]))
        try:
            context.rights.require(AclOperation.ALTER_CONFIGS, AclResource.CLUSTER)
            if name in done:
                raise QuotaInvalid(f"Ignoring duplicate entity {dict(entity)}")
            await _alter(broker, entity, _changes(entry.ops), validate_only=request.validate_only)
            done[name] = AlteredQuota(0, None, entity_data(entity))
        except BrokerError as error:
            done[name] = AlteredQuota(error.error_code, str(error), entity_data(entity))
    return AlterClientQuotasResponse(entries=list(done.values()))


def _changes(ops: list[OpData]) -> dict[str, float | None]:
    """Raises QuotaInvalid."""
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key in changes:
            raise QuotaInvalid(f"Duplicate quota key {op.key}")
        changes[op.key] = None if op.remove else op.value
    return changes


async def _alter(broker: Broker, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
    check_entity(entity)
    path, change = path_of(entity), partial(altered, entity, changes=changes)
    if validate_only:
        change(broker.entities.values.get(path, {}))
    else:
        await broker.entities.change(path, change)


HANDLER = Handler(api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), handle=handle)
