"""What comparing needs of a cluster's logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from broker.client.cluster import Cluster
from broker.client.epochs import EpochEnd, leader_epoch_ends
from broker.client.errors import ClientError
from broker.client.gathering import GatheredReads
from broker.client.probe import StoredBatch, batches_at
from broker.wire.batch import BatchHeader
from broker.wire.vocabulary import IsolationLevel, TopicPartition


class Logs(Protocol):
    """The logs of one cluster, as the functions of `broker.client` with the same names read them."""

    async def leader_epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | ClientError]: ...

    async def batches_at(
        self, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, StoredBatch | ClientError | None]: ...

    def read_batches(
        self, where: TopicPartition, start: int, end: int, isolation: IsolationLevel
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]: ...


class ClusterLogs:
    """Those of a real cluster; what several tasks read at the same time is asked for together."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reads = GatheredReads(cluster)

    async def leader_epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | ClientError]:
        return await leader_epoch_ends(self._cluster, epochs)

    async def batches_at(
        self, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, StoredBatch | ClientError | None]:
        return await batches_at(self._cluster, offsets)

    def read_batches(
        self, where: TopicPartition, start: int, end: int, isolation: IsolationLevel
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        return self._reads.read_batches(where, start, end, isolation)
