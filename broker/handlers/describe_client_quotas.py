"""DescribeClientQuotas, v0-1 (KIP-546): what is set on users, client ids and addresses, of those that are asked for."""

from __future__ import annotations

from broker.access.entities import Entity, entity_of
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.quotas.settings import Asked, check_asked, is_meant, quotas_in
from broker.wire.api import ApiKey
from broker.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(
    broker: Broker, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    parts = [Asked(part.entity_type, part.match_type, part.match) for part in request.components]
    try:
        context.rights.require(AclOperation.DESCRIBE_CONFIGS, AclResource.CLUSTER)
        check_asked(parts)
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.error_code, error_message=str(error), entries=None)
    entries = [
        EntryData(entity_data(entity), [ValueData(key, value) for key, value in quotas.items()])
        for path, values in sorted(broker.entities.values.items())
        if (quotas := quotas_in(values)) and is_meant(entity := entity_of(path), parts, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def entity_data(entity: Entity) -> list[EntityData]:
    return [EntityData(kind, name) for kind, name in entity.items()]


HANDLER = Handler(api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), handle=handle)
