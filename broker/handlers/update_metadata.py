"""UpdateMetadata, v8: the controller says what this broker tells clients of the cluster. Between brokers only."""

from __future__ import annotations

from broker.broker import Broker
from broker.cluster.order_messages import update_metadata_order
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.ordered import Refused, carried_out
from broker.wire.api import ApiKey
from broker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle(broker: Broker, request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
    order = update_metadata_order(request)
    done = await carried_out(broker, context, order.controller_epoch, lambda: broker.replicas.learn(order))
    return UpdateMetadataResponse(done.code) if isinstance(done, Refused) else UpdateMetadataResponse()


HANDLER = Handler(api=ApiKey.UPDATE_METADATA, versions=(8, 8), handle=handle)
