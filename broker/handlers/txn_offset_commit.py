"""TxnOffsetCommit, v0-4: offsets that count once the producer's transaction commits.

The group's partition of the offsets topic must have been added (AddOffsetsToTxn). v3 carries the member and its
generation, which fence a zombie of the group too (KIP-447).
"""

from __future__ import annotations

from broker.broker import Broker
from broker.coordination.internal_log import Producer
from broker.groups.formats import Committed
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from broker.wire.vocabulary import TopicPartition


async def handle(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    await broker.prepare(broker.groups.log)
    error = _check(broker, request)
    results: dict[TopicPartition, ErrorCode] = {}
    if error is ErrorCode.NONE:
        now_ms = broker.clock.now_ms()
        results = broker.groups.offsets.commit(
            request.group_id,
            {
                TopicPartition(topic.name, p.partition_index): Committed(
                    p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "", now_ms
                )
                for topic in request.topics
                for p in topic.partitions
            },
            is_known=lambda where: broker.partition(*where) is not None,
            producer=Producer(request.producer_id, request.producer_epoch),
        )
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        p.partition_index, results.get(TopicPartition(topic.name, p.partition_index), error)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _check(broker: Broker, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    error = broker.groups.check_commit(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id, transactional=True
    )
    if error is not ErrorCode.NONE:
        return error
    return broker.transactions.check_append(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        TopicPartition(OFFSETS_TOPIC, broker.groups.log.partition_for(request.group_id)),
    )


HANDLER = Handler(api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 4), handle=handle)
