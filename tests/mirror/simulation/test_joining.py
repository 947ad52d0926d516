"""Topics that are born, and grow, and leaders that move, while a link runs: its one session goes on for all others."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

from tests.mirror.simulation.network import Weather
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.world import World
from tests.worlds import first_worlds

WORLDS = first_worlds(10, of=60)
JOIN_S = 6.0
"""From a topic's birth at the source to its first record at the target; 4 s of that are the interval of looks."""
STARTS_S = 6.0
"""Two links that mirror the same topics both ways have found each other by then."""
ENDS = ("started", "renewed", "restarting", "fenced", "partition_stopped")


def choose(rng: random.Random) -> Profile:
    """Nothing goes wrong."""
    profile = choose_profile(rng)
    calm = replace(profile, kills=0, rival=Rival.NEVER, disaster=None, held=False, weather=Weather())
    return replace(calm, births=0.3, topics_max=8, limits=replace(profile.limits, fetch_max_wait_ms=500))


class FertileWorld(World):
    """It also measures how long a new topic takes, with others that move all the time."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choose)
        self.took_s: list[float] = []
        self.before: Counter[str] = Counter()

    async def _live(self) -> None:
        await asyncio.sleep(STARTS_S)
        self.before = Counter(self.counts)
        await super()._live()
        life, target = self.lives["east"], self.sites["west"]
        life.make_topic("later-last", 1)
        life.write(self.sites["east"].topics["later-last"].partitions[0])
        began_s = self.loop.now
        while not ((there := target.partition("later-last", 0)) and any(there.contents())):
            life.write()
            await asyncio.sleep(0.01)
        self.took_s.append(self.loop.now - began_s)


def test_no_session_ends_for_a_topic_that_is_born_or_grows_nor_for_a_leader_that_moves() -> None:
    counts: Counter[str] = Counter()
    took_s: list[float] = []
    for seed in range(WORLDS):
        world = FertileWorld(seed)
        world.run()
        counts += world.counts
        took_s += world.took_s
        since = world.counts - world.before
        ends = {name: since[name] for name in ENDS if since[name]}
        assert not ends, f"seed {seed}: {ends}\n{world.trace.shown(whole=True)}"
    assert counts["partition_taken_in"] > WORLDS
    assert counts["partition_held"] > WORLDS / 8, "and leaders moved"
    assert max(took_s) < JOIN_S, sorted(took_s)
