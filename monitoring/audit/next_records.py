"""Reading the record that a group would read next, at many places of both sites: one batch each, by our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.log import FetchLimits, fetch_once, read_batches_by
from broker.client.offsets import log_start_offsets
from broker.wire.errors import ErrorCode, WireError
from broker.wire.messages.fetch import PartitionData
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from monitoring import limits
from monitoring.audit.groups import NextRecord, NextState

DIGEST_BYTES: Final = 8


class NextAt(NamedTuple):
    """Where a group reads on; up to `end` it may find its record."""

    where: TopicPartition
    offset: int
    end: int


def content_digest(record: Record, *, is_timed: bool) -> str:
    """Of key, value, headers in their order and, if `is_timed`, the timestamp; in hexadecimal."""
    found = blake2b(digest_size=DIGEST_BYTES)
    parts: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode(), value]
    for part in parts:
        found.update(b"-" if part is None else b"%d:" % len(part))
        found.update(b"" if part is None else bytes(part))
    found.update(b"%d" % record.timestamp if is_timed else b"")
    return found.hexdigest()


async def read_next(
    cluster: Cluster, places: Iterable[NextAt], untimed: Collection[TopicPartition]
) -> dict[NextAt, NextRecord]:
    """What is next at each place, as consumers of committed records see it. Raises nothing: each says what it could."""
    turns = asyncio.Semaphore(limits.AUDIT_NEXT_AT_ONCE)
    found: dict[NextAt, NextRecord] = {}

    async def read(place: NextAt) -> None:
        async with turns:
            found[place] = await _next(cluster, place, is_timed=place.where not in untimed)

    async with asyncio.TaskGroup() as group:
        for place in set(places):
            group.create_task(read(place))
    return found


async def _next(cluster: Cluster, place: NextAt, *, is_timed: bool) -> NextRecord:
    small = FetchLimits(limits.AUDIT_NEXT_FETCH_BYTES, limits.AUDIT_NEXT_FETCH_BYTES)
    is_open = False

    async def fetch(where: TopicPartition, position: int, isolation: IsolationLevel) -> PartitionData:
        nonlocal is_open
        data = (await fetch_once(cluster, {where: position}, small, isolation))[where]
        is_open = data.last_stable_offset < min(data.high_watermark, place.end)
        return data

    try:
        async for _, batch in read_batches_by(
            fetch, place.where, place.offset, place.end, IsolationLevel.READ_COMMITTED
        ):
            for record in decode_records(batch):
                if place.offset <= record.offset < place.end:
                    return NextRecord(NextState.RECORD, record.offset, content_digest(record, is_timed=is_timed))
    except KafkaError as error:
        return NextRecord(await _out_of_range(cluster, place, error))
    except (ClientError, WireError):
        return NextRecord(NextState.NOT_READABLE)
    return NextRecord(NextState.OPEN_TRANSACTION if is_open else NextState.END)


async def _out_of_range(cluster: Cluster, place: NextAt, error: KafkaError) -> NextState:
    """Before the log's first record, or behind its end: that log has lost records, and has none there."""
    if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return NextState.NOT_READABLE
    try:
        starts = await log_start_offsets(cluster, [place.where])
    except ClientError:
        return NextState.NOT_READABLE
    return NextState.EXPIRED if place.offset < starts[place.where] else NextState.END
