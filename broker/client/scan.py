"""Reading ranges of a cluster's logs, batch by batch, many partitions at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.limits import SCAN_MAX_BYTES, SCAN_MAX_WAIT_MS, SCAN_PARTITION_MAX_BYTES
from broker.client.offsets import log_start_offsets
from broker.wire.batch import BatchHeader, iter_batches
from broker.wire.buffers import Records
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from broker.wire.vocabulary import NO_LEADER, IsolationLevel, TopicPartition


class OffsetSpan(NamedTuple):
    """Offsets [start, end)."""

    start: int
    end: int


Visit = Callable[[TopicPartition, BatchHeader, memoryview], None]
"""Called for every batch, in offset order within its partition; the memoryview is valid as long as it is kept."""


async def scan_batches(cluster: Cluster, spans: Mapping[TopicPartition, OffsetSpan], visit: Visit) -> None:
    """Visit every batch that has an offset in its partition's span, reading uncommitted.

    Offsets below the log start are passed over: they are gone. Retriable errors are tried again from where the scan
    stands. Raises ClientError.
    """
    at = {where: span.start for where, span in spans.items() if span.start < span.end}
    retry = cluster.retry()
    while at:
        before = dict(at)
        try:
            await _scan_by_leader(cluster, spans, at, visit)
        except* ClientError as errors:
            error = _first(errors)
            cluster.forget_leaders({where.topic for where in at})
            if before != at:
                retry = cluster.retry()
            await retry.pause(error)


async def _scan_by_leader(
    cluster: Cluster, spans: Mapping[TopicPartition, OffsetSpan], at: dict[TopicPartition, int], visit: Visit
) -> None:
    grouped = await cluster.by_leader(at)
    unled = set(at) - {where for node_id, share in grouped.items() if node_id != NO_LEADER for where in share}
    if unled:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{min(unled)} at {cluster.site.name}")
    async with asyncio.TaskGroup() as group:
        for node_id, share in grouped.items():
            group.create_task(_scan_node(cluster, node_id, share, spans, at, visit))


async def _scan_node(
    cluster: Cluster,
    node_id: int,
    share: list[TopicPartition],
    spans: Mapping[TopicPartition, OffsetSpan],
    at: dict[TopicPartition, int],
    visit: Visit,
) -> None:
    connection = await cluster.connection(node_id)
    waiting = list(share)
    while waiting:
        response: FetchResponse = await connection.request(_request(waiting, at))
        if response.error_code:
            raise KafkaError(response.error_code, f"reading the log at {cluster.site.name}")
        progressed: set[TopicPartition] = set()
        for topic in response.responses:
            for data in topic.partitions:
                where = TopicPartition(topic.topic, data.partition_index)
                if where in at and await _take(cluster, where, data, spans[where].end, at, visit):
                    progressed.add(where)
        # Those that got nothing go first in the next request: its first partition always gets a whole batch.
        waiting = [w for w in waiting if w in at and w not in progressed] + [
            w for w in waiting if w in progressed & set(at)
        ]


async def _take(
    cluster: Cluster,
    where: TopicPartition,
    data: PartitionData,
    end: int,
    at: dict[TopicPartition, int],
    visit: Visit,
) -> bool:
    """Visit what came for one partition; it leaves `at` when it has reached its end -> whether it moved."""
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        start = (await log_start_offsets(cluster, [where]))[where]
        if start <= at[where]:
            raise KafkaError(data.error_code, f"reading {where} at {cluster.site.name}")
        at[where] = start
    elif data.error_code:
        raise KafkaError(data.error_code, f"reading {where} at {cluster.site.name}")
    moved = False
    for header, batch in iter_batches(as_buffer(data.records)):
        if header.base_offset >= end:
            break
        if header.next_offset > at[where]:
            visit(where, header, batch)
            at[where] = header.next_offset
            moved = True
    if at[where] >= end:
        del at[where]
    return moved


def as_buffer(records: Records | None) -> memoryview:
    """The records of a decoded response; those are always one buffer, or null."""
    assert not isinstance(records, Sequence) or isinstance(records, bytes | bytearray | memoryview)
    return memoryview(records or b"")


def _request(waiting: list[TopicPartition], at: Mapping[TopicPartition, int]) -> FetchRequest:
    topics: list[FetchTopic] = []
    for where in waiting:
        if not topics or topics[-1].topic != where.topic:
            topics.append(FetchTopic(where.topic, []))
        asked = FetchPartition(where.partition, fetch_offset=at[where], partition_max_bytes=SCAN_PARTITION_MAX_BYTES)
        topics[-1].partitions.append(asked)
    return FetchRequest(
        max_wait_ms=SCAN_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=SCAN_MAX_BYTES,
        isolation_level=int(IsolationLevel.READ_UNCOMMITTED),
        topics=topics,
    )


def _first(errors: BaseExceptionGroup[ClientError]) -> ClientError:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
