"""LeaderAndIsr, v7: the controller says which partitions this broker leads and follows. Between brokers only."""

from __future__ import annotations

from broker.broker import Broker
from broker.cluster.order_messages import leader_and_isr_order, leader_and_isr_response
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.ordered import Refused, carried_out
from broker.wire.api import ApiKey
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(broker: Broker, request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
    order = leader_and_isr_order(request)
    done = await carried_out(broker, context, order.controller_epoch, lambda: broker.replicas.lead_and_follow(order))
    if isinstance(done, Refused):
        return LeaderAndIsrResponse(done.code, error_message=done.text)
    return leader_and_isr_response(request, done)


HANDLER = Handler(api=ApiKey.LEADER_AND_ISR, versions=(7, 7), handle=handle)
