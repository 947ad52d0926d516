"""Three of farshore's brokers as one cluster of a run, and who in it carries what."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.link import STATE_PREFIX
from tests.interop.brokers import ClusterBroker, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer


@dataclass(frozen=True)
class Trio:
    """A cluster that serves as long as one runs in its context; whoever stops a broker of it starts it again."""

    name: str
    brokers: Mapping[int, ClusterBroker]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def site(self) -> Site:
        return Site(self.name, self.bootstrap)

    def signal(self, node: int, number: signal.Signals) -> None:
        process = self.brokers[node].process
        assert process is not None
        process.send_signal(number)

    def start_all(self) -> None:
        """Those that do not run."""
        stopped = [broker for broker in self.brokers.values() if broker.process is None]
        for broker in stopped:
            broker.launch()
        for broker in stopped:
            broker.wait_ready()


@contextmanager
def two_trios(folder: Path) -> Iterator[tuple[Trio, Trio]]:
    """East and west, on one ZooKeeper with a chroot for each."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(folder / "zookeeper"))
        east, west = (
            Trio(name, stack.enter_context(cluster_of_brokers(folder / name, f"{zookeeper.address}/{name}")))
            for name in ("east", "west")
        )
        yield east, west


@dataclass(frozen=True)
class Roles:
    """Of which a broker's death is to be lived through: each names one broker of a site."""

    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]

    async def of(self, trio: Trio) -> dict[str, int]:
        """Role -> the node that has it now; a role that nobody has is left out. Raises ClientError."""
        found: dict[str, int] = {}
        async with Cluster(trio.site) as cluster:
            metadata = await cluster.metadata([where.topic for where in self.partitions])
            found["controller"] = metadata.controller_id
            for where in self.partitions:
                if where.topic in metadata.topics:
                    role = "state-leader" if where.topic.startswith(STATE_PREFIX) else "leader"
                    found[f"{role} {where}"] = metadata.topics[where.topic].partitions[where.partition].leader_id
            for group, node in (await cluster.coordinators("group", self.groups)).items():
                if not isinstance(node, ClientError):
                    found[f"group-coordinator {group}"] = node
            for owner, node in (await cluster.coordinators("transaction", self.transactional_ids)).items():
                if not isinstance(node, ClientError):
                    found[f"transaction-coordinator {owner}"] = node
        return {role: node for role, node in found.items() if node in trio.brokers}
