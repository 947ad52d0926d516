"""ACLs in ZooKeeper where hands were at it, and what its names cannot hold."""

from __future__ import annotations

import random

import pytest

from broker.access.acls import AclBinding, AclInvalid, ResourcePattern
from broker.access.authorizer import EVERYTHING, Authorizer
from broker.access.known_acls import KnownAcls
from broker.cluster.metadata import UNWRITTEN, Change, ChangeKind, PatternAcls
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper.acls import PATTERNS_AT_ONCE, decode_change
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.wire.vocabulary import AclOperation, AclPattern, AclPermission, AclResource
from tests.broker.clock import ManualClock
from tests.broker.cluster.contract import next_change
from tests.broker.cluster.fake_zookeeper import FakeZooKeeper, Loss

FLIGHTS = ResourcePattern(AclResource.TOPIC, "flights")
EVERY_TOPIC = ResourcePattern(AclResource.TOPIC, "*")
READ = AclBinding(*EVERY_TOPIC, "User:shop", "*", AclOperation.READ, AclPermission.ALLOW)
PATH = "/kafka-acl/Topic/flights"


class Cluster:
    """A store over a ZooKeeper that hands reach, too."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.zookeeper = FakeZooKeeper(self.clock)
        self.hand = self.zookeeper.connect()

    async def store(self) -> ZooKeeperMetadataStore:
        async def connect() -> object:
            return self.zookeeper.connect()

        return await ZooKeeperMetadataStore.open(connect, self.clock)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":7,"permissionType":"Allow","operation":"Read","host":"*"}]}',
    ],
)
async def test_what_cannot_be_read_denies_until_it_is_mended(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    store = await cluster.store()
    authorizer = Authorizer({"User:owner"}, allows_without_acls=True, clock=cluster.clock)
    known = KnownAcls(store, authorizer, cluster.clock)
    await store.set_acls({EVERY_TOPIC: PatternAcls(frozenset({READ}))})
    await known.learn()
    shop = known.rights("User:shop", "10.0.0.1")
    assert shop.may(AclOperation.READ, AclResource.TOPIC, "flights")
    await cluster.hand.create(PATH, data)
    assert (await store.acls([FLIGHTS]))[FLIGHTS].damage
    await known.learn([FLIGHTS])
    assert not shop.may(AclOperation.READ, AclResource.TOPIC, "flights")
    assert shop.may(AclOperation.READ, AclResource.TOPIC, "orders")
    assert known.rights("User:owner", "10.0.0.1") is EVERYTHING
    assert PATH in caplog.text
    with pytest.raises(MetadataUnreadable, match="flights"):
        await known.change([FLIGHTS], lambda _, acls: acls | {READ})
    await cluster.hand.delete(PATH)
    await known.learn()
    assert shop.may(AclOperation.READ, AclResource.TOPIC, "flights")


@pytest.mark.parametrize("name", ["a/b", ".", "..", "a\x00b", "\ud800"])
async def test_names_that_no_znode_has_are_refused(name: str) -> None:
    store = await Cluster().store()
    group = ResourcePattern(AclResource.GROUP, name)
    one = AclBinding(*group, "User:shop", "*", AclOperation.READ, AclPermission.ALLOW)
    with pytest.raises(AclInvalid, match="ZooKeeper can keep no ACLs"):
        await store.set_acls({group: PatternAcls(frozenset({one}))})
    assert await store.acls([group]) == {group: PatternAcls()}
    dotted = ResourcePattern(AclResource.GROUP, "a.b..c")
    await store.set_acls({dotted: PatternAcls(frozenset({one._replace(resource_name="a.b..c")}))})
    assert (await store.acls([dotted]))[dotted].version != UNWRITTEN


MATCHING = b'{"version":1,"resourceType":"TOPIC","name":"x","patternType":"MATCH"}'


@pytest.mark.parametrize(
    ("folder", "data"),
    [
        ("/kafka-acl-changes", b"nonsense"),
        ("/kafka-acl-changes", b"TOPIC:"),
        ("/kafka-acl-changes", b"THING:x"),
        ("/kafka-acl-changes", bytes([255])),
        ("/kafka-acl-extended-changes", b"nonsense"),
        ("/kafka-acl-extended-changes", MATCHING),
        ("/kafka-acl-extended-changes", MATCHING.replace(b"MATCH", b"7")),
    ],
)
async def test_a_notification_that_says_nothing_has_all_read_again(folder: str, data: bytes) -> None:
    cluster = Cluster()
    store = await cluster.store()
    async with store.watch(ChangeKind.ACLS) as changes:
        await cluster.hand.create(f"{folder}/acl_changes_", data, sequence=True)
        assert await next_change(changes) == Change(ChangeKind.ACLS)


async def test_acls_of_what_is_not_served_here_are_passed_over() -> None:
    """As Kafka makes them of users and delegation tokens."""
    cluster = Cluster()
    store = await cluster.store()
    data = (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"CreateTokens","host":"*"}]}'
    )
    await cluster.hand.create("/kafka-acl/User/b", data)
    assert await store.acls() == {}
    user = ResourcePattern(AclResource.USER, "b")
    assert await store.acls([user]) == {user: PatternAcls()}


def test_notifications_are_read_as_kafka_writes_them() -> None:
    literal = decode_change(b"Topic:a:b", "/kafka-acl-changes/acl_changes_0000000000")
    assert ResourcePattern.of_text(literal) == ResourcePattern(AclResource.TOPIC, "a:b")
    data = b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx","patternType":"PREFIXED"}'
    extended = decode_change(data, "/kafka-acl-extended-changes/acl_changes_0000000000")
    assert ResourcePattern.of_text(extended) == ResourcePattern(AclResource.TRANSACTIONAL_ID, "tx", AclPattern.PREFIXED)


async def test_the_folders_of_acls_are_put_back_where_a_hand_removed_them() -> None:
    cluster = Cluster()
    store = await cluster.store()
    await cluster.hand.delete("/kafka-acl/Topic")
    await store.set_acls({EVERY_TOPIC: PatternAcls(frozenset({READ}))})
    assert (await store.acls())[EVERY_TOPIC].bindings == {READ}


def acls_of(number: int, *operations: AclOperation) -> tuple[ResourcePattern, frozenset[AclBinding]]:
    pattern = ResourcePattern(AclResource.TOPIC, f"topic-{number}")
    allow = AclPermission.ALLOW
    return pattern, frozenset(AclBinding(*pattern, "User:shop", "*", one, allow) for one in operations)


async def test_of_many_patterns_only_those_are_refused_that_others_changed() -> None:
    store = await Cluster().store()
    count = PATTERNS_AT_ONCE * 2 + 10
    made = dict(acls_of(number, AclOperation.READ) for number in range(count))
    assert await store.set_acls({pattern: PatternAcls(acls) for pattern, acls in made.items()}) == frozenset()
    known = await store.acls()
    taken = acls_of(PATTERNS_AT_ONCE + 1, AclOperation.WRITE)
    await store.set_acls({taken[0]: known[taken[0]]._replace(bindings=taken[1])})
    wanted = dict(acls_of(number, AclOperation.ALTER) for number in range(count))
    changed = {pattern: known[pattern]._replace(bindings=acls) for pattern, acls in wanted.items()}
    assert await store.set_acls(changed) == {taken[0]}
    found = {pattern: acls.bindings for pattern, acls in (await store.acls()).items()}
    assert found == {**wanted, taken[0]: taken[1]}


@pytest.mark.parametrize("seed", range(20))
async def test_what_a_broken_connection_leaves_open_is_found_out(seed: int) -> None:
    cluster = Cluster()
    store = await cluster.store()
    chance = random.Random(seed)
    cluster.zookeeper.losses = lambda session, request, path: (
        chance.choice(list(Loss)) if session is not cluster.hand and chance.random() < 0.3 else None
    )
    made = dict(acls_of(number, AclOperation.READ) for number in range(5))
    assert await store.set_acls({pattern: PatternAcls(acls) for pattern, acls in made.items()}) == frozenset()
    known = await store.acls()
    assert {pattern: acls.bindings for pattern, acls in known.items()} == made
    gone = {pattern: acls._replace(bindings=frozenset()) for pattern, acls in known.items()}
    assert await store.set_acls(gone) == frozenset()
    assert await store.acls() == {}
