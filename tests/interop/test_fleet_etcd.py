"""A fleet on etcd as in production: Debian's 3.4, a cluster of three, TLS, users with as few rights as they need."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.security.settings import Secret
from mirror.coordinator.current import Current
from mirror.coordinator.model import Unit, UnitNotHeld
from mirror.coordinator.serving import serve_shares
from mirror.fleet.errors import FleetError, StoreRefused, StoreUnreachable
from mirror.fleet.etcd.store import open_etcd
from mirror.fleet.member import FleetCoordinator
from mirror.fleet.settings import FleetAccess, FleetSettings
from tests.certificates import Authority
from tests.interop.servers import ServerFailed
from tests.mirror.fleet import test_store as contract
from tests.mirror.fleet.etcd_server import EtcdCluster, EtcdServer, TlsFiles
from tests.mirror.fleet.workers import offer_of, untold

INSTALLED = Path("/usr/bin/etcd")
LINKS = ("red", "green", "blue", "grey")
SETTINGS = FleetSettings(lease_seconds=2, settle_seconds=0.2, retry_seconds=0.1)
WAIT_S = 180.0


@pytest.fixture(scope="module")
def etcd_34(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """That of Debian."""
    if not INSTALLED.exists():
        raise ServerFailed(f"{INSTALLED} is missing; run: make etcd")
    assert "Version: 3.4" in subprocess.run([INSTALLED, "--version"], capture_output=True, text=True, check=True).stdout
    with closing(EtcdServer(tmp_path_factory.mktemp("etcd34"), 300, program=INSTALLED)) as server:
        server.start()
        yield server


@pytest.fixture
def place(etcd_34: EtcdServer) -> Iterator[contract.Real]:
    yield contract.Real(etcd_34)
    etcd_34.start()
    etcd_34.empty(contract.PREFIX)


test_34_commits = contract.test_a_commit_is_carried_out_whole_or_not_at_all
test_34_values = contract.test_a_commit_can_ask_for_values
test_34_watches = contract.test_a_watch_tells_every_change_behind_a_revision
test_34_forgets = contract.test_a_watch_that_asks_for_what_is_forgotten_says_so
test_34_leases = contract.test_a_lease_that_the_store_ended_is_over
test_34_is_away = contract.test_a_store_that_is_away_is_unreachable_and_keeps_leases


@dataclass
class Worker:
    """What one runs, and how often it began something."""

    running: set[str] = field(default_factory=set)
    begun: int = 0
    may_open: Callable[[], bool] = bool


@asynccontextmanager
async def working(access: FleetAccess, name: str) -> AsyncIterator[Worker]:
    """A member of the fleet that only holds what is planned for it."""
    worker = Worker()

    async def hold(unit: Unit) -> None:
        worker.running.add(unit.link)
        worker.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            worker.running.discard(unit.link)

    clock = SystemClock()
    async with open_etcd(access, clock) as store:
        coordinator = FleetCoordinator(store, name, Current(offer_of(LINKS)), clock, untold, access.settings)
        async with coordinator.member() as member, asyncio.TaskGroup() as tasks:

            def may_open() -> bool:
                try:
                    for link in worker.running:
                        member.permit(Unit(link)).check()
                except UnitNotHeld:
                    return False
                return bool(worker.running)

            worker.may_open = may_open
            serving = tasks.create_task(serve_shares(member, hold))
            yield worker
            serving.cancel()


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"waited for {what}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def two_workers(access: FleetAccess) -> AsyncIterator[tuple[Worker, Worker]]:
    """That share the links, until nothing disturbs them."""
    async with working(access, "one") as one:
        await until(lambda: len(one.running) == 4, "the first worker to hold all")
        async with working(access, "two") as two:
            await until(lambda: len(one.running) == len(two.running) == 2, "both to hold their part")
            yield one, two


async def goes_on(workers: tuple[Worker, Worker], begun: list[int]) -> None:
    """Both are certain again of what they run, and nothing of it was begun anew."""
    await until(lambda: all(worker.may_open() for worker in workers), "both to know that they hold their part")
    assert [worker.begun for worker in workers] == begun
    assert [len(worker.running) for worker in workers] == [2, 2]


async def test_a_cluster_of_three_loses_its_leader_then_two_servers(tmp_path: Path) -> None:
    with closing(EtcdCluster(tmp_path, election_ms=500)) as cluster:
        await asyncio.to_thread(cluster.start)
        async with two_workers(cluster.access(SETTINGS)) as workers:
            begun = [worker.begun for worker in workers]
            leader = cluster.leader()
            leader.stop()
            await goes_on(workers, begun)
            await asyncio.to_thread(leader.start)
            gone = [server for server in cluster.servers if server is not leader]
            for server in gone:
                server.stop()
            await until(lambda: not any(worker.may_open() for worker in workers), "both to be in doubt")
            assert [len(worker.running) for worker in workers] == [2, 2], "what runs goes on without etcd"
            for server in gone:
                server.launch()
            await goes_on(workers, begun)
        async with working(cluster.access(SETTINGS), "three") as three:
            await until(lambda: len(three.running) == 4, "another worker to take all that was let go")


def make_certificates(folder: Path) -> TlsFiles:
    """A CA, and what it signed for a server at 127.0.0.1 and for a client."""
    authority = Authority(folder)
    server, client = authority.sign("server"), authority.sign("client")
    return TlsFiles(authority.certificate, server.certificate, server.key, client.certificate, client.key)


async def test_tls_with_a_clients_certificate(tmp_path: Path) -> None:
    tls = make_certificates(tmp_path)
    with closing(EtcdServer(tmp_path / "etcd", 300, tls=tls)) as server:
        await asyncio.to_thread(server.start)
        access = replace(
            server.access(SETTINGS),
            tls_ca_file=str(tls.ca),
            tls_cert_file=str(tls.client_cert),
            tls_key_file=str(tls.client_key),
        )
        async with two_workers(access) as workers:
            begun = [worker.begun for worker in workers]
            server.stop()
            await asyncio.to_thread(server.start)
            await goes_on(workers, begun)
        (tmp_path / "strange").mkdir()
        strange = make_certificates(tmp_path / "strange")
        certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
        shutil.copy(strange.client_cert, certificate)
        shutil.copy(strange.client_key, key)
        mine = replace(access, tls_cert_file=str(certificate), tls_key_file=str(key))
        async with open_etcd(mine, SystemClock()) as store:
            with pytest.raises(StoreUnreachable):
                await store.read("/")
            shutil.copy(tls.client_cert, certificate)
            shutil.copy(tls.client_key, key)
            with pytest.raises(StoreUnreachable):  # what failed was made before
                await store.read("/")
            await store.read("/")
        for without in (server.access(), replace(access, tls_cert_file=None, tls_key_file=None)):
            async with open_etcd(without, SystemClock()) as store:
                with pytest.raises(StoreUnreachable, match=str(server.address)):
                    await store.read("/")


async def test_a_user_with_no_more_rights_than_the_fleets_prefix(tmp_path: Path) -> None:
    with closing(EtcdServer(tmp_path / "etcd", 300)) as server:
        await asyncio.to_thread(server.start)
        for line in (
            "user add root:secret",
            "role add root",
            "user grant-role root root",
            "role add fleet",
            f"role grant-permission fleet --prefix=true readwrite {SETTINGS.prefix}",
            "user add farshore:word",
            "user grant-role farshore fleet",
            "user add guest:word",
            "auth enable",
        ):
            server.ctl(*line.split())
        password = tmp_path / "password"
        password.write_text("word\n")
        access = replace(server.access(SETTINGS), user="farshore", password=Secret(password))
        async with two_workers(access) as workers:
            begun = [worker.begun for worker in workers]
            await goes_on(workers, begun)
            server.ctl("--user", "root:secret", "role", "add", "other")  # every login of before is refused from now on
            await asyncio.sleep(1.5 * SETTINGS.lease_seconds)
            await goes_on(workers, begun)
            server.ctl("--user", "root:secret", "user", "passwd", "farshore", "--interactive=false", stdin="another\n")
            password.write_text("another\n")
            await asyncio.sleep(1.5 * SETTINGS.lease_seconds)
            await goes_on(workers, begun)
            server.stop()  # it forgets who logged in
            await asyncio.to_thread(server.start)
            await asyncio.sleep(1.5 * SETTINGS.lease_seconds)
            await goes_on(workers, begun)
            server.ctl("--user", "root:secret", "user", "revoke-role", "farshore", "fleet")
            await until(lambda: not any(worker.may_open() for worker in workers), "both to be refused")
            assert [len(worker.running) for worker in workers] == [2, 2], "what runs goes on without rights"
            server.ctl("--user", "root:secret", "user", "grant-role", "farshore", "fleet")
            await until(lambda: sum(map(len, (one.running for one in workers))) == 4, "all to run")
            await until(lambda: all(worker.may_open() for worker in workers), "both to be let in again")
        wrong: tuple[tuple[FleetAccess, type[FleetError]], ...] = (
            (replace(access, password=Secret(environment="PATH")), StoreRefused),
            (replace(access, password=Secret(tmp_path / "none")), StoreRefused),
            (replace(access, user="guest"), StoreRefused),
            (server.access(SETTINGS), StoreRefused),
        )
        for refused, error in wrong:
            with pytest.raises(error):
                async with working(refused, "three") as three:
                    await until(lambda three=three: bool(three.running), "nothing")  # type: ignore[misc]
