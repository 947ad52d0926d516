"""Fleets on simulated time; `world.py` says what is asserted in each.

FARSHORE_FLEET_SEEDS=FIRST:COUNT runs others than the fixed worlds, FARSHORE_FLEET_SEED one alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from mirror.coordinator.model import Unit
from mirror.fleet.belief import Belief
from mirror.fleet.failures import AVOIDED_S
from mirror.fleet.pacing import Pacing
from mirror.fleet.store import Commit, Put
from mirror.fleet.view import FleetView
from tests.broker.worlds import Worlds
from tests.mirror.fleet.fake_etcd import FakeStore
from tests.mirror.fleet.world import FAULTS, KEYS, LEASE_S, NO_FAULTS, SETTINGS, TAKEOVER_S, World, longest_pause


def make_world(seed: int, _folder: Path) -> World:
    return World(seed, FAULTS)


WORLDS = Worlds("FLEET", make_world, "tests/mirror/fleet/test_simulation.py")


def test_worlds() -> None:
    if WORLDS.alone is not None:
        print("\n".join(WORLDS.run_seed(WORLDS.alone).trace))
        return
    counts = WORLDS.run_seeds(WORLDS.seeds(24))
    assert all(counts[fault] for fault in FAULTS), f"faults that never happened: {counts}"
    assert counts["openings"] > 0
    assert counts["writes"] > 0


def make_cut_world(seed: int, _folder: Path) -> World:
    """One link, cut into as many units as the others have links."""
    return World(seed, FAULTS, units=1, cut=7)


def test_worlds_of_one_link_of_several_units() -> None:
    counts = Worlds("FLEET_UNITS", make_cut_world, "tests/mirror/fleet/test_simulation.py").run_seeds(range(12))
    assert counts["openings"] > 0
    assert counts["writes"] > 0


def never_asks_who_holds(patch: pytest.MonkeyPatch) -> None:
    def holds(self: Belief, unit: Unit) -> bool:
        return self.view is not None and unit in self.view.held and self.view.planned.get(unit) == self.name

    patch.setattr(Belief, "holds", holds)


def plans_only_where_workers_changed(patch: pytest.MonkeyPatch) -> None:
    """A unit whose worker is gone waits until the fleet has settled."""
    is_due = Pacing.is_due

    def is_settled(self: Pacing, view: FleetView, now: float) -> bool:
        return self.settled_in_s(view, now) <= 0 and is_due(self, view, now)

    patch.setattr(Pacing, "is_due", is_settled)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        # What it releases it goes on to take for its own, too, and so never takes it.
        (never_asks_who_holds, "opens link-|has no owner since"),
        (plans_only_where_workers_changed, "has no owner since"),
    ],
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], words: str) -> None:
    found = WORLDS.first_finding_of(plant, range(40))
    assert found is not None
    assert re.search(words, found[1])


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_worker_is_replaced_in_time(seed: int) -> None:
    world = World(seed, NO_FAULTS)

    async def kill_one() -> None:
        await world.clock.sleep(world.chance.random())
        before = world.now
        moved = {unit: {n for at, n in world.target.writes[unit] if at > before - 5} for unit in world.units}
        gone = world.chance.choice(world.workers)
        gone.kill9()
        world.workers.remove(gone)
        await world.clock.sleep(20)
        for unit in world.units:
            writes = [(at, name) for at, name in world.target.writes[unit] if at > before - 1]
            if moved[unit] == {gone.name}:
                assert longest_pause(writes, world.now) < TAKEOVER_S
                assert writes[-1][1] != gone.name
        untouched = [unit for unit in world.units if moved[unit] != {gone.name}]
        assert untouched
        for unit in untouched:
            # Balance may move one of them later; it leaves and is opened, and no more.
            writes = [(at, name) for at, name in world.target.writes[unit] if at > before - 1]
            assert longest_pause(writes, world.now) < 1.0

    world.run(kill_one)


def test_nothing_is_written_where_nothing_happens() -> None:
    world = World(1, NO_FAULTS)

    async def look() -> None:
        revision, epochs = world.etcd.revision, dict(world.target.opened)
        await world.clock.sleep(600)
        assert world.etcd.revision == revision
        assert world.target.opened == epochs, "no unit was opened anew"

    world.run(look)


def test_what_runs_goes_on_without_etcd_until_the_limit() -> None:
    world = World(2, NO_FAULTS)

    async def look() -> None:
        epochs = dict(world.target.opened)
        world.etcd.go_down()
        await world.clock.sleep(LEASE_S + SETTINGS.without_etcd_seconds - 2)
        for unit in world.units:
            assert world.target.writes[unit][-1][0] > world.now - 1
        assert world.target.opened == epochs
        await world.clock.sleep(4)
        for unit in world.units:
            assert world.target.writes[unit][-1][0] < world.now - 1, "the limit is over"
        world.etcd.come_back()
        await world.clock.sleep(15)
        world.check_quiet()

    world.run(look)


def test_a_worker_that_is_cut_off_opens_nothing_and_leaves_to_the_others() -> None:
    world = World(3, NO_FAULTS)

    async def look() -> None:
        alone = world.workers[0]
        mine = {unit for unit in world.units if world.target.writes[unit][-1][1] == alone.name}
        assert mine
        alone.store.cut()
        await world.clock.sleep(10)
        for unit in mine:
            assert world.target.writes[unit][-1][1] != alone.name
        since = world.now
        await world.clock.sleep(60)
        writers = {name for unit in world.units for at, name in world.target.writes[unit] if at > since}
        assert alone.name not in writers
        alone.store.is_cut = False
        await world.clock.sleep(30)
        assert {world.target.writes[unit][-1][1] for unit in world.units} == {worker.name for worker in world.workers}

    world.run(look)


def last_writers(world: World) -> dict[Unit, str]:
    return {unit: writes[-1][1] for unit, writes in world.target.writes.items()}


@pytest.mark.parametrize("seed", range(2))
def test_loads_that_waver_move_nothing_and_are_hardly_written(seed: int) -> None:
    world = World(seed, NO_FAULTS, units=9)
    world.rates = {unit: 2.0 + n % 3 for n, unit in enumerate(world.units)}

    async def look() -> None:
        await world.clock.sleep(120)
        epochs, revision = dict(world.target.opened), world.etcd.revision
        await world.clock.sleep(600)
        assert world.target.opened == epochs, "no unit was opened anew"
        assert world.etcd.revision - revision <= 6, "so many writes of three workers in ten minutes"

    world.run(look)


@pytest.mark.parametrize("seed", range(2))
def test_a_load_that_shifts_is_shared_out_one_unit_after_the_other(seed: int) -> None:
    world = World(seed, NO_FAULTS, units=12)
    world.rates = dict.fromkeys(world.units, 2.0)

    async def look() -> None:
        before = last_writers(world)
        hot = world.chance.choice(world.workers).name
        world.rates = {unit: 20.0 if name == hot else 2.0 for unit, name in before.items()}
        moved_at = []
        for _ in range(300):
            await world.clock.sleep(1)
            now = last_writers(world)
            moved_at += [world.now] * sum(now[unit] != name for unit, name in before.items())
            before = now
        assert 1 <= len(moved_at) <= 4
        assert all(after - earlier > 0.9 * SETTINGS.ease_every_seconds for earlier, after in pairwise(moved_at))
        loads = {
            worker.name: sum(world.rates[u] for u, name in before.items() if name == worker.name)
            for worker in world.workers
        }
        assert max(loads.values()) <= 48.0, f"of 96 MiB a second: {loads}"
        world.check_quiet()

    world.run(look)


def test_a_worker_that_was_drained_for_a_moment_gets_its_part_again() -> None:
    world = World(1, NO_FAULTS)

    async def look() -> None:
        store, worker = FakeStore(world.etcd), world.workers[0]
        await store.commit(Commit({}, {KEYS.drained(worker.name): Put("")}))
        await world.clock.sleep(2)
        assert worker.name not in last_writers(world).values()
        await store.commit(Commit({}, {KEYS.drained(worker.name): None}))
        await world.clock.sleep(2 * SETTINGS.settle_seconds)
        assert worker.name in last_writers(world).values()

    world.run(look)


def test_who_reaches_no_target_draws_no_work_to_itself() -> None:
    """Its units move nothing, so it looks like the idlest of all."""
    world = World(1, NO_FAULTS, units=12)
    world.rates = dict.fromkeys(world.units, 20.0)
    world.out_of_reach = {"worker-2"}

    async def look() -> None:
        since = world.now
        for _ in range(70):
            await world.clock.sleep(10)
            still = [unit for unit in world.units if world.target.writes[unit][-1][0] < world.now - 1]
            assert len(still) <= 1, f"{still} at {world.now}: no more than one is tried there again at a time"
        for unit in world.units:
            writes = [(at, name) for at, name in world.target.writes[unit] if at > since]
            assert longest_pause(writes, world.now) < 45.0
            assert {name for _, name in writes} <= {"worker-0", "worker-1"}

    world.run(look)


def test_who_comes_out_of_reach_loses_its_units_and_gets_its_part_when_it_is_back() -> None:
    world = World(2, NO_FAULTS, units=12)
    world.rates = dict.fromkeys(world.units, 20.0)

    async def look() -> None:
        world.out_of_reach = {"worker-1"}
        for unit, name in last_writers(world).items():
            if name == "worker-1":
                world.target.opened[unit] = None  # what runs there ends
        await world.clock.sleep(60)
        assert "worker-1" not in {name for unit in world.units for _, name in world.target.writes[unit][-1:]}
        world.check_quiet()
        world.out_of_reach = set()
        await world.clock.sleep(AVOIDED_S + 300)
        assert set(last_writers(world).values()) == {"worker-0", "worker-1", "worker-2"}
        world.check_quiet()

    world.run(look)


def test_an_etcd_that_was_restored_from_a_snapshot_is_joined_anew() -> None:
    """Its revisions are lower than what was noted, and the workers' leases may live in it."""
    world = World(3, NO_FAULTS)

    async def restore() -> None:
        saved, store, worker = world.etcd.saved(), FakeStore(world.etcd), world.workers[0]
        for _ in range(40):  # much happens that the snapshot does not know
            await store.commit(Commit({}, {KEYS.rebalance: Put("x")}))
            await world.clock.sleep(0.1)
        await store.commit(Commit({}, {KEYS.drained(worker.name): Put("")}))
        await world.clock.sleep(10)
        assert worker.name not in last_writers(world).values()
        lost = world.etcd.revision - saved.revision
        world.etcd.restore(saved)
        world.judge.forget()
        await world.clock.sleep(30)
        assert worker.name in last_writers(world).values(), f"nobody waits until etcd has counted {lost} again"
        world.check_quiet()

    world.run(restore)


def test_who_opens_units_and_carries_none_loses_them_for_good() -> None:
    """Each session is opened, fences whoever else has the unit, and fails with its first batch."""
    world = World(3, NO_FAULTS, units=12)
    world.rates = dict.fromkeys(world.units, 20.0)
    world.fails_soon = {"worker-2"}

    async def look() -> None:
        await world.clock.sleep(60)
        since = world.now
        for _ in range(50):
            await world.clock.sleep(10)
            still = [unit for unit in world.units if world.target.writes[unit][-1][0] < world.now - 1]
            assert len(still) <= 1, f"{still} at {world.now}: no more than one is tried there again at a time"
        for unit in world.units:
            writes = [(at, name) for at, name in world.target.writes[unit] if at > since]
            assert {name for _, name in writes} <= {"worker-0", "worker-1"}

    world.run(look)


def test_what_no_worker_carries_comes_to_rest() -> None:
    """A link whose target refuses each first batch: it is tried at three workers, and then stays."""
    world = World(4, NO_FAULTS, units=6, workers=4)
    world.fails_soon = {worker.name for worker in world.workers}

    async def look() -> None:
        await world.clock.sleep(300)
        before = dict(world.target.opened_by)
        assert before.keys() == set(world.units)
        await world.clock.sleep(AVOIDED_S - 300)
        assert world.target.opened_by == before

    world.run(look)
