"""Replayed records come once, wherever a replay is cut short, and only where the link does not bring them itself."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from broker.client.log import read_records
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.errors import ReplayRefused
from failover.failback.export import Manifest, export_stranded
from failover.failback.replay import ORIGIN_HEADER, Replayed, check_left, replay
from failover.failback.stranding import leave_at_source, read_stranded
from failover.losses.replayed import Ranges, with_range
from mirror.offsets.operations import resume_link
from mirror.offsets.state import read_entries
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.stage import PARTITIONS
from tests.mirror.harness import contents, some_records, write


async def replayed_at(lost: Lost, where: TopicPartition) -> list[Record]:
    """The committed records of the target that say that they were replayed."""
    target = lost.stage.target
    end = (await log_end_offsets(target, [where]))[where]
    found = [record async for record in read_records(target, where, 0, end, IsolationLevel.READ_COMMITTED)]
    return [record for record in found if any(name == ORIGIN_HEADER for name, _ in record.headers)]


def without_origin(records: list[Record]) -> list[tuple[object, ...]]:
    plain = [r._replace(headers=tuple(h for h in r.headers if h[0] != ORIGIN_HEADER)) for r in records]
    return contents(plain)


@pytest.mark.parametrize("seed", [21, 22])
async def test_cut_short_anywhere_and_run_again_each_record_is_there_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with lost_and_back(tmp_path, seed, (40, 9), (2, 3)) as lost:
        target, folder = lost.stage.target, tmp_path / "saved"
        reader, found = await read_stranded(lost.there, lost.stage.source, target)
        manifest = await export_stranded(reader, found.tails, folder, 0)
        stranded = {where: await lost.only_at_source(where) for where in PARTITIONS}
        with pytest.raises(ReplayRefused, match="was not told to leave flights-0"):
            check_left(await read_entries(lost.there, target), manifest)
        await leave_at_source(lost.there, target, found.undecided, "test")
        check_left(await read_entries(lost.there, target), manifest)
        for _ in range(6):
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.01, 0.4)):
                    await replay(lost.there, target, manifest, folder, lambda _records: None)
        done = await replay(lost.there, target, manifest, folder, lambda _records: None)
        assert done.records + done.records_before == 49
        for where in PARTITIONS:
            assert without_origin(await replayed_at(lost, where)) == stranded[where]
        first = await replayed_at(lost, PARTITIONS[0])
        assert dict(first[0].headers)[ORIGIN_HEADER] == b"east/flights/0/50"
        again = tmp_path / "again"
        second = await export_stranded(reader, found.tails, again, 1)
        assert await replay(lost.there, target, second, again, lambda _records: None) == Replayed(0, 49)


async def test_nothing_is_replayed_while_the_link_brings_it(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 23, (3, 0), (1, 0)) as lost:
        target = lost.stage.target
        reader, found = await read_stranded(lost.there, lost.stage.source, target)
        manifest = await export_stranded(reader, found.tails, tmp_path / "saved", 0)
        await resume_link(lost.there, target, "resume-1")
        with pytest.raises(ReplayRefused, match="runs: east is the active site"):
            check_left(await read_entries(lost.there, target), manifest)


async def test_tails_of_one_partition_are_replayed_in_any_order_and_each_once(tmp_path: Path) -> None:
    async with lost_and_back(tmp_path, 24, (4, 0), (1, 0)) as lost:
        source, target, where = lost.stage.source, lost.stage.target, PARTITIONS[0]
        manifests: list[Manifest] = []
        stranded: list[list[tuple[object, ...]]] = []
        for number in range(2):
            if number:
                await write(source, where, some_records(77_000, 3))
            reader, found = await read_stranded(lost.there, source, target)
            manifests.append(await export_stranded(reader, found.undecided, tmp_path / str(number), 0))
            await leave_at_source(lost.there, target, found.undecided, "test")
            known = [one for tail in stranded for one in tail]
            stranded.append([one for one in await lost.only_at_source(where) if one not in known])
        assert [len(one) for one in stranded] == [4, 3]
        both = await export_stranded(reader, (await lost.stranded()).tails, tmp_path / "both", 0)
        for number, expected in ((1, Replayed(3, 0)), (0, Replayed(4, 0)), (1, Replayed(0, 3)), (0, Replayed(0, 4))):
            folder = tmp_path / str(number)
            assert await replay(lost.there, target, manifests[number], folder, lambda _: None) == expected
        assert await replay(lost.there, target, both, tmp_path / "both", lambda _: None) == Replayed(0, 7)
        assert without_origin(await replayed_at(lost, where)) == [*stranded[1], *stranded[0]]


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (0, 4, ((0, 4), (10, 20), (30, 40))),
        (20, 30, ((10, 40),)),
        (5, 15, ((5, 20), (30, 40))),
        (12, 13, ((10, 20), (30, 40))),
        (0, 50, ((0, 50),)),
    ],
)
def test_ranges_grow_together(first: int, end: int, expected: Ranges) -> None:
    assert with_range(((10, 20), (30, 40)), first, end) == expected
