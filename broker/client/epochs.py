"""Leader epochs of partitions: where each ended in the log that stands now (KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError
from broker.client.fanout import ask_each_leader
from broker.client.limits import REPLICA_ID_CONSUMER
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire.vocabulary import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition


class EpochEnd(NamedTuple):
    """The largest epoch that the leader knows of those not above the one asked for, and the offset where it ended.

    Both -1 where the leader cannot say: its epochs are lost, or it is too old to be asked.
    """

    leader_epoch: int
    end_offset: int

    @property
    def is_known(self) -> bool:
        return self.leader_epoch != NO_LEADER_EPOCH and self.end_offset != NO_OFFSET


UNKNOWN_END = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


async def leader_epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd | ClientError]:
    """Per partition where the epoch ended, or why it cannot be asked. Raises ClientError when no broker answers."""

    async def ask(
        connection: Connection, share: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | ErrorCode]:
        if not connection.supports(ApiKey.OFFSET_FOR_LEADER_EPOCH):
            return dict.fromkeys(share, UNKNOWN_END)
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for where, epoch in share.items():
            asked = OffsetForLeaderPartition(where.partition, cluster.leader_epoch(where), epoch)
            topics.setdefault(where.topic, []).append(asked)
        listed = [OffsetForLeaderTopic(name, asked) for name, asked in topics.items()]
        request = OffsetForLeaderEpochRequest(REPLICA_ID_CONSUMER, listed)
        response: OffsetForLeaderEpochResponse = await connection.request(request)
        return {
            TopicPartition(topic.topic, found.partition): ErrorCode.of(found.error_code)
            if found.error_code
            else EpochEnd(found.leader_epoch, found.end_offset)
            for topic in response.topics
            for found in topic.partitions
        }

    return await ask_each_leader(cluster, "leader epochs", epochs, ask)
