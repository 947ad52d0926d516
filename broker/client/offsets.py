"""Log offsets of partitions: first, last, by time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError
from broker.client.fanout import Ask, ask_each_leader, ask_leaders, both, split_failures
from broker.client.limits import REPLICA_ID_CONSUMER
from broker.client.model import OffsetAndTimestamp
from broker.wire.errors import ErrorCode
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.wire.vocabulary import DEBUGGING_CONSUMER, EARLIEST, LATEST, IsolationLevel, TopicPartition


async def list_offsets(
    cluster: Cluster,
    timestamps_ms: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """Per partition the first record at or after the timestamp (-1/-1 when there is none), or LATEST, or EARLIEST.

    With READ_COMMITTED, LATEST is the last stable offset. Raises ClientError.
    """
    return await ask_leaders(cluster, "offsets", timestamps_ms, _ask(isolation))


async def list_each_offset(
    cluster: Cluster,
    timestamps_ms: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAndTimestamp | ClientError]:
    """As `list_offsets`; a partition that cannot be asked has its error instead, and holds up no other."""
    return await ask_each_leader(cluster, "offsets", timestamps_ms, _ask(isolation))


def _ask(isolation: IsolationLevel, replica_id: int = REPLICA_ID_CONSUMER) -> Ask[int, OffsetAndTimestamp]:
    async def ask(
        connection: Connection, share: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | ErrorCode]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for where, timestamp_ms in share.items():
            asked = ListOffsetsPartition(where.partition, timestamp=timestamp_ms)
            topics.setdefault(where.topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id, int(isolation), [ListOffsetsTopic(name, asked) for name, asked in topics.items()]
        )
        return _answers(await connection.request(request))

    return ask


def _answers(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAndTimestamp | ErrorCode]:
    return {
        TopicPartition(topic.name, found.partition_index): ErrorCode.of(found.error_code)
        if found.error_code
        else OffsetAndTimestamp(found.offset, found.timestamp)
        for topic in response.topics
        for found in topic.partitions
    }


async def log_end_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The next offset to be read: the high watermark, or the last stable offset."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation)
    return {where: at.offset for where, at in found.items()}


async def appended_ends(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndTimestamp | ClientError]:
    """Where the leaders' logs end, with what their followers have not got yet, and what no consumer is shown therefore;
    or why a leader does not say. Apache Kafka answers so by whichever replica is asked, also one that leads no more.
    Raises ClientError where no broker answers.
    """
    ask = _ask(IsolationLevel.READ_UNCOMMITTED, DEBUGGING_CONSUMER)
    return await ask_each_leader(cluster, "offsets", dict.fromkeys(partitions, LATEST), ask)


async def log_start_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset that is still there."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {where: at.offset for where, at in found.items()}


class LogSpan(NamedTuple):
    """The first offset that is still there, and the next one to be read."""

    start: int
    end: int


async def log_spans(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, LogSpan | ClientError]:
    """Start and end of each log, or why it cannot be asked. Raises ClientError when no broker answers at all."""
    wanted = list(partitions)
    asked_starts, asked_ends = await both(
        list_each_offset(cluster, dict.fromkeys(wanted, EARLIEST)),
        list_each_offset(cluster, dict.fromkeys(wanted, LATEST), isolation),
    )
    (starts, failures), (ends, failed) = split_failures(asked_starts), split_failures(asked_ends)
    spans = {where: LogSpan(start.offset, ends[where].offset) for where, start in starts.items() if where in ends}
    return {**spans, **failures, **failed}
