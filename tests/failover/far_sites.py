"""Two sites on simulated time, a round trip away from whoever calls them: whole brokers, a real mirror, no waiting."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.client.cluster import Cluster
from broker.config import BrokerConfig
from broker.outside import Outside
from broker.server import serving
from failover.freezing.hooks import Hooks
from failover.planning.intent import Intent
from failover.planning.links import enter_links, plan_link, refuse_heard
from failover.running.groups_stand import GroupsStand
from failover.running.result import OperationResult
from failover.running.steps import Operation
from failover.running.taking_up import begin
from mirror.link import Link
from tests.broker.simulation.loop import ClusterLoop, Life, context_of
from tests.broker.simulation.network import CLIENTS, Network, name_of
from tests.failover.machines import PlanRefused
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, commit_group, mirrored
from tests.mirror.harness import link_between, make_topic, some_records, write
from tests.mirror.simulation.loop import SimulatedClock

ID = "failover-1"
PORT = 9092
MIRROR = Life(3, 1)
"""Where the mirror runs."""
NEAR_S = 0.0005
INTENT = Intent(Operation.FAILOVER, ("east-west",), "east", "west", allow_data_loss=True)
NO_HOOKS = Hooks()
T = TypeVar("T")


class Ways(Network):
    """`one_way_s`: how long each takes, but for what goes to or comes from a host in `slow_s`."""

    one_way_s = NEAR_S

    def __init__(self, loop: ClusterLoop) -> None:
        super().__init__(loop, random.Random(0), 0.0)
        self.slow_s: dict[str, float] = {}

    def latency_s(self, *ends: str) -> float:
        return max([self.one_way_s, *(self.slow_s.get(end, 0.0) for end in ends)])


@dataclass
class FarSites:
    """`east`, the source, and `west`, with its cluster as `target`. `told_s`: when applications were told that they may
    start, in seconds since the command began.
    """

    loop: ClusterLoop
    ways: Ways
    link: Link
    east: Life
    target: Cluster
    told_s: list[float] = field(default_factory=list)

    def go_far(self, round_trip_ms: int) -> None:
        self.ways.one_way_s = max(NEAR_S, round_trip_ms / 2000)

    def hang(self, for_s: float | None = None) -> None:
        """East takes connections and answers nothing."""
        self.east.paused = True
        if for_s is not None:
            self.loop.call_later(for_s, self._go_on)

    def _go_on(self) -> None:
        self.east.paused = False
        self.loop.go_on(self.east)

    def vanish(self) -> None:
        """What is sent to east comes nowhere, nor does anything come from there; nobody is told."""
        for host in (CLIENTS, name_of(MIRROR)):
            self.ways.cut(host, name_of(self.east))
            self.ways.cut(name_of(self.east), host)

    def stop_listening(self) -> None:
        """Connections to east break, and new ones are refused."""
        self.ways.die(self.east)

    def let_mirror_reach_east(self) -> None:
        self.ways.mend(name_of(MIRROR), name_of(self.east))
        self.ways.mend(name_of(self.east), name_of(MIRROR))

    def slow_down(self, answer_s: float) -> None:
        """East takes so long for each answer."""
        self.ways.slow_s[name_of(self.east)] = answer_s / 2

    async def fail_over(
        self, intent: Intent = INTENT, hooks: Hooks = NO_HOOKS, *, goes_on: bool = True, hangs_when_told: bool = False
    ) -> OperationResult:
        """As the command does it with consent given beforehand, or (not `goes_on`) by a person. `hangs_when_told`: east
        does, when applications may start.
        """
        began_s = self.loop.time()

        def tell(_stand: GroupsStand) -> None:
            self.told_s.append(self.loop.time() - began_s)
            if hangs_when_told:
                self.hang()

        clock = SimulatedClock(self.loop)
        async with AsyncExitStack() as stack:
            sites = await enter_links(stack, [self.link], intent, clock.now_ms, (self.link,), goes_on=goes_on)
            move = await plan_link(intent, sites[0], hooks)
            if move.plan.refusals:
                await refuse_heard(move)
                raise PlanRefused(move.plan.refusals)
            (result,) = await begin([move], intent, ID, "ann", {}, tell)
        return result


@asynccontextmanager
async def _living(loop: ClusterLoop, life: Life, what: AbstractAsyncContextManager[object]) -> AsyncIterator[None]:
    """`what` runs as a process on a host of its own."""
    runs, stop = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with what:
            runs.set()
            await stop.wait()

    task = loop.create_task(live(), context=context_of(life))
    await asyncio.wait([task, started := loop.create_task(runs.wait())], return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    try:
        yield
    finally:
        life.paused = False
        loop.go_on(life)
        stop.set()
        await task


def _serving(loop: ClusterLoop, ways: Ways, life: Life, folder: Path) -> AbstractAsyncContextManager[object]:
    outside = Outside(SimulatedClock(loop), rng=random.Random(life.node_id), bind=ways.bind)
    return _living(loop, life, serving(BrokerConfig(folder, name_of(life), PORT), outside))


@asynccontextmanager
async def _sites(loop: ClusterLoop, folder: Path) -> AsyncIterator[FarSites]:
    ways, east, west = Ways(loop), Life(1, 1), Life(2, 1)
    async with _serving(loop, ways, east, folder / "east"), _serving(loop, ways, west, folder / "west"):
        link = link_between(f"{name_of(east)}:{PORT}", f"{name_of(west)}:{PORT}", [TOPIC], name="east-west")
        link = replace(link, groups=(".*",))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, TOPIC, len(PARTITIONS))
            for number, at in enumerate(PARTITIONS):
                await write(source, at, some_records(number * 1000, RECORDS))
            await commit_group(source, 20, 30)
            async with _living(loop, MIRROR, mirrored(Stage(link, source, target), clock=SimulatedClock(loop))):
                yield FarSites(loop, ways, link, east, target)


def at_far_sites(folder: Path, act: Callable[[FarSites], Coroutine[Any, Any, T]]) -> T:
    """What `act` comes to, at sites whose mirror has brought all, and runs on."""
    loop = ClusterLoop(random.Random(0))
    asyncio.set_event_loop(loop)

    async def main() -> T:
        async with _sites(loop, folder) as sites:
            return await act(sites)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("broker.client.cluster.SystemClock", lambda: SimulatedClock(loop))
        return loop.run(main())
