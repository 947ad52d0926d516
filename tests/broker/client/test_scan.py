"""A scan ends: at its span's end, where the log was cut away, and with what its visitor raises."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.limits import VISITED_AT_ONCE_BYTES, ClientLimits
from broker.client.log import append
from broker.client.scan import OffsetSpan, scan_batches, scan_each
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.api import ApiKey
from broker.wire.batch import BatchHeader
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server

HERE, THERE = TopicPartition("flights", 0), TopicPartition("flights", 1)
QUICK = ClientLimits(retry_timeout_ms=1_000, unknown_topic_timeout_ms=500, partition_patience_ms=300)
BATCHES = 4


@dataclass
class Stage:
    cluster: Cluster
    faults: Faults
    seen: dict[TopicPartition, list[int]]

    def visit(self, where: TopicPartition, header: BatchHeader, _batch: memoryview) -> None:
        self.seen.setdefault(where, []).append(header.base_offset)


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """Two partitions of four batches of one record each."""
    faults = Faults()
    async with running_server(tmp_path) as server, Cluster(Site("east", server.address), limits=QUICK) as cluster:
        with injected(monkeypatch, {server.broker: faults}):
            assert not await create_topics(cluster, [NewTopic("flights", 2, 1)])
            for where in (HERE, THERE):
                for _ in range(BATCHES):
                    await append(cluster, where, encode_batch([Record(0, 1, b"k", b"v")]))
            yield Stage(cluster, faults, {})


async def test_a_log_that_was_cut_before_its_spans_end_is_an_error_not_an_endless_scan(stage: Stage) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(KafkaError, match="its log ends at 4 now") as raised:
            await scan_batches(stage.cluster, {HERE: OffsetSpan(0, BATCHES + 3)}, stage.visit)
    assert raised.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert stage.seen == {HERE: [0, 1, 2, 3]}


async def test_one_partition_that_was_cut_does_not_hold_up_the_other(stage: Stage) -> None:
    async with asyncio.timeout(60):
        spans = {HERE: OffsetSpan(1, BATCHES + 3), THERE: OffsetSpan(0, BATCHES)}
        failures = await scan_each(stage.cluster, spans, stage.visit)
    assert list(failures) == [HERE]
    assert stage.seen == {HERE: [1, 2, 3], THERE: [0, 1, 2, 3]}


async def test_where_nothing_is_left_of_the_span_the_scan_is_done(stage: Stage) -> None:
    stage.faults.empty.add(HERE)
    async with asyncio.timeout(60):
        await scan_batches(stage.cluster, {HERE: OffsetSpan(0, 3), THERE: OffsetSpan(2, 4)}, stage.visit)
    assert stage.seen == {THERE: [2, 3]}


async def test_a_visitor_may_end_a_span_sooner(stage: Stage) -> None:
    spans = {where: OffsetSpan(0, BATCHES) for where in (HERE, THERE)}

    def visit(where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
        stage.visit(where, header, batch)
        if (where, header.base_offset) == (HERE, 1):
            spans[HERE] = OffsetSpan(0, header.next_offset)

    assert not await scan_each(stage.cluster, spans, visit)
    assert stage.seen == {HERE: [0, 1], THERE: list(range(BATCHES))}


async def test_each_partition_is_asked_twice_before_it_counts_as_empty(stage: Stage) -> None:
    """One has nothing to give, and then fails; the other has nothing to give once."""
    fetches = itertools.count(1)

    def meanwhile(_request: Any) -> None:
        number = next(fetches)
        stage.faults.empty |= {HERE, THERE}
        if number == 2:
            stage.faults.refuse(HERE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.FETCH)
        if number == 4:
            stage.faults.empty.clear()

    stage.faults.moments[ApiKey.FETCH] = meanwhile
    async with asyncio.timeout(60):
        failures = await scan_each(stage.cluster, dict.fromkeys((HERE, THERE), OffsetSpan(0, BATCHES)), stage.visit)
    assert list(failures) == [HERE]
    assert stage.seen == {THERE: [0, 1, 2, 3]}


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.KAFKA_STORAGE_ERROR])
async def test_each_partition_stands_alone(stage: Stage, code: ErrorCode) -> None:
    stage.faults.refuse(HERE, code, ApiKey.FETCH)
    spans = dict.fromkeys((HERE, THERE), OffsetSpan(0, BATCHES))
    async with asyncio.timeout(60):
        failures = await scan_each(stage.cluster, spans, stage.visit)
        with pytest.raises(KafkaError, match=code.name):
            await scan_batches(stage.cluster, spans, stage.visit)
    assert list(failures) == [HERE]
    assert stage.seen[THERE][:BATCHES] == [0, 1, 2, 3]


async def test_a_partition_without_a_leader_is_named(stage: Stage) -> None:
    stage.faults.leaderless.add(HERE)
    async with asyncio.timeout(60):
        failures = await scan_each(stage.cluster, dict.fromkeys((HERE, THERE), OffsetSpan(0, BATCHES)), stage.visit)
    (error,) = failures.values()
    assert isinstance(error, KafkaError)
    assert str(HERE) in str(error)
    assert stage.seen == {THERE: [0, 1, 2, 3]}


class Compared(TopicPartition):
    """Counts how often it is held against another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return tuple(self) == other

    __hash__ = TopicPartition.__hash__


async def test_what_a_partition_costs_does_not_grow_with_their_number(stage: Stage) -> None:
    count = 200
    assert not await create_topics(stage.cluster, [NewTopic("many", count, 1)])
    spans: dict[TopicPartition, OffsetSpan] = {Compared("many", number): OffsetSpan(0, 1) for number in range(count)}
    for where in spans:
        await append(stage.cluster, where, encode_batch([Record(0, 1, b"k", b"v")]))
    Compared.comparisons = 0
    async with asyncio.timeout(60):
        assert not await scan_each(stage.cluster, spans, stage.visit)
    assert len(stage.seen) == count
    assert Compared.comparisons <= 30 * count


class Unreadable(Exception):
    """What a visitor raises."""


async def test_others_have_their_turn_while_much_is_visited(stage: Stage) -> None:
    """A visitor that opens all records takes milliseconds for each batch, and one answer brings many."""
    batch = encode_batch([Record(0, 1, b"k", bytes(VISITED_AT_ONCE_BYTES // 4))])
    for _ in range(12):
        await append(stage.cluster, HERE, batch)
    turns, at_once = 0, dict[int, int]()

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def visit(_where: TopicPartition, header: BatchHeader, _batch: memoryview) -> None:
        at_once[turns] = at_once.get(turns, 0) + header.size_bytes

    others = asyncio.ensure_future(take_turns())
    await scan_batches(stage.cluster, {HERE: OffsetSpan(0, BATCHES + 12)}, visit)
    others.cancel()
    assert sum(at_once.values()) > 12 * len(batch)
    assert max(at_once.values()) < VISITED_AT_ONCE_BYTES + len(batch)


async def test_what_the_visitor_raises_comes_as_itself(stage: Stage) -> None:
    def visit(_where: TopicPartition, _header: BatchHeader, _batch: memoryview) -> None:
        raise Unreadable

    with pytest.raises(Unreadable):
        await scan_batches(stage.cluster, dict.fromkeys((HERE, THERE), OffsetSpan(0, BATCHES)), visit)
