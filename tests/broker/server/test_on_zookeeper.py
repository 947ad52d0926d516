"""One broker whose cluster's metadata is in ZooKeeper: the fake one, with its faults and a clock that tests move."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.broker import Broker
from broker.cluster.metadata_store import NodeIdTaken
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import ConnectionLost, ZooKeeperUnreachable
from broker.config import BrokerConfig
from broker.controller.requests import NewTopic
from broker.data_dir import OWNER_FILE, DataDirectory, DataDirectoryError
from broker.outside import Outside
from broker.server import serving
from broker.topics.errors import InvalidPartitions, TopicExists
from broker.wire.errors import ErrorCode
from tests.broker.cluster.fake_zookeeper import FakeSession, Loss
from tests.broker.on_zookeeper import World
from tests.broker.running import TIMEOUT_MS
from tests.broker.wire_client import WireClient, batch_of, connect, values_in

WAIT_S = 60


@pytest.fixture
def world() -> World:
    return World()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await asyncio.sleep(0)


def lost_answers(world: World) -> Callable[[FakeSession, str, str], Loss | None]:
    """Every transaction is carried out, and nobody hears of it in time."""

    def lost(session: FakeSession, request: str, path: str) -> Loss | None:
        if request != "multi":
            return None
        world.clock.advance(7000)
        return Loss.AFTER

    return lost


def heard_again(world: World) -> None:
    world.server.losses = lambda session, request, path: None
    for _ in range(2):
        world.clock.advance(1600)
        world.server.tick()


async def test_topics_are_in_zookeeper_and_there_after_a_restart(tmp_path: Path, world: World) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", 3, retention_ms="1000")
        assert (await client.produce("t", batch_of("a"))).error_code == 0
        await server.broker.controller.grow_topic("t", 4, None, TIMEOUT_MS)
        await server.broker.topic_configs.alter("t", lambda configs: {**configs, "segment.ms": "7"})
        await client.create_topic("gone", 2)
        await server.broker.controller.delete_topic("gone", TIMEOUT_MS)
        paths = world.server.paths()
        assert [path for path in paths if path.startswith("/brokers/topics/") and path.endswith("/state")] == [
            f"/brokers/topics/t/partitions/{index}/state" for index in range(4)
        ]
        assert not [path for path in paths if "gone" in path]
        assert layout.decode_configs("", world.server.read("/config/topics/t").data) == {
            "retention.ms": "1000",
            "segment.ms": "7",
        }
        registration, _ = layout.decode_broker(1, world.server.read("/brokers/ids/1").data)
        assert registration.endpoints[0].port == server.broker.advertised[1]
        topic_id = server.broker.topics["t"].topic_id
    assert not {"/brokers/ids/1", "/controller"} & set(world.server.paths())
    assert not (tmp_path / "metadata.json").exists()
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        assert server.broker.topics["t"].topic_id == topic_id
        assert [p.leader_epoch for p in server.broker.topics["t"].partitions.values()] == [1] * 4
        assert server.broker.topics["t"].partitions[0].log.config.retention_ms == 1000
        assert values_in(await client.fetch("t", 0)) == ["a"]


async def test_what_old_kafkas_or_strange_hands_wrote_of_one_topic_stops_no_start(
    tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        for name in ("good", "bad"):
            await client.create_topic(name)
            assert (await client.produce(name, batch_of(name))).error_code == 0
    hand = world.server.connect()
    whole, _ = await hand.get("/brokers/topics/bad")
    await hand.set("/brokers/topics/bad", b"{")
    await hand.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]}}')
    await hand.create(layout.partitions("old"))
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        assert values_in(await client.fetch("good", 0)) == ["good"]
        assert (await client.fetch("bad", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "topic bad is offline until the next start: znode /brokers/topics/bad cannot be read" in caplog.text
        with pytest.raises(TopicExists):
            await server.broker.controller.create_topic(NewTopic("bad", 1), TIMEOUT_MS)
        topic_id = server.broker.view.topics["old"].topic_id
        assert topic_id.int != 0
    assert layout.decode_topic("old", (await hand.get("/brokers/topics/old"))[0])[0] == topic_id
    await hand.set("/brokers/topics/bad", whole)
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        assert values_in(await client.fetch("bad", 0)) == ["bad"], "its files were not taken for leftovers"


async def test_without_its_session_a_broker_leads_nothing_and_goes_on_with_the_next(
    tmp_path: Path, world: World
) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        assert (await client.produce("t", batch_of("before"))).error_code == 0
        epoch = world.server.read("/brokers/ids/1").stat.czxid
        world.sessions[0].cut()
        assert (await client.produce("t", batch_of("in time"))).error_code == 0
        world.clock.advance(4600)
        world.server.tick()
        assert world.server.knows(world.sessions[0]), "it stopped before its session was over"
        for answer in (await client.produce("t", batch_of("late")), await client.fetch("t", 0)):
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.clock.advance(1400)
        world.server.tick()
        assert not world.server.knows(world.sessions[0])
        world.sessions[0].mend()

        async def leads() -> bool:
            world.server.tick()
            return (await client.produce("t", batch_of("after"))).error_code == 0

        await until(leads)
        assert world.server.read("/brokers/ids/1").stat.czxid > epoch
        assert values_in(await client.fetch("t", 0)) == ["before", "in time", "after"]
        await until(lambda: _elected(world))
        assert layout.decode_controller_epoch(world.server.read("/controller_epoch").data) == 2
        await client.create_topic("next")


async def test_a_broker_with_a_new_session_leads_nothing_before_it_is_ordered_to(tmp_path: Path, world: World) -> None:
    """Others may lead since its last session ended, and the controller may not reach it to say so."""
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        assert (await client.produce("t", batch_of("a"))).error_code == 0
        other = world.server.connect()
        world.server.expire(world.sessions[0])
        await other.create(layout.CONTROLLER, layout.encode_controller(2, 0), ephemeral=True)

        async def registered() -> bool:
            world.server.tick()
            return world.server.find("/brokers/ids/1") is not None and server.broker.clock.boottime() < (
                server.broker._store.alive_until
            )

        await until(registered)
        assert (await client.fetch("t", 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.produce("t", batch_of("b"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await other.close()

        async def leads() -> bool:
            world.server.tick()
            return (await client.produce("t", batch_of("c"))).error_code == 0

        await until(leads)
        assert values_in(await client.fetch("t", 0)) == ["a", "c"]


async def test_a_broker_that_wakes_from_its_machines_sleep_leads_nothing(tmp_path: Path, world: World) -> None:
    """Its monotonic clock stood still, ZooKeeper's did not."""
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        world.clock.suspend(4600)
        assert (await client.produce("t", batch_of("late"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def _elected(world: World) -> bool:
    return world.server.find("/controller") is not None


async def test_a_session_that_lived_on_leads_on(tmp_path: Path, world: World) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        world.sessions[0].cut()
        world.clock.advance(4600)
        assert (await client.produce("t", batch_of("a"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.sessions[0].mend()
        world.server.tick()
        # Late heartbeats count when a second one was answered.
        assert (await client.produce("t", batch_of("b"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.clock.advance(1600)
        world.server.tick()
        assert (await client.produce("t", batch_of("c"))).error_code == 0
        assert len(world.sessions) == 1


async def test_a_data_directory_of_another_cluster_or_broker_is_refused(tmp_path: Path, world: World) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
    another = World()
    async with another.broker(tmp_path / "another"):
        pass
    for start in (world.broker(tmp_path, node_id=2), another.broker(tmp_path)):
        with pytest.raises(DataDirectoryError, match="belongs to"):
            async with start:
                pass
    assert (tmp_path / "t-0").exists()


async def test_what_was_kept_without_zookeeper_is_not_taken_for_leftovers(tmp_path: Path, world: World) -> None:
    async with serving(BrokerConfig(tmp_path, listen_port=0)) as server, connect(server.address) as client:
        await client.create_topic("t")
    with pytest.raises(DataDirectoryError, match=r"no meta\.properties") as refused:
        async with world.broker(tmp_path):
            pass
    assert "brought over by a mirror" in refused.value.hint
    assert (tmp_path / "t-0").exists()


async def test_who_lost_the_file_that_says_whose_it_is_is_told_what_stood_in_it(tmp_path: Path, world: World) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        assert (await client.produce("t", batch_of("a"))).error_code == 0
    lost = (tmp_path / OWNER_FILE).read_text().splitlines()
    (tmp_path / OWNER_FILE).unlink()
    with pytest.raises(DataDirectoryError, match=r"no meta\.properties") as refused:
        async with world.broker(tmp_path):
            pass
    named = refused.value.hint.partition("of these lines: ")[2].partition(";")[0].split(", ")
    assert named == lost
    (tmp_path / OWNER_FILE).write_text("\n".join(named))
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        assert values_in(await client.fetch("t", 0)) == ["a"]


async def test_a_deletion_that_a_crash_cut_short_is_completed(tmp_path: Path, world: World) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", 2)
        await server.broker._store.request_topic_deletion("t")
    async with world.broker(tmp_path) as server:
        assert server.broker.topics == {}
        assert not [path for path in world.server.paths() if path.endswith("/t")]
        assert not (tmp_path / "t-0").exists()


async def test_a_creation_of_which_it_is_not_known_what_became_is_found_when_it_is_asked_for_again(
    tmp_path: Path, world: World
) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        world.server.losses = lost_answers(world)
        with pytest.raises(ConnectionLost):
            await server.broker.controller.create_topic(NewTopic("t", 2), TIMEOUT_MS)
        assert "t" not in server.broker.topics
        assert world.server.find("/brokers/topics/t") is not None
        heard_again(world)
        with pytest.raises(TopicExists):
            await server.broker.controller.create_topic(NewTopic("t", 2), TIMEOUT_MS)
        assert (await client.produce("t", batch_of("a"))).error_code == 0


async def test_a_growth_of_which_it_is_not_known_what_became_is_found_when_it_is_asked_for_again(
    tmp_path: Path, world: World
) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", 2)
        world.server.losses = lost_answers(world)
        with pytest.raises(ConnectionLost):
            await server.broker.controller.grow_topic("t", 4, None, TIMEOUT_MS)
        heard_again(world)
        with pytest.raises(InvalidPartitions, match="currently has 4"):
            await server.broker.controller.grow_topic("t", 4, None, TIMEOUT_MS)
        await server.broker.controller.grow_topic("t", 5, None, TIMEOUT_MS)
        for partition in range(5):
            assert (await client.produce("t", batch_of("a"), partition=partition)).error_code == 0
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        assert [p.offline for p in server.broker.topics["t"].partitions.values()] == [None] * 5


async def test_configs_of_which_it_is_not_known_what_became_can_be_changed_again(tmp_path: Path, world: World) -> None:
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", retention_ms="1000")
        configs = server.broker.topic_configs
        world.server.losses = lost_answers(world)
        with pytest.raises(ConnectionLost):
            await configs.alter("t", lambda configs: {**configs, "segment.ms": "7"})
        heard_again(world)
        await configs.alter("t", lambda configs: {**configs, "retention.ms": "2000"})
        assert server.broker.topics["t"].state.configs == {"retention.ms": "2000", "segment.ms": "7"}
        config = server.broker.topics["t"].partitions[0].log.config
        assert (config.retention_ms, config.segment_ms) == (2000, 7)


async def test_a_session_that_ends_while_the_broker_starts_takes_the_controllership_only_for_a_while(
    tmp_path: Path, world: World
) -> None:
    config = BrokerConfig(tmp_path, listen_port=0, zookeeper="zk:2181")
    broker = await Broker.open(config, Outside(world.clock, world.open_session), DataDirectory.open(tmp_path))
    try:
        await broker.bound([Address("127.0.0.1", 1)])
        world.server.expire(world.sessions[0])
        assert not await _elected(world)
        running = asyncio.create_task(broker.run())
        await until(lambda: _elected(world))
        running.cancel()
    finally:
        await broker.close()


def away_at(
    world: World, number: int, asked: list[str], *, expired: bool
) -> Callable[[FakeSession, str, str], Loss | None]:
    """ZooKeeper is away for longer than a session's timeout when a broker's start has asked it so often."""

    def lost(session: FakeSession, request: str, path: str) -> Loss | None:
        asked.append(path)
        if len(asked) != number:
            return None
        world.clock.advance(7000)
        world.unreachable = 3
        if expired:
            world.server.expire(session)
        return Loss.AFTER

    return lost


@pytest.mark.parametrize("expired", [False, True])
async def test_a_start_that_has_reached_zookeeper_goes_on_when_it_is_back(tmp_path: Path, expired: bool) -> None:
    """Whatever it was asking, until it is registered."""
    world = World()
    async with world.broker(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        assert (await client.produce("t", batch_of("a"))).error_code == 0
    asked: list[str] = []
    for number in itertools.count(1):
        asked.clear()
        world.unreachable = 0
        world.server.losses = away_at(world, number, asked, expired=expired)
        async with world.broker(tmp_path) as server, connect(server.address) as client:

            async def reads(client: WireClient = client) -> bool:
                world.clock.advance(1600)
                world.server.tick()
                return values_in(await client.fetch("t", 0)) == ["a"]

            await until(reads)
        if "/brokers/ids/1" in asked[:number]:
            break
    assert number > 5


async def test_a_start_that_never_reached_zookeeper_says_so(tmp_path: Path, world: World) -> None:
    world.unreachable = 1
    with pytest.raises(ZooKeeperUnreachable):
        async with world.broker(tmp_path):
            pass


async def test_a_node_id_that_is_taken_is_told_also_after_zookeeper_was_away(tmp_path: Path, world: World) -> None:
    async with world.broker(tmp_path / "another", node_id=2):
        pass
    await world.server.connect().create("/brokers/ids/1", b"{}", ephemeral=True)
    world.server.session_timeout_ms = 200
    world.server.losses = away_at(world, 5, [], expired=True)
    with pytest.raises(NodeIdTaken):
        async with world.broker(tmp_path / "one"):
            pass
