"""The metadata store on the fake ZooKeeper, with its faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from broker.cluster.metadata import Change, ChangeKind, ConfigResource, Configs, TopicState
from broker.cluster.metadata_store import ControllerMoved, MetadataConflict, MetadataStore, MetadataUnreadable
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import SessionExpired
from broker.cluster.zookeeper.kept_session import SEEN_SAVED_S
from broker.cluster.zookeeper.session import Create, SetData
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.cluster.contract import (
    LED_BY_ONE,
    WAIT_S,
    MetadataStoreContract,
    Open,
    elected,
    next_change,
    registration,
    topic,
)
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper, Loss
from tests.broker.cluster.hands_contract import HandsContract


class Clock(ManualClock):
    """Pauses are over at once; what is done every so often is not done."""

    async def sleep(self, seconds: float) -> None:
        if seconds >= SEEN_SAVED_S:
            await asyncio.Event().wait()
        self.advance(int(seconds * 1000))
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> FakeZooKeeper:
    return FakeZooKeeper(clock)


async def opened(server: FakeZooKeeper) -> ZooKeeperMetadataStore:
    async def connect() -> FakeSession:
        return server.connect()

    return await ZooKeeperMetadataStore.open(connect, server.clock)


async def test_of_brokers_that_find_no_secret_one_makes_it_for_all(server: FakeZooKeeper) -> None:
    stores = [await opened(server) for _ in range(3)]
    (secret,) = set(await asyncio.gather(*(store.secret() for store in stores)))
    hand = server.connect()
    await hand.set("/farshore/secret", b"")
    (another,) = set(await asyncio.gather(*(store.secret() for store in stores)))
    assert len(another) == len(secret)
    assert another != secret


class TestZooKeeper(MetadataStoreContract):
    @pytest.fixture
    def open(self, server: FakeZooKeeper) -> Open:
        stores: list[MetadataStore] = []

        async def open() -> MetadataStore:
            for store in stores:
                await store.close()
            stores[:] = [await opened(server)]
            return stores[0]

        return open


class TestHands(HandsContract):
    @pytest.fixture
    async def store(self, server: FakeZooKeeper) -> ZooKeeperMetadataStore:
        return await opened(server)

    @pytest.fixture
    def hand(self, server: FakeZooKeeper) -> FakeSession:
        return server.connect()


async def test_two_brokers_elect_one_controller(server: FakeZooKeeper) -> None:
    one, two = await opened(server), await opened(server)
    results = await asyncio.gather(one.elect_controller(1), two.elect_controller(2))
    assert sorted(result is None for result in results) == [False, True]
    old = results[0] or results[1]
    assert old is not None
    winner, loser, loser_id = (one, two, 2) if results[0] else (two, one, 1)
    assert await loser.controller() == old.node_id
    async with loser.watch(ChangeKind.CONTROLLER) as changes:
        await winner.close()
        assert await next_change(changes) == Change(ChangeKind.CONTROLLER)
        new = await loser.elect_controller(loser_id)
    assert new is not None
    assert new.epoch == old.epoch + 1


async def test_the_cluster_id_is_the_first_brokers(server: FakeZooKeeper) -> None:
    stores = await asyncio.gather(opened(server), opened(server))
    assert stores[0].cluster_id == stores[1].cluster_id

    async def connect() -> FakeSession:
        return server.connect()

    with pytest.raises(MetadataUnreadable, match="not other"):
        await ZooKeeperMetadataStore.open(connect, server.clock, "other")


async def everything(store: MetadataStore, told: dict[str, object]) -> None:
    """One of each write; what it answered goes to `told`."""
    controller = await elected(store)
    made = await store.create_topic(controller, topic("t", 3))
    grown = await store.set_assignment(controller, replace(made, partitions=(*made.partitions, LED_BY_ONE)))
    states = {TopicPartition("t", i): replace(state, leader_epoch=5) for i, state in enumerate(grown.partitions)}
    written = await store.write_partition_states(controller, states)
    shrunk = {where: replace(state, isr=()) for where, state in written.states.items()}
    told["isr"] = await store.write_isr(shrunk)
    told["configs"] = await store.set_configs(ConfigResource("topics", "t"), Configs({"a": "1"}, 0))
    told["ids"] = [await store.allocate_producer_ids(1, 10), await store.allocate_producer_ids(1, 10)]
    told["taken"] = await store.take_isr_changes(controller)
    told["epoch"] = controller.epoch
    gone = await store.create_topic(controller, topic("gone", 2))
    await store.delete_topic(controller, gone)
    await store.request_preferred_elections(shrunk)
    await store.end_preferred_elections(controller)
    await store.resign_controller(controller)


async def test_where_all_is_gone_no_producer_id_is_asked_for_without_end(server: FakeZooKeeper) -> None:
    """The chroot itself was removed."""
    store = await opened(server)
    server._nodes.clear()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(MetadataUnreadable):
            await store.allocate_producer_ids(1, 10)


@pytest.mark.parametrize("seed", range(60))
async def test_lost_connections_change_nothing_of_the_outcome(server: FakeZooKeeper, seed: int) -> None:
    """Whether the server had done it or not: each write counts once, and its answer says what stands there."""
    store = await opened(server)
    chance = random.Random(seed)
    server.losses = lambda session, request, path: chance.choice(list(Loss)) if chance.random() < 0.15 else None
    told: dict[str, object] = {}
    await everything(store, told)
    server.losses = lambda session, request, path: None
    read = await store.topics()
    assert list(read) == ["t"]
    states = {TopicPartition("t", i): state for i, state in enumerate(read["t"].partitions)}
    assert told["isr"] == (states, frozenset())
    assert [(s.leader_epoch, s.isr, s.version) for s in states.values()] == [(5, (), 2)] * 4
    assert (told["configs"], read["t"].configs) == (Configs({"a": "1"}, 1), {"a": "1"})
    assert told["taken"] == states.keys()
    assert told["epoch"] == 1
    ids = told["ids"]
    assert isinstance(ids, list)
    assert not set(ids[0]) & set(ids[1])
    assert await store.topic_deletions() == set()
    assert await store.preferred_elections() == set()
    assert await store.controller() is None
    assert not [path for path in server.paths() if "gone" in path]


async def test_a_topic_half_made_waits_for_elections_and_half_deleted_is_deleted(server: FakeZooKeeper) -> None:
    store = await opened(server)
    controller = await elected(store)
    wanted = topic("t", 250)
    calls = 0

    def crash(session: FakeSession, request: str, path: str) -> Loss | None:
        nonlocal calls
        calls += request == "multi"
        if calls == 3:
            server.expire(session)
        return None

    server.losses = crash
    with pytest.raises(SessionExpired):
        await store.create_topic(controller, wanted)
    server.losses = lambda session, request, path: None
    store = await opened(server)
    controller = await elected(store)
    half = (await store.topics())["t"]
    assert [state.version for state in half.partitions] == [0] * 100 + [-1] * 150
    assert half.partitions[100].replicas == (1,)

    calls = 0
    server.losses = crash
    with pytest.raises(SessionExpired):
        await store.delete_topic(controller, half)
    server.losses = lambda session, request, path: None
    store = await opened(server)
    assert await store.topic_deletions() == {"t"}
    left: TopicState = (await store.topics())["t"]
    await store.delete_topic(await elected(store), left)
    assert await store.topics() == {}
    assert await store.topic_deletions() == set()


async def test_a_change_of_isr_that_was_overtaken_is_refused(server: FakeZooKeeper) -> None:
    leader, other = await opened(server), await opened(server)
    controller = await elected(other)
    made = await other.create_topic(controller, topic("t", 1))
    where = TopicPartition("t", 0)
    await other.write_partition_states(controller, {where: replace(made.partitions[0], leader=2, leader_epoch=1)})
    assert (await leader.write_isr({where: replace(made.partitions[0], isr=(1, 2))})).refused == {where}
    assert await other.take_isr_changes(controller) == set()


async def test_an_earlier_life_of_the_broker_is_waited_for(server: FakeZooKeeper, clock: Clock) -> None:
    before, after = await opened(server), await opened(server)
    first = await before.register_broker(registration(1))
    waiting = asyncio.create_task(after.register_broker(registration(1, "moved")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    await before.close()
    async with asyncio.timeout(WAIT_S):
        assert await waiting > first
    assert (await after.brokers())[1].registration == registration(1, "moved")


async def test_after_its_session_a_broker_is_registered_anew_and_told(server: FakeZooKeeper, clock: Clock) -> None:
    sessions: list[FakeSession] = []

    async def connect() -> FakeSession:
        sessions.append(server.connect())
        return sessions[-1]

    store = await ZooKeeperMetadataStore.open(connect, clock)
    epoch = await store.register_broker(registration(1))
    old = await elected(store)
    other = await opened(server)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(store.run())
        async with store.watch(ChangeKind.SESSION, ChangeKind.TOPICS) as changes:
            sessions[0].cut()
            assert store.alive_until > clock.boottime()
            clock.advance(4600)
            server.tick()
            assert store.alive_until < clock.boottime(), "it stops before the session is over"
            assert await other.controller() == 1
            clock.advance(1400)
            server.tick()
            assert await other.controller() is None
            new = await elected(other, 2)
            made = await other.create_topic(new, topic("t"))
            sessions[0].mend()
            with pytest.raises(SessionExpired):
                await store.write_partition_states(old, {TopicPartition("t", 0): made.partitions[0]})
            told = {await next_change(changes), await next_change(changes)}
            assert told == {Change(ChangeKind.SESSION), Change(ChangeKind.TOPICS)}
        assert (await other.brokers())[1].epoch > epoch
        assert store.alive_until > clock.boottime()
        with pytest.raises(ControllerMoved):
            await store.write_partition_states(old, {TopicPartition("t", 0): made.partitions[0]})
        with pytest.raises(MetadataConflict):
            await store.create_topic(new, topic("t"))
        running.cancel()


async def test_a_new_cluster_has_kafkas_znodes(server: FakeZooKeeper) -> None:
    await opened(server)
    assert {*layout.PERSISTENT_PATHS, layout.CLUSTER_ID, layout.CONTROLLER_EPOCH} < set(server.paths())


async def test_a_controller_that_learns_late_of_its_election_has_the_epoch_of_it(server: FakeZooKeeper) -> None:
    """The server that is asked again may lag behind, and learn of the election between two questions."""
    sessions: list[FakeSession] = []

    async def connect() -> FakeSession:
        sessions.append(server.connect())
        return sessions[-1]

    store = await ZooKeeperMetadataStore.open(connect, server.clock)
    asked = 0

    def late(session: FakeSession, request: str, path: str) -> Loss | None:
        nonlocal asked
        asked += 1
        if asked == 2:
            made = Create(layout.CONTROLLER, layout.encode_controller(1, 0), ephemeral=True)
            server.write(session, [made, SetData(layout.CONTROLLER_EPOCH, layout.encode_controller_epoch(1))])
        return None

    server.losses = late
    controller = await elected(store)
    assert (controller.epoch, controller.version) == (1, 1)
    await store.create_topic(controller, topic("t"))


async def test_broken_connections_do_not_leave_more_and_more_watches(server: FakeZooKeeper) -> None:
    store, other = await opened(server), await opened(server)
    controller = await elected(other)
    async with store.watch(ChangeKind.ASSIGNMENT) as changes:
        for index in range(3):
            await other.create_topic(controller, topic(f"t{index}"))
            assert await next_change(changes) == Change(ChangeKind.ASSIGNMENT, f"t{index}")
        chance = random.Random(1)
        server.losses = lambda session, request, path: Loss.AFTER if chance.random() < 0.3 else None
        made = (await other.topics(["t0"]))["t0"]
        for _ in range(20):
            made = await other.set_assignment(controller, made)
            while await next_change(changes) != Change(ChangeKind.ASSIGNMENT, "t0"):
                continue
        server.losses = lambda session, request, path: None
        for _ in range(3):
            made = await other.set_assignment(controller, made)
            await settled(changes)
        before = server.requests
        made = await other.set_assignment(controller, made)
        assert await settled(changes) == [Change(ChangeKind.ASSIGNMENT, "t0")]
        assert server.requests - before == 2, "the change itself and one watch"


async def test_what_a_server_that_lags_has_not_heard_of_is_not_said_to_be_missing(server: FakeZooKeeper) -> None:
    """A coordinator forgets the offsets of topics that are gone, and a transaction needs no marker in them."""
    session = server.connect()

    async def connect() -> FakeSession:
        return session

    store, other = await ZooKeeperMetadataStore.open(connect, server.clock), await opened(server)
    session.lag()
    controller = await elected(other)
    made = await other.create_topic(controller, topic("t"))
    assert await store.topics(["t", "none"]) == {"t": made}
    session.lag()
    await other.resign_controller(controller)
    later = await elected(other)
    assert await store.controller_epoch() == later.epoch == controller.epoch + 1


async def settled(changes: AsyncIterator[Change]) -> list[Change]:
    """All that is told until nothing more is."""
    told: list[Change] = []
    while True:
        waiting = asyncio.ensure_future(anext(changes))
        for _ in range(50):
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            return told
        told.append(waiting.result())


@pytest.mark.parametrize(
    "path", ["/brokers/topics/bad", "/brokers/topics/bad/partitions/1/state", "/config/topics/bad"]
)
async def test_a_topic_that_cannot_be_read_stops_no_other(server: FakeZooKeeper, path: str) -> None:
    store = await opened(server)
    controller = await elected(store)
    for name in ("bad", "good"):
        await store.create_topic(controller, topic(name))
    whole = await store.topics()
    await server.connect().set(path, b"{")
    found = await store.topics()
    assert found["good"] == whole["good"]
    assert f"znode {path} cannot be read" in found["bad"].damage
    assert found["bad"].partitions == ()
    states = {TopicPartition("bad", index): state for index, state in enumerate(whole["bad"].partitions)}
    read = await store.partition_states(states)
    assert read.refused == frozenset(), "they are not gone"
    assert read.states.keys() == states.keys() - ({TopicPartition("bad", 1)} if "state" in path else set())
    await store.delete_topic(controller, found["bad"])
    assert (await store.topics()).keys() == {"good"}


async def test_notifications_that_cannot_be_read_end_no_watch(
    server: FakeZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(server)
    controller = await elected(store)
    other = server.connect()
    async with store.watch(ChangeKind.CONFIGS) as changes:
        broken, _ = await other.create(layout.CONFIG_CHANGE_PREFIX, b"{", sequence=True)
        assert await next_change(changes) == Change(ChangeKind.CONFIGS), "it may be anybody's"
        assert f"znode {broken} cannot be read" in caplog.text
        await store.set_configs(ConfigResource("brokers", "1"), Configs({"a": "b"}, -1))
        assert await next_change(changes) == Change(ChangeKind.CONFIGS, "brokers/1")
    for data in (b"{", layout.encode_partitions([TopicPartition("t", 0)])):
        await other.create(layout.ISR_CHANGE_PREFIX, data, sequence=True)
    assert await store.take_isr_changes(controller) == {TopicPartition("t", 0)}
    assert await other.children(layout.ISR_CHANGES) == []
