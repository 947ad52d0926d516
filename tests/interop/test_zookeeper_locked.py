"""A real ZooKeeper behind TLS and a login: who gets in, and whom what brokers make there belongs to."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from broker.base.clock import SystemClock
from broker.client.security.settings import Secret, Tls
from broker.cluster.zookeeper.access import UNLOCKED, ZooKeeperAccess
from broker.cluster.zookeeper.errors import NotAllowed, ZooKeeperUnreachable
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.session import Create
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.config import BrokerConfig
from broker.server import serving
from deploy.cli.cluster import missing_zookeeper
from deploy.tools.java import require_java
from deploy.tools.zookeeper import class_path
from tests.broker.wire_client import connect
from tests.certificates import Authority, KeyPair
from tests.interop.servers import ZooKeeperServer
from tests.ports import free_port

SESSION_MS, CONNECT_MS = 6000, 20_000
PASSWORD = "zoo-secret-4Kp"


class LockedZooKeeper(ZooKeeperServer):
    """With a port for TLS beside the one that says whether it serves. Clients show certificates there."""

    def __init__(self, folder: Path, authority: Authority, pair: KeyPair) -> None:
        super().__init__(folder)
        self.secure = f"127.0.0.1:{free_port()}"
        self._stores = (f"ssl.keyStore.location={pair.both}", f"ssl.trustStore.location={authority.certificate}")

    def command(self) -> Sequence[str]:
        line = super().command()
        more = (
            f"secureClientPort={self.secure.split(':')[1]}",
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.type=PEM",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
            *self._stores,
        )
        with self.member.config.open("a") as config:
            config.write("\n".join(more) + "\n")
        return line


Opened = Callable[..., Awaitable[KazooZooKeeper]]


class Stage:
    """The server, and those who reach it."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.other = Authority(folder / "ca"), Authority(folder / "other", "other")
        self.own = self.authority.sign("broker")
        self.server = LockedZooKeeper(folder / "zookeeper", self.authority, self.authority.sign("zookeeper"))
        (folder / "password").write_text(PASSWORD)
        self.password = Secret(file=folder / "password")
        self.wrong = folder / "wrong"
        self.wrong.write_text("another")

    def tls(self, own: KeyPair | None = None, ca: Path | None = None) -> Tls:
        own = own or self.own
        return Tls(ca or self.authority.certificate, own.certificate, own.key)

    @property
    def access(self) -> ZooKeeperAccess:
        return ZooKeeperAccess(self.tls(), "farshore", self.password)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("locked"))
    with made.server:
        yield made


@asynccontextmanager
async def session(
    servers: str, access: ZooKeeperAccess = UNLOCKED, connect_ms: int = CONNECT_MS
) -> AsyncIterator[KazooZooKeeper]:
    zk = await KazooZooKeeper.connect(servers, SESSION_MS, SystemClock(), connect_ms, access)
    try:
        yield zk
    finally:
        await zk.close()


async def test_much_passes_by_tls_in_either_direction(stage: Stage) -> None:
    """Also many answers that come in one record."""
    async with session(f"{stage.server.secure}/much", stage.access) as zk:
        data = bytes(range(256)) * 400
        await zk.create("/large", data)
        assert (await zk.get("/large"))[0] == data
        async with asyncio.timeout(SESSION_MS / 1000):
            for _ in range(6):
                await asyncio.gather(*(zk.exists("/large") for _ in range(200)))


async def test_who_shows_no_certificate_or_a_strange_one_gets_no_session_and_reads_why(stage: Stage) -> None:
    stranger = stage.other.sign("stranger")
    for tls in (Tls(stage.authority.certificate), stage.tls(stranger)):
        with pytest.raises(ZooKeeperUnreachable, match="no session with ZooKeeper"):
            async with session(stage.server.secure, ZooKeeperAccess(tls), 1000):
                pass
    with pytest.raises(ZooKeeperUnreachable, match=r"TLS with 127\.0\.0\.1:.*certificate"):
        async with session(stage.server.secure, ZooKeeperAccess(stage.tls(ca=stage.other.certificate)), 1000):
            pass
    other_name = f"localhost:{stage.server.secure.split(':')[1]}"
    with pytest.raises(ZooKeeperUnreachable, match=r"TLS with localhost:.*Hostname mismatch"):
        async with session(other_name, ZooKeeperAccess(stage.tls()), 1000):
            pass


async def test_what_is_made_belongs_to_who_made_it_alone(stage: Stage) -> None:
    servers = f"{stage.server.secure}/owned"
    async with session(servers, stage.access) as zk:
        await zk.create("/a", b"secret")
        await zk.multi([Create("/a/b", b"", ephemeral=True), Create("/a/c", b"", sequence=True)])
    wrong = ZooKeeperAccess(stage.tls(), "farshore", Secret(file=stage.wrong))
    for servers_of, access in (
        (servers, wrong),
        (servers, ZooKeeperAccess(stage.tls())),
        (f"{stage.server.address}/owned", UNLOCKED),
    ):
        async with session(servers_of, access) as other:
            for asked in (other.get("/a"), other.children("/a"), other.set("/a", b"x"), other.create("/d")):
                with pytest.raises(NotAllowed, match="ZooKeeper lets only others do that") as refused:
                    await asked
                assert "zookeeper_security" in refused.value.hint
    async with session(servers, stage.access) as zk:
        assert (await zk.get("/a"))[0] == b"secret"


async def test_a_chroot_that_is_there_needs_no_right_to_what_it_is_in(stage: Stage) -> None:
    """An operator gave the brokers a place below one of his own."""

    def given() -> None:
        client = KazooClient(stage.server.address)
        client.start()
        with closing(client):
            client.create("/given", acl=[make_digest_acl("operator", "his-own", all=True), *READ_ACL_UNSAFE])
            client.add_auth("digest", "operator:his-own")
            client.create("/given/north", acl=[make_digest_acl("farshore", PASSWORD, all=True)])
            client.stop()

    await asyncio.to_thread(given)
    async with session(f"{stage.server.secure}/given/north", stage.access) as zk:
        await zk.create("/a", b"secret")
        assert (await zk.get("/a"))[0] == b"secret"
    with pytest.raises(NotAllowed, match="/given/south: ZooKeeper lets only others do that"):
        async with session(f"{stage.server.secure}/given/south", stage.access):
            pass


async def test_a_broker_works_by_it_and_leaves_nothing_to_others(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"zookeeper": f"{stage.server.secure}/cluster", "zookeeper_access": stage.access}
    settings: dict[str, Any] = {"listen_port": 0, "zookeeper_session_timeout_ms": SESSION_MS, **given}
    with caplog.at_level(logging.WARNING):
        async with serving(BrokerConfig(data_dir=tmp_path / "one", **settings)) as server:
            async with connect(server.address) as client:
                await client.create_topic("t", 3)
            found = await asyncio.to_thread(acls_of, stage, "/cluster")
            assert "/cluster/brokers/topics/t/partitions/0/state" in found
            assert "/cluster/brokers/ids/1" in found
            assert {who for owners in found.values() for who in owners} == {"digest:farshore"}
        wrong = ZooKeeperAccess(stage.tls(), "farshore", Secret(file=stage.wrong))
        with pytest.raises(NotAllowed):
            async with serving(BrokerConfig(data_dir=tmp_path / "two", **{**settings, "zookeeper_access": wrong})):
                pass
    assert PASSWORD not in caplog.text
    assert "from before there was a login" not in caplog.text
    assert await missing_zookeeper(f"{stage.server.secure}/cluster", access=stage.access) is None


async def test_znodes_from_before_the_login_are_told_and_closed_as_the_docs_say(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def opened(servers: str, access: ZooKeeperAccess) -> None:
        def sessions() -> Awaitable[KazooZooKeeper]:
            return KazooZooKeeper.connect(servers, SESSION_MS, SystemClock(), CONNECT_MS, access)

        await (await ZooKeeperMetadataStore.open(sessions, SystemClock())).close()

    await opened(f"{stage.server.address}/older", UNLOCKED)
    assert "from before there was a login" not in caplog.text
    await opened(f"{stage.server.secure}/older", stage.access)
    assert "from before there was a login" in caplog.text
    caplog.clear()
    await zk_cli(stage, f"addauth digest farshore:{PASSWORD}", "setAcl -R /older auth:farshore:cdrwa")
    await opened(f"{stage.server.secure}/older", stage.access)
    assert "from before there was a login" not in caplog.text
    found = await asyncio.to_thread(acls_of, stage, "/older")
    assert {who for owners in found.values() for who in owners} == {"digest:farshore"}
    assert "/older/brokers/topics" in found


async def test_another_password_is_given_to_all_znodes_as_the_docs_say(stage: Stage) -> None:
    async def opened(password: Path) -> None:
        def sessions() -> Awaitable[KazooZooKeeper]:
            access = ZooKeeperAccess(stage.tls(), "farshore", Secret(file=password))
            return KazooZooKeeper.connect(servers, SESSION_MS, SystemClock(), CONNECT_MS, access)

        await (await ZooKeeperMetadataStore.open(sessions, SystemClock())).close()

    servers, old, new = f"{stage.server.secure}/rotated", stage.wrong.with_name("password"), stage.wrong
    await opened(old)
    with pytest.raises(NotAllowed):
        await opened(new)
    proof = b64encode(sha1(f"farshore:{new.read_text()}".encode()).digest()).decode()
    both = [f"addauth digest farshore:{password}" for password in (PASSWORD, new.read_text())]
    await zk_cli(stage, *both, f"setAcl -R /rotated digest:farshore:{proof}:cdrwa")
    await opened(new)
    with pytest.raises(NotAllowed):
        await opened(old)


async def zk_cli(stage: Stage, *typed: str) -> None:
    """ZooKeeper's own tool."""
    tool = [require_java(), "-cp", class_path(), "org.apache.zookeeper.ZooKeeperMain", "-server", stage.server.address]
    lines = "\n".join((*typed, "quit", ""))
    await asyncio.to_thread(partial(subprocess.run, tool, input=lines, text=True, capture_output=True, check=True))


def acls_of(stage: Stage, root: str) -> dict[str, set[str]]:
    """Who may do anything to each znode, as kazoo reads it."""
    client = KazooClient(stage.server.address, auth_data=[("digest", f"farshore:{PASSWORD}")])
    client.start()
    found: dict[str, set[str]] = {}
    with closing(client):
        paths = [root]
        while paths:
            path = paths.pop()
            entries, _ = client.get_acls(path)
            found[path] = {f"{each.id.scheme}:{each.id.id.split(':')[0]}" for each in entries}
            paths += [f"{path}/{child}" for child in client.get_children(path)]
        client.stop()
    return found
