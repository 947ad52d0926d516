"""A site that a move had frozen, and whose links are promoted by it, is not let in without a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole, SiteStanding
from deploy.cli.site_roles import changed
from failover.errors import GateRefused
from mirror.link import Link
from mirror.offsets.operations import promote_link
from mirror.offsets.promotions import tell_links_back
from tests.failover.stage import RARE, TOPIC, Stage, mirrored, two_sites

MOVE = "switchover-east-west-1"


async def standing(cluster: Cluster) -> SiteStanding:
    known = await site_standing(cluster)
    assert known is not None
    return known


async def become(cluster: Cluster, role: SiteRole, *topics: str) -> None:
    await set_site_role(cluster, role, MOVE, await standing(cluster), topics)


async def thaw(link: Link, links: Sequence[Link], *topics: str) -> str:
    row = await changed(link.source, SiteRole.ACTIVE, "", dry_run=False, yes=True, topics=topics, links=links)
    return row.role


def unreachable(link: Link) -> Link:
    return replace(link, target=Site(link.target.name, "127.0.0.1:9"))


async def test_a_freeze_of_a_move_that_was_cut_short_behind_its_fence_is_not_just_thawed(tmp_path: Path) -> None:
    """Its producers wait, so that somebody types `site thaw`. Then both sites take writes, no mirror carries any of
    them, and nothing says so: only what is closed for good asks for --even-if-other-active.
    """
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage, RARE):
            pass
        await become(stage.source, SiteRole.FROZEN)
        await promote_link(stage.link, stage.target, MOVE)
        assert (await standing(stage.target)).takes_writes
        with pytest.raises(GateRefused, match="both would take writes") as refused:
            await thaw(stage.link, [stage.link])
        assert f"from east to west, by {MOVE}, and west is active" in str(refused.value)
        assert f"`farshore operation resume {MOVE}`" in refused.value.hint
        await become(stage.source, SiteRole.FROZEN, TOPIC, "other")
        with pytest.raises(GateRefused, match="both would take writes"):
            await thaw(stage.link, [stage.link], TOPIC)
        assert await thaw(stage.link, [stage.link], "other") == SiteRole.FROZEN, "no link carries it"
        await become(stage.target, SiteRole.STANDBY, TOPIC)
        assert await thaw(stage.link, [stage.link], TOPIC) == SiteRole.ACTIVE, "no other site takes writes to it"
        await become(stage.source, SiteRole.FROZEN)
        assert await thaw(stage.link, []) == SiteRole.ACTIVE, "somebody consented"


async def test_a_freeze_of_which_it_is_not_known_whether_it_was_moved_behind_asks_for_a_word(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        await become(stage.source, SiteRole.FROZEN)
        with pytest.raises(GateRefused, match="is not known, so that both might take writes") as refused:
            await thaw(stage.link, [unreachable(stage.link)])
        assert "--even-if-other-active" in refused.value.hint
        assert (await standing(stage.source)).role is SiteRole.FROZEN


async def moved_and_back(stage: Stage) -> list[Link]:
    back = Link("west-east", stage.link.target, stage.link.source, stage.link.topics)
    there = replace(stage.link, reverse_links=(back,))
    back = replace(back, reverse_links=(stage.link,))
    await promote_link(there, stage.target, "failover-1")
    told = await tell_links_back(back, stage.target, "switchover-2")
    await promote_link(back, stage.source, "switchover-2", [one.operation_id for one in told])
    return [there, back]


async def test_what_was_frozen_before_a_fence_or_behind_a_way_back_is_thawed(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage, RARE):
            pass
        await become(stage.source, SiteRole.FROZEN)
        assert await thaw(stage.link, [stage.link]) == SiteRole.ACTIVE
        links = await moved_and_back(stage)
        await become(stage.source, SiteRole.FROZEN)
        assert await thaw(stage.link, links) == SiteRole.ACTIVE
