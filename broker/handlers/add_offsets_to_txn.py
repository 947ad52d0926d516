"""AddOffsetsToTxn, v0-4: a group whose offsets will be committed in the transaction.

What is added is the group's partition of the offsets topic. v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from broker.broker import Broker
from broker.coordination.internal_log import Producer
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition


async def handle(broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    producer, name = Producer(request.producer_id, request.producer_epoch), request.transactional_id
    try:
        context.rights.require(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name)
        context.rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
        partition = TopicPartition(OFFSETS_TOPIC, await broker.groups.partition_for(request.group_id))
        error = await broker.transactions.ask(name, lambda at: at.add_partitions(name, producer, [partition]))
    except BrokerError as failed:
        return AddOffsetsToTxnResponse(error_code=failed.error_code)
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)


HANDLER = Handler(api=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), handle=handle)
