"""How long a cluster of three is without its controller's decisions, when that broker is killed.

Counted is from the end of its session with ZooKeeper until both others tell clients of a new controller and of a leader
that lives for every partition: all orders of the new controller were sent and carried out by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.cluster_description import ClusterLook, describe_cluster, look_from_each
from broker.client.errors import ClientError
from broker.client.limits import ClientLimits
from broker.client.model import ClusterMetadata
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topic
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.session import WatchEvent
from tests.interop.brokers import NODES, ClusterBroker, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer

LOOK_S = 0.1
"""Each look costs the brokers some of what is measured."""
WAIT_S = 120
ZOOKEEPER_TIMEOUT_MS = 20_000
QUICK = ClientLimits(connect_timeout_ms=500)


def bench_failover(directory: Path, partitions: int, rounds: int, say: Callable[[str], None]) -> list[float]:
    """Seconds of each round. Raises ServerFailed."""
    with ZooKeeperServer(directory / "zookeeper") as zookeeper:
        chroot = f"{zookeeper.address}/bench"
        with cluster_of_brokers(directory / "brokers", chroot) as brokers:
            return asyncio.run(_rounds(brokers, chroot, partitions, rounds, say))


async def _rounds(
    brokers: dict[int, ClusterBroker], chroot: str, partitions: int, rounds: int, say: Callable[[str], None]
) -> list[float]:
    clock = SystemClock()
    measured: list[float] = []
    async with AsyncExitStack() as stack:
        zookeeper = await KazooZooKeeper.connect(chroot, ZOOKEEPER_TIMEOUT_MS, clock, ZOOKEEPER_TIMEOUT_MS)
        stack.push_async_callback(zookeeper.close)
        look = await _looked(brokers, lambda look: look.controller_id is not None)
        async with Cluster(_site(brokers)) as cluster:
            await create_topic(cluster, NewTopic("wide", partitions, len(NODES)), if_not_exists=False)
        for number in range(rounds):
            look = await _looked(brokers, _whole)
            victim = look.controller_id
            assert victim is not None
            say(f"killing broker {victim}, the controller, round {number + 1} of {rounds}")
            over = asyncio.Event()

            def gone(event: WatchEvent, over: asyncio.Event = over) -> None:
                over.set()

            await zookeeper.exists(layout.CONTROLLER, gone)
            await asyncio.to_thread(brokers[victim].kill9)
            await over.wait()
            began = clock.monotonic()
            survivors = {node: broker for node, broker in brokers.items() if node != victim}
            await _looked(survivors, partial(_led_without, victim))
            measured.append(clock.monotonic() - began)
            await asyncio.to_thread(brokers[victim].start)
    return measured


def _site(brokers: dict[int, ClusterBroker]) -> Site:
    return Site("east", ",".join(broker.bootstrap for broker in brokers.values()))


async def _looked(brokers: dict[int, ClusterBroker], wanted: Callable[[ClusterLook], bool]) -> ClusterLook:
    async with asyncio.timeout(WAIT_S), Cluster(_site(brokers), limits=QUICK) as cluster:
        while True:
            try:
                look = await look_from_each(cluster)
                if wanted(look):
                    return look
            except ClientError:
                pass  # a broker that was killed is named until its session is over
            await asyncio.sleep(LOOK_S)


def _whole(look: ClusterLook) -> bool:
    described = describe_cluster(look)
    return described.brokers == len(NODES) and not described.under_replicated and not described.without_leader


def _led_without(victim: int, look: ClusterLook) -> bool:
    """By all that every other broker tells."""
    told = [each for each in look.told.values() if isinstance(each, ClusterMetadata)]
    return len(told) == len(NODES) - 1 and all(
        victim not in each.nodes
        and each.controller_id in each.nodes
        and all(state.leader_id in each.nodes for topic in each.topics.values() for state in topic.partitions)
        for each in told
    )
