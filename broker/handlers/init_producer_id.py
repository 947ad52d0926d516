"""InitProducerId, v0-5: an id and epoch for an idempotent or transactional producer.

With a transactional id this is the fence: the id stays, the epoch rises, an open transaction is aborted first. Unlike
Kafka, which answers CONCURRENT_TRANSACTIONS for that and lets the client ask again, the abort is done within the
request where it can be. v3 a producer may name its id and epoch, both or neither, to bump it (KIP-360); v4
PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. v6 (two-phase commit for outsiders, KIP-939) is not served.
"""

from __future__ import annotations

from broker.access.authorizer import NotAuthorized, Rights
from broker.broker import Broker
from broker.coordination.internal_log import Producer
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.transactions.model import InitAsk
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.vocabulary import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, AclOperation, AclResource


async def handle(broker: Broker, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        _check_rights(context.rights, request.transactional_id)
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NO_PRODUCER_EPOCH)
        error, producer = await _init(broker, request)
    except BrokerError as failed:
        return InitProducerIdResponse(error_code=failed.error_code, producer_epoch=NO_PRODUCER_EPOCH)
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < 4:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )


def _check_rights(rights: Rights, transactional_id: str | None) -> None:
    """Who may write to some topic may do so idempotently (KIP-679). Raises NotAuthorized."""
    if transactional_id is not None:
        rights.require(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
        return
    may = rights.may(AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER, quietly=True)
    if not may and not rights.may_somewhere(AclOperation.WRITE, AclResource.TOPIC):
        raise NotAuthorized(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _init(broker: Broker, request: InitProducerIdRequest) -> tuple[ErrorCode, Producer]:
    if request.transactional_id is None:
        await broker.prepare_producer_ids()
        return ErrorCode.NONE, Producer(broker.allocate_producer_id(), 0)
    ask = InitAsk(
        request.transactional_id,
        request.transaction_timeout_ms,
        broker.config.transaction_max_timeout_ms,
        request.producer_id,
        request.producer_epoch,
    )
    # Whether it is kept here comes first: for an id that another broker keeps none is taken out of the block.
    await broker.transactions.at(ask.transactional_id)
    await broker.prepare_producer_ids()
    return await broker.transactions.wait_for(ask.transactional_id, lambda at: at.init_producer_id(ask))


HANDLER = Handler(api=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), handle=handle)
