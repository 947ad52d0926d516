"""What a freeze by ACLs relies on, of Apache Kafka 3.9 and 4.3, of our broker, and of the stand-in for both alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.client.acls import (
    WriteDenial,
    await_denials,
    cluster_operations,
    create_denials,
    delete_denials,
    known_denials,
    writable_topics,
)
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import KafkaError
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.client.security.settings import Mechanism, Sasl, Secret, Security
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import CLUSTER_OPERATIONS, AclOperation, AclPermission, TopicPartition
from failover.freezing.denials import mark_of
from tests.broker.running import running_server
from tests.failover.acl_site import Authorizer, authorized
from tests.interop.locked import PASSWORD, USER, AuthorizingBroker, AuthorizingKafkaServer

LIMITED = frozenset({AclOperation.DESCRIBE})
IMPATIENT = ClientLimits(retry_timeout_ms=1_000)


@dataclass(frozen=True)
class Authorizing:
    """A site with an authorizer, as each user reaches it."""

    site: Callable[[str], Site]

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[Cluster]:
        async with Cluster(self.site(user), client_id=user, limits=IMPATIENT) as cluster:
            yield cluster


@contextmanager
def real(of: str, folder: Path) -> Iterator[Authorizing]:
    made = AuthorizingBroker(folder) if of == "farshore" else AuthorizingKafkaServer(of, folder)
    with made as server:
        (folder / "secret").write_text(PASSWORD)

        def site(user: str) -> Site:
            login = Sasl(Mechanism.PLAIN, user, Secret(file=folder / "secret"))
            return Site("east", server.at("WORDS"), security=Security(None, login))

        yield Authorizing(site)


@asynccontextmanager
async def standing_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Authorizing]:
    authorizer = Authorizer(operations={"User:limited": LIMITED})
    async with running_server(folder) as server:
        with authorized(monkeypatch, {server.broker: authorizer}):
            yield Authorizing(lambda user: Site("east", server.address))


@pytest.mark.parametrize("of", ["stand-in", "farshore", "3.9.1", "4.3.0"])
async def test_denials_of_a_topic(of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if of == "stand-in":
        async with standing_in(tmp_path, monkeypatch) as site:
            await hold(site)
        return
    with real(of, tmp_path) as site:
        async with site.of(USER) as own:
            await allow(await own.any_connection())
        await hold(site)


async def allow(line: Connection) -> None:
    """The shop writes to every topic, as a locked cluster has to say; who is limited may look at ACLs."""
    topic, cluster, literal = 2, 4, 3
    write = AclCreation(topic, "*", literal, "User:shop", "*", AclOperation.WRITE, AclPermission.ALLOW)
    look = AclCreation(cluster, "kafka-cluster", literal, "User:limited", "*", AclOperation.DESCRIBE, 3)
    answer = await line.request(CreateAclsRequest([write, look]))
    assert [result.error_code for result in answer.results] == [0, 0]


async def hold(site: Authorizing) -> None:
    flights, orders = WriteDenial("flights", "User:*"), WriteDenial("orders", "User:shop")
    odd = WriteDenial("flights", 'User:CN=a/b,OU="x y":z')
    async with site.of(USER) as own, site.of("shop") as shop, site.of("limited") as limited:
        assert not await create_topics(own, [NewTopic("flights", 1), NewTopic("orders", 1)])
        assert (await known_denials(own)).by_all == frozenset()
        assert await writes(shop, "flights") is None
        mark = mark_of(flights, "switchover-east-west-20260101T000000")

        await create_denials(own, {flights, orders, odd, mark})
        await create_denials(own, {flights})  # again: an answer may be lost
        await await_denials(own, {flights, orders, odd, mark})
        assert (await known_denials(own)).by_all == {flights, orders, odd, mark}
        assert await writes(shop, "flights") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await writes(shop, "orders") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await writes(own, "flights") is None, "a super user is not kept out"
        assert {*(await writable_topics(own, ["flights", "orders"])).values()} == {frozenset({"flights", "orders"})}
        assert {*(await writable_topics(shop, ["flights", "orders", "none"])).values()} == {frozenset()}

        await delete_denials(own, {flights, orders, WriteDenial("nothing", "User:*")})
        await await_denials(own, {mark}, {flights, orders})
        assert (await known_denials(own)).by_all == {odd, mark}, "a mark denies nobody, and is not taken with the other"
        assert await writes(shop, "flights") is None
        await delete_denials(own, {mark, odd})
        await await_denials(own, (), {mark, odd})

        assert await cluster_operations(own) == CLUSTER_OPERATIONS
        assert await cluster_operations(limited) == LIMITED
        assert (await known_denials(limited)).by_all == frozenset()
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await create_denials(limited, {flights})
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await delete_denials(limited, {flights})


async def writes(cluster: Cluster, topic: str) -> ErrorCode | None:
    """Why it is not taken; None: it is."""
    try:
        await append(cluster, TopicPartition(topic, 0), encode_batch([Record(0, 1_700_000_000_000, None, b"x")]))
    except KafkaError as error:
        return error.code
    return None
