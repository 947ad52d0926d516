"""EndTxn, v0-4: commit or abort. v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. v5 (KIP-890) is not served."""

from __future__ import annotations

from broker.broker import Broker
from broker.coordination.internal_log import Producer
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    producer = Producer(request.producer_id, request.producer_epoch)
    name = request.transactional_id
    try:
        context.rights.require(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)
        error = await broker.transactions.wait_for(
            name, lambda at: at.end_transaction(name, producer, commit=request.committed)
        )
    except BrokerError as failed:
        error = failed.error_code
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error)


HANDLER = Handler(api=ApiKey.END_TXN, versions=(0, 4), handle=handle)
