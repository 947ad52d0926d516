"""A source of three of farshore's brokers, one of which sleeps: what the others' logs have then, nobody is shown.

Who writes with acks=1 is told that it is kept, as soon as the leader has it. The sleeper stays in the ISR as long as
its session lasts, and a failover that it answers waits for that; then it is shown, or it went with its leader.
"""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from broker.client.cluster import Cluster
from broker.client.topics import list_topics
from broker.client.unshown import LogEnd, log_ends
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.chaos_runs.loss_writers import Source
from tests.chaos_runs.trio import Trio
from tests.interop.brokers import LONG_SESSION_MS, ClusterBroker, cluster_of_brokers
from tests.interop.servers import ZooKeeperServer

RECORDS_MAX = 5
SHOWN_TIMEOUT_S = 60.0


class ThreeBrokers:
    """A cluster in the place of one server; it runs while the context is open, but where a run kills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self._trio: Trio | None = None
        self.sleeper: int | None = None

    def __enter__(self) -> ThreeBrokers:
        zookeeper = self._stack.enter_context(ZooKeeperServer(self.folder / "zookeeper"))
        brokers = cluster_of_brokers(self.folder / "east", f"{zookeeper.address}/east", LONG_SESSION_MS)
        self._trio = Trio("east", self._stack.enter_context(brokers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wake()
        self._stack.close()

    @property
    def trio(self) -> Trio:
        assert self._trio is not None
        return self._trio

    @property
    def bootstrap(self) -> str:
        return self.trio.bootstrap

    @property
    def process(self) -> object:
        """None where not all run."""
        running = [broker.process for broker in self.trio.brokers.values()]
        return None if None in running else running

    def start(self) -> None:
        self.trio.start_all()

    def kill9(self) -> None:
        """All of them, the sleeper, too."""
        for broker in self.trio.brokers.values():
            broker.kill9()
        self.sleeper = None

    def sleep(self, node: int) -> None:
        self.trio.signal(node, signal.SIGSTOP)
        self.sleeper = node

    def wake(self) -> None:
        broker: ClusterBroker | None = self.trio.brokers.get(self.sleeper) if self.sleeper is not None else None
        if broker is not None and broker.process is not None:
            broker.process.send_signal(signal.SIGCONT)
        self.sleeper = None


async def lag(brokers: ThreeBrokers, source: Source, chance: random.Random) -> TopicPartition:
    """One falls asleep, and a leader takes records with acks=1 that this one has not got -> where."""
    plain = sorted(where for where in source.born_ms if source.kinds[where.topic] == "plain")
    where = chance.choice(plain)
    partition = (await list_topics(source.cluster))[where.topic].partitions[where.partition]
    brokers.sleep(chance.choice([node for node in partition.replicas if node != partition.leader_id]))
    values = [source.value() for _ in range(chance.randint(1, RECORDS_MAX))]
    batch = encode_batch([Record(at, -1, b"late", value) for at, value in enumerate(values)])
    connection = await source.cluster.connection(partition.leader_id, "produce")
    asked = [TopicProduceData(where.topic, [PartitionProduceData(where.partition, batch)])]
    answer = await connection.request(ProduceRequest(None, 1, 10_000, asked))
    told = answer.responses[0].partition_responses[0]
    assert not told.error_code, told
    known = source.offsets.setdefault(where, {})
    known |= {value: told.base_offset + at for at, value in enumerate(values)}
    return where


async def are_shown(cluster: Cluster, where: TopicPartition) -> None:
    """Wait until everybody is shown what the leader has, when the sleeper is awake. TimeoutError."""
    async with asyncio.timeout(SHOWN_TIMEOUT_S):
        while True:
            end = (await log_ends(cluster, [where], 1.0))[where]
            if isinstance(end, LogEnd) and end.shown == end.appended:
                return
            await asyncio.sleep(0.2)
