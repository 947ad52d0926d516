"""Fleets on simulated time: a unit that is moved is prepared by who comes, while the other one runs it still."""

from __future__ import annotations

import asyncio

import pytest

from mirror.coordinator.model import Unit
from mirror.fleet.store import Commit, Put
from tests.mirror.fleet.fake_etcd import FakeStore
from tests.mirror.fleet.world import KEYS, NO_FAULTS, SETTINGS, Worker, World, longest_pause

HANDOVER_S = 0.6
"""Of a prepared unit: between two writes of the old session, three commits, and the fence of the new one."""


def last_writers(world: World) -> dict[Unit, str]:
    return {unit: writes[-1][1] for unit, writes in world.target.writes.items()}


async def stopped(world: World, worker: Worker) -> None:
    """It leaves by itself."""
    worker.stopping.set()
    world.workers.remove(worker)
    assert worker.task is not None
    await asyncio.wait([worker.task])
    worker.task.result()


async def moved_from(world: World, worker: str, seconds: float) -> dict[Unit, float]:
    """Of what this worker wrote until now, and others do `seconds` later: the longest pause meanwhile."""
    for each in world.workers:
        each.store.loses_answers = 0.0
    since = world.now
    mine = [unit for unit, name in last_writers(world).items() if name == worker]
    assert mine
    await world.clock.sleep(seconds)
    for unit in mine:
        assert last_writers(world)[unit] != worker
    return {unit: longest_pause([w for w in world.target.writes[unit] if w[0] > since - 1], world.now) for unit in mine}


@pytest.mark.parametrize("seed", range(4))
def test_who_is_drained_runs_its_units_until_others_have_prepared_them(seed: int) -> None:
    world = World(seed, NO_FAULTS)

    async def drain() -> None:
        before, worker = world.counts["prepared"], world.workers[seed % 3]
        await FakeStore(world.etcd).commit(Commit({}, {KEYS.drained(worker.name): Put("")}))
        pauses = await moved_from(world, worker.name, SETTINGS.prepare_seconds)
        assert world.counts["prepared"] - before == len(pauses)
        assert max(pauses.values()) < HANDOVER_S

    world.run(drain)


@pytest.mark.parametrize("seed", range(4))
def test_who_prepares_nothing_gets_its_units_all_the_same(seed: int) -> None:
    world = World(seed, NO_FAULTS)

    async def drain() -> None:
        worker = world.workers[seed % 3]
        world.never_ready = {each.name for each in world.workers}
        await FakeStore(world.etcd).commit(Commit({}, {KEYS.drained(worker.name): Put("")}))
        pauses = await moved_from(world, worker.name, SETTINGS.prepare_seconds + 1)
        assert max(pauses.values()) < 1.5

    world.run(drain)


@pytest.mark.parametrize("seed", range(4))
def test_who_is_stopped_leaves_when_others_run_what_it_held(seed: int) -> None:
    world = World(seed, NO_FAULTS)

    async def stop() -> None:
        worker = world.workers[seed % 3]
        for each in world.workers:
            each.store.loses_answers = 0.0
        since = world.now
        await stopped(world, worker)
        assert world.now - since < SETTINGS.leave_seconds / 2
        assert KEYS.worker(worker.name) not in world.etcd.items
        await world.clock.sleep(1)
        for unit in world.units:
            writes = [write for write in world.target.writes[unit] if write[0] > since - 1]
            assert longest_pause(writes, world.now) < HANDOVER_S
            assert writes[-1][1] != worker.name

    world.run(stop)


def test_who_is_stopped_waits_for_nobody_where_there_is_nobody() -> None:
    world = World(0, NO_FAULTS, workers=1)

    async def stop() -> None:
        (worker,) = world.workers
        since = world.now
        await stopped(world, worker)
        assert world.now - since < 1.0

    world.run(stop)


def test_a_ready_word_is_of_one_holder_and_is_taken_back() -> None:
    world = World(1, NO_FAULTS)

    async def look() -> None:
        worker = world.workers[0]
        await FakeStore(world.etcd).commit(Commit({}, {KEYS.drained(worker.name): Put("")}))
        await world.clock.sleep(SETTINGS.prepare_seconds)
        assert not [key for key in world.etcd.items if key.startswith(KEYS.ready(Unit("")))]

    world.run(look)
