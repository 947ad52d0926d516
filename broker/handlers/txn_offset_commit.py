"""TxnOffsetCommit, v0-4: offsets that count once the producer's transaction commits.

The group's partition of the offsets topic must have been added (AddOffsetsToTxn). v3 carries the member and its
generation, which fence a zombie of the group too (KIP-447).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from broker.broker import Broker
from broker.coordination.host import has_partition
from broker.coordination.internal_log import NotCoordinator, Producer
from broker.errors import BrokerError
from broker.groups.coordinator import GroupCoordinator
from broker.groups.formats import Committed
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.offset_commit import CommitResults, of_each, unreadable
from broker.wire.api import ApiKey
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition


async def handle(broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    results: CommitResults = {}
    denied: frozenset[str] = frozenset()
    rights = context.rights
    try:
        rights.require(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
        rights.require(AclOperation.READ, AclResource.GROUP, request.group_id)
        denied = unreadable(rights, (topic.name for topic in request.topics))
        asked = [topic for topic in request.topics if topic.name not in denied] if denied else request.topics
        if asked or not denied:
            results = await _commit(broker, replace(request, topics=asked) if denied else request)
    except BrokerError as failed:
        results = failed.error_code
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        p.partition_index, of_each(results, TopicPartition(topic.name, p.partition_index), denied)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _commit(broker: Broker, request: TxnOffsetCommitRequest) -> CommitResults:
    """Raises BrokerError."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    producer = Producer(request.producer_id, request.producer_epoch)
    where = TopicPartition(OFFSETS_TOPIC, await broker.groups.partition_for(request.group_id))
    coordinator = await broker.groups.at(request.group_id)
    with broker.markers.guard(where, producer.producer_id) as guard:
        error = await broker.verification.verify(request.transactional_id, producer, where)
        if error is not ErrorCode.NONE:
            return error

        def step(at: GroupCoordinator) -> CommitResults:
            if at is not coordinator:
                # The transaction may have been ended at another one, of which the guard hears nothing.
                raise NotCoordinator(f"group {request.group_id} was another coordinator's meanwhile")
            if guard.ended:
                return ErrorCode.INVALID_TXN_STATE
            return _commit_at(at, broker, request, producer)

        return await broker.groups.ask(request.group_id, step)


def _commit_at(
    at: GroupCoordinator, broker: Broker, request: TxnOffsetCommitRequest, producer: Producer
) -> CommitResults:
    error = at.check_commit(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id, transactional=True
    )
    if error is not ErrorCode.NONE:
        return error
    now_ms = broker.clock.now_ms()
    offsets = {
        TopicPartition(topic.name, p.partition_index): Committed(
            p.committed_offset, p.committed_leader_epoch, p.committed_metadata or "", now_ms
        )
        for topic in request.topics
        for p in topic.partitions
    }
    return at.offsets.commit(request.group_id, offsets, is_known=partial(has_partition, broker), producer=producer)


HANDLER = Handler(api=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 4), handle=handle)
