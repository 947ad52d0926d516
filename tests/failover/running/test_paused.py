"""A failover of a paused link: what was written behind the pause is stated as lost, and that it was paused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from failover.freezing.hooks import Hooks
from failover.journal.log import load_operations
from failover.planning.intent import Intent
from failover.planning.plan import plan_failover
from failover.running.steps import Operation
from failover.running.taking_up import resume
from mirror.offsets.operations import pause_link
from mirror.offsets.source_ends import load_observation
from mirror.worker.events import Event
from tests.failover.machines import HEIR, machine
from tests.failover.running.test_taking_up import ID, die_in
from tests.failover.stage import PARTITIONS, RECORDS, Stage, mirrored, two_sites
from tests.mirror.harness import QUICK, eventually, running, some_records, write

BEHIND = 50
LIMITS = replace(QUICK, paused_poll_ms=100)


async def until_seen(stage: Stage, ends: list[int]) -> None:
    async def is_seen() -> bool:
        found = (await load_observation(stage.link, stage.target)).ends
        return [found[at].end for at in PARTITIONS] == ends

    await eventually(is_seen, f"{ends} to be seen", 60)


async def write_behind_a_pause(stage: Stage) -> None:
    await pause_link(stage.link, stage.target, "pause-1")
    async with running(stage.link, limits=LIMITS) as told:
        await told.wait_for(Event.PAUSED)
        await write(stage.source, PARTITIONS[0], some_records(5_000, BEHIND))
        await until_seen(stage, [RECORDS + BEHIND, RECORDS])


async def test_what_was_written_behind_a_pause_is_stated_as_lost(tmp_path: Path) -> None:
    """It was stated as likely 0, and the result said nothing of the pause."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write_behind_a_pause(stage)
        seen = await stage.without_source.look_past_source()
        plan = plan_failover(seen, allow_data_loss=True, even_if_source_answers=False)
        result = await stage.run(plan, stage.without_source)
    assert (plan.loss.offsets, result.loss.offsets) == (BEHIND, BEHIND)
    assert (plan.snapshot.is_behind_pause, result.was_paused, result.verified) == (True, True, True)
    assert [loss.offsets for loss in result.losses] == [BEHIND, 0]


async def test_who_takes_it_up_behind_the_fence_says_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the fence the link's state says no more that it was paused: the first plan does."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write_behind_a_pause(stage)
        intent = Intent(Operation.FAILOVER, (stage.link.name,), "east", "west", allow_data_loss=True)
        await die_in(stage, monkeypatch, "move_groups", intent, source_lives=False)
        log = (await load_operations(stage.target))[ID]
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(log, [replace(one, source=None) for one in sites], Hooks(), "an heir")
    assert (result.was_paused, result.verified, result.loss.offsets) == (True, True, BEHIND)
