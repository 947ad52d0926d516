"""What a link back writes to a site one of whose followers hangs: nobody is shown it, and it is not the site's own.

Its records are acknowledged when the followers have them, and are shown then; until that whose they are cannot be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.offsets import appended_ends, log_end_offsets
from broker.topics.partition import Partition
from deploy.cli.late_lines import found_lines
from deploy.cli.stranded import in_words, unshown_lines
from failover.failback.plan import FailbackRefusal, plan_failback
from failover.failback.stranding import look_for_stranded, read_stranded, resume_settled
from failover.freezing.choice import UNFROZEN
from failover.journal.log import load_operations
from failover.journal.values import Event
from failover.losses.stranded import CountedNone, StrandedRange, stranded_ranges
from failover.planning.plan import plan_switchover
from failover.running.draining import settle
from mirror.offsets.entries import RunState
from mirror.offsets.operations import promote_link
from mirror.offsets.state import load_link_state, read_entries
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.freezing.test_left_source import roles_of
from tests.failover.on_its_way import append, replicate
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, mirrored, two_sites
from tests.mirror.harness import eventually, running, some_records, wait_for_records, write

FIRST = PARTITIONS[0]
NEWS, MORE = 3, 2


def _leader(stage: Stage) -> Partition:
    return stage.brokers[0].require_partition(*FIRST)


def _hang_followers(stage: Stage) -> None:
    leader = _leader(stage).state.replicas[0]
    replicate(_leader(stage), leader + 1, leader + 2)


async def _has(site: Cluster, end: int) -> None:
    async def has() -> bool:
        at = (await appended_ends(site, [FIRST]))[FIRST]
        return not isinstance(at, ClientError) and at.offset >= end

    await eventually(has, f"records up to {end} at the leader")


async def _shown(stage: Stage) -> int:
    return (await log_end_offsets(stage.source, [FIRST]))[FIRST]


@asynccontextmanager
async def _caught_up(folder: Path) -> AsyncIterator[Lost]:
    """The link back runs, has brought all that there is, and its state says so; then followers of its target hang."""
    async with lost_and_back(folder, 1, (0, 0), (NEWS, 0)) as lost, running(lost.back):
        stage = lost.stage

        async def is_brought() -> bool:
            end = (await load_link_state(lost.back, stage.source)).map.mirrored_end(*FIRST)
            there = (await log_end_offsets(stage.target, [FIRST]))[FIRST]
            return end is not None and end.source_next == there

        await eventually(is_brought, "the link back's state")
        _hang_followers(stage)
        yield lost
        replicate(_leader(stage))


@asynccontextmanager
async def _writing(folder: Path) -> AsyncIterator[Lost]:
    async with _caught_up(folder) as lost:
        await write(lost.stage.target, FIRST, some_records(9_000, MORE))
        await _has(lost.stage.source, await _shown(lost.stage) + MORE)
        yield lost


async def test_a_failback_is_not_refused_for_it_and_it_is_said_to_be_in_doubt(tmp_path: Path) -> None:
    """It was listed as what only the source has, and the failback waited for a follower of a site that it goes to."""
    async with _writing(tmp_path) as lost:
        stage = lost.stage
        _, found = await read_stranded(lost.there, stage.source, stage.target)
        assert found.tails == ()
        end = await _shown(stage)
        assert [(one.where, one.first_offset, one.end_offset) for one in found.may_be_brought] == [
            (FIRST, end, end + MORE)
        ]
        plan = plan_failback(found, (await read_entries(lost.there, stage.target)).run, (), "", same_names=True)
        assert FailbackRefusal.TAIL_NOT_SHOWN not in plan.refusals
        assert in_words(found) == "east has no record that west lacks, of what everybody is shown"
        (line,) = unshown_lines(found)
        assert line.startswith(f"nobody is shown flights-0 from offset {end} on")
        assert "it may be what a link back is bringing" in line


async def test_a_group_more_is_switched_over_along_the_link(tmp_path: Path) -> None:
    """It was refused: east alone had at least 0 records."""
    async with _writing(tmp_path) as lost:
        await settle(lost.stage.sites, 1.5, CountedNone())


async def test_the_link_is_resumed(tmp_path: Path) -> None:
    async with _writing(tmp_path) as lost:
        stage = lost.stage
        assert await resume_settled(lost.there, stage.source, stage.target, "back") == ()
        run = (await read_entries(lost.there, stage.target)).run
        assert run is not None
        assert run.state is RunState.RUNNING


async def test_behind_a_link_back_that_has_brought_all_it_is_somebody_elses(tmp_path: Path) -> None:
    """What that brought is acknowledged, and so it is shown: the record can not be one of them."""
    async with _caught_up(tmp_path) as lost:
        stage, end = lost.stage, await _shown(lost.stage)
        await append(stage.brokers[0])
        found = await look_for_stranded(lost.there, stage.source, stage.target)
        assert [(one.where, one.first_offset, one.is_shown) for one in found.tails] == [(FIRST, end, False)]
        assert found.may_be_brought == ()
        seen = await stage.sites.look()
        ranges = await stranded_ranges(lost.there, stage.source, stage.target, seen)
        assert ranges == (StrandedRange(*FIRST, end, end + 1, None, is_shown=False),)


async def test_of_more_than_a_link_back_has_still_to_bring_some_is_somebody_elses(tmp_path: Path) -> None:
    """What it cannot be bringing was said to be what it may bring, with exit code 0, until it had brought all: of so
    many offsets one at the least is not its own.
    """
    async with _caught_up(tmp_path) as lost:
        stage, end = lost.stage, await _shown(lost.stage)
        await append(stage.brokers[0])
        await write(stage.target, FIRST, some_records(9_000, MORE))
        await _has(stage.source, end + 1 + MORE)
        found = await look_for_stranded(lost.there, stage.source, stage.target)
        assert found.may_be_brought == ()
        assert [(one.first_offset, one.end_offset, one.is_shown) for one in found.tails] == [
            (end, end + 1 + MORE, False)
        ]
        seen = await stage.sites.look()
        ranges = await stranded_ranges(lost.there, stage.source, stage.target, seen)
        assert ranges == (StrandedRange(*FIRST, end, end + 1 + MORE, None, is_shown=False),)


@pytest.mark.parametrize("selects", [(TOPIC,), ("trips",)])
async def test_what_is_in_no_range_of_a_link_back_is_not_excused_by_what_that_has_to_bring_elsewhere(
    tmp_path: Path, selects: tuple[str, ...]
) -> None:
    """It is behind in another partition, or carries another topic, and the record is none of these."""
    async with lost_and_back(tmp_path, 1, (0, 0), (0, 0)) as lost:
        stage = lost.stage
        async with running(lost.back):
            pass
        await write(stage.target, PARTITIONS[1] if TOPIC in selects else FIRST, some_records(9_000, MORE))
        there = replace(lost.there, reverse_links=(replace(lost.back, topics=selects),))
        _hang_followers(stage)
        await append(stage.brokers[0])
        found = await look_for_stranded(there, stage.source, stage.target)
        seen = await stage.sites.look()
        ranges = await stranded_ranges(there, stage.source, stage.target, seen)
        replicate(_leader(stage))
    assert ([one.where for one in found.tails], found.may_be_brought) == ([FIRST], ())
    assert [(one.is_shown, one.may_be_brought) for one in ranges] == [(False, False)]


@pytest.mark.parametrize("is_by_role", [True, False])
async def test_what_it_brings_behind_the_fence_is_no_finding(tmp_path: Path, *, is_by_role: bool) -> None:
    """A switchover ended with exit code 4, and told to stop who writes at a source that refuses every client."""
    async with two_sites(tmp_path) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        stage.link = replace(there, reverse_links=(back,))

        async def is_handed() -> bool:
            logs = (await load_operations(stage.target)).values()
            return any(entry.event == Event.GROUPS_VERIFIED for log in logs for entry in log.entries)

        async def go_on() -> None:
            await eventually(is_handed, "verified groups")
            _hang_followers(stage)
            await write(stage.target, FIRST, some_records(8_000, MORE))

        async with mirrored(stage):
            freezing = await roles_of(stage) if is_by_role else UNFROZEN
            plan = plan_switchover(await stage.sites.look(), freezing=freezing)
            async with running(replace(back, reverse_links=(there,))):
                going = asyncio.create_task(go_on())
                result = await stage.run(plan, stage.sites)
                await going
                replicate(_leader(stage))
        assert (result.verified, result.stranded, result.has_findings) == (True, (), False)
        said = [line for line in found_lines(result) if "may be what a link back is bringing" in line]
        if is_by_role:
            assert (result.unshown, said) == ((), [])
        else:
            assert [(one.is_shown, one.end_offset - one.first_offset) for one in result.unshown] == [(False, MORE)]
            assert len(said) == 1


async def test_what_the_link_that_was_let_run_brings_is_nothing_that_only_its_target_has(tmp_path: Path) -> None:
    """As at the end of a failback: that looks at the other site as soon as the link runs again."""
    async with lost_and_back(tmp_path, 1, (0, 0), (0, 0)) as lost:
        stage = lost.stage
        async with running(lost.back):
            pass
        await promote_link(lost.back, stage.source, "failback-1")
        assert await resume_settled(lost.there, stage.source, stage.target, "failback-1") == ()
        async with running(lost.there):
            await write(stage.source, FIRST, some_records(9_000, 1))
            await wait_for_records(stage.target, FIRST, RECORDS + 1)
            partition = stage.brokers[1].require_partition(*FIRST)
            leader = partition.state.replicas[0]
            replicate(partition, leader + 1, leader + 2)
            shown = (await log_end_offsets(stage.target, [FIRST]))[FIRST]
            await write(stage.source, FIRST, some_records(9_001, MORE))
            await _has(stage.target, shown + MORE)
            found = await look_for_stranded(lost.back, stage.target, stage.source)
            replicate(partition)
        assert (found.is_promoted, found.undecided) == (True, ())
        assert [one.first_offset for one in found.may_be_brought] == [shown]
