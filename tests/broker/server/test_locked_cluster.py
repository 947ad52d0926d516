"""Three brokers that know each other by their certificates, and ask everybody else for his rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from broker.access.users import write_users
from broker.base.address import Address
from broker.client.connection import connect as dial
from broker.client.errors import ClientError
from broker.client.limits import ClientLimits
from broker.client.security.settings import PLAINTEXT, Access, Security, Tls
from broker.cluster.metadata import INTER_BROKER_LISTENER
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.server.test_authorizer import SHOP, SUPER, allow, client_of, create, delete, described
from tests.broker.server.test_logins import ALL, USERS
from tests.broker.wire_client import batch_of
from tests.certificates import Authority, KeyPair, self_signed

NODES = (1, 2, 3)
TIMEOUT_MS = 60_000


@asynccontextmanager
async def locked_cluster(folder: Path, authority: Authority, **settings: Any) -> AsyncIterator[RunningCluster]:
    brokers, file = authority.sign("broker"), folder / "users.json"
    write_users(file, USERS)
    given: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "sasl_enabled_mechanisms": ALL,
        "sasl_users_file": file,
        "authorizer_enable": True,
        "super_users": (SUPER, "User:CN=broker"),
        "security_inter_broker_protocol": "SSL",
        "ssl_certificate_file": brokers.certificate,
        "ssl_key_file": brokers.key,
        "ssl_client_ca_file": authority.certificate,
    }
    async with running_cluster(folder / "data", *NODES, **{**given, **settings}) as cluster:
        yield cluster


async def make_topic(cluster: RunningCluster, name: str) -> int:
    """With a replica at each broker -> its leader."""
    async with client_of(cluster.servers[1], "reader") as owner:
        request = CreateTopicsRequest([CreatableTopic(name, 1, len(NODES))], TIMEOUT_MS)
        made = await owner.ask(request, 7, CreateTopicsResponse)
        assert made.topics[0].error_code == 0, made
    return await cluster.led(name)


async def written(cluster: RunningCluster, topic: str, user: str = "shop") -> int:
    """By a user, to all replicas -> the error code."""
    async with client_of(cluster.servers[await cluster.led(topic)], user) as client:
        return (await client.produce(topic, batch_of("a"))).error_code


async def test_acls_that_one_broker_makes_hold_at_all(tmp_path: Path) -> None:
    async with locked_cluster(tmp_path, Authority(tmp_path / "ca")) as cluster:
        leader = await make_topic(cluster, "flights")
        assert await written(cluster, "flights", "reader") == 0, "replicas follow by their certificates"
        assert await written(cluster, "flights") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        other = next(node for node in NODES if node != leader)
        write, read_group = allow("flights", AclOperation.WRITE), allow("g", AclOperation.READ, AclResource.GROUP)
        async with client_of(cluster.servers[other], "reader") as owner:
            assert await create(owner, write, read_group) == [0, 0]
            assert await described(owner) == [write, read_group], "who made them goes by them at once"

        async def knows(node: int, *acls: object) -> bool:
            async with client_of(cluster.servers[node], "reader") as owner:
                return await described(owner) == [*acls]

        for node in NODES:
            await until(partial(knows, node, write, read_group))
        assert await written(cluster, "flights") == 0
        denied = (2, "flights", AclPattern.LITERAL, SHOP, "*", AclOperation.WRITE, AclPermission.DENY)
        async with client_of(cluster.servers[other], "reader") as owner:
            await create(owner, denied)
        await until(partial(knows, leader, denied, write, read_group))
        assert await written(cluster, "flights") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        async with client_of(cluster.servers[leader], "reader") as owner:
            assert await delete(owner, (1, None, 1, None, None, 1, AclPermission.DENY)) == [[denied]]
        assert await written(cluster, "flights") == 0
        async with client_of(cluster.servers[other]) as shop:
            asked = FindCoordinatorRequest(coordinator_keys=["g"])
            (found,) = (await shop.ask(asked, 4, FindCoordinatorResponse)).coordinators
            addresses = {server.broker.advertised_at("SASL_PLAINTEXT").port for server in cluster.servers.values()}
            assert found.port in addresses
            metadata = await shop.ask(MetadataRequest([]), 12, MetadataResponse)
            assert {each.port for each in metadata.brokers} == addresses


async def test_a_broker_that_was_away_knows_what_was_denied_before_it_serves(tmp_path: Path) -> None:
    async with locked_cluster(tmp_path, Authority(tmp_path / "ca")) as cluster:
        async with client_of(cluster.servers[1], "reader") as owner:
            await create(owner, allow("flights", AclOperation.WRITE))
        await cluster.stop(3)
        async with client_of(cluster.servers[1], "reader") as owner:
            await delete(owner, (1, None, 1, None, None, 1, 1))
        await cluster.start(3)
        async with client_of(cluster.servers[3], "reader") as owner:
            assert await described(owner) == []


async def test_a_broker_whose_session_ended_reads_them_again(tmp_path: Path) -> None:
    async with locked_cluster(tmp_path, Authority(tmp_path / "ca")) as cluster:
        write = allow("flights", AclOperation.WRITE)
        before = cluster.sessions[3]
        cluster.zookeeper.expire(before)
        async with client_of(cluster.servers[1], "reader") as owner:
            await create(owner, write)

        async def knows() -> bool:
            async with client_of(cluster.servers[3], "reader") as owner:
                return await described(owner) == [write]

        await until(knows)
        assert cluster.sessions[3] is not before


@pytest.mark.parametrize("who", ["nobody", "a stranger", "a client", "himself", "a broker that is over"])
async def test_who_is_no_broker_does_not_come_as_one(tmp_path: Path, who: str) -> None:
    authority, earlier = Authority(tmp_path / "ca"), tmp_path / "earlier"
    authority.sign("broker", days=-1)
    copytree(authority.folder, earlier)
    async with locked_cluster(tmp_path, authority) as cluster:
        endpoint = cluster.broker(1).view.brokers[2].registration.endpoint(INTER_BROKER_LISTENER)
        assert endpoint is not None
        assert endpoint.security_protocol == "SSL"
        security = PLAINTEXT
        if who != "nobody":
            pair = {
                "a stranger": lambda: Authority(tmp_path / "other").sign("shop"),
                "a client": lambda: authority.sign("shop"),
                "himself": lambda: self_signed(tmp_path / "own", "broker"),
                "a broker that is over": lambda: KeyPair(earlier / "broker.pem", earlier / "broker.key"),
            }[who]()
            security = Security(Tls(authority.certificate, pair.certificate, pair.key))
        limits = ClientLimits(connect_timeout_ms=5_000)
        access = Access("broker 2", endpoint.host, security)

        async def ask() -> None:
            connection = await dial(Address(endpoint.host, endpoint.port), client_id="x", limits=limits, access=access)
            await connection.request(MetadataRequest([]))

        with pytest.raises(ClientError):
            await ask()


async def test_a_broker_that_comes_back_to_a_locked_cluster_hears_that_its_site_lived(tmp_path: Path) -> None:
    async with locked_cluster(tmp_path, Authority(tmp_path / "ca"), site_start_frozen=True) as cluster:
        configs = cluster.broker(1).broker_configs
        thawed = configs.site.then(SiteRole.ACTIVE, "a test")
        await configs.alter(default=True, change=lambda known: {**known, **thawed.configs()})
        await cluster.stop(2)
        await cluster.start(2)
        assert cluster.broker(2).broker_configs.site == thawed
