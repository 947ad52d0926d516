"""A unit moves from one worker to another, which prepares it while the first one still runs it; on simulated time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from mirror.coordinator.model import Member, Meter, Permit, Share, Unit, UnitNotHeld
from mirror.link import Link
from mirror.offsets.state_entries import StateEntries
from mirror.worker import service
from mirror.worker.ahead import Ahead, prepare
from mirror.worker.limits import AHEAD_MAX_AGE_MS
from mirror.worker.origins import Passage
from mirror.worker.service import WorkerSettings, run_links
from tests.mirror.simulation.handing_over import HandedOver
from tests.mirror.simulation.test_far import LIMITS, PARTITIONS, START_ROUND_TRIPS, Far
from tests.mirror.simulation.trace import Found
from tests.worlds import first_worlds

HANDOVER_ROUND_TRIPS = 19
"""From the moment at which the other lets go to the first record: fence, state, registry, comparison."""
WORLDS = first_worlds(20, of=600)
PLANTED_SEEDS = range(90, 150)
MUST_HAPPEN = ("prepared", "unprepared", "kills", "started", "topic_created", "partition_taken_in", "accepted")


class Heir:
    """The coordinator and only member of a worker that is to have a link which another still runs."""

    worker_id = "heir"

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.given, self.waits = asyncio.Event(), asyncio.Event()
        self.is_prepared = False

    @asynccontextmanager
    async def _join(self) -> AsyncIterator[Member]:
        yield self

    def member(self) -> AbstractAsyncContextManager[Member]:
        return self._join()

    async def shares(self) -> AsyncIterator[Share]:
        yield frozenset({self._unit})

    def permit(self, unit: Unit) -> Permit:
        return self

    def meter(self, unit: Unit) -> Meter:
        return Meter()

    async def released(self, unit: Unit) -> None:
        return

    async def goes_on_after(self, unit: Unit, error: Exception) -> bool:
        return False

    async def begin(self) -> None:
        return

    @property
    def is_given(self) -> bool:
        return self.given.is_set()

    async def wait(self, *, is_prepared: bool) -> None:
        self.is_prepared = is_prepared
        self.waits.set()
        await self.given.wait()

    def check(self) -> None:
        if not self.is_given:
            raise UnitNotHeld("the other runs it")


def written_by(far: Far) -> tuple[int, set[int], set[str]]:
    """Of the link at its target: the newest epoch of its id, the epochs in its state, and the topics there."""
    found = far.west.transaction(far.link.transactional_id)
    state = far.west.topics[far.link.state_topic].partitions[0]
    assert found is not None
    return found.producer_epoch, {stored.header.producer_epoch for stored in state.batches}, set(far.west.topics)


async def hand_over(far: Far, heir: Heir, *, wider: Link | None = None, pause_s: float = 0.0) -> list[float]:
    """One worker after the other, of which the second may have a wider link; `pause_s` behind its preparation the
    first one ends -> round trips from there to the first record of each partition.
    """
    settings = WorkerSettings(LIMITS, far.clock, far.told.sink)
    far.write_everywhere()
    first = far.loop.create_task(run_links([far.link], settings))
    await asyncio.sleep(20)
    before = written_by(far)
    second = far.loop.create_task(run_links([wider or far.link], settings, heir))
    async with asyncio.timeout(20):
        await heir.waits.wait()
    assert written_by(far) == before, "who prepares writes nothing, and is given no epoch"
    assert not first.done(), "who prepares ends no session"
    await asyncio.sleep(pause_s)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    far.write_everywhere()
    far.arrived.clear()
    began_s = far.loop.now
    heir.given.set()
    await asyncio.sleep(20)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    round_trips = far.round_trips(began_s)
    assert len(round_trips) == PARTITIONS - 1
    return round_trips


def test_a_prepared_unit_goes_on_after_fewer_round_trips() -> None:
    far = Far()

    async def course() -> None:
        heir = Heir(Unit(far.link.name))
        round_trips = await hand_over(far, heir)
        assert heir.is_prepared
        assert round_trips[-1] < HANDOVER_ROUND_TRIPS

    far.loop.run(course())


def test_what_was_prepared_too_long_ago_is_looked_at_again() -> None:
    far = Far()

    async def course() -> None:
        round_trips = await hand_over(far, Heir(Unit(far.link.name)), pause_s=AHEAD_MAX_AGE_MS / 1000 + 1)
        assert HANDOVER_ROUND_TRIPS < round_trips[-1] < START_ROUND_TRIPS

    far.loop.run(course())


def test_what_has_to_be_made_is_made_by_who_holds_the_unit() -> None:
    far = Far()

    async def course() -> None:
        far.east.create_topic("later", 1, {})
        heir = Heir(Unit(far.link.name))
        await hand_over(far, heir, wider=replace(far.link, topics=("flights", "later")))
        assert not heir.is_prepared
        assert "later" in far.west.topics

    far.loop.run(course())


@pytest.mark.timeout(900)
def test_every_world_in_which_links_are_handed_over_ends_with_a_true_copy() -> None:
    counts = sum((run(seed) for seed in range(WORLDS)), Counter[str]())
    missing = [event for event in MUST_HAPPEN if not counts[event]]
    assert not missing, f"these never happened: {missing}; {counts}"


def run(seed: int) -> Counter[str]:
    world = HandedOver(seed)
    try:
        world.run()
    except BaseException as error:  # whatever it was, it is told with the way there
        raise Found(f"seed {seed}: {type(error).__name__}: {error}\n{world.trace.shown(whole=False)}") from error
    return world.counts


def test_a_preparation_that_is_believed_behind_the_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def believing(link: Link, clusters: tuple[Cluster, Cluster], passage: Passage, ahead: Ahead) -> None:
        await prepare(link, clusters, passage, ahead)
        entries = await ahead.state.read(clusters[1])

        async def read(_target: Cluster) -> StateEntries:
            return entries

        monkeypatch.setattr(ahead.state, "read", read)

    monkeypatch.setattr(service, "prepare", believing)
    assert any(map(finds_something, PLANTED_SEEDS))


def finds_something(seed: int) -> bool:
    try:
        run(seed)
    except Found:
        return True
    return False
