"""`farshore fleet drain` while others drain, too: over etcd in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.base.clock import SystemClock
from deploy.cli.fleet import Fleet, drain_worker
from deploy.cli.terminal import CommandRefused
from mirror.coordinator.model import Unit
from mirror.fleet.keys import FleetKeys
from mirror.fleet.store import ABSENT, Commit, Put
from tests.mirror.fleet.fake_etcd import FakeEtcd, FakeStore
from tests.mirror.fleet.workers import offer_of

KEYS = FleetKeys("/f/")


class Beside(FakeStore):
    """Something else happens between this one's look and its commit, once."""

    def __init__(self, etcd: FakeEtcd, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__(etcd)
        self._happens = [happens]

    async def commit(self, commit: Commit) -> int | None:
        while self._happens:
            await self._happens.pop()()
        return await super().commit(commit)


def fleet_of(**links: str) -> FakeEtcd:
    """Each worker with the links that it offers; the first that does runs a link."""
    etcd = FakeEtcd(SystemClock())
    for name, offered in links.items():
        etcd.commit(Commit({}, {KEYS.worker(name): Put(offer_of(offered.split()).model_dump_json())}))
        for link in offered.split():
            etcd.commit(Commit({KEYS.plan(Unit(link)): ABSENT}, {KEYS.plan(Unit(link)): Put(name)}))
    return etcd


def drained(etcd: FakeEtcd) -> set[str]:
    return {name for name in ("one", "two", "three") if KEYS.drained(name) in etcd.items}


async def die(etcd: FakeEtcd, name: str) -> None:
    etcd.commit(Commit({}, {KEYS.worker(name): None}))


def drain_beside(etcd: FakeEtcd, name: str) -> Callable[[], Awaitable[None]]:
    return lambda: drain_worker(Fleet(FakeStore(etcd), KEYS), name, even_if_links_stop=False)


def drain(store: FakeStore, name: str, *, even_if_links_stop: bool = False) -> None:
    asyncio.run(drain_worker(Fleet(store, KEYS), name, even_if_links_stop=even_if_links_stop))


def test_two_drains_at_once_leave_a_worker_to_each_link() -> None:
    etcd = fleet_of(one="red", two="red")
    store = Beside(etcd, drain_beside(etcd, "two"))
    with pytest.raises(CommandRefused, match="nobody else can run red"):
        drain(store, "one")
    assert drained(etcd) == {"two"}


def test_also_where_the_other_one_is_not_who_takes_over() -> None:
    """Whoever looks first has red go to two, and two itself is empty but for blue, which three can have."""
    etcd = fleet_of(one="red", two="blue red", three="blue")
    store = Beside(etcd, drain_beside(etcd, "one"))
    with pytest.raises(CommandRefused, match="nobody else can run red"):
        drain(store, "two")
    assert drained(etcd) == {"one"}


def test_who_was_to_take_over_may_be_gone_and_another_one_there() -> None:
    etcd = fleet_of(one="red", two="red", three="red")
    drain(Beside(etcd, lambda: die(etcd, "two")), "one")
    assert drained(etcd) == {"one"}


def test_links_may_stop_where_that_is_asked_for() -> None:
    etcd = fleet_of(one="red", two="red")
    drain(Beside(etcd, drain_beside(etcd, "two")), "one", even_if_links_stop=True)
    assert drained(etcd) == {"one", "two"}
