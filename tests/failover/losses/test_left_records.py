"""What was left at a site, less what was replayed at the other one since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.log import append
from broker.wire.records import Record, encode_batch
from failover.failback.export import export_stranded
from failover.failback.replay import replay
from failover.failback.stranding import leave_at_source, read_stranded
from failover.losses.left_records import count_left
from failover.losses.replayed import REPLAYS, Ranges, outside, read_done
from failover.observing.left_ranges import left_ranges
from failover.observing.sites import Sites
from mirror.offsets.state import read_entries
from tests.failover.failback.stage import lost_and_back
from tests.failover.stage import now_ms
from tests.mirror.harness import make_topic


async def test_what_was_replayed_is_left_no_more(tmp_path: Path) -> None:
    """The next plan said of all of them that they stay at the source alone."""
    async with lost_and_back(tmp_path, 31, (4, 3), (1, 1)) as lost:
        source, target, folder = lost.stage.source, lost.stage.target, tmp_path / "saved"
        reader, found = await read_stranded(lost.there, source, target)
        manifest = await export_stranded(reader, found.tails, folder, 0)
        await leave_at_source(lost.there, target, found.undecided, "test")
        left = left_ranges((await read_entries(lost.there, target)).left_at_source(), ())
        sites = Sites(lost.there, source, target, (), now_ms)

        async def counted() -> list[tuple[int, int | None, bool]]:
            return [(one.partition, one.records, one.may_be_replayed) for one in await count_left(sites, left)]

        assert await counted() == [(0, 4, False), (1, 3, False)]
        first = replace(manifest, ranges=manifest.ranges[:1])
        await replay(lost.there, target, first, folder, lambda _records: None)
        assert await counted() == [(1, 3, False)]
        await replay(lost.there, target, manifest, folder, lambda _records: None)
        assert await counted() == []
        gone = [replace(left[0], topic="gone")]
        (untold,) = await count_left(sites, gone)
        assert (untold.records, untold.may_be_replayed) == (None, True), "whose log that was nobody can say"
        await append(target, REPLAYS, encode_batch([Record(0, 0, b"another version's", b"[]")]))
        assert await counted() == [(0, 4, True), (1, 3, True)], "what it says is not guessed at"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"{}",
        b"[]",
        b'{"v": 2}',
        b'{"v": 1, "done": []}',
        b'{"v": 2, "done": 5}',
        b'{"v": 2, "done": [[5]]}',
        b"?",
    ],
)
def test_what_is_no_entry_of_a_replay_is_told_as_none(value: bytes | None) -> None:
    assert read_done(value) is None


async def test_a_damaged_log_of_replays_keeps_nobody_from_counting(tmp_path: Path) -> None:
    """Nothing was planned any more of a link of which something was left."""
    async with lost_and_back(tmp_path, 31, (4, 3), (1, 1)) as lost:
        source, target = lost.stage.source, lost.stage.target
        _, found = await read_stranded(lost.there, source, target)
        await leave_at_source(lost.there, target, found.undecided, "test")
        left = left_ranges((await read_entries(lost.there, target)).left_at_source(), ())
        await make_topic(target, REPLAYS.topic)
        await append(target, REPLAYS, encode_batch([Record(0, 0, b"a key", b"a value")]))
        (log,) = (tmp_path / "west" / str(REPLAYS)).glob("*.log")
        log.write_bytes(log.read_bytes()[:-1] + b"?")
        counted = await count_left(Sites(lost.there, source, target, (), now_ms), left)
        assert [(one.partition, one.records, one.may_be_replayed) for one in counted] == [(0, 4, True), (1, 3, True)]


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (0, 50, ((0, 10), (20, 30), (40, 50))),
        (12, 35, ((20, 30),)),
        (10, 20, ()),
        (5, 8, ((5, 8),)),
        (45, 50, ((45, 50),)),
    ],
)
def test_what_is_in_none_of_the_ranges(first: int, end: int, expected: Ranges) -> None:
    assert outside(((10, 20), (30, 40)), first, end) == expected
