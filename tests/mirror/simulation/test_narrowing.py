"""Topics that the file takes off a link that runs, at any moment: its one session goes on for all others."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from mirror.coordinator.current import Current
from mirror.coordinator.model import Coordinator
from mirror.link import Link
from mirror.worker import service
from mirror.worker.service import WorkerSettings, run_declared
from tests.mirror.simulation import world as worlds
from tests.mirror.simulation.profile import Profile, choose_profile
from tests.mirror.simulation.test_leaving import choose
from tests.mirror.simulation.trace import Found
from tests.mirror.simulation.world import LOOK_EVERY_S, World
from tests.worlds import first_worlds

WORLDS = first_worlds(6, of=30)
WILD_WORLDS = first_worlds(20, of=60)
WILD_FIRST = 20
"""Among the first twenty hardly any session ends by an error."""
SEEN_WITHIN_S = 24.0
"""A look, what the link says of it at a slow target, and what was on its way there."""
ENDS = ("renewed", "restarting", "fenced")
NARROWER = ("(flights|later-.*)", "(flights|quiet)", "(flights|later-0)", "quiet", "later-.*")


def calm(rng: random.Random) -> Profile:
    return replace(choose(rng), actions=200, action_pause_max_s=0.4)


def wild(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    limits = replace(profile.limits, topic_refresh_interval_ms=500)
    return replace(profile, disaster=None, shared=False, actions=max(20, profile.actions), limits=limits)


class WorldOfFiles(World):
    """The file of all workers takes topics off in the middle, and has them all again at the end."""

    def __init__(self, seed: int, choose: Callable[[random.Random], Profile]) -> None:
        super().__init__(seed, choose)
        self.declared = Current({link.name: link for link in self.links})
        self.before: Counter[str] = Counter()
        self.is_calm = choose is calm

    def run(self) -> None:
        async def run_all(_: Iterable[Link], settings: WorkerSettings, coordinator: Coordinator | None) -> None:
            await run_declared(self.declared, settings, coordinator)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worlds, "run_links", run_all)
            super().run()

    async def _live(self) -> None:
        if self.is_calm:
            while not self.counts["started"]:
                await asyncio.sleep(LOOK_EVERY_S)
            await self._until_complete()
        self.before = Counter(self.counts)
        changing = self.loop.create_task(self._take_off())
        await super()._live()
        await changing
        if self.is_calm:
            since = self.counts - self.before
            ends = {name: since[name] for name in ENDS if since[name]}
            if ends:
                raise Found(f"sessions ended: {ends}")
        self._declare(worlds.TOPICS)

    def _declare(self, *topics: str) -> None:
        self.trace("the file says", *topics)
        self.declared.replace({link.name: replace(link, topics=topics) for link in self.links})

    async def _take_off(self) -> None:
        await asyncio.sleep(self.rng.random() * 5)
        chosen = self.rng.choice(NARROWER)
        self._declare(chosen)
        await asyncio.sleep(SEEN_WITHIN_S)
        if not self.is_calm:
            return
        oracle = self.oracles[0]
        narrower = self.declared.value[oracle.link.name]
        gone = {where: one for where, one in oracle.partitions.items() if not narrower.selects_topic(where.topic)}
        had = {where: len(one.copies) for where, one in gone.items()}
        await asyncio.sleep(SEEN_WITHIN_S)
        for where, one in gone.items():
            if len(one.copies) != had[where]:
                raise Found(f"{where} is not the link's any more, and had {had[where]}, and has {len(one.copies)}")
            self.counts["left behind"] += not one.is_complete


def run_world(seed: int) -> Counter[str]:
    """What happened in it. Fails where a session ended for what was taken off."""
    world = WorldOfFiles(seed, calm)
    world.run()
    return world.counts


def test_no_session_ends_for_a_topic_that_the_file_takes_off() -> None:
    counts = sum(map(run_world, range(WORLDS)), Counter[str]())
    assert min(counts["left behind"], counts["topic_left"]) >= WORLDS / 2, counts


def test_whatever_befalls_a_link_that_was_narrower_for_a_while_all_is_copied_in_the_end() -> None:
    counts: Counter[str] = Counter()
    for seed in range(WILD_FIRST, WILD_FIRST + WILD_WORLDS):
        world = WorldOfFiles(seed, wild)
        world.run()
        counts += world.counts
    assert min(counts[name] for name in ("kills", "topic_left", "restarting")) > WILD_WORLDS / 10, counts


def test_a_session_that_goes_on_with_what_was_taken_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "is_narrower", lambda *_: True)

    async def deaf(*_: object) -> None:
        return

    monkeypatch.setattr(service, "run_topics", deaf)
    assert any("any more, and had" in found_in(seed) for seed in range(WORLDS))


def found_in(seed: int) -> str:
    """A deaf session does not take in what is born, either: in some worlds that alone shows."""
    try:
        run_world(seed)
    except Found as found:
        return str(found)
    return ""
