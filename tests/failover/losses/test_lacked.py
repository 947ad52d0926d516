"""What the target of a failover lost of its own, and only the source has, is in the statement of loss."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from failover.freezing.hooks import Hooks
from failover.losses.stated_losses import counted, stated_losses
from failover.losses.statements import Certainty
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from mirror.worker import parted
from tests.failover.failback.older_disk import GROUP, NEWER, OLDER, SINCE, WHERE, Disks, Up, lose_an_end
from tests.mirror.harness import contents, read_all, running, some_records, wait_for_records

READ = 5
"""So many of the records that east lost the group has read at west."""


async def failover_along_the_link_back(up: Up) -> LinkMove:
    sites = Sites(up.back, up.target, up.source, (), lambda: round(time.time() * 1000))
    names = (up.back.name,), up.back.source.name, up.back.target.name
    intent = Intent(Operation.FAILOVER, *names, allow_data_loss=True, even_if_source_answers=True)
    return await counted(await plan_link(intent, sites, Hooks()), always=True)


async def at_west(up: Up, value: int) -> int:
    """The offset of a record of the tests."""
    (wanted,) = contents(some_records(value, 1))
    return next(one.offset for one in await read_all(up.target, WHERE) if contents([one]) == [wanted])


async def test_records_that_the_target_lost_of_its_own_are_counted_and_skipped(tmp_path: Path) -> None:
    """It said 0 records, exactly, and that a group that stood before them skips none."""
    disks = Disks(tmp_path)
    await lose_an_end(disks)
    async with disks.up() as up:
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        stands = {GROUP: READ, "early": 0, "late": SINCE}
        for group, read in stands.items():
            at = await at_west(up, 100 + read) if read < SINCE else await at_west(up, 200)
            await commit_offsets(up.target, group, {WHERE: CommittedOffset(at)})
        move = await failover_along_the_link_back(up)
        plan = move.plan
        assert plan.refusals == ()
        (loss,) = plan.losses
        assert (loss.records, loss.lacked_records, loss.certainty) == (SINCE, SINCE, Certainty.EXACT)
        assert not loss.is_none
        assert (plan.loss.records, plan.loss.partitions_with_loss) == (SINCE, 1)
        skipped = {one.group: one.skipped_records for one in plan.group_totals}
        assert skipped == {"early": SINCE, "late": 0, GROUP: skipped[GROUP]}
        assert SINCE - READ <= (skipped[GROUP] or 0) <= SINCE
        (again,) = await stated_losses(move.sites, await move.sites.look_past_source())
        assert (again.records, again.lacked_records) == (SINCE, SINCE), "behind the fence, too"


async def test_what_could_not_be_compared_is_not_said_to_be_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = Disks(tmp_path)
    await lose_an_end(disks)
    async with disks.up() as up:
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        monkeypatch.setattr(parted, "PARTED_LOOK_MS", 0)
        plan = (await failover_along_the_link_back(up)).plan
        assert [one.certainty for one in plan.losses] == [Certainty.UNKNOWN]
        assert plan.loss.certainty is not Certainty.EXACT
