"""Topics that are deleted, made anew, cut or expire while a link runs, and gaps that are accepted: its one session goes
on for all others."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

from broker.wire.api import ApiKey
from tests.mirror.simulation.disasters import Disaster, strike
from tests.mirror.simulation.network import Fate, Weather
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.world import LOOK_EVERY_S, World
from tests.mirror.simulation.writing import SiteLife
from tests.worlds import first_worlds

WORLDS = first_worlds(8, of=30)
HANDS = 0.2
"""How much of what happens is done to a topic."""
SEEN_BY_A_SESSION = [disaster for disaster in Disaster if disaster is not Disaster.TARGET_CUT]
"""A target that lost its end and has grown past it is found by a start alone, where its leader is as before."""
ENDS = ("started", "renewed", "restarting", "fenced")


SLOW_TARGET = Weather(cursed=ApiKey.PRODUCE, fates=(Fate.HELD,), held_max_s=4.0)
"""Batches are long on their way, so that topics leave before them."""


def choose(rng: random.Random) -> Profile:
    """Nothing else goes wrong."""
    profile = choose_profile(rng)
    weather = SLOW_TARGET if rng.random() < 0.5 else Weather()
    calm = replace(profile, kills=0, rival=Rival.NEVER, disaster=None, held=False, shared=False, weather=weather)
    limits = replace(profile.limits, fetch_max_wait_ms=500, topic_refresh_interval_ms=1_000)
    return replace(calm, births=0.2, topics_max=8, actions=40, action_pause_max_s=0.4, limits=limits)


class WorldOfHands(World):
    """Each topic is struck once."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choose)
        self.before: Counter[str] = Counter()
        self.struck: set[str] = set()

    async def _live(self) -> None:
        while not self.counts["started"]:
            await asyncio.sleep(LOOK_EVERY_S)
        await self._until_complete()
        self.before = Counter(self.counts)
        await super()._live()

    def _act(self, life: SiteLife) -> None:
        whole = [name for name in life.topics if name not in self.struck]
        if len(whole) < 2 or self.rng.random() > HANDS:
            super()._act(life)
            return
        name, disaster = self.rng.choice(whole), self.rng.choice(SEEN_BY_A_SESSION)
        self.struck.add(name)
        self.counts[disaster.name] += 1
        strike(disaster, life, self.sites["west"], self.oracles[0], name)


def run_world(seed: int) -> Counter[str]:
    """What happened in it. Fails where a session ended."""
    world = WorldOfHands(seed)
    world.run()
    since = world.counts - world.before
    ends = {name: since[name] for name in ENDS if since[name]}
    assert not ends, f"seed {seed}: {ends}\n{world.trace.shown(whole=True)}"
    return world.counts


def test_no_session_ends_for_a_topic_that_leaves_nor_for_a_gap_that_is_accepted() -> None:
    counts = sum(map(run_world, range(WORLDS)), Counter())
    happened = [*(disaster.name for disaster in SEEN_BY_A_SESSION), "topic_left", "gap_passed", "accepted"]
    assert min(counts[name] for name in happened) > WORLDS / 10, counts
