"""AddPartitionsToTxn, v0-4: partitions that the producer is about to write to; all are added, or none.

v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v4 is for brokers: many transactions at once, and the leader's
question whether a transaction has a partition already (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from broker.access.authorizer import EVERYTHING, Rights
from broker.broker import Broker
from broker.coordination.host import has_partition
from broker.coordination.internal_log import Producer
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition

BROKERS_SINCE_VERSION = 4
Codes = Mapping[TopicPartition, ErrorCode]


async def handle(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    rights = context.rights
    if context.api_version >= BROKERS_SINCE_VERSION:
        if not rights.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        answered = await asyncio.gather(*(_answered(broker, one) for one in request.transactions))
        return AddPartitionsToTxnResponse(results_by_transaction=list(answered))
    topics = request.v3_and_below_topics
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    name = request.v3_and_below_transactional_id
    if rights.may(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, name):
        codes = await _added(broker, name, producer, _named(topics), rights)
    else:
        codes = dict.fromkeys(_named(topics), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if context.api_version < 2:
        codes = {
            where: ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
            for where, code in codes.items()
        }
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(topics, codes))


async def _answered(broker: Broker, one: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    answer = _verified if one.verify_only else _added
    producer = Producer(one.producer_id, one.producer_epoch)
    codes = await answer(broker, one.transactional_id, producer, _named(one.topics))
    return AddPartitionsToTxnResult(one.transactional_id, _by_topic(one.topics, codes))


async def _verified(broker: Broker, name: str, producer: Producer, asked: Sequence[TopicPartition]) -> Codes:
    try:
        return await broker.transactions.ask(
            name, lambda at: {where: at.check_append(name, producer, where) for where in asked}
        )
    except BrokerError as error:
        return dict.fromkeys(asked, error.error_code)


async def _added(
    broker: Broker, name: str, producer: Producer, asked: Sequence[TopicPartition], rights: Rights = EVERYTHING
) -> Codes:
    denied = {
        topic
        for topic in {where.topic for where in asked}
        if not rights.may(AclOperation.WRITE, AclResource.TOPIC, topic)
    }
    refused = dict.fromkeys(
        (where for where in asked if not has_partition(broker, where)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    refused |= {where: ErrorCode.TOPIC_AUTHORIZATION_FAILED for where in asked if where.topic in denied}
    if refused:
        return {where: refused.get(where, ErrorCode.OPERATION_NOT_ATTEMPTED) for where in asked}
    try:
        code = await broker.transactions.ask(name, lambda at: at.add_partitions(name, producer, asked))
    except BrokerError as error:
        code = error.error_code
    return dict.fromkeys(asked, code)


def _named(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _by_topic(topics: Sequence[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, index)])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


HANDLER = Handler(api=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 4), handle=handle)
