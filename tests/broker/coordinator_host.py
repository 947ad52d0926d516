"""A broker for the coordinators alone: real logs in a folder, no network. Opened again, it is the broker restarted."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from broker.base.clock import Clock
from broker.cluster.metadata import PartitionState
from broker.config import BrokerConfig
from broker.coordination.coordinators import Coordinators
from broker.coordination.host import InternalTopic, TopicShape
from broker.coordination.internal_log import TRANSACTIONS_TOPIC
from broker.groups.coordinator import GroupCoordinator
from broker.groups.coordinators import GroupCoordinators
from broker.log.config import LogConfig
from broker.log.disk import OS_DISK, Disk
from broker.log.partition_log import PartitionLog
from broker.topics.errors import PartitionOffline, UnknownTopic
from broker.topics.partition import Partition as BrokerPartition
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.markers import LocalMarkers
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from tests.broker.clock import ManualClock

T = TypeVar("T")


def at_once(asked: Coroutine[Any, Any, T]) -> T:
    """What it comes to, without an event loop: for what gives others their turn, and waits for nothing."""
    while True:
        try:
            asked.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def turns(asked: Coroutine[Any, Any, object]) -> int:
    """How often it gives others their turn."""
    given = 0
    while True:
        try:
            asked.send(None)
        except StopIteration:
            return given
        given += 1


@dataclass
class Partition:
    log: PartitionLog
    leader_epoch: int

    def check_may_append(self) -> None:
        """There is one replica, and that is enough."""

    async def wait_replicated(self, offset: int, timeout_ms: float, leader_epoch: int) -> None:
        """Without followers, everything is."""
        assert offset <= self.log.log_end_offset


class Host:
    """Topics are the folders under `data_dir`; the leader epoch rises with each start, as the broker's does."""

    def __init__(self, data_dir: Path, clock: Clock, config: BrokerConfig, disk: Disk = OS_DISK) -> None:
        self.clock = clock
        self.config = config
        self.advertised = ("127.0.0.1", 9092)
        self._disk = disk
        self._dir = data_dir
        self._dir.mkdir(exist_ok=True)
        starts = data_dir / "starts"
        self._epoch = int(starts.read_text()) + 1 if starts.exists() else 0
        starts.write_text(str(self._epoch))
        self._producer_id = 1000 * (self._epoch + 1)
        self._partitions: dict[tuple[str, int], Partition | BrokerPartition] = {}
        for folder in sorted(path for path in data_dir.iterdir() if path.is_dir()):
            topic, _, index = folder.name.rpartition("-")
            self._open(topic, int(index))
        offsets = InternalTopic(OFFSETS_TOPIC, 1)
        self.all_groups = GroupCoordinators(self, offsets, lambda log: GroupCoordinator(self, log))
        self.markers = LocalMarkers(self, self.all_groups.end_transaction)
        self.all_transactions = Coordinators(
            self, InternalTopic(TRANSACTIONS_TOPIC, 1), lambda log: TransactionCoordinator(self, log, self.markers)
        )
        for name, coordinators in ((OFFSETS_TOPIC, self.all_groups), (TRANSACTIONS_TOPIC, self.all_transactions)):
            if (name, 0) not in self._partitions:
                self.create_topic(name)
            coordinators.leads(0, self._epoch)
            at_once(coordinators.load())
        for transactional_id in self.transactions.due():
            at_once(self.transactions.attend(transactional_id))

    @property
    def groups(self) -> GroupCoordinator:
        found = self.all_groups.partition(0)
        assert found is not None
        return found

    @property
    def transactions(self) -> TransactionCoordinator:
        found = self.all_transactions.partition(0)
        assert found is not None
        return found

    def _open(self, topic: str, index: int) -> None:
        compacted = frozenset({"compact"}) if topic.startswith("__") else frozenset({"delete"})
        config = LogConfig(cleanup_policy=compacted)
        log = PartitionLog.open(self._dir / f"{topic}-{index}", config, self.clock, self._disk)
        self._partitions[topic, index] = Partition(log, self._epoch)

    def partition(self, topic: str, index: int) -> Partition | BrokerPartition | None:
        return self._partitions.get((topic, index))

    def log(self, topic: str, index: int = 0) -> PartitionLog:
        return self._partitions[topic, index].log

    def create_topic(self, name: str, partitions: int = 1) -> None:
        for index in range(partitions):
            self._open(name, index)

    def add_partition(self, name: str, index: int) -> None:
        self._open(name, index)

    @contextmanager
    def offline(self, topic: str, index: int = 0) -> Iterator[None]:
        """Meanwhile the partition is as one whose files could not be opened at the start."""
        online = self._partitions[topic, index]
        state = PartitionState(0, online.leader_epoch, (0,), (0,))
        self._partitions[topic, index] = BrokerPartition(topic, index, PartitionOffline("damaged"), state)
        try:
            yield
        finally:
            self._partitions[topic, index] = online

    def require_partition(self, topic: str, index: int) -> Partition:
        found = self.partition(topic, index)
        if found is None:
            raise UnknownTopic(f"no {topic}-{index}")
        if isinstance(found, BrokerPartition):
            raise found.refusal()
        return found

    def topic_names(self) -> list[str]:
        return sorted({topic for topic, _ in self._partitions if not topic.startswith("__")})

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        topics = {topic for topic, _ in self._partitions}
        return next((name for name in topics if uuid.uuid5(uuid.NAMESPACE_DNS, name) == topic_id), None)

    def topic_shape(self, name: str) -> TopicShape | None:
        count = sum(topic == name for topic, _ in self._partitions)
        return TopicShape(uuid.uuid5(uuid.NAMESPACE_DNS, name), count) if count else None

    def leader_address(self, topic: str, index: int, listener: str = "") -> tuple[int, str, int]:
        return 1, *self.advertised

    async def gone_topics(self, names: Collection[str]) -> set[str]:
        return {name for name in names if self.topic_shape(name) is None}

    async def make_internal_topic(self, topic: InternalTopic) -> None:
        """They are there from the start."""

    def damage_hint(self, topic: str, index: int) -> str:
        return f"mend {topic}-{index}"

    async def prepare_producer_ids(self) -> None:
        """Here there is always one."""

    def allocate_producer_id(self) -> int:
        self._producer_id += 1
        return self._producer_id

    def close(self) -> None:
        for partition in self._partitions.values():
            partition.log.close()

    def restart(self, *, clean: bool = True) -> Host:
        if clean:
            self.close()
        return Host(self._dir, self.clock, self.config, self._disk)


def start(tmp_path: Path, clock: Clock | None = None, disk: Disk = OS_DISK, **config: Any) -> Host:
    return Host(tmp_path / "data", clock or ManualClock(), BrokerConfig(tmp_path / "data", **config), disk)
