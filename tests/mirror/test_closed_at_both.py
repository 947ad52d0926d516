"""Neither site of a link takes writes: found by their roles, and not where clients may be at a third site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.site_role import set_site_role, site_standing
from broker.wire.api import ApiKey
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import BROKER_RESOURCE
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.link_finding import LinkFinding, LinkFindingKind
from mirror.status import link_status
from tests.broker.faults import Faults, injected
from tests.failover.stage import TOPIC, mirrored, two_sites

MOVE = "switchover-1"


@dataclass
class Sites:
    link: Link
    east: Cluster
    west: Cluster

    async def set(self, east: SiteRole, west: SiteRole, *topics: str) -> None:
        for cluster, role in ((self.east, east), (self.west, west)):
            await set_site_role(cluster, role, MOVE, await site_standing(cluster), topics)

    async def found(self, link: Link | None = None) -> list[LinkFinding]:
        findings = (await link_status(link or self.link, HeartbeatWatch(SystemClock()))).findings
        return [one for one in findings if one.kind is LinkFindingKind.NONE_ACTIVE]


@asynccontextmanager
async def sites(folder: Path) -> AsyncIterator[Sites]:
    async with two_sites(folder) as stage, mirrored(stage):
        yield Sites(replace(stage.link, known_sites=frozenset({"east", "west"})), stage.source, stage.target)


async def test_a_move_that_was_cut_short_before_its_fence_is_no_healthy_link(tmp_path: Path) -> None:
    """Killed behind its freeze it left the source closed beside a target that stood by, and `status` ended with 0."""
    async with sites(tmp_path) as both:
        await both.set(SiteRole.ACTIVE, SiteRole.STANDBY)
        assert await both.found() == []
        await both.set(SiteRole.FROZEN, SiteRole.STANDBY)
        (found,) = await both.found()
        assert found.detail == (
            f"no client can write to {TOPIC} at either site: east is frozen since {MOVE}, west standby since {MOVE}"
        )
        assert "farshore operation list --open" in found.next_step
        assert f"farshore site thaw --site east --topic {TOPIC}" in found.next_step


async def test_roles_of_other_topics_close_none_of_the_links(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.set(SiteRole.FROZEN, SiteRole.STANDBY, "orders")
        assert await both.found() == []


async def test_where_clients_may_be_at_a_third_site_nobody_says_that_they_are_nowhere(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        await both.set(SiteRole.STANDBY, SiteRole.STANDBY)
        assert await both.found(replace(both.link, known_sites=frozenset({"east", "west", "north"}))) == []
        assert len(await both.found()) == 1


async def test_where_the_source_takes_writes_the_target_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at each link asked each broker of both sites, and a target that did not say was a trouble."""
    asked: list[str] = []

    def note(request: Any) -> None:
        asked.extend(one.resource_name for one in request.resources if one.resource_type == BROKER_RESOURCE)

    async with two_sites(tmp_path) as stage, mirrored(stage):
        both = Sites(replace(stage.link, known_sites=frozenset({"east", "west"})), stage.source, stage.target)
        west = Faults(moments={ApiKey.DESCRIBE_CONFIGS: note})
        with injected(monkeypatch, {stage.brokers[1]: west}):
            assert await both.found() == []
            assert asked == []
        await both.set(SiteRole.FROZEN, SiteRole.STANDBY)
        with injected(monkeypatch, {stage.brokers[1]: west}):
            assert len(await both.found()) == 1
            assert len(asked) == 1
