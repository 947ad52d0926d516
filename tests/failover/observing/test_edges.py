"""First and last records are found behind what holds none, in as few round trips for many partitions as for one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.offsets import log_end_offsets
from broker.client.producers import add_partitions_to_txn, end_txn, init_producer_id
from broker.client.site import Site
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from failover.losses.counting import with_edges
from failover.losses.statements import Certainty, PartitionLoss
from failover.observing.edges import ROOM_BYTES, Span, first_records, last_records
from tests.broker.running import running_broker
from tests.failover.observing.test_contact import Far, served
from tests.mirror.harness import eventually, make_topic, write

HERE = TopicPartition("flights", 1)
EMPTY = TopicPartition("flights", 0)
RECORDS = [Record(at, 1_000 + at, b"k%d" % at, b"v%d" % at) for at in range(5)]
PARTITIONS = 60
ROUND_TRIPS_MAX = 12


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Cluster]:
    """One partition has RECORDS, the other nothing."""
    async with running_broker(tmp_path) as east, Cluster(Site("east", east)) as cluster:
        await make_topic(cluster, HERE.topic, 2)
        await write(cluster, HERE, RECORDS)
        yield cluster


async def leave_markers(cluster: Cluster, where: TopicPartition, count: int) -> int:
    """Write so many markers of transactions that hold nothing -> the log's end behind them."""
    before = (await log_end_offsets(cluster, [where]))[where]
    for number in range(count):
        name = f"fence-{number}"
        producer = await init_producer_id(cluster, name)
        assert not await add_partitions_to_txn(cluster, name, producer, [where])
        await end_txn(cluster, name, producer, commit=False)

    async def written() -> bool:
        return (await log_end_offsets(cluster, [where]))[where] == before + count

    await eventually(written, "the markers")
    return before + count


async def last(cluster: Cluster, where: TopicPartition, end: int, start: int = 0) -> int | None:
    found = (await last_records(cluster, {where: Span(start, end)}))[where]
    assert found is None or isinstance(found, Record)
    return found and found.offset


@pytest.mark.parametrize("markers", [0, 1, 7, 8, 11])
async def test_markers_behind_the_last_record_are_stepped_over(source: Cluster, markers: int) -> None:
    end = await leave_markers(source, HERE, markers)
    assert [await last(source, HERE, at) for at in (end, 5, 3, 0)] == [4, 4, 2, None]
    assert [await last(source, HERE, end, start) for start in (4, 5)] == [4, None]
    firsts = [(await first_records(source, {HERE: Span(start, end)}))[HERE] for start in (0, 3, 5)]
    assert [found and found.offset for found in firsts if not isinstance(found, Exception)] == [0, 3, None]


async def test_a_log_without_records_has_no_edges(source: Cluster) -> None:
    end = await leave_markers(source, EMPTY, 3)
    for span in (Span(0, 0), Span(0, end)):
        assert await last_records(source, {EMPTY: span}) == {EMPTY: None}
        assert await first_records(source, {EMPTY: span}) == {EMPTY: None}


async def test_the_times_of_a_loss_are_those_of_its_first_and_last_record(source: Cluster) -> None:
    end = await leave_markers(source, HERE, 2)
    loss = PartitionLoss(*HERE, Certainty.EXACT, end - 2, None, 2, end)
    stated = (
        loss,
        replace(loss, first_offset=4),
        replace(loss, first_offset=5),
        replace(loss, first_offset=None),
        replace(loss, end_offset=None),
        replace(loss, topic="gone"),
    )
    found = [(await with_edges(source, [each]))[0] for each in stated]
    assert [(each.first_timestamp_ms, each.last_timestamp_ms) for each in found] == [
        (1_002, 1_004),
        (1_004, 1_004),
        *[(None, None)] * 4,
    ]
    assert [replace(each, first_timestamp_ms=None, last_timestamp_ms=None) for each in found] == list(stated)


async def test_many_partitions_take_as_few_round_trips_as_one_whatever_the_size_of_their_batches(
    tmp_path: Path,
) -> None:
    wheres = [TopicPartition("many", number) for number in range(PARTITIONS)]
    async with running_broker(tmp_path) as east:
        async with Cluster(Site("east", east)) as near:
            await make_topic(near, "many", PARTITIONS)
            for number, where in enumerate(wheres):
                value = bytes(3 * ROOM_BYTES) if number % 2 else b""
                for offset in range(3):
                    await write(near, where, [Record(0, 1_000 + offset, None, value)])
        far = Far(east)
        async with served(far) as address, Cluster(Site("east", address, {east: address})) as cluster:
            await log_end_offsets(cluster, wheres)
            far.round_trips = 0
            losses = [PartitionLoss(*where, Certainty.EXACT, 2, 2, 1, 3) for where in wheres]
            dated = await with_edges(cluster, losses)
            missing = await first_records(cluster, {TopicPartition("gone", 0): Span(0, 1), wheres[0]: Span(0, 3)})
    assert {(loss.first_timestamp_ms, loss.last_timestamp_ms) for loss in dated} == {(1_001, 1_002)}
    assert far.round_trips <= ROUND_TRIPS_MAX
    assert isinstance(missing[TopicPartition("gone", 0)], KafkaError), "which holds up no other"
    assert isinstance(missing[wheres[0]], Record)
