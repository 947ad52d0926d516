"""How long a cluster of three is without its controller's decisions, when that broker is killed.

Counted is from the end of its session with ZooKeeper until both others tell clients of a new controller and of a leader
that lives for every partition: all orders of the new controller were sent and carried out by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.cluster_description import ClusterLook, describe_cluster, look_from_each
from broker.client.errors import ClientError
from broker.client.limits import ClientLimits
from broker.client.model import ClusterMetadata
from broker.client.site import Site
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.kazoo_session import KazooZooKeeper
from broker.cluster.zookeeper.session import WatchEvent
from tests.bench.three_nodes import ThreeNodes

LOOK_S = 0.1
"""Each look costs the brokers some of what is measured."""
WAIT_S = 120
ZOOKEEPER_TIMEOUT_MS = 10_000
QUICK = ClientLimits(connect_timeout_ms=500)


def controller_failover_s(cluster: ThreeNodes, say: Callable[[str], None]) -> float:
    """Kills the controller, measures, and starts it again."""
    return asyncio.run(_failover_s(cluster, say))


async def _failover_s(cluster: ThreeNodes, say: Callable[[str], None]) -> float:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        zookeeper = await KazooZooKeeper.connect(cluster.zookeeper, ZOOKEEPER_TIMEOUT_MS, clock, ZOOKEEPER_TIMEOUT_MS)
        stack.push_async_callback(zookeeper.close)
        victim = (await _looked(cluster.bootstrap, partial(_whole, len(cluster.nodes)))).controller_id
        assert victim is not None
        say(f"{cluster.kind}: killing broker {victim}, the controller")
        over = asyncio.Event()

        def gone(_event: WatchEvent) -> None:
            over.set()

        await zookeeper.exists(layout.CONTROLLER, gone)
        await asyncio.to_thread(cluster.nodes[victim].kill9)
        await over.wait()
        began = clock.monotonic()
        survivors = ",".join(node.bootstrap for number, node in cluster.nodes.items() if number != victim)
        await _looked(survivors, partial(_led_without, victim, len(cluster.nodes) - 1))
        took_s = clock.monotonic() - began
        await asyncio.to_thread(cluster.nodes[victim].start)
        await _looked(cluster.bootstrap, partial(_whole, len(cluster.nodes)))
    return took_s


async def _looked(bootstrap: str, wanted: Callable[[ClusterLook], bool]) -> ClusterLook:
    async with asyncio.timeout(WAIT_S), Cluster(Site("bench", bootstrap), limits=QUICK) as cluster:
        while True:
            try:
                look = await look_from_each(cluster)
                if look.controller_id is not None and wanted(look):
                    return look
            except ClientError:
                pass  # a broker that was killed is named until its session is over
            await asyncio.sleep(LOOK_S)


def _whole(brokers: int, look: ClusterLook) -> bool:
    described = describe_cluster(look)
    return described.brokers == brokers and not described.under_replicated and not described.without_leader


def _led_without(victim: int, brokers: int, look: ClusterLook) -> bool:
    """By all that every other broker tells."""
    told = [each for each in look.told.values() if isinstance(each, ClusterMetadata)]
    return len(told) == brokers and all(
        victim not in each.nodes
        and each.controller_id in each.nodes
        and all(state.leader_id in each.nodes for topic in each.topics.values() for state in topic.partitions)
        for each in told
    )
