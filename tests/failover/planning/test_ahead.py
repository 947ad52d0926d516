"""A group that is further on at the target than at the source: it is said, also where both sites write the topic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_switchover
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, mirrored, two_sites
from tests.mirror.harness import running, some_records, wait_for_records, write


@pytest.mark.parametrize("both_ways", [False, True])
async def test_what_a_group_would_skip_is_said_and_it_goes_back_only_where_that_is_asked_for(
    tmp_path: Path, both_ways: bool
) -> None:
    """With a link back the target's offset counted as read: the group was said to be there already, skipping none."""
    async with two_sites(tmp_path) as stage:
        there = replace(stage.link, shared_targets=both_ways)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        stage.link = replace(there, reverse_links=(back,)) if both_ways else there
        async with mirrored(stage):
            if both_ways:
                async with running(replace(back, reverse_links=(there,))):
                    for at in PARTITIONS:
                        await write(stage.target, at, some_records(5_000, 3))
                        await wait_for_records(stage.source, at, RECORDS + 3)
        at = PARTITIONS[0]
        here, there_end = [(await log_end_offsets(site, [at]))[at] for site in (stage.source, stage.target)]
        await commit_offsets(stage.target, GROUP, {at: CommittedOffset(there_end - 10)})  # applications ran there
        await commit_offsets(stage.source, GROUP, {at: CommittedOffset(here - 16)})
        snapshot = await stage.sites.look()
        plan = plan_switchover(snapshot)
        assert plan.refusals == ()
        ahead, there_already = plan.moves
        assert (ahead.kind, ahead.read_again_records) == (MoveKind.AHEAD, 0)
        assert (ahead.skipped_records or 0) >= 4
        assert (there_already.kind, there_already.skipped_records) == (MoveKind.ALREADY_THERE, 0)
        asked = plan_switchover(snapshot, set_back_groups=[GROUP])
        assert (asked.moves[0].kind, asked.moves[0].read_again_records) == (MoveKind.TRANSLATED, ahead.skipped_records)
        if both_ways:
            return  # its mirror has ended amid what came back
        result = await stage.run(asked, stage.sites)
        assert result.verified, result.differences
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)
