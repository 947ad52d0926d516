"""Reading a range of a log ends: also where the log goes on, and nothing is left of it (compaction, and then a cut)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ReadUnfinished
from broker.client.gathering import PARTITION_MIN_BYTES, GatheredReads
from broker.client.limits import ClientLimits
from broker.client.log import append, read_batches
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.batch import BatchHeader
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server

HERE = TopicPartition("flights", 0)
CROWD = [TopicPartition("flights", number) for number in range(6)]
QUICK = ClientLimits(fetch_max_bytes=4 * PARTITION_MIN_BYTES, fetch_partition_max_bytes=PARTITION_MIN_BYTES)
BATCHES = 4


@dataclass
class Stage:
    cluster: Cluster
    faults: Faults


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """Six partitions of four batches, of which two fill the room of an answer."""
    faults = Faults()
    async with running_server(tmp_path) as server, Cluster(Site("east", server.address), limits=QUICK) as cluster:
        with injected(monkeypatch, {server.broker: faults}):
            assert not await create_topics(cluster, [NewTopic("flights", len(CROWD), 1)])
            for where in CROWD:
                for _ in range(BATCHES):
                    await append(cluster, where, encode_batch([Record(0, 1, b"k", bytes(2 * PARTITION_MIN_BYTES))]))
            yield Stage(cluster, faults)


async def offsets(batches: AsyncIterator[tuple[BatchHeader, memoryview]]) -> list[int]:
    return [header.base_offset async for header, _ in batches]


@pytest.mark.parametrize("isolation", list(IsolationLevel))
async def test_a_log_that_ends_in_a_hole_is_read_to_its_last_batch(stage: Stage, isolation: IsolationLevel) -> None:
    stage.faults.empty.add(HERE)
    async with asyncio.timeout(60):
        assert await offsets(read_batches(stage.cluster, HERE, 0, BATCHES, isolation)) == []
        with pytest.raises(ReadUnfinished):
            await offsets(read_batches(stage.cluster, HERE, 0, BATCHES, isolation, is_whole=True))


@pytest.mark.parametrize("isolation", list(IsolationLevel))
async def test_who_had_no_room_in_an_answer_is_not_taken_for_empty(stage: Stage, isolation: IsolationLevel) -> None:
    stage.faults.empty.add(HERE)
    reads = GatheredReads(stage.cluster)
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(offsets(reads.read_batches(where, 0, BATCHES, isolation)) for where in CROWD))
    assert dict(zip(CROWD, found, strict=True)) == {where: [0, 1, 2, 3] for where in CROWD[1:]} | {HERE: []}
