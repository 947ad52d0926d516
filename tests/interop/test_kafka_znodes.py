"""The layout against the znodes that a real Apache Kafka 3.9.1 keeps in ZooKeeper."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from broker.base.clock import SystemClock
from broker.cluster.metadata import ConfigResource
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.session import ZooKeeper
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from tests.broker.cluster.znodes import UNKNOWN, rewritten
from tests.interop.servers import KafkaOnZooKeeper, ZooKeeperServer, run_java

TIMEOUT_MS = 6000


async def every_znode(zk: ZooKeeper, path: str = "") -> dict[str, bytes]:
    found = {path: (await zk.get(path))[0]} if path else {}
    for name in await zk.children(path or "/"):
        found |= await every_znode(zk, f"{path}/{name}")
    return found


async def test_every_znode_of_kafka_is_read_and_written_alike(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    servers = f"{zookeeper.address}/kafka-{uuid.uuid4()}"

    async def connect() -> KazooZooKeeper:
        return await KazooZooKeeper.connect(servers, TIMEOUT_MS, SystemClock(), 20_000)

    (await (opened := await connect()).close())
    assert opened.expired
    with KafkaOnZooKeeper(tmp_path / "kafka", servers) as kafka:

        def tool(main_class: str, *arguments: str) -> None:
            run_java("3.9.1", main_class, "--bootstrap-server", kafka.bootstrap, *arguments)

        topics, configs = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
        tool(topics, "--create", "--topic", "plain", "--partitions", "3")
        settings = ("--config", "retention.ms=1000", "--config", "cleanup.policy=compact")
        tool(topics, "--create", "--topic", "set", *settings)
        setting = ("--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=5000")
        tool(configs, "--alter", *setting)
        producing = ("--producer-property", "enable.idempotence=true", "--topic", "plain")
        run_java(
            "3.9.1",
            "kafka.tools.ConsoleProducer",
            *("--bootstrap-server", kafka.bootstrap, *producing),
            stdin="one record that wants a producer id\n",
        )
        zk = await connect()
        found = await every_znode(zk)
        await zk.close()
        assert {*layout.PERSISTENT_PATHS, layout.CLUSTER_ID, layout.CONTROLLER, layout.CONTROLLER_EPOCH} <= found.keys()
        assert found[layout.PRODUCER_ID_BLOCK]
        for path, data in found.items():
            again = rewritten(path, data)
            assert (json.loads(again) if again else None) == (json.loads(data) if data else None), path
        assert {path for path, data in found.items() if data} >= UNKNOWN

        store = await ZooKeeperMetadataStore.open(connect, SystemClock())
        read = await store.topics()
        assert [len(read[name].partitions) for name in ("plain", "set")] == [3, 1]
        assert read["set"].configs == {"retention.ms": "1000", "cleanup.policy": "compact"}
        led_by_one = [
            (state.leader, state.leader_epoch, state.isr, state.replicas) for state in read["plain"].partitions
        ]
        assert led_by_one == [(1, 0, (1,), (1,))] * 3
        assert (await store.configs(ConfigResource("brokers", "<default>"))).values == {"log.retention.ms": "5000"}
        assert (await store.brokers())[1].registration.endpoints[0].port == kafka.port
        assert await store.controller() == 1
        assert await store.elect_controller(2) is None
        await store.close()
