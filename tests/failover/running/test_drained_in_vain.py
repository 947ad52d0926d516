"""What a switchover says where its drain came to nothing: who is to be seen to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.wire.site_role import SiteStanding
from failover.errors import NotDrained
from failover.freezing.choice import Freezing
from failover.losses.stranded import CountedNone
from failover.observing.sites import DrainStands
from failover.planning.plan import plan_switchover
from failover.running.draining import drain, settle
from mirror.api import promote_link
from tests.failover.stage import PARTITIONS, mirrored, two_sites
from tests.mirror.harness import Later, some_records, write
from tests.mirror.transactions import begin

RECORDS = 7


def seconds_fall(told: list[DrainStands], wait_s: float) -> bool:
    """A busy machine may have time for one of them only."""
    left_s = [one.seconds_left for one in told]
    return left_s == sorted(left_s, reverse=True) and left_s[0] <= wait_s


async def test_of_a_worker_that_is_silent_it_is_said_and_not_to_stop_the_producers(tmp_path: Path) -> None:
    """It said to stop the producers, which the freeze had done; the worker had been silent for a minute."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage, clock=Later(by_ms=-65_000)):  # its last heartbeat is as old
            pass
        await write(stage.source, PARTITIONS[1], some_records(5000, RECORDS))
        plan = plan_switchover(await stage.sites.look())
        with pytest.raises(NotDrained) as refused:
            await stage.run(plan, stage.sites, drain_timeout_s=1.0)
    said, link = str(refused.value), stage.link.name
    assert said.startswith(
        f"{RECORDS} offsets in 1 partitions were still not mirrored after 1 s, as no worker brings it"
    )
    assert "no heartbeat of " in said
    assert ", the last one at 20" in said
    assert refused.value.hint.startswith(f"restart the worker (`farshore mirror run --link {link}`)")
    assert "producers" not in refused.value.hint


async def test_where_the_source_refused_writes_nobody_is_told_to_stop_producers(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):  # it hangs for no longer than one may that lives
            pass
        await write(stage.source, PARTITIONS[1], some_records(5000, RECORDS))
        told: list[DrainStands] = []
        with pytest.raises(NotDrained) as refused:
            await drain(replace(stage.sites, tell_drain=told.append), 1.0, Freezing(SiteStanding(), freezes=True))
        assert {(one.link, one.offsets, one.partitions) for one in told[:-1]} == {(stage.link.name, RECORDS, 1)}
        assert seconds_fall(told[:-1], 1.0), "it said nothing for a minute, with the source frozen"
        assert told[-1].is_over
    assert "east refused writes meanwhile, so it is the mirror" in refused.value.hint
    assert "stop the producers" not in refused.value.hint


async def test_of_a_link_that_was_moved_before_it_is_said_what_is_waited_for(tmp_path: Path) -> None:
    """It was silent for as long as a transaction was open."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await promote_link(stage.link, stage.target, "failover-1")
        await begin(stage.source, PARTITIONS[1])
        await write(stage.source, PARTITIONS[1], some_records(6_000, 7))
        told: list[DrainStands] = []
        with pytest.raises(NotDrained, match="which was moved before"):
            await settle(replace(stage.sites, tell_drain=told.append), 0.5, CountedNone())
    assert {(one.link, one.offsets > 7, one.partitions, one.is_moved) for one in told[:-1]} == {
        (stage.link.name, True, 1, True)
    }
    assert seconds_fall(told[:-1], 0.5)
    assert told[-1].is_over
