"""DescribeTransactions, v0 (KIP-664): state, producer and partitions of transactional ids.

Of a transaction that is being ended those whose marker is still to be written, as in Kafka.
"""

from __future__ import annotations

from broker.access.authorizer import Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.transactions.coordinator import TransactionCoordinator
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from broker.wire.vocabulary import AclOperation, AclResource, by_topic


async def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            await _at_its_coordinator(broker, name, context.rights) for name in dict.fromkeys(request.transactional_ids)
        ]
    )


async def _at_its_coordinator(broker: Broker, transactional_id: str, rights: Rights) -> TransactionState:
    try:
        rights.require(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            return TransactionState(ErrorCode.INVALID_REQUEST, transactional_id)
        found = await broker.transactions.ask(transactional_id, lambda at: _describe(at, transactional_id))
    except BrokerError as error:
        return TransactionState(error.error_code, transactional_id)
    # Topics that may not be seen are left out.
    found.topics = [
        each for each in found.topics if rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, each.topic, quietly=True)
    ]
    return found


def _describe(at: TransactionCoordinator, transactional_id: str) -> TransactionState:
    found = at.transactions.get(transactional_id)
    if found is None:
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    topics = by_topic(sorted(at.awaited(found)))
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic, partitions) for topic, partitions in topics.items()],
    )


HANDLER = Handler(api=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), handle=handle)
