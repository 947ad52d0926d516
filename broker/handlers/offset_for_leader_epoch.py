"""OffsetForLeaderEpoch, v2-4: where an epoch ended, so that a client can tell whether what it read still stands.

The answer is the largest epoch that is known and not above the one asked for, and its end offset; -1 and -1 when
there is none (KIP-101, KIP-320).
"""

from __future__ import annotations

from broker.access.authorizer import EVERYTHING, Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
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
            OffsetForLeaderTopicResult(
                topic.topic, [_answer(broker, topic.topic, asked, rights) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, asked: OffsetForLeaderPartition, rights: Rights) -> EpochEndOffset:
    try:
        rights.require(AclOperation.DESCRIBE, AclResource.TOPIC, topic)
        partition = broker.require_partition(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except BrokerError as error:
        return EpochEndOffset(error.error_code, asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


HANDLER = Handler(api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), handle=handle)
