"""A partition of the source without a leader for a while, as when its broker dies: in the middle of a switchover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.errors import CutShort, NotDrained
from failover.journal.log import OperationJournal, claim
from failover.journal.values import Event, JournalEntry
from failover.planning.links import mark_interrupted
from failover.planning.plan import plan_switchover
from failover.running.link_run import LinkMove
from failover.running.operation import carry_out
from failover.running.result import OperationResult
from failover.running.steps import OperationStep
from mirror.link import Link
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server
from tests.failover.stage import PARTITIONS, TOPIC, Stage, opening
from tests.mirror.harness import make_topic, running, some_records, wait_for_records, write

AWAY_S = 4.5
"""Longer than the client waits for a leader by itself."""


class WatchedJournal(OperationJournal):
    """Says when a step begins."""

    begun: Callable[[str], None]

    async def record_all(self, noted: Iterable[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        noted = list(noted)
        for event, detail in noted:
            if event == Event.STARTED:
                self.begun(detail["step"])
        return await super().record_all(noted)


@dataclass
class Scene:
    stage: Stage
    east: Faults
    west: Faults

    def leader_goes(self) -> None:
        self.east.leaderless.add(PARTITIONS[0])

    def leader_goes_for_a_while(self) -> None:
        self.leader_goes()
        asyncio.get_running_loop().call_later(AWAY_S, self.east.heal)

    def leader_of_the_state_goes_for_a_while(self) -> None:
        self.west.leaderless.add(TopicPartition(self.stage.link.state_topic, 0))
        asyncio.get_running_loop().call_later(AWAY_S, self.west.heal)

    async def switchover(
        self, at: OperationStep, happens: Callable[[], None], drain_timeout_s: float = 30.0
    ) -> OperationResult:
        """It happens when that step begins."""
        stage = self.stage
        plan = plan_switchover(await mark_interrupted(await stage.sites.look(), stage.sites))
        assert plan.refusals == ()
        stage.operations += 1
        writer, _ = await claim(stage.target, ("east", "west"), lambda _: None)
        journal = WatchedJournal(stage.target, f"o-{stage.operations}", "tests", writer, ("east", "west"))
        journal.begun = lambda step: happens() if step == at else None
        (result,) = await carry_out([LinkMove(plan, stage.sites)], journal, opening(plan), drain_timeout_s)
        return result


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    async with _mirrored(tmp_path, monkeypatch) as found:
        yield found


@asynccontextmanager
async def _mirrored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    east, west = Faults(), Faults()
    async with running_server(folder / "east") as one, running_server(folder / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), (TOPIC,))
        with injected(monkeypatch, {one.broker: east, two.broker: west}):
            async with Cluster(link.source) as source, Cluster(link.target) as target:
                await make_topic(source, TOPIC, len(PARTITIONS))
                async with running(link):
                    for where in PARTITIONS:
                        await write(source, where, some_records(0, 5))
                        await wait_for_records(target, where, 5)
                    yield Scene(Stage(link, source, target), east, west)


@pytest.mark.parametrize("step", [OperationStep.DRAIN, OperationStep.VERIFY])
async def test_a_switchover_waits_until_somebody_leads(scene: Scene, step: OperationStep) -> None:
    result = await scene.switchover(step, scene.leader_goes_for_a_while)
    assert result.verified, result.differences


async def test_a_fence_waits_until_somebody_leads_the_links_state(scene: Scene) -> None:
    result = await scene.switchover(OperationStep.FENCE, scene.leader_of_the_state_goes_for_a_while)
    assert result.verified, result.differences


async def test_a_drain_that_nobody_can_follow_is_refused_with_nothing_changed(scene: Scene) -> None:
    with pytest.raises(NotDrained, match=r"not known whether everything is mirrored.*nothing was changed"):
        await scene.switchover(OperationStep.DRAIN, scene.leader_goes, drain_timeout_s=1.0)
    scene.east.heal()
    assert (await scene.stage.sites.look()).link_state == "running"


async def test_one_that_is_cut_short_says_so_and_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failover.running.patience.TAKEN_OVER_S", 0.0)
    with pytest.raises(CutShort, match="cut short in its step verify") as cut:
        await scene.switchover(OperationStep.VERIFY, scene.leader_goes)
    assert "farshore operation resume o-1" in cut.value.hint
    scene.east.heal()
    again = await scene.switchover(OperationStep.DRAIN, lambda: None)
    assert again.verified, again.differences
