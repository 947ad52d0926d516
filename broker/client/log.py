"""Reading a partition's log by batch or by record, and appending one batch to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.client.cluster import Cluster
from broker.client.committed import CommittedFilter
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError, ReadUnfinished
from broker.client.fanout import Ask, ask_each_leader, ask_leaders
from broker.client.limits import EMPTY_ANSWERS_MAX, REPLICA_ID_CONSUMER
from broker.wire.batch import BatchHeader, verify_crc
from broker.wire.buffers import Buffer
from broker.wire.errors import CorruptBatch, ErrorCode
from broker.wire.fetch_epochs import FINAL_EPOCH
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import ALL_REPLICAS, IsolationLevel, TopicPartition

FETCH_BY_ID_VERSION: Final = 13
"""The first that names topics by their ids alone (KIP-516): a recreated topic is not taken for the one before."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much one fetch may bring and how long it may be parked at the broker."""

    max_bytes: int
    partition_max_bytes: int
    max_wait_ms: int = 0
    min_bytes: int = 1


def fetch_request(
    positions: Mapping[TopicPartition, int],
    limits: FetchLimits,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> FetchRequest:
    """A sessionless fetch from these offsets on, the partitions in the order given (Kafka fills them in that order)."""
    topics: dict[str, list[FetchPartition]] = {}
    for where, offset in positions.items():
        asked = FetchPartition(where.partition, fetch_offset=offset, partition_max_bytes=limits.partition_max_bytes)
        topics.setdefault(where.topic, []).append(asked)
    return FetchRequest(
        replica_id=REPLICA_ID_CONSUMER,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(isolation),
        session_epoch=FINAL_EPOCH,
        topics=[FetchTopic(name, asked) for name, asked in topics.items()],
    )


async def fetch_within_quota(connection: Connection, asked: FetchRequest) -> FetchResponse:
    """One fetch of at least one partition. Raises ClientError.

    A client over its quota is answered at once, with no partition at all, and then not read from for as long as the
    answer says (KIP-219): so it is asked again, and waits for the broker.
    """
    while True:
        response: FetchResponse = await connection.request(asked)
        if response.responses or response.error_code or not response.throttle_time_ms:
            return response


async def fetch_once(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    limits: FetchLimits,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, PartitionData]:
    """One answer per partition, perhaps without records. Raises ClientError (OFFSET_OUT_OF_RANGE as KafkaError)."""

    return await ask_leaders(cluster, "fetch", positions, _ask(limits, isolation), "fetch")


async def fetch_each(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    limits: FetchLimits,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, PartitionData | ClientError]:
    """As `fetch_once`; a partition that cannot be fetched has its error instead, and holds up no other."""
    return await ask_each_leader(cluster, "fetch", positions, _ask(limits, isolation), "fetch")


def _ask(limits: FetchLimits, isolation: IsolationLevel) -> Ask[int, PartitionData]:
    async def ask(
        connection: Connection, share: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionData | ErrorCode]:
        response = await fetch_within_quota(connection, fetch_request(share, limits, isolation))
        if response.error_code:
            return dict.fromkeys(share, ErrorCode.of(response.error_code))
        return {
            TopicPartition(topic.topic, data.partition_index): ErrorCode.of(data.error_code)
            if data.error_code
            else data
            for topic in response.responses
            for data in topic.partitions
        }

    return ask


FetchOne: TypeAlias = Callable[[TopicPartition, int, IsolationLevel], Awaitable[PartitionData]]
"""What a partition has from an offset on: a batch at least where there is one to read. Raises ClientError."""


async def read_batches(
    cluster: Cluster,
    where: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    is_whole: bool = False,
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """The batches with offsets in [start, end), as they are stored, CRC checked.

    The first one may begin before `start`, the last one may reach beyond `end`. With READ_COMMITTED, control batches
    and aborted ones are left out. Ends early where the log does, or its last batch: a log that was compacted and then
    cut may end in a hole; ReadUnfinished with `is_whole`. Raises ClientError, CorruptBatch.
    """
    limits = FetchLimits(
        cluster.limits.fetch_max_bytes, cluster.limits.fetch_max_bytes, cluster.limits.fetch_max_wait_ms
    )

    async def fetch(where: TopicPartition, position: int, isolation: IsolationLevel) -> PartitionData:
        return (await fetch_once(cluster, {where: position}, limits, isolation))[where]

    async for header, batch in read_batches_by(fetch, where, start, end, isolation, is_whole=is_whole):
        yield header, batch


async def read_batches_by(
    fetch: FetchOne,
    where: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    is_whole: bool = False,
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """As `read_batches`, by this way of fetching."""
    position, empty_answers = start, 0
    while position < end and empty_answers < EMPTY_ANSWERS_MAX:
        data = await fetch(where, position, isolation)
        kept = CommittedFilter(data.aborted_transactions if isolation else None)
        before = position
        for header, batch in iter_fetched(records_of(data)):
            if header.next_offset <= position:
                continue
            if header.base_offset >= end:
                return
            verify_crc(batch)
            position = header.next_offset
            if not isolation or not kept.drops(header, batch):
                yield header, batch
        if position == before and position >= _readable_end(data, isolation):
            break
        empty_answers = empty_answers + 1 if position == before else 0
    if is_whole and position < end:
        raise ReadUnfinished(f"{where}: read up to offset {position} of {end}, and there is nothing behind it")


def brings_nothing(data: PartitionData, position: int, isolation: IsolationLevel) -> bool:
    """Whether an answer is empty though what can be read goes on: it had no room, or there is nothing (compaction)."""
    return not len(records_of(data)) and position < _readable_end(data, isolation)


def _readable_end(data: PartitionData, isolation: IsolationLevel) -> int:
    return data.last_stable_offset if isolation else data.high_watermark


async def read_records(
    cluster: Cluster,
    where: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> AsyncIterator[Record]:
    """The records with offsets in [start, end), in order; never control records. Raises as `read_batches`."""
    async for header, batch in read_batches(cluster, where, start, end, isolation):
        if header.is_control:
            continue
        for record in decode_records(batch):
            if start <= record.offset < end:
                yield record


def records_of(data: PartitionData) -> memoryview:
    """The fetched bytes; they lie in the response's own buffer, which can be written to."""
    records = data.records
    if records is None:
        return memoryview(b"")
    if not isinstance(records, memoryview):
        raise CorruptBatch("a fetched records field is not one buffer")
    return records


async def append(cluster: Cluster, where: TopicPartition, batch: Buffer, transactional_id: str | None = None) -> int:
    """Produce one batch with acks=all -> the offset of its first record; a transaction's with its transactional id.

    Tried again only where the broker says that it was not appended; when that is in doubt the error is raised.
    """
    request = ProduceRequest(
        transactional_id,
        ALL_REPLICAS,
        cluster.limits.delivery_timeout_ms,
        [TopicProduceData(where.topic, [PartitionProduceData(where.partition, batch)])],
    )
    retry = cluster.retry()
    while True:
        try:
            connection = await cluster.connection(await cluster.leader(*where), "produce")
        except ClientError as unsent:
            await retry.pause(unsent)
            continue
        response = await connection.request(request)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        if not answer.error_code:
            return answer.base_offset
        error = KafkaError(answer.error_code, f"append to {where} at {cluster.site.name}", answer.error_message)
        if error.code not in NOT_APPENDED:
            raise error
        cluster.forget_leaders([where.topic])
        await retry.pause(error)


NOT_APPENDED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Answers to Produce after which the batch is certainly not in the log."""
