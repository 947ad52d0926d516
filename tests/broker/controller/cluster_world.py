"""A cluster of brokers that are nothing but what their controller makes of them, on the fake ZooKeeper.

Real: the controllers, their queues, the metadata store. Simulated: ZooKeeper, time, the ways between brokers, and the
brokers themselves, which keep folders over their lives and check each order against what must always hold. A seed gives
everything that happens, and when: nothing here waits for real time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from broker.cluster.metadata import (
    NO_LEADER,
    UNWRITTEN,
    BrokerRegistration,
    LiveBroker,
    PartitionState,
    TopicState,
)
from broker.cluster.orders import (
    BrokerOrders,
    BrokerUnreachable,
    Carried,
    Failures,
    LeaderAndIsr,
    Order,
    StaleBrokerEpoch,
    StaleController,
    StopReplica,
    UpdateMetadata,
)
from broker.cluster.view import ClusterView
from broker.cluster.zookeeper.store import ZooKeeperMetadataStore
from broker.controller.controller import ClusterController
from broker.controller.leaders import LeaderBalance
from broker.errors import BrokerError, LogStorageError
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.fake_zookeeper import FakeSession
from tests.broker.controller.checked_zookeeper import CheckedZooKeeper, Judge, SimClock, Violation

RACKS = ("a", "b", "c")
CLUSTER_ID = "simulated"


class SimBroker:
    """One broker as the controller sees it. `folders` outlive its lives: topic ids and indexes of partitions."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.folders: set[tuple[UUID, int]] = set()
        # Those that may have records, and of these those that were set aside.
        self.used: set[tuple[UUID, int]] = set()
        self.strays: set[tuple[UUID, int]] = set()
        self.broken: set[tuple[UUID, int]] = set()
        # So many orders it refuses, whatever they say.
        self.busy_orders = 0
        self.begin_life()

    def begin_life(self) -> None:
        self.view = ClusterView()
        self.states: dict[TopicPartition, tuple[UUID, PartitionState]] = {}
        self.prepared: dict[TopicPartition, UUID] = {}
        self.controller_epoch = 0
        self.store: ZooKeeperMetadataStore | None = None
        self.controller: ClusterController | None = None
        self.main: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        return self.main is not None and not self.main.done()

    def check(self, order: Order) -> None:
        if order.controller_epoch < self.controller_epoch:
            raise StaleController(f"{order.controller_epoch} was followed by {self.controller_epoch}")
        if self.store is None or order.broker_epoch < self.store.broker_epoch:
            raise StaleBrokerEpoch(f"broker {self.node_id} has another life")
        self.controller_epoch = order.controller_epoch
        if self.busy_orders:
            self.busy_orders -= 1
            raise LogStorageError("the disk is busy")

    def lead_and_follow(self, order: LeaderAndIsr) -> Failures:
        must = self.world.judge.must
        self.check(order)
        if order.complete:
            named = {(order.topics[where.topic].topic_id, where.partition) for where in order.partitions}
            self.strays |= (self.folders & self.used) - named
            self.folders &= named
            self.states = {where: known for where, known in self.states.items() if where in order.partitions}
        for where, state in order.partitions.items():
            topic_id = order.topics[where.topic].topic_id
            folder = (topic_id, where.partition)
            if where in order.new:
                must(state.version == UNWRITTEN, f"{where}: ordered as new, and it had a leader")
                self.folders.add(folder)
                self.prepared[where] = topic_id
                continue
            must(state.version != UNWRITTEN, f"{where}: ordered before it was written")
            self.world.led_ids.add(topic_id)
            self.prepared.pop(where, None)
            if folder in self.strays:
                self.strays.discard(folder)
                self.folders.add(folder)
            self.used.add(folder)
            if folder not in self.folders:
                must(self.node_id not in state.isr, f"{where}: broker {self.node_id} is in sync without a folder")
                self.folders.add(folder)
            known = self.states.get(where)
            if known is not None and known[0] == topic_id and _is_no_news(known[1], state):
                continue
            if known is None or known[0] != topic_id or known[1].leader_epoch <= state.leader_epoch:
                self.states[where] = (topic_id, state)
                if state.leader == self.node_id:
                    self.world.leads(where, topic_id, state.leader_epoch, self.node_id)
        return {}

    def stop(self, order: StopReplica) -> Failures:
        self.check(order)
        for where, leader_epoch in order.partitions.items():
            topic_id, known = order.topic_ids[where.topic], self.states.get(where)
            is_open = known is not None and known[0] == topic_id
            if known is not None and is_open and known[1].leader_epoch > leader_epoch:
                continue
            if is_open:
                del self.states[where]
            if self.prepared.get(where) == topic_id:
                del self.prepared[where]
            self.strays.discard((topic_id, where.partition))
            self.folders.discard((topic_id, where.partition))
        return {}

    def learn(self, order: UpdateMetadata) -> None:
        self.check(order)
        self.view.learn(order)

    def led(self) -> dict[TopicPartition, PartitionState]:
        return {where: state for where, (_, state) in self.states.items() if state.leader == self.node_id}


class Way:
    """Implements BrokerOrders: from one broker to another, slow, and lossy where it is cut."""

    def __init__(self, world: World, source: int, target: int) -> None:
        self._world, self._source, self._target = world, source, target

    async def _carried(self, order: Order) -> Failures:
        world, broker = self._world, self._world.brokers[self._target]
        await world.hops()
        self._check(broker)
        world.orders.append((self._source, self._target, order))
        failures: Failures = {}
        match order:
            case LeaderAndIsr():
                failures = broker.lead_and_follow(order)
            case StopReplica():
                failures = broker.stop(order)
            case UpdateMetadata():
                broker.learn(order)
        await world.hops()
        self._check(broker)
        return failures

    def _check(self, broker: SimBroker) -> None:
        if not broker.runs or {self._source, self._target} in self._world.cut_ways:
            raise BrokerUnreachable(f"broker {self._target} cannot be reached")

    async def lead_and_follow(self, order: LeaderAndIsr) -> Carried:
        return Carried(await self._carried(order), {})

    async def stop(self, order: StopReplica) -> Failures:
        return await self._carried(order)

    async def learn(self, order: UpdateMetadata) -> None:
        await self._carried(order)


class World:
    def __init__(self, seed: int, brokers: int = 3, balance: LeaderBalance | None = None) -> None:
        self.balance = balance
        self.rng = random.Random(seed)
        self.clock = SimClock()
        self.judge = Judge()
        self.zookeeper = CheckedZooKeeper(self.clock, self.judge)
        self.brokers = {node: SimBroker(self, node) for node in range(brokers)}
        self.sessions: dict[int, FakeSession] = {}
        self.cut_ways: list[set[int]] = []
        self.led_ids: set[UUID] = set()
        """Of topics of which any partition was ever ordered."""
        self.orders: list[tuple[int, int, Order]] = []
        """Which were carried out, by which broker for which."""
        self._leaders: dict[tuple[TopicPartition, UUID, int], int] = {}

    async def hops(self) -> None:
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)

    def leads(self, where: TopicPartition, topic_id: UUID, leader_epoch: int, node: int) -> None:
        first = self._leaders.setdefault((where, topic_id, leader_epoch), node)
        self.judge.must(first == node, f"{where}: brokers {first} and {node} lead in epoch {leader_epoch}")

    # -- lives -----------------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        broker = self.brokers[node]
        broker.begin_life()
        broker.main = asyncio.create_task(self._live(broker))

    async def _live(self, broker: SimBroker) -> None:
        async def connect() -> FakeSession:
            self.sessions[broker.node_id] = self.zookeeper.connect()
            return self.sessions[broker.node_id]

        registration = BrokerRegistration(broker.node_id, (), RACKS[broker.node_id % len(RACKS)])
        while True:
            try:
                store = await ZooKeeperMetadataStore.open(connect, self.clock, CLUSTER_ID)
                broker.store = store
                async with asyncio.TaskGroup() as tasks:
                    keeping = tasks.create_task(store.run())
                    broker.controller_epoch = max(broker.controller_epoch, await store.controller_epoch())
                    await store.register_broker(registration)
                    broker.controller = ClusterController(
                        store,
                        broker.node_id,
                        lambda live: self._way(broker, live),
                        lambda: broker.controller_epoch,
                        self.clock,
                        self.rng,
                        1,
                        self.balance,
                    )
                    tasks.create_task(broker.controller.run())
                    await keeping
            except* BrokerError:
                # ZooKeeper could not be reached in the middle of the start.
                broker.store, broker.controller = None, None
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                return
            await self.clock.sleep(1)

    def _way(self, source: SimBroker, target: LiveBroker) -> BrokerOrders:
        return Way(self, source.node_id, target.registration.node_id)

    async def kill(self, node: int) -> None:
        """At whatever it waits for. ZooKeeper learns of it when the session is over."""
        main, before = self.brokers[node].main, self.sessions.get(node)
        if main is not None:
            main.cancel()
            await asyncio.wait([main])
        if before is not None:
            before.cut()
        # Where it was started again meanwhile it may have a session of its own by now.
        if self.brokers[node].main is main and (session := self.sessions.pop(node, None)) is not None:
            session.cut()

    def pass_time(self, by_ms: int) -> None:
        for _ in range(max(1, by_ms // 500)):
            self.clock.advance(500)
            self.zookeeper.tick()

    # -- what stands in the end ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Everything works again: first for the brokers that run, then for those that were killed too. Raises
        Violation for what does not come to rest.
        """
        self.cut_ways.clear()
        for node, broker in self.brokers.items():
            if broker.runs and (session := self.sessions.get(node)) is not None and not session.reachable:
                session.mend()
        if any(broker.runs for broker in self.brokers.values()):
            await self._until_none(self._not_led)
        for node, broker in self.brokers.items():
            if not broker.runs:
                self.start(node)
        await self._until_none(self._unsettled)

    async def _until_none(self, ask: Callable[[], Awaitable[str | None]]) -> None:
        problem: str | None = ""
        for _ in range(60):
            for _ in range(300):
                await asyncio.sleep(0)
            if self.judge.violations:
                raise self.judge.violations[0]
            await self._catch_up()
            problem = await ask()
            if problem is None:
                return
            self.pass_time(1000)
        raise Violation(f"never at rest: {problem}")

    async def _catch_up(self) -> None:
        """Of what is being reassigned all replicas with a folder get in sync, as far as its leader knows of them."""
        for broker in self.brokers.values():
            if broker.store is None or not broker.runs:
                continue
            for where, state in broker.led().items():
                if not (state.adding_replicas or state.removing_replicas):
                    continue
                folder = (broker.states[where][0], where.partition)
                has = [n for n in state.replicas if self.brokers[n].runs and folder in self.brokers[n].folders]
                with suppress(BrokerError):
                    newest = (await broker.store.partition_states({where: state})).states.get(where)
                    if newest is not None and newest.leader_epoch == state.leader_epoch and set(newest.isr) != set(has):
                        await broker.store.write_isr({where: replace(newest, isr=tuple(has))})

    async def _not_led(self) -> str | None:
        """Of what a running broker has that is in sync."""
        running = {node: broker for node, broker in self.brokers.items() if broker.runs}
        if not running:  # the last one was about to leave
            return None
        store = next((broker.store for broker in running.values() if broker.store is not None), None)
        if store is None:
            return "no running broker has a session"
        try:
            topics, live = await store.topics(), await store.brokers()
        except BrokerError as error:
            return f"ZooKeeper cannot be read: {error}"
        if live.keys() != running.keys():
            return f"{sorted(running)} run, {sorted(live)} are registered"
        for name, topic in topics.items():
            for index, state in enumerate(topic.partitions):
                if set(state.isr) & running.keys() and state.leader not in running:
                    return f"{name}-{index} is led by {state.leader}, and {state.isr} are in sync"
        return None

    async def _unsettled(self) -> str | None:
        stores = [broker.store for broker in self.brokers.values() if broker.store is not None]
        if len(stores) != len(self.brokers):
            return "not every broker runs"
        try:
            topics, live = await stores[0].topics(), await stores[0].brokers()
            deletions = await stores[0].topic_deletions()
        except BrokerError as error:
            return f"ZooKeeper cannot be read: {error}"
        if live.keys() != self.brokers.keys():
            return f"only {sorted(live)} are registered"
        if deletions & topics.keys():
            return f"{deletions} are not deleted"
        for broker in self.brokers.values():
            if (problem := self._differs(broker, topics)) is not None:
                return problem
        return None

    def _differs(self, broker: SimBroker, topics: Mapping[str, TopicState]) -> str | None:
        wanted = {
            TopicPartition(name, index): (topic.topic_id, state)
            for name, topic in topics.items()
            for index, state in enumerate(topic.partitions)
        }
        for where, (_, state) in wanted.items():
            if state.adding_replicas or state.removing_replicas:
                return f"{where} is on its way: {state}"
            if state.version == UNWRITTEN or state.leader == NO_LEADER:
                return f"{where} has no leader, {state.isr} of {state.replicas} are in sync"
        own = {where: told for where, told in wanted.items() if broker.node_id in told[1].replicas}
        ordered = {where: (topic_id, _led(state)) for where, (topic_id, state) in broker.states.items()}
        if ordered != {where: (topic_id, _led(state)) for where, (topic_id, state) in own.items()}:
            return f"broker {broker.node_id} has {ordered}, not {own}"
        kept = {(topic_id, where.partition) for where, (topic_id, _) in own.items()}
        # What a refused growth made waits for the next one, or the next complete order.
        if broker.folders - {(topic_id, where.partition) for where, topic_id in broker.prepared.items()} != kept:
            return f"broker {broker.node_id} has folders of other partitions"
        topic_ids = {topic.topic_id for topic in topics.values()}
        if left := {stray for stray in broker.strays if stray[0] in self.led_ids - topic_ids}:
            return f"broker {broker.node_id} still has of deleted topics {left}"
        known = {name: replace(topic, version=0, config_version=0) for name, topic in broker.view.topics.items()}
        if known != {name: replace(topic, version=0, config_version=0) for name, topic in topics.items()}:
            return f"broker {broker.node_id} tells clients something else than is true"
        return None


def _is_no_news(known: PartitionState, state: PartitionState) -> bool:
    """To who leads already: it knows of its ISR before the controller does, and asks who is a replica once an epoch."""
    same = (known.leader, known.leader_epoch) == (state.leader, state.leader_epoch)
    return same and state.version <= known.version


def _led(state: PartitionState) -> tuple[int, int]:
    """What an order must have brought; of later changes of the ISR by leaders only the metadata tells."""
    return state.leader, state.leader_epoch
