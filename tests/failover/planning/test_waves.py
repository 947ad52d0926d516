"""Groups that follow along a link that was moved before: its mirror brings nothing more, and is not waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from failover.errors import NotDrained
from failover.failback.stranding import leave_at_source, look_for_stranded
from failover.losses.statements import Certainty
from failover.observing.sites import Sites
from failover.planning.plan import plan_switchover
from mirror.link import Link
from tests.failover.machines import quick
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, Stage, mirrored, two_sites
from tests.mirror.harness import contents, read_all, running, some_records, wait_for_records, write

SECOND = "second"
AT = PARTITIONS[0]
READ = 10


@dataclass
class Moved:
    """The first wave is over: `GROUP` was moved, `SECOND` stayed, and the link back brings what is written at west."""

    stage: Stage
    back: Link

    @property
    def second(self) -> Sites:
        return replace(self.stage.sites, groups=(SECOND,))

    async def next_of_second(self) -> tuple[object, ...]:
        offset = (await committed_offsets(self.stage.target, SECOND))[AT].offset
        return next(tuple(one)[1:] for one in await read_all(self.stage.target, AT) if one.offset >= offset)


@asynccontextmanager
async def first_wave_moved(folder: Path) -> AsyncIterator[Moved]:
    async with two_sites(folder) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        back = replace(back, reverse_links=(there,))
        stage.link = replace(there, reverse_links=(replace(back, reverse_links=()),))
        await commit_offsets(stage.source, SECOND, {AT: CommittedOffset(READ)})
        async with mirrored(stage), running(back):
            pass
        first = replace(stage.sites, groups=(GROUP,))
        result = await stage.run(plan_switchover(await first.look()), first)
        assert result.verified, result.differences
        await write(stage.target, AT, some_records(5_000, 4))
        async with running(back):
            await wait_for_records(stage.source, AT, RECORDS + 4)
        yield Moved(stage, back)


async def test_a_second_wave_goes_to_its_next_record_though_the_link_back_has_fenced_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with first_wave_moved(tmp_path) as moved:
        for _ in range(2):  # and again, as after an exit code 1
            result = await moved.stage.run(plan_switchover(await moved.second.look()), moved.second, 6.0)
            assert (result.verified, result.differences, result.stranded) == (True, (), ())
            assert (result.loss.certainty, result.loss.records) == (Certainty.EXACT, 0), "the target has what came back"
            assert await moved.next_of_second() == contents(some_records(0, RECORDS))[READ]


async def test_what_only_the_source_has_is_decided_about_before_a_second_wave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with first_wave_moved(tmp_path) as moved:
        stage = moved.stage
        await write(stage.source, AT, some_records(7_000, 3))
        plan = plan_switchover(await moved.second.look())
        with pytest.raises(NotDrained, match="3 records") as refused:
            await stage.run(plan, moved.second, 6.0)
        assert "nothing was changed" in str(refused.value)
        assert f"farshore stranded leave --link {stage.link.name}" in refused.value.hint
        found = await look_for_stranded(stage.link, stage.source, stage.target)
        await leave_at_source(stage.link, stage.target, found.undecided, "a person said so")
        result = await stage.run(plan_switchover(await moved.second.look()), moved.second, 6.0)
        assert (result.verified, result.stranded) == (True, ())
        assert (result.loss.certainty, result.loss.records) == (Certainty.EXACT, 3), "they are still only there"
        assert await moved.next_of_second() == contents(some_records(0, RECORDS))[READ]
