"""What a replay brought is known to the next run also behind what another replay has in an open transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.producers import ProducerIdAndEpoch, add_partitions_to_txn, end_txn, init_producer_id
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from failover.errors import ReplayRefused
from failover.failback.export import Manifest, export_stranded
from failover.failback.replay import REPLAYS_PREFIX, Replayed, _Run, replay
from failover.failback.stranding import leave_at_source, read_stranded
from failover.losses.left_records import count_left
from failover.losses.replayed import REPLAYS
from failover.observing.left_ranges import left_ranges
from failover.observing.sites import Sites
from mirror.offsets.state import read_entries
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.failback.test_replay import replayed_at
from tests.failover.stage import PARTITIONS, now_ms

OTHER = f"{REPLAYS_PREFIX}of-another-site"
RECORDS = 6


@asynccontextmanager
async def brought_behind_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Lost, Manifest, ProducerIdAndEpoch]]:
    """A hub that two sites come back to: the machine of the other one's replay hangs within a transaction, and this one
    brings all behind that.
    """
    hung: list[ProducerIdAndEpoch] = []
    real = _Run.bring

    async def bring(self: _Run, *args: Any) -> None:
        hung.append(await begin_another(lost.stage.target)) if not hung else None
        await real(self, *args)

    async with lost_and_back(folder, 26, (RECORDS, 0), (1, 0)) as lost:
        target = lost.stage.target
        reader, found = await read_stranded(lost.there, lost.stage.source, target)
        manifest = await export_stranded(reader, found.tails, folder / "saved", 0)
        await leave_at_source(lost.there, target, found.undecided, "test")
        monkeypatch.setattr(_Run, "bring", bring)
        assert await again(lost, manifest, folder) == Replayed(RECORDS, 0)
        yield lost, manifest, hung[0]


async def begin_another(target: Cluster) -> ProducerIdAndEpoch:
    hung = await init_producer_id(target, OTHER)
    assert not await add_partitions_to_txn(target, OTHER, hung, [REPLAYS])
    entry = Record(0, 0, b'["replayed", "of-another-site"]', b'{"v": 2, "done": []}')
    batch = encode_batch(
        [entry],
        producer_id=hung.producer_id,
        producer_epoch=hung.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    await append(target, REPLAYS, batch, OTHER)
    return hung


async def again(lost: Lost, manifest: Manifest, folder: Path) -> Replayed:
    return await replay(lost.there, lost.stage.target, manifest, folder / "saved", lambda _records: None)


async def records_at(lost: Lost, where: TopicPartition = PARTITIONS[0]) -> int:
    return len(await replayed_at(lost, where))


async def test_what_was_brought_behind_it_is_not_brought_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, without a word: committed records are read up to where the first open transaction begins."""
    async with brought_behind_another(tmp_path, monkeypatch) as (lost, manifest, hung):

        async def sleep(_clock: SystemClock, _seconds: float) -> None:
            await end_txn(lost.stage.target, OTHER, hung, commit=True)

        monkeypatch.setattr(type(lost.stage.target.clock), "sleep", sleep)
        assert await again(lost, manifest, tmp_path) == Replayed(0, RECORDS)
        assert await records_at(lost) == RECORDS


async def test_one_that_does_not_end_has_the_next_run_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failover.failback.replay.OPEN_REPLAY_S", 0.0)
    async with brought_behind_another(tmp_path, monkeypatch) as (lost, manifest, _):
        with pytest.raises(ReplayRefused, match=r"a transaction is open in __farshore-replays-0") as refused:
            await again(lost, manifest, tmp_path)
        assert await records_at(lost) == RECORDS
    assert "again" in refused.value.hint


async def test_of_what_was_brought_behind_it_nobody_says_that_it_is_at_the_source_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brought_behind_another(tmp_path, monkeypatch) as (lost, _, hung):
        source, target = lost.stage.source, lost.stage.target
        left = left_ranges((await read_entries(lost.there, target)).left_at_source(), ())
        sites = Sites(lost.there, source, target, (), now_ms)
        assert [(one.records, one.may_be_replayed) for one in await count_left(sites, left)] == [(RECORDS, True)]
        await end_txn(target, OTHER, hung, commit=True)
        assert await count_left(sites, left) == ()
