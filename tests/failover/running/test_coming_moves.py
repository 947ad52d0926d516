"""A group that stands where the mirror has yet to come to skips nothing that its plan did not say, either."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_records
from failover.errors import SkipsMore
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_switchover
from failover.planning.world import ChangeKind, changes, world_of
from tests.failover.machines import quick
from tests.failover.running.test_moved_pairs import two_ways
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, TOPIC, commit_group
from tests.mirror.harness import running, some_records, wait_for_records, write


async def test_a_group_that_was_to_come_is_not_moved_over_what_the_target_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, where both sites write the topic: verified, exit code 0."""
    quick(monkeypatch)
    async with two_ways(tmp_path) as world:
        stage = world.stage
        for at in PARTITIONS:
            await write(stage.source, at, some_records(5_000, 10))
        ends = await log_end_offsets(stage.source, PARTITIONS)
        await commit_group(stage.source, *(ends[at] - 8 for at in PARTITIONS))
        plan = plan_switchover(await stage.sites.look())
        assert (plan.refusals, {move.kind for move in plan.moves}) == ((), {MoveKind.UNKNOWN})
        async with running(stage.link):
            for at in PARTITIONS:
                await wait_for_records(stage.target, at, RECORDS + 3 + 10)
            end = (await log_end_offsets(stage.target, PARTITIONS))[PARTITIONS[0]]
            await delete_records(stage.target, {PARTITIONS[0]: end - 3})
            now = plan_switchover(await stage.sites.look())
            (found,) = changes(world_of(plan, stage.link), world_of(now, stage.link))
            assert (found.kind, found.now) == (ChangeKind.SKIPPED, "5 records"), "a plan of a file holds no more"
            with pytest.raises(SkipsMore, match=rf"{GROUP} on {TOPIC}-0 \(at most 5\); nothing was changed"):
                await stage.run(plan, stage.sites)
