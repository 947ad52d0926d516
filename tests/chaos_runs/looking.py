"""Reading both sites at the end of a run, and asking the offset map about samples."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.log import read_batches, read_records
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.wire.batch import BatchHeader
from broker.wire.buffers import Buffer
from broker.wire.errors import ErrorCode
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.records import ControlKind, Record, decode_control, decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.offsets.offset_map import OffsetMap
from tests.chaos_runs.oracle import Content

STABLE_TIMEOUT_S = 60.0
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


class Settled(NamedTuple):
    """What a log's own markers say: its committed records, in order, and the producers that no marker ended."""

    records: list[Record]
    open_producers: set[int]


def settled(batches: Iterable[tuple[BatchHeader, Buffer]]) -> Settled:
    """Of all batches of a log, markers among them, in its order. Pure."""
    committed: list[Record] = []
    waiting: dict[int, list[Record]] = {}
    for header, batch in batches:
        if header.is_control:
            ended = waiting.pop(header.producer_id, [])
            committed += ended if decode_control(batch).kind is ControlKind.COMMIT else []
        elif header.is_transactional:
            waiting.setdefault(header.producer_id, []).extend(decode_records(batch))
        else:
            committed += decode_records(batch)
    return Settled(sorted(committed, key=lambda record: record.offset), set(waiting))


async def read_settled(cluster: Cluster, where: TopicPartition) -> Settled:
    """As `read_committed`, at a Kafka of one broker that was killed, and may keep transactions open for good.

    While it starts, its coordinator ends what has timed out, finds no leader of the partitions in the metadata yet,
    takes them for deleted, and sends them no marker (its log: "these partitions are likely deleted already"). A
    transaction that it calls aborted then stays open there: nobody will ever read its records as committed. One that it
    calls committed would be neither: AssertionError. TimeoutError where one stays under way.
    """
    async with asyncio.timeout(STABLE_TIMEOUT_S):
        while True:
            said = await _transaction_states(cluster)  # first: no marker is written behind a transaction's last state
            start = (await log_start_offsets(cluster, [where]))[where]
            end = (await log_end_offsets(cluster, [where]))[where]
            found = settled([batch async for batch in read_batches(cluster, where, start, end)])
            states = {said.get(producer_id) for producer_id in found.open_producers}
            assert "CompleteCommit" not in states, f"{where} has no marker of a transaction that was committed"
            if states <= {"CompleteAbort"}:
                return found
            await asyncio.sleep(POLL_S)


async def _transaction_states(cluster: Cluster) -> dict[int, str]:
    """By producer id; none while the coordinator loads."""
    answer = await (await cluster.any_connection()).request(ListTransactionsRequest([], []))
    if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return {}
    assert not answer.error_code, answer
    return {one.producer_id: one.transaction_state for one in answer.transaction_states}


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
