"""OffsetForLeaderEpoch, v2-4: where an epoch ended, so that a client can tell whether what it read still stands.

The answer is the largest epoch that is known and not above the one asked for, and its end offset; -1 and -1 when
there is none (KIP-101, KIP-320).
"""

from __future__ import annotations

from broker.access.authorizer import EVERYTHING, NotAuthorized, Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, in_turns
from broker.wire.api import ApiKey
from broker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    rights = context.rights
    if rights.is_limited and rights.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, quietly=True):
        rights = EVERYTHING
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic.topic, await _answers(broker, topic, rights))
            async for topic in in_turns(request.topics)
        ]
    )


async def _answers(broker: Broker, topic: OffsetForLeaderTopic, rights: Rights) -> list[EpochEndOffset]:
    each = in_turns(topic.partitions)
    try:
        rights.require(AclOperation.DESCRIBE, AclResource.TOPIC, topic.topic)
    except NotAuthorized as error:
        return [EpochEndOffset(error.error_code, asked.partition) async for asked in each]
    return [_answer(broker, topic.topic, asked) async for asked in each]


def _answer(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.require_partition(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except BrokerError as error:
        return EpochEndOffset(error.error_code, asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


HANDLER = Handler(api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), handle=handle)
