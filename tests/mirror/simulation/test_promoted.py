"""A promoted target that applications write to for hours: a look at the link reads no more than the link wrote."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.fanout import split_failures
from mirror.limits import PARTED_LOOK_MS
from mirror.offsets.fenced_logs import is_fence
from mirror.offsets.intervals import End
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.recovery import recover
from mirror.offsets.state import load_partial_state, read_entries
from mirror.offsets.tail import read_tails
from mirror.worker.parted import PartingKind, source_partings
from tests.mirror.simulation.network import Weather
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.world import World
from tests.worlds import first_worlds

FAR = Weather(delay_max_s=0.2, answers_take_time=True)
APPLICATIONS = 400
"""Batches, of which each answer has one: more than a look reads in PARTED_LOOK_MS."""
WORLDS = first_worlds(4, of=200)
STEPS_MAX = 250
"""A promotion takes fewer turns of the loop."""


def choose(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    return replace(
        profile, partitions=1, groups=False, kills=0, rival=Rival.NEVER, disaster=None, held=False, weather=Weather(),
        shared=rng.random() < 0.5,
    )  # fmt: skip


class PromotedWorld(World):
    """What is mirrored stands at west when `act` begins, and no worker runs."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choose)
        self.link = self.links[0]

    async def _main(self) -> None:
        for name in {link.source.name: None for link in self.links}:
            self.lives[name].make_topic("flights", 1)
        self._write("east", 5)
        self._start_worker()
        await self._until_complete()
        await self.act()

    async def act(self) -> None:
        raise NotImplementedError

    async def _stop_workers(self) -> None:
        self._judged = True
        for task in self._workers.values():
            task.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    def _write(self, site: str, batches: int) -> None:
        life = self.lives[site]
        for _ in range(batches):
            life.write(self._log(site))

    def _log(self, site: str) -> Any:
        return self.sites[site].topics["flights"].partitions[0]

    def clusters(self) -> tuple[Cluster, Cluster]:
        return Cluster(self.link.source, clock=self.clock), Cluster(self.link.target, clock=self.clock)


class WrittenFor(PromotedWorld):
    """For longer than a look may take, at a site that is far."""

    def __init__(self, *, is_kept: bool = True, has_marker: bool = True, waves: int = 0, anew: bool = False) -> None:
        super().__init__(seed=1)
        self.is_kept, self.has_marker, self.waves, self.anew = is_kept, has_marker, waves, anew

    async def act(self) -> None:
        await self._stop_workers()
        source, target = self.clusters()
        async with source, target:
            await promote_link(self.link, target, "failover-0")
            if not self.is_kept:
                self._forget()
            fenced_to = self._log("west").log_end
            if self.anew:
                self.sites["west"].delete_topic("flights")
                self.sites["west"].create_topic("flights", 1, {"retention.ms": "-1"})
            self._write("west", APPLICATIONS)
            for number in range(self.waves):
                await promote_link(self.link, target, f"failover-{number + 1}")
            log = self._log("west")
            if not self.has_marker:
                log.batches = [stored for stored in log.batches if stored.header.base_offset >= fenced_to]
                log.log_start = fenced_to
            log.read_max_bytes = 1
            self.network.weather = FAR
            began_s = self.loop.now
            self.kinds = [one.kind for one in await source_partings(self.link, source, target)]
            self.took_s = self.loop.now - began_s

    def _forget(self) -> None:
        """An older version has promoted it, or whoever did died behind the fence."""
        log = self.sites["west"].topics[self.link.state_topic].partitions[0]
        log.batches = [stored for stored in log.batches if b'"fenced"' not in stored.data]


@pytest.mark.parametrize(("is_kept", "has_marker"), [(True, True), (True, False), (False, True)])
def test_what_applications_wrote_since_does_not_refuse_the_way_back(*, is_kept: bool, has_marker: bool) -> None:
    """It took longer to read than a look may take, and longer each day."""
    world = WrittenFor(is_kept=is_kept, has_marker=has_marker)
    world.run()
    assert world.kinds == []
    assert world.took_s < PARTED_LOOK_MS / 1000 / 4


def test_a_later_wave_of_a_failover_keeps_where_the_first_one_fenced() -> None:
    world = WrittenFor(has_marker=False, waves=2)
    world.run()
    assert world.kinds == []
    assert world.took_s < PARTED_LOOK_MS / 1000 / 4


def test_where_nothing_tells_of_the_fence_all_is_read() -> None:
    world = WrittenFor(is_kept=False, has_marker=False)
    world.run()
    assert world.kinds == [PartingKind.NOT_COMPARED]


def test_the_end_of_a_topic_that_was_made_anew_since_does_not_count() -> None:
    world = WrittenFor(anew=True)
    world.run()
    assert world.took_s > PARTED_LOOK_MS / 1000, "all was to be read"


class CutShort(PromotedWorld):
    """Promotions that die at any step, while the link and applications write; it is resumed, and promoted again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.bounded = 0

    async def act(self) -> None:
        for site in self.sites.values():  # who judges a world expects no writers at a target, nor promotions
            site.on_partition = lambda _made: None
            for partition in site.partitions():
                partition.watchers.clear()
        writing = [asyncio.create_task(self._write_on(site)) for site in ("east", "west")]
        async with Cluster(self.link.target, clock=self.clock) as target:
            for number in range(3):
                await self._cut(promote_link(self.link, target, f"failover-{number}"))
                await self._check(target, is_fenced=False)
                if self.rng.random() < 0.5:
                    await promote_link(self.link, target, f"failover-{number}-again")
                    await self._check(target)
                if self.rng.random() < 0.2:
                    self.sites["west"].delete_topic("flights")
                    self.sites["west"].create_topic("flights", 1, {"retention.ms": "-1"})
                    await self._check(target, is_fenced=False)
                if self.rng.random() < 0.7:
                    await resume_link(self.link, target, f"resume-{number}")
                    await asyncio.sleep(2 * self.rng.random())
                    await self._check(target, is_fenced=False)
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        await self._stop_workers()

    async def _write_on(self, site: str) -> None:
        while True:
            await asyncio.sleep(0.2 * self.rng.random())
            self._write(site, 1)

    async def _cut(self, promotion: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(promotion)

        def cut() -> None:
            task.cancel()

        self.loop.after_steps(1 + self.rng.randrange(STEPS_MAX), cut)
        with suppress(FarshoreError, asyncio.CancelledError):
            await task

    async def _check(self, target: Cluster, *, is_fenced: bool = True) -> None:
        """What stands before the end that is kept says of the link what all of the log does."""
        entries = await read_entries(self.link, target)
        tails, failures = split_failures(await read_tails(target, self.link, entries.checkpoints))
        assert not failures
        topic_id = str(self.sites["west"].topics["flights"].topic_id)
        for where, tail in tails.items():
            checkpoint, log = entries.checkpoints[where], entries.fenced_logs.get(where)
            known = (entries.intervals(*where), entries.blocks_of(*where), checkpoint)
            whole = replace(recover(*known, tail.batches), foreign=())
            read_to = log.read_to(checkpoint, topic_id) if log is not None else None
            if read_to is not None:
                self.bounded += 1
                batches = [batch for batch in tail.batches if batch.base_offset < read_to]
                assert replace(recover(*known, batches), foreign=()) == whole
            markers = (at for at, batch in enumerate(tail.batches) if is_fence(batch, checkpoint))
            before = tail.batches[: next(markers, len(tail.batches))]
            assert replace(recover(*known, before), foreign=()) == whole
            if is_fenced:
                is_of_topic = checkpoint.topic_ids.target == topic_id
                assert read_to is not None or not is_of_topic, "it is kept"
                end = (await load_partial_state(self.link, target)).map.mirrored_end(*where)
                assert end == End(whole.position, whole.end.target_next)


def test_nothing_of_the_link_is_missed_however_a_promotion_ends() -> None:
    bounded = 0
    for seed in range(WORLDS):
        world = CutShort(seed)
        world.run()
        bounded += world.bounded
    assert bounded > WORLDS
