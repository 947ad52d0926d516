"""A worker freezes for longer than any bound, its target is promoted, and it wakes: it moves no group any more."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.operations import promote_link
from tests.mirror.simulation.cluster import SimulatedGroup
from tests.mirror.simulation.network import Weather
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.world import World
from tests.worlds import first_worlds

WORLDS = first_worlds(12, of=60)
FROZEN_S = 100.0
PASS_S = 0.035


def choose(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    return replace(
        profile, shared=False, groups=True, kills=0, rival=Rival.NEVER, disaster=None, held=False, weather=Weather()
    )


class FrozenWorld(World):
    """Groups go on at the source all the time, so that each pass has some to move."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choose)
        self.staged = 0

    async def _main(self) -> None:
        east = self.lives["east"]
        east.make_topic("flights", self.profile.partitions)
        east.write()
        self._start_worker()
        await self._go_on(2 * self.rng.random())
        await self._until_amid_a_pass()
        (process,) = self._workers
        self.network.hold(process, FROZEN_S)
        groups = self.sites["west"].groups
        self.staged = sum(bool(group.staged) for group in groups.values())
        link = self.links[0]
        async with Cluster(link.target, clock=self.clock) as target:
            await promote_link(link, target, "op")
        for name in self.sites["east"].groups:
            if self.rng.random() < 0.5:  # the others stay where the promotion found them
                group = groups.setdefault(name, SimulatedGroup())
                group.commit(TopicPartition("flights", 0), 0, "moved by the failover")
        before = {name: dict(group.offsets) for name, group in groups.items() if group.offsets}
        await asyncio.sleep(2 * FROZEN_S)
        assert {name: group.offsets for name, group in groups.items() if group.offsets} == before
        self._judged = True
        for task in self._workers.values():
            task.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _until_amid_a_pass(self) -> None:
        """It begins by a fence, and takes some ten round trips."""
        before, tries = self._groups_writer(), 0
        while self._groups_writer() == before:
            if tries % 500 == 0:
                self.lives["east"].commit_group()
            tries += 1
            assert tries < 60_000, "no pass has anything to move"
            await asyncio.sleep(0.002)
        await asyncio.sleep(self.rng.random() * PASS_S)

    def _groups_writer(self) -> tuple[int, int] | None:
        found = self.sites["west"].transaction(self.links[0].groups_transactional_id)
        return (found.producer_id, found.producer_epoch) if found is not None else None

    async def _go_on(self, seconds: float) -> None:
        east, until = self.lives["east"], self.loop.now + seconds
        while self.loop.now < until:
            east.write()
            east.commit_group()
            await asyncio.sleep(self.rng.random() * 0.2)


def test_a_worker_that_wakes_after_a_promotion_moves_no_group() -> None:
    amid_a_commit = 0
    for seed in range(WORLDS):
        world = FrozenWorld(seed)
        world.run()
        amid_a_commit += bool(world.staged)
    assert amid_a_commit > 3, "in some worlds it freezes when groups are staged"
