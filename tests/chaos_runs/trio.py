"""Three of farshore's brokers as one cluster of a run, and who in it carries what."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site import Site
from broker.wire.batch import peek
from broker.wire.vocabulary import TopicPartition
from mirror.link import STATE_PREFIX
from tests.interop.brokers import ClusterBroker, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer

IN_SYNC_TIMEOUT_S = 60.0
POLL_S = 0.3


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


async def differing_replicas(trio: Trio, partitions: Sequence[TopicPartition]) -> list[str]:
    """When all replicas are in sync again and nobody writes, their logs are the same bytes -> where not, in words."""
    async with Cluster(trio.site) as cluster, asyncio.timeout(IN_SYNC_TIMEOUT_S):
        while True:
            try:
                topics = (await cluster.metadata({where.topic for where in partitions})).topics
                states = [topics[where.topic].partitions[where.partition] for where in partitions]
                in_sync = [len(state.isr) == len(state.replicas) for state in states]
            except ClientError:
                in_sync = [False]
            if all(in_sync):
                break
            await asyncio.sleep(POLL_S)
    wrong = []
    for where in partitions:
        # Not at each broker: the mirror makes no more replicas than there are brokers at that moment.
        state = topics[where.topic].partitions[where.partition]
        copies = {node: log_of(trio, node, where) for node in state.replicas}
        if len(set(copies.values())) > 1:
            sizes = {node: len(copy) for node, copy in copies.items()}
            wrong.append(f"{where} at {trio.name}: the replicas' logs differ, of {sizes} bytes")
    return wrong


def epochs_that_go_back(trio: Trio, where: TopicPartition) -> list[tuple[int, int]]:
    """Of each producer its epochs, as they stand in the log: who was fenced wrote nothing behind who came."""
    newest: dict[int, int] = {}
    found = []
    log, at = max((log_of(trio, node, where) for node in trio.brokers), key=len), 0
    while at < len(log):
        header = peek(log, at)
        before = newest.get(header.producer_id, -1)
        if header.producer_epoch < before:
            found.append((before, header.producer_epoch))
        newest[header.producer_id] = header.producer_epoch
        at += header.size_bytes
    return found


def log_of(trio: Trio, node: int, where: TopicPartition) -> bytes:
    folder = trio.brokers[node].file.parent / f"data-{node}" / str(where)
    return b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))
