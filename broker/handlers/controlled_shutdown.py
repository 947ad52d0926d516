"""ControlledShutdown, v3: a broker that is about to stop asks the controller. Between brokers only."""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.limits import CONTROLLED_SHUTDOWN_MS
from broker.wire.api import ApiKey
from broker.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(
    broker: Broker, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    try:
        context.rights.require(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        remaining = await broker.own_controller.controlled_shutdown(
            request.broker_id, request.broker_epoch, CONTROLLED_SHUTDOWN_MS
        )
    except BrokerError as error:
        return ControlledShutdownResponse(error.error_code)
    return ControlledShutdownResponse(remaining_partitions=[RemainingPartition(*where) for where in sorted(remaining)])


HANDLER = Handler(api=ApiKey.CONTROLLED_SHUTDOWN, versions=(3, 3), handle=handle)
