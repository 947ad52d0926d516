"""Reading both sites at the end of a run, and asking the offset map about samples."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.log import read_batches, read_records
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.wire.batch import BatchHeader
from broker.wire.buffers import Buffer
from broker.wire.records import ControlKind, Record, decode_control, decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.offsets.offset_map import OffsetMap
from tests.chaos_runs.oracle import Content

STABLE_TIMEOUT_S = 60.0
DECIDED_TIMEOUT_S = 40.0
"""A transaction times out within 8 s, which its coordinator looks at every 10 s."""
POLL_S = 0.3


def content_of(record: Record) -> Content:
    return tuple(record)[1:]


async def read_committed(cluster: Cluster, where: TopicPartition) -> list[Record]:
    """Every committed record, when no transaction is open any more. TimeoutError when one stays open."""
    async with asyncio.timeout(STABLE_TIMEOUT_S):
        while True:
            end = (await log_end_offsets(cluster, [where]))[where]
            if (await log_end_offsets(cluster, [where], IsolationLevel.READ_COMMITTED))[where] == end:
                break
            await asyncio.sleep(POLL_S)
    start = (await log_start_offsets(cluster, [where]))[where]
    return [record async for record in read_records(cluster, where, start, end, IsolationLevel.READ_COMMITTED)]


async def await_decided(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Until no transaction is open in them any more, or for DECIDED_TIMEOUT_S: one may stay open for good.

    Kafka 4.3, when it is back from a kill, can take transactions for aborted without a marker in all their partitions
    (its coordinator has CompleteAbort by then, and nobody writes them any more).
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(DECIDED_TIMEOUT_S):
            while True:
                stable = await log_end_offsets(cluster, partitions, IsolationLevel.READ_COMMITTED)
                if stable == await log_end_offsets(cluster, partitions):
                    return
                await asyncio.sleep(POLL_S)


async def read_decided(cluster: Cluster, where: TopicPartition) -> list[Record]:
    """Every record that was committed, also behind a transaction that stays open."""
    (start,) = (await log_start_offsets(cluster, [where])).values()
    (end,) = (await log_end_offsets(cluster, [where])).values()
    return committed([batch async for batch in read_batches(cluster, where, start, end)])


def committed(batches: Iterable[tuple[BatchHeader, Buffer]]) -> list[Record]:
    """The records without a transaction, and those of transactions with a marker that commits, by their offsets."""
    found: list[Record] = []
    undecided: dict[int, list[Record]] = {}
    for header, batch in batches:
        if header.is_control:
            ended = undecided.pop(header.producer_id, [])
            found += ended if decode_control(batch).kind is ControlKind.COMMIT else []
        elif header.is_transactional:
            undecided.setdefault(header.producer_id, []).extend(decode_records(batch))
        else:
            found += decode_records(batch)
    return sorted(found, key=lambda record: record.offset)


def mistranslated(
    offset_map: OffsetMap,
    where: TopicPartition,
    source: Sequence[Record],
    target: Sequence[Record],
    chance: random.Random,
) -> list[str]:
    """A sample of records that are at both sites, asked both ways -> what is wrong, in words."""
    copies = Counter(map(content_of, source))  # a producer without idempotence may have repeated itself
    at_source = {content_of(record): record.offset for record in source if copies[content_of(record)] == 1}
    by_offset = {record.offset: content_of(record) for record in target}
    newest = {content: offset for offset, content in by_offset.items()}  # of copies made again the last is meant
    both = [(content, offset) for content, offset in newest.items() if content in at_source]
    wrong = []
    for content, target_offset in chance.sample(both, min(len(both), 200)):
        source_offset = at_source[content]
        there = offset_map.to_target(*where, source_offset)
        if there is None or by_offset.get(there) != content:
            wrong.append(
                f"{where}: source offset {source_offset} translates to {there}, its copy is at {target_offset}"
            )
        back = offset_map.to_source(*where, target_offset)
        if back != source_offset:
            wrong.append(f"{where}: target offset {target_offset} translates to {back}, it came from {source_offset}")
    return wrong


async def partitions_of(cluster: Cluster, topics: Mapping[str, int]) -> list[TopicPartition]:
    found = (await cluster.metadata(list(topics))).topics
    return [TopicPartition(name, number) for name, count in topics.items() if name in found for number in range(count)]
