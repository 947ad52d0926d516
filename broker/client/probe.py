"""Looking at single batches of many logs, with little read beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError
from broker.client.fanout import ask_each_leader
from broker.client.log import FetchLimits, fetch_request, fetch_within_quota, records_of
from broker.wire.batch import BatchHeader
from broker.wire.errors import CorruptBatch, ErrorCode
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import PartitionData
from broker.wire.vocabulary import TopicPartition

PROBE_MIN_BYTES: Final = 16 * 1024
"""What is first asked for per partition; four times as much for those whose batch did not fit."""


class StoredBatch(NamedTuple):
    """A batch as it lies in the log; its CRC is not checked yet."""

    header: BatchHeader
    batch: memoryview


async def batches_at(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, StoredBatch | ClientError | None]:
    """Per partition the batch that holds the offset, or the next one where there is a hole (compaction), uncommitted.

    None where the offset is not between the log's start and its end, and where nothing can be read there for damage.
    A partition that cannot be asked has its error. Raises ClientError when no broker of the cluster answers.
    """
    found: dict[TopicPartition, StoredBatch | ClientError | None] = {}
    partition_max_bytes = PROBE_MIN_BYTES
    while len(found) < len(offsets):
        missing = {where: offset for where, offset in offsets.items() if where not in found}
        limits = FetchLimits(cluster.limits.fetch_max_bytes, partition_max_bytes)

        async def ask(
            connection: Connection, share: Mapping[TopicPartition, int], limits: FetchLimits = limits
        ) -> dict[TopicPartition, PartitionData | ErrorCode]:
            response = await fetch_within_quota(connection, fetch_request(share, limits))
            if response.error_code:
                return dict.fromkeys(share, ErrorCode.of(response.error_code))
            return {
                TopicPartition(topic.topic, data.partition_index): data
                if data.error_code in (0, ErrorCode.OFFSET_OUT_OF_RANGE)
                else ErrorCode.of(data.error_code)
                for topic in response.responses
                for data in topic.partitions
            }

        for where, data in (await ask_each_leader(cluster, "fetch", missing, ask, "fetch")).items():
            if isinstance(data, ClientError):
                found[where] = data
                continue
            outside = bool(data.error_code) or data.high_watermark <= missing[where]
            try:
                batch = None if outside else _first(data, missing[where])
            except CorruptBatch:
                outside, batch = True, None  # what cannot be read proves nothing, and must not stop the others
            if outside or batch is not None:
                found[where] = batch
        if partition_max_bytes == cluster.limits.fetch_max_bytes and not missing.keys() & found.keys():
            return found | dict.fromkeys(missing)  # the log goes on, and nothing is left of it from there
        partition_max_bytes = min(4 * partition_max_bytes, cluster.limits.fetch_max_bytes)
    return found


def _first(data: PartitionData, offset: int) -> StoredBatch | None:
    """The first complete batch that ends behind the offset; None: the answer had no room for it."""
    for header, batch in iter_fetched(records_of(data)):
        if header.next_offset > offset:
            return StoredBatch(header, batch)
    return None
