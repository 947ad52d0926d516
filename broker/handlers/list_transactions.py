"""ListTransactions, v0-1 (KIP-664): the transactional ids of this coordinator.

v1 a filter by how long a transaction is open (KIP-994).
"""

from __future__ import annotations

from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.transactions.model import Transaction, TransactionState
from broker.wire.api import ApiKey
from broker.wire.messages import list_transactions as messages
from broker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from broker.wire.vocabulary import AclOperation, AclResource

# States that Kafka knows, and that no transaction is ever seen in here.
NEVER_SEEN = frozenset({"Dead", "PrepareEpochFence"})


async def handle(broker: Broker, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    known = {state.label for state in TransactionState} | NEVER_SEEN
    now_ms = broker.clock.now_ms()
    try:
        parts = await broker.transactions.ask_all(lambda at: list(at.transactions.values()))
    except BrokerError as error:
        return ListTransactionsResponse(error_code=error.error_code)
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in dict.fromkeys(request.state_filters) if name not in known],
        transaction_states=[
            messages.TransactionState(found.transactional_id, found.producer_id, found.state.label)
            for part in parts
            for found in part
            if _is_asked_for(found, request, now_ms)
            and context.rights.may(
                AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, found.transactional_id, quietly=True
            )
        ],
    )


def _is_asked_for(found: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and found.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and found.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or now_ms - found.start_ms > request.duration_filter


HANDLER = Handler(api=ApiKey.LIST_TRANSACTIONS, versions=(0, 1), handle=handle)
