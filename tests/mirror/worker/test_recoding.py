"""Batches that have to be opened hold up neither the event loop nor the other partitions, whatever they hold."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.log.validation import AppendOrigin
from broker.server import Server
from broker.wire.batch import iter_batches
from broker.wire.compression import Compression
from broker.wire.errors import BatchBeyondLimits
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Writer
from mirror.offsets.intervals import End
from mirror.offsets.state import read_entries
from mirror.worker import fetching
from mirror.worker.budget import Budget, Lease
from mirror.worker.plan import Cursor, Rules, plan_batches
from mirror.worker.recoding import Recoded, Sealed, find_sealed, recode_all, recode_at_once
from tests.broker.bombs import KEYED_RECORD, NOW_MS, TURN_LINES_MAX, bomb, counted_turns
from tests.broker.running import running_server
from tests.mirror.harness import eventually, make_topic, running, some_records, wait_for_records, write

FLIGHTS, GATES = TopicPartition("flights", 0), TopicPartition("gates", 0)
MANY = 100_000


@dataclass
class Stage:
    link: Link
    east: Server
    source: Cluster
    target: Cluster

    def plant(self) -> None:
        """A few hundred bytes at the source that take long to open: the target would show other times."""
        records = [Record(offset, NOW_MS, b"k", b"") for offset in range(MANY)]
        batch = encode_batch(records, compression=Compression.ZSTD, log_append_time_ms=NOW_MS)
        log = self.east.broker.require_partition(*FLIGHTS).log
        log.append(batch, leader_epoch=0, origin=AppendOrigin.COORDINATOR)

    async def has_all(self) -> bool:
        return (await log_end_offsets(self.target, [FLIGHTS]))[FLIGHTS] >= MANY


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with running_server(tmp_path / "east") as one, running_server(tmp_path / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), ("flights", "gates"))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            for topic in ("flights", "gates"):
                await make_topic(source, topic)
            yield Stage(link, one, source, target)


@pytest.mark.parametrize("max_batch_bytes", [100, 150, 400, 10_000])
@pytest.mark.parametrize("position", [0, 3, 11])
def test_what_is_opened_ahead_is_planned_as_if_it_were_not(position: int, max_batch_bytes: int) -> None:
    log = bytearray()
    for number, offsets in enumerate(([0, 1, 2, 3], [4, 6, 9], [10], [11, 12, 14], [15, 16])):
        records = [Record(offset, NOW_MS, b"k", b"v" * 30 * number) for offset in offsets]
        log += encode_batch(records, base_offset=offsets[0], last_offset=offsets[-1], dense=False)
    cursor, rules = Cursor(position, End(position, 100), 7), Rules(Writer(5, 1), max_batch_bytes)
    plans = []
    for ahead in (False, True):
        fetched = memoryview(bytearray(log))
        sealed = find_sealed(fetched, position, max_batch_bytes) if ahead else []
        plan = plan_batches(
            fetched, (), cursor, rules, Lease(Budget(0, 0), 0), recode_all(sealed, position, max_batch_bytes)
        )
        rows = [(bytes(b.batch), b.sequence, b.count, b.pieces, b.target_base, b.intervals) for b in plan.batches]
        plans.append((rows, plan.cursor, plan.blocker))
    assert plans[0] == plans[1]
    assert sealed, "something was opened"


def test_what_is_beyond_all_limits_counts_as_what_cannot_be_opened() -> None:
    """And what is beyond those of a turn of the loop alone is left to a thread."""
    whole = encode_batch([Record(0, NOW_MS, b"k", b"v")])
    for batch, is_beyond in ((bomb(Compression.ZSTD, KEYED_RECORD, 2**31 - 1), True), (whole, False)):
        (header, data), *_ = iter_batches(memoryview(batch))
        recoded = recode_all([Sealed(header, data)], 0, 10_000)[0]
        assert isinstance(recoded.error, BatchBeyondLimits) is is_beyond
        assert len(recoded.batches) == (0 if is_beyond else 1)
        if is_beyond:
            with pytest.raises(BatchBeyondLimits):
                recode_at_once([Sealed(header, data)], 0, 10_000)


async def test_no_turn_of_the_event_loop_waits_for_a_million_records(stage: Stage) -> None:
    await write(stage.source, GATES, some_records(0, 5))
    async with running(stage.link):
        await wait_for_records(stage.target, GATES, 5)
        stage.plant()
        async with counted_turns() as turns:
            await eventually(stage.has_all, "all records")
        assert turns.longest < TURN_LINES_MAX


async def test_while_a_batch_is_opened_the_others_and_the_heartbeat_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def held(sealed: Iterable[Sealed], position: int, max_batch_bytes: int) -> Mapping[int, Recoded]:
        begun.set()
        assert may_end.wait(120)
        return recode_all(sealed, position, max_batch_bytes)

    monkeypatch.setattr(fetching, "recode_all", held)
    stage.plant()
    async with running(stage.link):
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            await write(stage.source, GATES, some_records(0, 5))
            await wait_for_records(stage.target, GATES, 5)
            beat = (await read_entries(stage.link, stage.target)).owner

            async def beats() -> bool:
                return (await read_entries(stage.link, stage.target)).owner != beat

            await eventually(beats, "a heartbeat")
            await write(stage.source, GATES, some_records(5, 5))
            await wait_for_records(stage.target, GATES, 10)
            assert not await stage.has_all()
        finally:
            may_end.set()
        await eventually(stage.has_all, "all records")
        assert (await log_end_offsets(stage.target, [FLIGHTS]))[FLIGHTS] <= MANY + 2, "and once"
