"""Links that are cut anew while their sources' writers write: whoever is killed in between, all is copied once."""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from mirror.errors import LinkInvalid
from mirror.link import Link, Pin
from mirror.offsets.operations import resume_link
from mirror.offsets.recutting import cut_link
from mirror.offsets.state import LinkState, StateReader, load_partial_state, read_entries
from tests.mirror.simulation.disasters import Disaster
from tests.mirror.simulation.network import PROCESS
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.trace import Found
from tests.mirror.simulation.world import LOOK_EVERY_S, World
from tests.worlds import first_worlds

WORLDS = first_worlds(6, of=200)
SHOWN = "FARSHORE_SIMULATION_SEED" in os.environ
UNITS_MAX = 4
BEGIN_S = 100.0
FROZEN_MAX_S = 30.0
WATCH_EVERY_MAX_S = 0.5
CUT_STEPS_MAX = 900
"""A command is killed within so many turns of the loop after its start, where it is."""


def busy(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    return replace(
        profile,
        units=rng.choice((1, 2, 3)),
        partitions=rng.choice((2, 3, 4)),
        actions=rng.randrange(40, 120),
        action_pause_max_s=rng.choice((0.1, 0.2, 0.4)),
        kills=rng.choice((0, 1, 3)),
        rival=rng.choice((Rival.NEVER, Rival.LATER)),
        disaster=rng.choice((profile.disaster, None, None, Disaster.SOURCE_DELETED, Disaster.SOURCE_RECREATED)),
        words=True,
    )


class WorldOfCuts(World):
    """An operator cuts the first link anew again and again; the workers' file says so before it, or behind it."""

    def __init__(self, seed: int, choose: Callable[[random.Random], Profile] = busy) -> None:
        super().__init__(seed, choose)
        self.first = self.declared = self.links[0]

    async def _live(self) -> None:
        while self.counts["started"] < self.profile.units and self.loop.now < BEGIN_S:
            await asyncio.sleep(LOOK_EVERY_S)
        hands = [self.loop.create_task(act) for act in (self._operate(), self._watch_state())]
        await super()._live()
        for each in hands:
            each.cancel()
        await asyncio.gather(*hands, return_exceptions=True)
        for each in hands:
            if not each.cancelled() and (error := each.exception()) is not None:
                raise error
        await self._settle()

    async def _watch_state(self) -> None:
        """Where the link stands by its state never goes back, and of no partition nothing is known any more."""
        seen: dict[tuple[str, int], int] = {}
        reader = StateReader(self.first)
        while True:
            with suppress(ClientError):
                async with Cluster(self.first.target, client_id="watcher", clock=self.clock) as target:
                    while True:
                        await asyncio.sleep(self.rng.random() * WATCH_EVERY_MAX_S)
                        fresh = self.rng.random() < 0.5
                        state = await load_partial_state(self.first, target, None if fresh else reader)
                        self._check_ends(state, seen)
                        self.counts["looks"] += 1

    def _check_ends(self, state: LinkState, seen: dict[tuple[str, int], int]) -> None:
        for where, oracle in self.oracles[0].partitions.items():
            end = state.map.mirrored_end(*where)
            if oracle.struck or where in state.unread:
                seen.pop(where, None)
            elif end is None and where in seen:
                raise Found(f"nothing is known of {where} any more, which was mirrored to {seen[where]}")
            elif end is not None:
                if end.source_next < seen.get(where, 0):
                    raise Found(f"{where} was mirrored to {seen[where]}, and now to {end}")
                seen[where] = end.source_next

    async def _operate(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 4 * self.profile.action_pause_max_s)
            await self._cut_once()

    async def _cut_once(self) -> None:
        wanted = self._choose_cut()
        if self.rng.random() < 0.3:
            self._declare(wanted)
        process = f"operator-{self.counts['cuts']}"
        self.counts["cuts"] += 1
        self.trace("cut", wanted.units, wanted.pins)
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        is_disturbed = self._disturb()
        task = self.loop.create_task(self._command(process, wanted), context=context)
        if self.rng.random() < 0.5:
            self.loop.after_steps(1 + self.rng.randrange(CUT_STEPS_MAX), lambda: self._kill_command(process, task))
        try:
            await asyncio.wait([task])
        finally:
            self._kill_command(process, task)
        if task.cancelled():
            self.counts["cuts killed"] += 1
            if self.rng.random() < 0.5:
                with suppress(FarshoreError):
                    await self._resume()
        elif not isinstance(task.exception(), FarshoreError):
            task.result()
            self.counts["cuts done"] += task.exception() is None
        else:
            self.counts[f"cuts ended by {type(task.exception()).__name__}"] += 1
            self.trace("cut:", repr(task.exception()))
        with suppress(FarshoreError):
            await self._follow()
        if is_disturbed and self._faults:  # another worker goes on, before the frozen one wakes
            self._start_worker()

    def _disturb(self) -> bool:
        """A worker freezes, one that runs or one that begins: it wakes when the link was cut anew, with its file."""
        chance = self.rng.random()
        if chance < 0.25 and self._workers:
            self.network.hold(self.rng.choice(list(self._workers)), self.rng.random() * FROZEN_MAX_S)
            self.counts["frozen"] += 1
            return True
        # Who begins by what a source was before it was made anew takes its log for one that the target lost some of.
        if chance < 0.5 and self._faults and self.profile.disaster is None:
            self._start_worker()
            process, seconds = list(self._workers)[-1], self.rng.random() * FROZEN_MAX_S
            steps = 1 + self.rng.randrange(self.profile.kill_steps_max)
            self.loop.after_steps(steps, lambda: self.network.hold(process, seconds))
            self.counts["frozen at start"] += 1
            return True
        return False

    def _kill_command(self, process: str, task: asyncio.Task[None]) -> None:
        if not task.done():
            self.trace("kill", process)
            self.network.kill(process)
            task.cancel()

    async def _command(self, process: str, wanted: Link) -> None:
        async with Cluster(wanted.target, client_id=process, clock=self.clock) as target:
            await cut_link(self.declared, target, f"cut-{process}", wanted.units, wanted.pins)

    def _choose_cut(self) -> Link:
        partitions: list[Pin] = [
            where for where in self.oracles[0].partitions if self.declared.selects_topic(where.topic)
        ]
        pins = self.rng.sample(sorted(partitions), min(len(partitions), self.rng.choice((0, 0, 1, 2))))
        pins = [(topic, number) for topic, number in pins]
        return replace(self.declared, units=1 + self.rng.randrange(UNITS_MAX), pins=tuple(sorted(pins)))

    def _declare(self, link: Link) -> None:
        """What is written into the file: who starts from now on reads it, who runs has the old one."""
        self.declared = link
        self.links = [link, *self.links[1:]]

    async def _resume(self) -> None:
        self.counts["resumed"] += 1
        link = self.declared
        async with Cluster(link.target, client_id="operator", clock=self.clock) as target:
            await resume_link(link, target, f"resume-{self.counts['resumed']}")

    async def _follow(self) -> None:
        """Write into the file what the state says."""
        async with Cluster(self.declared.target, client_id="operator", clock=self.clock) as target:
            entries = await read_entries(self.declared, target, only=())
        self._declare(entries.cut(self.declared) if entries.units is not None else self.first)

    async def _settle(self) -> None:
        """At the end the last one is let through, or the link resumed, and all workers have the file that fits."""
        while True:
            try:
                if self.rng.random() < 0.5:
                    await self._resume()
                else:
                    async with Cluster(self.declared.target, client_id="operator", clock=self.clock) as target:
                        wanted = self._choose_cut()
                        await cut_link(self.declared, target, "cut-last", wanted.units, wanted.pins)
                await self._follow()
                break
            except FarshoreError as error:
                self.trace("settling:", repr(error))
                await asyncio.sleep(LOOK_EVERY_S)
        for task in list(self._workers.values()):
            task.cancel()

    def _ended(self, process: str, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LinkInvalid):
            self.counts["refused"] += 1
            self.trace("ended", process, repr(error))
            del self._workers[process]
            self.counts["workers ended"] += 1
            self._restart_maimed()
            if not self._workers and not self._judged:
                self.loop.call_later(self.rng.random() * 2, self._start_if_none)
            return
        super()._ended(process, task)


def run_world(seed: int) -> Counter[str]:
    world = WorldOfCuts(seed)
    try:
        world.run()
    except BaseException as error:  # whatever it was, it is told with the way there
        told, way = f"seed {seed}: {type(error).__name__}: {error}", world.trace.shown(whole=SHOWN)
        raise Found(f"{told}\n{world.profile}\n{way}") from error
    return world.counts


@pytest.mark.timeout(900)
def test_whatever_befalls_a_link_that_is_cut_anew_all_is_copied_once() -> None:
    counts = sum(map(run_world, range(WORLDS)), Counter[str]())
    happened = ("cuts done", "cuts killed", "resumed", "refused", "kills", "fenced", "pages", "accepted")
    assert min(counts[name] for name in happened) > WORLDS / 10, counts
