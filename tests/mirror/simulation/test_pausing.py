"""Topics that an operator pauses and resumes at any moment: nothing comes of one meanwhile, all of it afterwards."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from mirror.worker.session import Session
from tests.mirror.simulation.network import Weather
from tests.mirror.simulation.oracle import PartitionOracle
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.trace import Found
from tests.mirror.simulation.world import LOOK_EVERY_S, World
from tests.worlds import first_worlds

WORLDS = first_worlds(6, of=30)
WILD_WORLDS = first_worlds(15, of=100)
SEEN_WITHIN_S = 8.0
"""A heartbeat, a look, and what was on its way."""
PAUSES = 0.15
"""How much of what happens is a topic that is paused, or resumed."""
ENDS = ("renewed", "restarting", "fenced")


def calm(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    quiet = replace(profile, kills=0, rival=Rival.NEVER, disaster=None, held=False, shared=False, weather=Weather())
    limits = replace(profile.limits, fetch_max_wait_ms=500, topic_refresh_interval_ms=1_000)
    return replace(quiet, units=rng.choice((1, 2)), births=0.1, actions=60, action_pause_max_s=0.8, limits=limits)


def wild(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    limits = replace(profile.limits, heartbeat_interval_ms=500, topic_refresh_interval_ms=500)
    return replace(profile, disaster=None, units=rng.choice((1, 1, 2)), actions=max(20, profile.actions), limits=limits)


class WorldOfPauses(World):
    """Between two actions of the others an operator pauses a topic, or resumes one."""

    def __init__(self, seed: int, choose: Callable[[random.Random], Profile]) -> None:
        super().__init__(seed, choose)
        self.since: dict[str, float] = {}
        self.stood: dict[str, Counter[int]] = {}
        """By topic that has been paused for long enough, how many records its partitions had then at the target."""
        self.before: Counter[str] = Counter()
        self.is_calm = choose is calm

    async def _live(self) -> None:
        if self.is_calm:
            while self.counts["started"] < self.profile.units:
                await asyncio.sleep(LOOK_EVERY_S)
            await self._until_complete()
        self.before = Counter(self.counts)
        hands = self.loop.create_task(self._operate())
        watch = self.loop.create_task(self._watch_paused())
        await super()._live()
        for task in (hands, watch):
            task.cancel()
        await asyncio.gather(hands, watch, return_exceptions=True)
        if watch.done() and not watch.cancelled() and (found := watch.exception()) is not None:
            raise found

    async def _operate(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 4 * self.profile.action_pause_max_s)
            topic = self.rng.choice(list(self.lives["east"].topics))
            with suppress(FarshoreError):
                await self._turn(topic)

    async def _turn(self, topic: str) -> None:
        if topic in self.since and self.loop.now < self.since[topic] + 2 * SEEN_WITHIN_S and self.is_calm:
            return
        link = self.links[0]
        async with Cluster(link.target, client_id="operator", clock=self.clock) as target:
            if topic in self.since:
                self.stood.pop(topic, None)
                del self.since[topic]
                self.trace("resumed", topic)
                await resume_topics(link, target, [topic])
                self.counts["resumed"] += 1
            else:
                await pause_topics(link, target, f"pause-{self.counts['paused']}", [topic])
                self.trace("paused", topic)
                self.since[topic] = self.loop.now
                self.counts["paused"] += 1

    async def _watch_paused(self) -> None:
        while self.is_calm:
            await asyncio.sleep(LOOK_EVERY_S)
            for topic, at in self.since.items():
                if self.loop.now < at + SEEN_WITHIN_S:
                    continue
                before = self.stood.setdefault(topic, self._copied(topic))
                if (now := self._copied(topic)) != before:
                    raise Found(f"{topic} was paused, and had {before}, and has {now}")
                self.counts["missing"] += not all(one.is_complete for one in self._of(topic).values())

    def _copied(self, topic: str) -> Counter[int]:
        return Counter({where.partition: len(one.copies) for where, one in self._of(topic).items()})

    def _of(self, topic: str) -> dict[TopicPartition, PartitionOracle]:
        return {where: one for where, one in self.oracles[0].partitions.items() if where.topic == topic}

    async def _wait_until_mirrored(self) -> None:
        link = self.links[0]
        async with Cluster(link.target, client_id="operator", clock=self.clock) as target:
            await resume_topics(link, target, list(self.lives["east"].topics))
        await super()._wait_until_mirrored()


def run_world(seed: int) -> Counter[str]:
    """What happened in it. Fails where a session ended."""
    world = WorldOfPauses(seed, calm)
    world.run()
    since = world.counts - world.before
    ends = {name: since[name] for name in ENDS if since[name]}
    assert not ends, f"seed {seed}: {ends}\n{world.trace.shown(whole=True)}"
    return world.counts


def test_nothing_comes_of_a_paused_topic_and_no_session_ends_for_it() -> None:
    counts = sum(map(run_world, range(WORLDS)), Counter[str]())
    assert min(counts["paused"], counts["resumed"], counts["missing"]) >= WORLDS, counts


def test_whatever_befalls_a_link_whose_topics_are_paused_all_is_copied_once_they_are_resumed() -> None:
    counts: Counter[str] = Counter()
    for seed in range(WILD_WORLDS):
        world = WorldOfPauses(seed, wild)
        world.run()
        counts += world.counts
    happened = ("paused", "resumed", "kills", "restarting", "partition_held", "partition_taken_in")
    assert min(counts[name] for name in happened) > WILD_WORLDS / 10, counts


def test_a_session_that_goes_on_with_a_paused_topic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "paused_partitions", lambda _session: {})
    with pytest.raises(Found, match="was paused, and had"):
        test_nothing_comes_of_a_paused_topic_and_no_session_ends_for_it()
