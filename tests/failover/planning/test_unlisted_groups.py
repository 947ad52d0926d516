"""Groups that no broker of the source lists, as their coordinator is away, are asked for by name and not left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.groups import commit_offsets, delete_groups, list_groups
from broker.client.model import CommittedOffset
from broker.wire.errors import ErrorCode
from failover.observing.contact import SiteFinding
from failover.planning.plan import plan_switchover
from failover.running.late_commits import late_commits, late_commits_told
from tests.broker.faults import injected
from tests.failover.planning.test_positions_that_stand import BUYERS, Unlisting
from tests.failover.stage import GROUP, PARTITIONS, Stage, mirrored, two_sites


@asynccontextmanager
async def known_to_the_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, Unlisting]]:
    """The mirror has carried BUYERS, too, and has ended. Clients give up soon."""
    east = Unlisting()
    async with two_sites(folder) as stage:
        await commit_offsets(stage.source, BUYERS, {PARTITIONS[0]: CommittedOffset(7)})
        async with mirrored(stage):
            pass
        limits = replace(stage.source.limits, retry_timeout_ms=1_000)
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with Cluster(stage.link.source, limits=limits) as source:
                stage.source = source
                yield stage, east


async def test_one_that_the_links_state_knows_is_asked_for_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with known_to_the_link(tmp_path, monkeypatch) as (stage, east):
        assert await delete_groups(stage.target, [BUYERS]) == {}
        east.coordinator_goes(BUYERS)
        assert BUYERS not in await list_groups(stage.source)
        with pytest.raises(KafkaError) as refused:
            await stage.sites.look()
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert refused.value.retriable
        past = await stage.sites.look_past_source()
    assert past.source_finding is SiteFinding.PARTLY_THERE
    assert BUYERS in {group.group for group in past.groups}


async def test_behind_the_fence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with known_to_the_link(tmp_path, monkeypatch) as (stage, east):
        seen = await stage.sites.look()
        moves = plan_switchover(seen).moves
        assert await late_commits(stage.link, (stage.source, stage.target), (), moves, ()) == ()
        east.coordinator_goes(BUYERS)
        with pytest.raises(KafkaError, match=BUYERS):
            await late_commits(stage.link, (stage.source, stage.target), (), moves, ())


async def test_one_whose_coordinator_is_away_takes_nothing_from_what_is_told_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is there in part is where coordinators are away, and all was thrown away for one of them."""
    async with known_to_the_link(tmp_path, monkeypatch) as (stage, east):
        moves = plan_switchover(await stage.sites.look()).moves
        await commit_offsets(stage.source, GROUP, {PARTITIONS[0]: CommittedOffset(44)})
        east.coordinator_goes(BUYERS)
        late, untold = await late_commits_told(stage.link, (stage.source, stage.target), (), moves, ())
    assert [(one.group, one.partition, one.found_offset) for one in late] == [(GROUP, 0, 44)]
    assert BUYERS in str(untold)


async def test_where_a_partition_of_the_offsets_topic_has_no_leader_the_list_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with known_to_the_link(tmp_path, monkeypatch) as (stage, east):
        east.offsets_topic_loses_leader()
        with pytest.raises(
            KafkaError, match=r"which groups east has \(__consumer_offsets-0 has no leader\)"
        ) as refused:
            await stage.sites.look()
        assert refused.value.retriable
        named = await replace(stage.sites, groups=(BUYERS,)).look()
        assert [group.group for group in named.groups] == [BUYERS]
        assert (await stage.sites.look_past_source()).source_finding is SiteFinding.PARTLY_THERE
