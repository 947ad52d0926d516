"""The controller and the manager of replicas of one broker that is its whole cluster, without a server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from broker.base.clock import SystemClock
from broker.client.errors import ConnectionLost
from broker.cluster.embedded import EmbeddedMetadataStore
from broker.cluster.metadata import BrokerRegistration
from broker.cluster.view import ClusterView
from broker.controller.controller import ClusterController
from broker.controller.requests import NewTopic
from broker.log.disk import Disk
from broker.replicas.configs import TopicConfigs
from broker.replicas.files import PartitionFiles
from broker.replicas.manager import ReplicaManager
from broker.replication.followers import Followers
from broker.replication.throttling import ReplicationQuota
from broker.topics.folders import PartitionFolders
from broker.topics.partition import Topic
from broker.wire.messages.fetch import ReplicaState
from tests.broker.running import TIMEOUT_MS

NODE = 1


def nobody_to_follow() -> Followers:
    """Which does not run."""

    async def connect(node_id: int) -> NoReturn:
        raise ConnectionLost(f"there is no broker {node_id}")

    return Followers(connect, ReplicaState, SystemClock(), random.Random(1), ReplicationQuota())


@dataclass
class LoneBroker:
    replicas: ReplicaManager
    controller: ClusterController
    configs: TopicConfigs

    @property
    def topics(self) -> dict[str, Topic]:
        return self.replicas.topics

    async def create(self, name: str, partitions: int) -> Topic:
        await self.controller.create_topic(NewTopic(name, partitions), TIMEOUT_MS)
        return self.topics[name]

    async def delete(self, name: str) -> None:
        await self.controller.delete_topic(name, TIMEOUT_MS)

    async def grow(self, name: str, count: int) -> None:
        await self.controller.grow_topic(name, count, None, TIMEOUT_MS)


@asynccontextmanager
async def lone_broker(folder: Path, disk: Disk) -> AsyncIterator[LoneBroker]:
    """Every log is open when it is entered."""
    clock, view = SystemClock(), ClusterView()
    store = EmbeddedMetadataStore.open(folder)
    files = PartitionFiles(PartitionFolders(folder, disk), clock, NODE, {})
    replicas = ReplicaManager(files, view, nobody_to_follow(), clock, NODE, lambda: store.broker_epoch)
    controller = ClusterController(store, NODE, lambda broker: replicas, lambda: 0, clock, random.Random(1), 1)
    await store.register_broker(BrokerRegistration(NODE, ()))
    running = asyncio.create_task(controller.run())
    try:
        await asyncio.wait([running, replicas.began], return_when=asyncio.FIRST_COMPLETED)
        replicas.began.result()
        yield LoneBroker(replicas, controller, TopicConfigs(store, view, replicas))
    finally:
        running.cancel()
        await asyncio.wait([running])
        replicas.close()
