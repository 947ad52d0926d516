"""EndTxn, v0-4: commit or abort. v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. v5 (KIP-890) is not served."""

from __future__ import annotations

from broker.broker import Broker
from broker.coordination.internal_log import Producer
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


async def handle(broker: Broker, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    producer = Producer(request.producer_id, request.producer_epoch)
    error = broker.transactions.end(request.transactional_id, producer, commit=request.committed)
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error)


HANDLER = Handler(api=ApiKey.END_TXN, versions=(0, 4), handle=handle)
