"""Reading ranges of a cluster's logs, batch by batch, many partitions at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.base.errors import first_of
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError, LogUnreadable, ReadUnfinished
from broker.client.limits import (
    EMPTY_ANSWERS_MAX,
    PARTITIONS_PER_REQUEST,
    SCAN_MAX_BYTES,
    SCAN_MAX_WAIT_MS,
    SCAN_PARTITION_MAX_BYTES,
    VISITED_AT_ONCE_BYTES,
)
from broker.client.offsets import list_each_offset, log_end_offsets
from broker.wire.batch import BatchHeader
from broker.wire.buffers import Records
from broker.wire.errors import ErrorCode, WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import EARLIEST, NO_LEADER, IsolationLevel, TopicPartition


class OffsetSpan(NamedTuple):
    """Offsets [start, end)."""

    start: int
    end: int


Visit = Callable[[TopicPartition, BatchHeader, memoryview], None]
"""Called for every batch, in offset order within its partition; the memoryview is valid as long as it is kept."""


async def scan_batches(cluster: Cluster, spans: Mapping[TopicPartition, OffsetSpan], visit: Visit) -> None:
    """Visit every batch that has an offset in its partition's span, reading uncommitted.

    Offsets below the log start are passed over: they are gone. Retriable errors are tried again from where the scan
    stands; a log that ends before its span does is one (OFFSET_NOT_AVAILABLE). Raises ClientError, and what `visit`
    raises.
    """
    at = _starts(spans)
    retry = cluster.retry()
    while at:
        before = dict(at)
        failed = await _scan_once(cluster, spans, at, visit)
        if failed:
            if any(at[where] != before[where] for where in failed):
                retry = cluster.retry()
            await retry.pause(next((e for e in failed.values() if not e.retriable), next(iter(failed.values()))))


async def scan_records(
    cluster: Cluster, where: TopicPartition, span: OffsetSpan, take: Callable[[Record], object]
) -> None:
    """Take every record of one log's batches in the span, in offset order; markers have none. Raises as
    `scan_batches`, and what `take` raises.
    """

    def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
        if not header.is_control:
            for record in decode_records(batch):
                take(record)

    await scan_batches(cluster, {where: span}, visit)


async def scan_log(cluster: Cluster, where: TopicPartition, take: Callable[[Record], object]) -> None:
    """Take every record that one log has now, as `scan_records` does."""
    (end,) = (await log_end_offsets(cluster, [where])).values()
    await scan_records(cluster, where, OffsetSpan(0, end), take)


async def scan_each(
    cluster: Cluster,
    spans: Mapping[TopicPartition, OffsetSpan],
    visit: Visit,
    patience_ms: int | None = None,
) -> dict[TopicPartition, ClientError]:
    """As `scan_batches`, but each partition stands alone -> those that could not be read to their ends, and why.

    `visit` may bring an end forward, in `spans`: it is called for nothing behind that.

    A retriable failure holds up the others for `partition_patience_ms` at most; what is not read after `patience_ms`
    (None: it takes as long as it takes) is left, with ReadUnfinished. Raises ClientError only when no broker of the
    cluster answers at all.
    """
    at = _starts(spans)
    failures: dict[TopicPartition, ClientError] = {}
    try:
        async with timeout(None if patience_ms is None else patience_ms / 1000):
            await _scan_all(cluster, spans, at, visit, failures)
    except TimeoutError:
        for where, offset in at.items():
            text = f"{where} at {cluster.site.name}: read up to offset {offset} of {spans[where].end}"
            failures[where] = ReadUnfinished(text)
    return failures


async def _scan_all(
    cluster: Cluster,
    spans: Mapping[TopicPartition, OffsetSpan],
    at: dict[TopicPartition, int],
    visit: Visit,
    failures: dict[TopicPartition, ClientError],
) -> None:
    """Until every partition has left `at`: it is at its end, or among the failures."""
    retry = cluster.retry(cluster.limits.partition_patience_ms)
    while at:
        before = dict(at)
        failed = await _scan_once(cluster, spans, at, visit)
        if any(at[where] != before[where] for where in failed):
            retry = cluster.retry(cluster.limits.partition_patience_ms)
        failures |= {where: error for where, error in failed.items() if not error.retriable}
        passing = [error for error in failed.values() if error.retriable]
        if passing:
            try:
                await retry.pause(passing[0])
            except ClientError:  # it is over: what failed now has failed
                failures |= failed
        for where in failures:
            at.pop(where, None)


def _starts(spans: Mapping[TopicPartition, OffsetSpan]) -> dict[TopicPartition, int]:
    return {where: span.start for where, span in spans.items() if span.start < span.end}


async def _scan_once(
    cluster: Cluster, spans: Mapping[TopicPartition, OffsetSpan], at: dict[TopicPartition, int], visit: Visit
) -> dict[TopicPartition, ClientError]:
    """Scan every partition to its end, or until it fails -> the failures. Who is at its end leaves `at`."""
    grouped = await cluster.by_leader(at)
    grouped.pop(NO_LEADER, None)
    led = {where for share in grouped.values() for where in share}
    failed: dict[TopicPartition, ClientError] = {
        where: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} at {cluster.site.name}")
        for where in at
        if where not in led
    }
    try:
        async with asyncio.TaskGroup() as group:
            for node_id, share in grouped.items():
                parts = [
                    share[first : first + PARTITIONS_PER_REQUEST]
                    for first in range(0, len(share), PARTITIONS_PER_REQUEST)
                ]
                max_bytes = max(SCAN_MAX_BYTES // len(parts), SCAN_PARTITION_MAX_BYTES)
                for part in parts:
                    scan = _Scan(part, spans, at, visit, failed, max_bytes)
                    group.create_task(_scan_node(cluster, node_id, scan))
    except BaseExceptionGroup as errors:
        # What `visit` raised, as itself: whoever gave it expects it so.
        raise first_of(errors) from None
    if failed:
        cluster.forget_leaders({where.topic for where in failed})
    return failed


@dataclass(slots=True)
class _Scan:
    """One request's share of a scan; `at` and `failed` are shared by all, each changes its own partitions' only."""

    waiting: list[TopicPartition]
    spans: Mapping[TopicPartition, OffsetSpan]
    at: dict[TopicPartition, int]
    visit: Visit
    failed: dict[TopicPartition, ClientError]
    max_bytes: int
    idle: Counter[TopicPartition] = field(default_factory=Counter)
    """How often in a row a partition had nothing to give, as the first of a request, though its log goes on."""


async def _scan_node(cluster: Cluster, node_id: int, scan: _Scan) -> None:
    try:
        connection = await cluster.connection(node_id)
        while scan.waiting:
            response: FetchResponse = await connection.request(_request(scan))
            if response.error_code:
                raise KafkaError(response.error_code, f"reading the log at {cluster.site.name}")
            await _take_all(cluster, scan, response)
    except ClientError as error:
        scan.failed.update(dict.fromkeys(scan.waiting, error))


async def _take_all(cluster: Cluster, scan: _Scan, response: FetchResponse) -> None:
    first, waiting = scan.waiting[0], set(scan.waiting)
    progressed: set[TopicPartition] = set()
    for topic in response.responses:
        for data in topic.partitions:
            where = TopicPartition(topic.topic, data.partition_index)
            if where not in waiting:
                continue
            try:
                if await _take(cluster, where, data, scan.spans, scan.at, scan.visit):
                    progressed.add(where)
                elif where == first:
                    _pass_over_nothing(scan, where)
            except ClientError as error:
                scan.failed[where] = error
            except WireError as damage:
                text = f"{where} at {cluster.site.name} behind offset {scan.at[where]}: {damage}"
                scan.failed[where] = LogUnreadable(text)
    for moved in progressed:
        del scan.idle[moved]
    # Those that got nothing go first in the next request: its first partition always gets a whole batch.
    left = [where for where in scan.waiting if where in scan.at and where not in scan.failed]
    scan.waiting = [w for w in left if w not in progressed] + [w for w in left if w in progressed]


def _pass_over_nothing(scan: _Scan, where: TopicPartition) -> None:
    """The log goes on behind the span, but nothing of the span is left in it (compaction): that is its end, too.

    The first partition of a request always gets a batch if there is one. Asked twice, since much hangs on it.
    """
    scan.idle[where] += 1
    if scan.idle[where] >= EMPTY_ANSWERS_MAX:
        del scan.at[where]


async def _take(
    cluster: Cluster,
    where: TopicPartition,
    data: PartitionData,
    spans: Mapping[TopicPartition, OffsetSpan],
    at: dict[TopicPartition, int],
    visit: Visit,
) -> bool:
    """Visit what came for one partition; it leaves `at` when it has reached its end -> whether it moved.

    Raises KafkaError for an error in the answer, and where the log was cut: it ends before its span does.
    """
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        found = (await list_each_offset(cluster, {where: EARLIEST}))[where]
        if isinstance(found, ClientError):
            raise found
        start = found.offset
        if start <= at[where]:
            raise KafkaError(data.error_code, f"reading {where} at {cluster.site.name}")
        at[where] = start
        if start >= spans[where].end:
            del at[where]
        return True
    if data.error_code:
        raise KafkaError(data.error_code, f"reading {where} at {cluster.site.name}")
    moved, visited_bytes = False, 0
    records = as_buffer(data.records)
    if not len(records) and data.high_watermark < (end := spans[where].end):
        what = f"reading {where} at {cluster.site.name} up to {end}"
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, what, f"its log ends at {data.high_watermark} now")
    for header, batch in iter_fetched(records):
        if header.base_offset >= spans[where].end:
            at[where] = spans[where].end  # what was before it is compacted away
            moved = True
            break
        if header.next_offset > at[where]:
            visit(where, header, batch)
            at[where] = header.next_offset
            moved = True
            visited_bytes += header.size_bytes
            if visited_bytes >= VISITED_AT_ONCE_BYTES:
                visited_bytes = 0
                await asyncio.sleep(0)  # who opens the batches takes long over many, and all else stands
    if at[where] >= spans[where].end:
        del at[where]
    return moved


def as_buffer(records: Records | None) -> memoryview:
    """The records of a decoded response; those are always one buffer, or null."""
    assert not isinstance(records, Sequence) or isinstance(records, bytes | bytearray | memoryview)
    return memoryview(records or b"")


def _request(scan: _Scan) -> FetchRequest:
    topics: list[FetchTopic] = []
    for where in scan.waiting:
        if not topics or topics[-1].topic != where.topic:
            topics.append(FetchTopic(where.topic, []))
        asked = FetchPartition(
            where.partition, fetch_offset=scan.at[where], partition_max_bytes=SCAN_PARTITION_MAX_BYTES
        )
        topics[-1].partitions.append(asked)
    return FetchRequest(
        max_wait_ms=SCAN_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=scan.max_bytes,
        isolation_level=int(IsolationLevel.READ_UNCOMMITTED),
        topics=topics,
    )
