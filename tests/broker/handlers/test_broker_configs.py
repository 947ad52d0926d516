"""What is set on brokers while they run: who goes by it, where it is shown to come from, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.client.security.settings import Secret
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.config import BrokerConfig
from broker.topics.broker_configs import DYNAMIC, TOPIC_DEFAULTS, broker_settings
from broker.topics.catalogue import CATALOGUE
from broker.wire.errors import ErrorCode
from broker.wire.messages import alter_configs
from broker.wire.messages.incremental_alter_configs import AlterableConfig
from tests.broker.cluster.test_three_replicas import NODES, create
from tests.broker.handlers.test_configs import APPEND, BROKER, DELETE, SET, TOPIC, alter, describe
from tests.broker.running import running_broker, running_server
from tests.broker.running_cluster import running_cluster, until
from tests.broker.wire_client import WireClient, batch_of, connect

ALL = ""


async def shown(client: WireClient, name: str, kind: int, key: str) -> tuple[str | None, int, list[tuple[str, int]]]:
    """Value, source, and the names and sources of the synonyms."""
    (config,) = (await describe(client, name, kind, [key])).configs
    return config.value, config.config_source, [(synonym.name, synonym.source) for synonym in config.synonyms]


def test_every_default_of_topics_is_one_that_topics_have() -> None:
    assert TOPIC_DEFAULTS.keys() <= CATALOGUE.keys()
    assert set(TOPIC_DEFAULTS.values()) <= DYNAMIC.keys()
    # The rest would be set to no effect.
    without_effect = {name for name in TOPIC_DEFAULTS if CATALOGUE[name].field is None}
    assert without_effect == {"unclean.leader.election.enable"}, "which is the controller's"


def test_who_zookeeper_knows_the_broker_as_is_shown_to_nobody(tmp_path: Path) -> None:
    access = ZooKeeperAccess(username="zk-7", password=Secret(command=("cat", "/run/zookeeper")))
    config = BrokerConfig(tmp_path, zookeeper="zk:2181", zookeeper_access=access)
    shown = {each.name: each.value for each in broker_settings(config, lambda _: Address("east", 9092))}
    assert shown["zookeeper.connect"] == "zk:2181"
    assert [name for name, value in shown.items() if "zk-7" in value or "/run/zookeeper" in value] == []


async def test_the_nearest_one_that_is_set_holds_and_is_shown_first(tmp_path: Path) -> None:
    name, topics = "log.retention.ms", "retention.ms"
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        log = server.broker.require_partition("t", 0).log
        assert await shown(client, "t", TOPIC, topics) == ("604800000", 5, [(name, 5)])
        assert await alter(client, AlterableConfig(name, SET, "3000"), name=ALL, kind=BROKER) == 0
        assert await shown(client, "t", TOPIC, topics) == ("3000", 3, [(name, 3), (name, 5)])
        assert await shown(client, "1", BROKER, name) == ("3000", 3, [(name, 3), (name, 5)])
        assert await shown(client, ALL, BROKER, name) == ("3000", 3, [(name, 3)])
        assert log.config.retention_ms == 3000
        assert await alter(client, AlterableConfig(name, SET, "2000"), name="1", kind=BROKER) == 0
        assert await shown(client, "t", TOPIC, topics) == ("2000", 2, [(name, 2), (name, 3), (name, 5)])
        assert log.config.retention_ms == 2000
        assert await alter(client, AlterableConfig(topics, SET, "1000")) == 0
        assert await shown(client, "t", TOPIC, topics) == ("1000", 1, [(topics, 1), (name, 2), (name, 3), (name, 5)])
        assert log.config.retention_ms == 1000
        for gone, kind, key, value in (("t", TOPIC, topics, 2000), ("1", BROKER, name, 3000)):
            assert await alter(client, AlterableConfig(key, DELETE, None), name=gone, kind=kind) == 0
            assert log.config.retention_ms == value
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert server.broker.require_partition("t", 0).log.config.retention_ms == 3000, "a restart keeps it"
        await client.create_topic("later")
        assert server.broker.require_partition("later", 0).log.config.retention_ms == 3000


async def test_what_a_broker_is_started_with_can_be_set_too_and_comes_back(tmp_path: Path) -> None:
    name, other = "max.connections", "log.cleaner.backoff.ms"
    async with running_server(tmp_path, max_connections=7) as server, connect(server.address) as client:
        started = [(name, 4), (name, 5)]
        assert await shown(client, "1", BROKER, name) == ("7", 4, started)
        assert await shown(client, "1", BROKER, other) == ("15000", 5, [(other, 5)])
        assert await alter(client, AlterableConfig(name, SET, "9"), name=ALL, kind=BROKER) == 0
        assert await alter(client, AlterableConfig(name, SET, "8"), name="1", kind=BROKER) == 0
        assert await shown(client, "1", BROKER, name) == ("8", 2, [(name, 2), (name, 3), *started])
        assert await shown(client, ALL, BROKER, name) == ("9", 3, [(name, 3)])
        for of in ("1", ALL):
            assert await alter(client, AlterableConfig(name, DELETE, None), name=of, kind=BROKER) == 0
        assert await shown(client, "1", BROKER, name) == ("7", 4, started)


async def test_the_cleaner_goes_by_its_new_pause_at_once(tmp_path: Path) -> None:
    """Also when it is in the middle of a long one."""
    async with (
        running_server(tmp_path, log_cleaner_backoff_ms=3_600_000) as server,
        connect(server.address) as client,
        asyncio.timeout(60),
    ):
        await client.create_topic("t", cleanup_policy="compact", segment_bytes="300", min_cleanable_dirty_ratio="0.01")
        for number in range(8):
            assert (await client.produce("t", batch_of(f"{number}" + "x" * 100, key=b"k"))).error_code == 0
        log = server.broker.require_partition("t", 0).log
        before = log.size_bytes
        assert await alter(client, AlterableConfig("log.cleaner.backoff.ms", SET, "20"), name="1", kind=BROKER) == 0
        while log.size_bytes > before / 2:
            await asyncio.sleep(0.02)


async def test_what_is_produced_is_checked_by_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.create_topic("own", max_message_bytes="1000")
        assert await alter(client, AlterableConfig("message.max.bytes", SET, "300"), name="1", kind=BROKER) == 0
        assert (await client.produce("t", batch_of("x" * 500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await client.produce("own", batch_of("x" * 500))).error_code == 0


@pytest.mark.parametrize("name", ["1", ALL])
async def test_what_is_refused_changes_nothing(tmp_path: Path, name: str) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        good = AlterableConfig("log.retention.ms", SET, "6")
        for bad, code in (
            (AlterableConfig("log.dirs", SET, "/"), 42),
            (AlterableConfig("num.partitions", SET, "3"), 42),
            (AlterableConfig("retention.ms", SET, "3"), 42),
            (AlterableConfig("no.such.config", SET, "3"), 42),
            (AlterableConfig("message.max.bytes", SET, "many"), 40),
            (AlterableConfig("min.insync.replicas", SET, "0"), 40),
            (AlterableConfig("log.cleanup.policy", SET, "shred"), 40),
            (AlterableConfig("log.segment.bytes", APPEND, "3"), 40),
            (AlterableConfig("log.segment.bytes", SET, None), 42),
            (AlterableConfig("max.connections", SET, "0"), 40),
            (AlterableConfig("max.connections.per.ip", SET, "0"), 40),
            (AlterableConfig("log.cleaner.backoff.ms", SET, "-1"), 40),
        ):
            assert await alter(client, good, bad, name=name, kind=BROKER) == code, bad
        assert await alter(client, good, name=name, kind=BROKER, check=True) == 0
        configs = server.broker.broker_configs
        assert (configs.own, configs.default) == ({}, {})


async def test_the_old_request_replaces_all_that_is_set(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        for name, value in (("log.retention.ms", "5"), ("log.roll.ms", "6")):
            one = [alter_configs.AlterableConfig(name, value)]
            request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(BROKER, ALL, one)])
            answer = await client.ask(request, 2, alter_configs.AlterConfigsResponse)
            assert answer.responses[0].error_code == 0
        assert server.broker.broker_configs.default == {"log.roll.ms": "6"}


async def test_what_is_set_on_all_brokers_holds_at_all_and_what_is_written_past_them_too(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t")
            leader = await cluster.led("t")
            setting = AlterableConfig("min.insync.replicas", SET, "3"), AlterableConfig("log.retention.ms", SET, "9000")
            other = next(node for node in NODES if node != leader)
            assert await alter(clients[other], *setting, name=ALL, kind=BROKER) == 0

            def holds() -> bool:
                found = [cluster.broker(node).partition("t", 0) for node in NODES]
                configs = [here.log.config for here in found if here is not None and here.offline is None]
                return {(one.min_insync_replicas, one.retention_ms) for one in configs} == {(3, 9000)}

            await until(holds)
        await cluster.kill(other)
        await until(lambda: (state := cluster.told("t")) is not None and len(state.isr) == 2)
        async with cluster.clients() as clients:
            leader = await cluster.led("t")
            refused = await clients[leader].produce("t", batch_of("a"))
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_an_unclean_leader_is_elected_once_all_brokers_allow_it(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t")
            leader = await cluster.led("t")
        others = [node for node in NODES if node != leader]
        for node in others:
            await cluster.kill(node)
        await until(lambda: (state := cluster.told("t")) is not None and state.isr == (leader,))
        await cluster.kill(leader)
        await cluster.start(others[0])
        await until(lambda: (state := cluster.told("t")) is not None and state.leader == -1)
        async with cluster.clients() as clients:
            allowed = AlterableConfig("unclean.leader.election.enable", SET, "true")
            assert await alter(clients[others[0]], allowed, name=ALL, kind=BROKER) == 0
        assert await cluster.led("t") == others[0]
