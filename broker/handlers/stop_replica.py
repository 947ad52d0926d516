"""StopReplica, v4: the controller says which partitions this broker has no more. Between brokers only."""

from __future__ import annotations

from broker.broker import Broker
from broker.cluster.order_messages import stop_replica_order, stop_replica_response
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.ordered import Refused, carried_out
from broker.wire.api import ApiKey
from broker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


async def handle(broker: Broker, request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    order = stop_replica_order(request)
    done = await carried_out(broker, context, order.controller_epoch, lambda: broker.replicas.stop(order))
    return StopReplicaResponse(done.code) if isinstance(done, Refused) else stop_replica_response(done)


HANDLER = Handler(api=ApiKey.STOP_REPLICA, versions=(4, 4), handle=handle)
