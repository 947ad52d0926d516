"""Links that are cut into units: whatever befalls one, all is copied, and the others go on."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from mirror.coordinator.embedded import EmbeddedCoordinator
from mirror.coordinator.model import Coordinator, units_of
from mirror.link import Link
from mirror.offsets import cutting, operations
from mirror.offsets.operations import promote_link
from mirror.offsets.state import read_entries
from mirror.worker.events import Event, EventSink
from tests.mirror.simulation.network import Weather
from tests.mirror.simulation.profile import Profile, Rival, choose_circle, choose_profile
from tests.mirror.simulation.seeds import first_finding, run_seeds
from tests.mirror.simulation.trace import Found
from tests.mirror.simulation.world import World
from tests.worlds import first_worlds

SEEDS = first_worlds(24, of=150)
CONTESTED = first_worlds(24, of=80)
CIRCLES = first_worlds(6, of=20)
PLANTED_SEEDS = 100
WORLDS = first_worlds(4, of=8)
MUST_HAPPEN = ("kills", "fenced", "started", "topic_created", "topic_grown", "accepted", "partition_taken_in", "pages")
FROZEN_S = 100.0
ENDS = ("renewed", "restarting", "stopped", "paused")
"""With which a session of a unit ends."""


def cut(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    return replace(profile, units=rng.choice((2, 3)), partitions=rng.choice((1, 2, 3)))


def contested(rng: random.Random) -> Profile:
    """Somebody else takes a unit over while its worker begins."""
    return replace(cut(rng), rival=Rival.AT_START)


def cut_circle(rng: random.Random) -> Profile:
    return replace(choose_circle(rng), units=2)


def calm(rng: random.Random) -> Profile:
    """Nothing happens but what a test does."""
    profile = replace(cut(rng), kills=0, rival=Rival.NEVER, disaster=None, held=False, weather=Weather(), shared=False)
    return replace(profile, units=3, partitions=3, births=0.0, groups=True)


@pytest.mark.timeout(900)
def test_every_world_of_several_units_ends_with_a_true_copy() -> None:
    counts = run_seeds(range(SEEDS), cut) + run_seeds(range(CONTESTED), contested)
    missing = [event for event in MUST_HAPPEN if not counts[event]]
    assert not missing, f"these never happened: {missing}; {counts}"


@pytest.mark.timeout(900)
def test_what_links_of_several_units_carry_on_goes_round_no_circle() -> None:
    run_seeds(range(CIRCLES), cut_circle)


class SharedWorld(World):
    """Each unit has a worker of its own, as in a fleet; `events` are told by unit."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, calm)
        self.events: Counter[tuple[str, str]] = Counter()
        self.processes: dict[str, str] = {}
        self._next = 0

    def _share_of(self, process: str) -> Coordinator | None:
        unit = units_of(self.links[0])[self._next]
        self.processes[str(unit)] = process
        return EmbeddedCoordinator([unit])

    def start_unit(self, number: int) -> None:
        self._next = number
        self._start_worker()

    def _start_if_none(self) -> None:
        return

    def _sink(self, process: str, link: str) -> EventSink:
        tell = super()._sink(process, link)

        def count(event: Event, /, **fields: object) -> None:
            self.events[link, event.value] += 1
            tell(event, **fields)

        return count

    def _restart_maimed(self) -> None:
        return

    async def _main(self) -> None:
        life = self.lives["east"]
        life.make_topic("flights", self.profile.partitions)
        life.write()
        for number in (2, 0, 1):  # none waits for unit 0
            self.start_unit(number)
            await asyncio.sleep(self.rng.random())
        await self.write_for(3)
        await self.act()
        self._judged = True
        for task in self._workers.values():
            task.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def write_for(self, seconds: float) -> None:
        until = self.loop.now + seconds
        while self.loop.now < until:
            self.write_everywhere()
            await asyncio.sleep(0.05)

    def write_everywhere(self) -> None:
        for partition in self.sites["east"].topics["flights"].partitions:
            self.lives["east"].write(partition)

    async def act(self) -> None:
        raise NotImplementedError

    def arrived(self) -> dict[TopicPartition, int]:
        return {where: len(oracle.arrived) for where, oracle in self.oracles[0].partitions.items()}

    def started(self) -> Counter[str]:
        return Counter({unit: count for (unit, event), count in self.events.items() if event == "started"})


class TakenOver(SharedWorld):
    """One unit's worker dies in the middle, and another takes it over."""

    async def act(self) -> None:
        link = self.links[0]
        lost = self.rng.randrange(3)
        process = self.processes[f"{link.name}/{lost}"]
        theirs = [w for w in self.arrived() if w.topic == "flights" and link.unit_of(*w) != lost]
        before = self.events.copy()
        self.network.kill(process)
        self._workers[process].cancel()
        for _ in range(40):  # nobody runs the unit: the others do not pause
            there = self.arrived()
            await self.write_for(0.5)
            assert all(self.arrived()[where] > there[where] for where in theirs)
        self.start_unit(lost)
        await self.write_for(2)
        await self._until_complete()
        for oracle in self.oracles:
            oracle.verify_content()
        await self._judge()
        told = self.events - before
        others = {key: count for key, count in told.items() if key[0] != f"{link.name}/{lost}" and key[1] in ENDS}
        assert not others, "no other unit's session ends"
        assert self.started()[f"{link.name}/{lost}"] == 2


def test_a_unit_is_taken_over_and_the_others_never_pause() -> None:
    for seed in range(WORLDS):
        TakenOver(seed).run()


class PromotedAmid(SharedWorld):
    """A worker of one unit freezes, the target is promoted, and the worker wakes."""

    async def act(self) -> None:
        link = self.links[0]
        frozen = self.rng.choice([process for unit, process in self.processes.items() if not unit.endswith("/0")])
        self.write_everywhere()
        self.network.hold(frozen, FROZEN_S)
        await self.write_for(self.rng.random())
        async with Cluster(link.target, clock=self.clock) as target:
            fence = await promote_link(link, target, "op")
            kept = (await read_entries(link, target)).fenced_logs
        assert not fence.left_out
        assert kept
        assert set(fence.reached) == kept.keys(), "where the logs of each unit end"
        there = self.arrived()
        await self.write_for(5)
        await asyncio.sleep(2 * FROZEN_S)
        if self.arrived() != there:
            raise Found(f"written after the promotion: {there} became {self.arrived()}")
        async with Cluster(link.target, clock=self.clock) as target:
            await operations.resume_link(link, target, "op-2")
        await self._until_complete()
        for oracle in self.oracles:
            oracle.verify_content()


def test_nothing_of_any_unit_is_written_after_a_promotion() -> None:
    for seed in range(WORLDS):
        PromotedAmid(seed).run()


def test_a_promotion_that_fences_only_unit_0_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    units = cutting.state_units

    async def planted(link: Link, target: Cluster) -> list[Link]:
        return (await units(link, target))[:1]

    monkeypatch.setattr(operations, "state_units", planted)
    with pytest.raises(Found, match="written after the promotion"):
        test_nothing_of_any_unit_is_written_after_a_promotion()


class Grown(SharedWorld):
    """The topic grows, and each unit takes in what is its."""

    async def act(self) -> None:
        life, before = self.lives["east"], self.events.copy()
        for _ in range(3):
            life.cluster.grow_topic("flights", len(life.cluster.topics["flights"].partitions) + 1)
            await self.write_for(2)
        await self._until_complete()
        ended = {key: count for key, count in (self.events - before).items() if key[1] in ENDS}
        if ended:
            raise Found(f"sessions ended where a topic grew: {ended}")


def test_no_session_ends_where_a_topic_grows() -> None:
    for seed in range(WORLDS):
        Grown(seed).run()


def test_units_under_one_fence_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit 1 writes under unit 0's transactional id: who is not the last to begin cannot extend its fence."""
    monkeypatch.setattr(Link, "transactional_id", property(lambda link: f"farshore-{link.name}"))
    with pytest.raises(Found, match="sessions ended"):
        test_no_session_ends_where_a_topic_grows()


def test_units_in_one_part_of_the_state_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit 1 writes its state where unit 0 writes."""
    monkeypatch.setattr(Link, "state_partition", property(lambda _link: 0))
    assert first_finding(range(PLANTED_SEEDS), cut) is not None
