"""Brokers that have nothing but coordinators, the partitions that they lead, and a slow network between them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from broker.base.errors import first_of
from broker.cluster.peers import Peers
from broker.cluster.view import ClusterView
from broker.config import BrokerConfig
from broker.coordination.coordinators import Coordinators
from broker.coordination.host import HostPartition, InternalTopic, TopicShape
from broker.coordination.internal_log import TRANSACTIONS_TOPIC, Producer, StateLog
from broker.groups.coordinator import GroupCoordinator
from broker.groups.coordinators import GroupCoordinators
from broker.handlers.handler import RequestContext
from broker.handlers.table import HANDLERS
from broker.topics.errors import NotLeading, UnknownTopic
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.markers import LocalMarkers, Marker
from broker.transactions.verification import Verification
from broker.wire.coordinator_keys import OFFSETS_TOPIC, partition_for
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.coordination.simulation.logs import LeaderLog, Replicated
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop

T = TypeVar("T")
INTERNAL_PARTITIONS: Final = 2
FLIGHTS: Final = [TopicPartition("flights", index) for index in range(3)]
SLOWNESS_S: Final = (0.0, 0.0, 0.0, 0.001, 0.001, 0.01, 0.01, 0.1)


class Lost(Exception):
    """The connection broke: nobody knows what came of the request."""


MakeGroups = Callable[["SimulatedBroker", StateLog], GroupCoordinator]


class SimulatedBroker:
    """One life of a broker: what handlers and coordinators need of it."""

    def __init__(self, site: Site, node: int) -> None:
        self.site = site
        self.node = node
        self.clock = site.clock
        self.config = BrokerConfig(Path("nowhere"), group_initial_rebalance_delay_ms=0)
        self.advertised = ("127.0.0.1", node)
        self.acls = SimpleNamespace(authorizer=None)  # nobody is asked for rights
        self.led: dict[TopicPartition, LeaderLog] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        offsets = InternalTopic(OFFSETS_TOPIC, INTERNAL_PARTITIONS)
        self.groups = GroupCoordinators(self, offsets, self._group_coordinator)
        self.markers = LocalMarkers(self, self.groups.end_transaction)
        self.transactions = Coordinators(
            self, InternalTopic(TRANSACTIONS_TOPIC, INTERNAL_PARTITIONS), self._transaction_coordinator
        )
        # It sees no other broker: where the coordinator is not here, its client is told so and asks again.
        alone = ClusterView()
        self.verification = Verification(self.transactions, alone, Peers(alone, 1))
        self.start(self._upkeep(self.groups.run))
        self.start(self._upkeep(self.transactions.run))

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Ends with the broker."""
        task = self.site.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _upkeep(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - nobody awaits it: whatever ends it is the finding
            self.site.loop.stop_at(first_of(error))

    def begins(self, where: TopicPartition, log: LeaderLog) -> None:
        self.ends(where)
        self.led[where] = log
        self._tell(where, log.leader_epoch)

    def ends(self, where: TopicPartition) -> None:
        if (log := self.led.pop(where, None)) is not None:
            log.depose()
            self._tell(where, None)

    def _tell(self, where: TopicPartition, leader_epoch: int | None) -> None:
        if where.topic == OFFSETS_TOPIC:
            self.groups.leads(where.partition, leader_epoch)
        elif where.topic == TRANSACTIONS_TOPIC:
            self.transactions.leads(where.partition, leader_epoch)

    def crash(self) -> None:
        for task in sorted(self.tasks, key=hash):
            task.cancel()

    def _group_coordinator(self, log: StateLog) -> GroupCoordinator:
        return self.site.group_coordinator(self, log)

    def _transaction_coordinator(self, log: StateLog) -> TransactionCoordinator:
        return TransactionCoordinator(self, log, self.site.markers)

    # -- the host of coordinators ----------------------------------------------------------------------------------

    def require_partition(self, topic: str, index: int) -> HostPartition:
        return cast("HostPartition", self.led_log(topic, index))

    def led_log(self, topic: str, index: int) -> LeaderLog:
        where = TopicPartition(topic, index)
        if where not in self.site.partitions:
            raise UnknownTopic(topic)
        if where not in self.led:
            raise NotLeading(topic)
        return self.led[where]

    def topic_names(self) -> list[str]:
        return ["flights"]

    def topic_shape(self, name: str) -> TopicShape | None:
        count = sum(where.topic == name for where in self.site.partitions)
        return TopicShape(uuid.uuid5(uuid.NAMESPACE_DNS, name), count) if count else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return "flights"

    async def gone_topics(self, names: Collection[str]) -> set[str]:
        await asyncio.sleep(self.site.rng.choice(SLOWNESS_S))
        return set()

    async def make_internal_topic(self, topic: InternalTopic) -> None:
        raise AssertionError(topic)

    def damage_hint(self, topic: str, index: int) -> str:
        raise AssertionError(f"{topic}-{index} is damaged")

    async def prepare_producer_ids(self) -> None:
        await asyncio.sleep(0)

    def allocate_producer_id(self) -> int:
        self.site.producer_ids += 1
        return self.site.producer_ids


class Site:
    """`group_coordinator` makes those whose loads the oracle looks at."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, group_coordinator: MakeGroups) -> None:
        self.loop = loop
        self.rng = rng
        self.clock = SimulatedClock(loop)
        self.producer_ids = 1000
        self.markers = Orders(self)
        internal = [
            TopicPartition(t, i) for t in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) for i in range(INTERNAL_PARTITIONS)
        ]
        self.partitions = {where: Replicated(where, self.clock) for where in [*internal, *FLIGHTS]}
        self.group_coordinator = group_coordinator
        self.brokers: dict[int, SimulatedBroker] = {}

    def begin(self) -> None:
        self.brokers = {node: SimulatedBroker(self, node) for node in range(3)}
        for where in self.partitions:
            self._elect(where, self.rng.choice(list(self.brokers)))

    async def slowness(self) -> None:
        await asyncio.sleep(self.rng.choice(SLOWNESS_S))

    def _elect(self, where: TopicPartition, node: int) -> None:
        self.brokers[node].begins(where, self.partitions[where].elect(node, self.rng))

    async def move(self, where: TopicPartition) -> None:
        """To another broker; the old leader hears of it some time before, or after."""
        old = self.partitions[where].node
        told = self.brokers.get(old) if old is not None else None
        new = self.rng.choice([node for node in self.brokers if node != old])
        led = told.led.get(where) if told is not None else None
        if told is not None and self.rng.random() < 0.5:
            told.ends(where)
            told = None
            await self.slowness()
        self._elect(where, new)
        if told is not None:
            await asyncio.sleep(self.rng.choice([0.0, 0.01, 1.0, 3.0]))
            if told.led.get(where) is led:
                told.ends(where)

    async def crash(self, node: int) -> None:
        """Its partitions are led by others after a while, and it comes back."""
        dead = self.brokers.pop(node)
        dead.crash()
        for where in list(dead.led):
            dead.led.pop(where).depose()
        await self.slowness()
        for where, partition in self.partitions.items():
            if partition.node == node:
                self._elect(where, self.rng.choice(list(self.brokers)))
        await self.slowness()
        self.brokers[node] = SimulatedBroker(self, node)

    async def replicate(self, where: TopicPartition, is_calm: Callable[[], bool]) -> None:
        """In the background, with stalls that outlast the patience of coordinators."""
        while True:
            stalls = not is_calm() and self.rng.random() < (0.01 if where.topic == TRANSACTIONS_TOPIC else 0.003)
            await asyncio.sleep(8.0 if stalls else self.rng.choice([0.001, 0.02, 0.2]))
            self.partitions[where].log.replicate(self.rng)

    # -- requests --------------------------------------------------------------------------------------------------

    def coordinator(self, topic: str, key: str) -> SimulatedBroker | None:
        """Where a client looks for it: mostly where it is."""
        where = TopicPartition(topic, partition_for(key, INTERNAL_PARTITIONS))
        believed = [broker for broker in self.brokers.values() if where in broker.led]
        return self.rng.choice(believed) if believed else None

    async def ask(self, broker: SimulatedBroker | None, request: Any, version: int) -> Any:
        """Raises Lost."""
        context = RequestContext(version, "client", "/127.0.0.1", HANDLERS)
        if broker is None:
            await asyncio.sleep(0.1)
            raise Lost
        handle = HANDLERS[request.API_KEY].handle
        return await self.at(broker, lambda: handle(cast("Any", broker), request, context))

    async def at(self, broker: SimulatedBroker, work: Callable[[], Awaitable[T]]) -> T:
        """Raises Lost when the broker ends before."""
        await self.slowness()
        if self.brokers.get(broker.node) is not broker:
            raise Lost
        task = broker.start(cast("Coroutine[Any, Any, T]", work()))
        await asyncio.wait([task])
        if task.cancelled():
            raise Lost
        return task.result()


class Orders:
    """Markers over the network, one after the other from each coordinator to each partition. An order that is on its
    way arrives, whatever becomes of who gave it.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._turns: dict[tuple[int, Producer, TopicPartition], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        asked = {where: self._site.loop.create_task(self._deliver(marker, where)) for where in sorted(partitions)}
        if asked:
            await asyncio.wait(asked.values())
        return {where: task.result() for where, task in asked.items()}

    async def _deliver(self, marker: Marker, where: TopicPartition) -> ErrorCode:
        async with self._turns[marker.coordinator_epoch, marker.producer, where]:
            return await self._deliver_now(marker, where)

    async def _deliver_now(self, marker: Marker, where: TopicPartition) -> ErrorCode:
        await asyncio.sleep(self._site.rng.choice([*SLOWNESS_S, 1.0, 4.0]))
        node = self._site.partitions[where].node
        broker = self._site.brokers.get(-1 if node is None else node)
        if broker is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            return (await self._site.at(broker, lambda: broker.markers.write(marker, [where])))[where]
        except Lost:
            return ErrorCode.NETWORK_EXCEPTION
