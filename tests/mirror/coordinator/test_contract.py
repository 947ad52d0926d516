"""What every coordinator must keep, whatever it stands on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from mirror.coordinator.current import Current
from mirror.coordinator.embedded import EmbeddedCoordinator
from mirror.coordinator.model import Coordinator, Member, Share, Unit
from mirror.errors import LinkFenced
from mirror.fleet.errors import WorkerNameTaken
from mirror.fleet.etcd.store import open_etcd
from mirror.fleet.member import FleetCoordinator
from mirror.fleet.settings import FleetSettings
from mirror.fleet.store import FleetStore
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.mirror.fleet.fake_etcd import FakeEtcd, FakeStore
from tests.mirror.fleet.workers import offer_of, untold

LINKS = ("east-west", "west-east")
UNITS = frozenset(Unit(link) for link in LINKS)
WAIT_S = 120.0
SETTINGS = FleetSettings(lease_seconds=1, settle_seconds=0.1, retry_seconds=0.05)

Join = Callable[[Sequence[str]], AbstractAsyncContextManager[Member]]
"""Another worker with these links joins; of the embedded coordinator, the same one again."""


def fleet_member(store: FleetStore, name: str, links: Sequence[str]) -> AbstractAsyncContextManager[Member]:
    coordinator: Coordinator = FleetCoordinator(store, name, Current(offer_of(links)), SystemClock(), untold, SETTINGS)
    return coordinator.member()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(Path(tmp_path_factory.mktemp("etcd")), election_ms=300)
    server.start()
    yield server
    server.close()


@pytest.fixture(params=["embedded", "fleet in memory", "fleet on etcd"])
def join(request: pytest.FixtureRequest) -> Join:
    """Each implementation is a parameter."""
    numbers = iter(range(100))
    if request.param == "embedded":
        coordinators: dict[tuple[str, ...], EmbeddedCoordinator] = {}

        def join_embedded(links: Sequence[str]) -> AbstractAsyncContextManager[Member]:
            made = coordinators.setdefault(tuple(links), EmbeddedCoordinator(map(Unit, links)))
            return made.member()

        return join_embedded
    if request.param == "fleet in memory":
        etcd = FakeEtcd(SystemClock())
        return lambda links: fleet_member(FakeStore(etcd), f"worker-{next(numbers)}", links)
    server: EtcdServer = request.getfixturevalue("server")

    @asynccontextmanager
    async def join_real(links: Sequence[str]) -> AsyncIterator[Member]:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_etcd(server.access(), SystemClock()))
            yield await stack.enter_async_context(fleet_member(store, f"worker-{next(numbers)}", links))

    return join_real


async def share_that(member: Member, fits: Callable[[Share], bool]) -> Share:
    """The first share that does. TimeoutError when none comes."""
    async with asyncio.timeout(WAIT_S):
        async for share in member.shares():
            if fits(share):
                return share
    raise AssertionError("no such share comes")


async def test_a_single_member_gets_every_unit(join: Join) -> None:
    async with join(LINKS) as member:
        assert await share_that(member, bool) <= UNITS
        assert await share_that(member, lambda share: share == UNITS)
        for unit in UNITS:
            async with asyncio.timeout(WAIT_S):
                await member.permit(unit).wait(is_prepared=True)
            member.permit(unit).check()


async def test_leaving_gives_the_units_to_the_next(join: Join) -> None:
    for _ in range(2):
        async with join(LINKS) as member:
            await share_that(member, lambda share: share == UNITS)


async def test_leaving_by_an_error_gives_the_units_back(join: Join) -> None:
    async def fail() -> None:
        async with join(LINKS) as member:
            await share_that(member, lambda share: share == UNITS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with join(LINKS) as member:
        await share_that(member, lambda share: share == UNITS)


async def test_two_members_never_share_a_unit(join: Join) -> None:
    async with join(LINKS) as first:
        await share_that(first, lambda share: share == UNITS)
        try:
            async with join(LINKS) as second:
                (moved,) = await share_that(second, bool)
                assert await share_that(first, bool) == UNITS, "it runs what is being prepared"
                async with asyncio.TaskGroup() as tasks:
                    opening = tasks.create_task(second.permit(moved).wait(is_prepared=True))
                    left = await share_that(first, lambda share: len(share) == 1)
                    assert left == UNITS - {moved}
                    await asyncio.sleep(0.2)
                    assert not opening.done(), "the first has not said yet that it ended"
                    await first.released(moved)
                second.permit(moved).check()
                assert await share_that(second, bool) == {moved}
                assert await share_that(first, lambda _share: True) == left
        except LinkFenced:
            assert isinstance(first, object), "the embedded coordinator has one member at a time"


async def test_a_name_is_given_once() -> None:
    etcd = FakeEtcd(SystemClock())
    async with fleet_member(FakeStore(etcd), "one", LINKS) as first:
        await share_that(first, bool)
        with pytest.raises(WorkerNameTaken, match="one"):
            async with fleet_member(FakeStore(etcd), "one", LINKS) as second:
                await share_that(second, bool)
