"""Who is in sync, as it is written: by whom, when, and what is believed while the store's answer is out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from broker.cluster.metadata import BrokerRegistration, LiveBroker, PartitionState, TopicState, Written
from broker.cluster.metadata_store import OutcomeUnknown
from broker.cluster.order_messages import leader_and_isr_order, leader_and_isr_request
from broker.cluster.orders import LeaderAndIsr
from broker.controller.cluster import Cluster
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.replication.in_sync import InSyncReplicas
from broker.replication.leading import Leading
from broker.topics.partition import Partition
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.log.support import batch_of

LAG_MS = 10_000
EPOCH = 70
"""Of each follower's registration."""


@dataclass
class Store:
    """What stands there; `meets` is asked before each request and raises what becomes of it, `lost` after a write."""

    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    meets: Callable[[str], None] = lambda request: None
    lost: bool = False
    writes: list[set[TopicPartition]] = field(default_factory=list)

    async def write_isr(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        await asyncio.sleep(0)
        self.meets("write")
        self.writes.append(set(states))
        written = {w: replace(s, version=s.version + 1) for w, s in states.items() if s.version == self.version(w)}
        self.states.update(written)
        if self.lost:
            raise OutcomeUnknown("the connection broke")
        return Written(written, frozenset(states.keys() - written.keys()))

    def version(self, where: TopicPartition) -> int:
        return self.states[where].version

    async def partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        await asyncio.sleep(0)
        self.meets("read")
        return Written({where: self.states[where] for where in states}, frozenset())


class World:
    """Partitions that broker 1 leads, with followers 2 and 3."""

    def __init__(
        self, folder: Path, isr: tuple[int, ...] = (1, 2, 3), count: int = 1, state: PartitionState | None = None
    ) -> None:
        self.clock = ManualClock()
        self.store = Store()
        self.brokers = {node: LiveBroker(BrokerRegistration(node, ()), EPOCH) for node in (2, 3)}
        self.partitions: list[Partition] = []
        for index in range(count):
            log = PartitionLog.open(folder / f"t-{index}", LogConfig(), self.clock)
            state = state or PartitionState(1, 4, (3, 1, 2), isr, version=0)
            partition = Partition("t", index, log, state)
            partition.lead(state, self.now_ms)
            log.append(batch_of(b"v"), leader_epoch=4)
            self.partitions.append(partition)
            self.store.states[TopicPartition("t", index)] = state
        self.keeper = InSyncReplicas(
            self.store, lambda: self.partitions, lambda: self.brokers, self.clock, lag_max_ms=LAG_MS
        )

    @property
    def now_ms(self) -> float:
        return self.clock.monotonic() * 1000

    def leading(self, index: int = 0) -> Leading:
        leading = self.partitions[index].leading
        assert leading is not None
        return leading

    def fetch(self, node: int, offset: int, index: int = 0, epoch: int = EPOCH) -> None:
        self.partitions[index].follower_fetched(node, offset, 0, self.now_ms, epoch)
        self.keeper.fetched(self.partitions[index], node)

    def isr(self, index: int = 0) -> tuple[int, ...]:
        """As it stands in the store, which this leader knows."""
        assert self.partitions[index].isr == self.store.states[TopicPartition("t", index)].isr
        return self.partitions[index].isr


async def test_who_has_not_caught_up_for_too_long_goes_and_what_waits_for_him_is_acknowledged(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.fetch(2, 1)
    world.clock.advance(LAG_MS)
    await world.keeper.shrink()
    assert world.isr() == (1, 2, 3)
    world.fetch(2, 1)
    world.clock.advance(1)
    waiting = asyncio.create_task(world.partitions[0].wait_replicated(1, 60_000))
    await world.keeper.shrink()
    assert world.isr() == (1, 2), "in the order of the replicas, which is 3, 1, 2"
    await waiting


async def test_who_has_caught_up_comes_in_and_is_waited_for_before_it_is_written(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1,))
    world.fetch(2, 0)
    await world.keeper.expand()
    assert world.isr() == (1,)
    world.fetch(2, 1)
    expanding = asyncio.create_task(world.keeper.expand())
    await asyncio.sleep(0)
    world.partitions[0].log.append(batch_of(b"v"), leader_epoch=4)
    assert (world.leading().high_watermark, world.partitions[0].isr) == (1, (1,))
    await expanding
    assert world.isr() == (1, 2)


async def test_of_a_broker_that_was_restarted_nothing_is_known(tmp_path: Path) -> None:
    """KIP-903: what it had acknowledged before it may be gone."""
    world = World(tmp_path, isr=(1,))
    world.fetch(2, 1)
    world.brokers[2] = LiveBroker(BrokerRegistration(2, ()), EPOCH + 1)
    await world.keeper.expand()
    assert world.isr() == (1,)
    world.fetch(2, 1, epoch=EPOCH + 1)
    await world.keeper.expand()
    assert world.isr() == (1, 2)


async def test_it_is_written_in_which_life_each_was_found_in_sync(tmp_path: Path) -> None:
    """The controller may know of a later one already."""
    world = World(tmp_path, isr=(1,))
    world.fetch(2, 1)
    await world.keeper.expand()
    world.fetch(3, 1, epoch=EPOCH + 3)
    world.brokers[3] = LiveBroker(BrokerRegistration(3, ()), EPOCH + 3)
    await world.keeper.expand()
    assert world.isr() == (3, 1, 2)
    assert world.store.states[TopicPartition("t", 0)].isr_epochs == ((3, EPOCH + 3), (2, EPOCH))
    world.clock.advance(LAG_MS + 1)
    world.partitions[0].log.append(batch_of(b"v"), leader_epoch=4)
    world.fetch(2, 2)
    await world.keeper.shrink()
    assert world.store.states[TopicPartition("t", 0)].isr_epochs == ((2, EPOCH),)


async def test_what_the_controller_noted_of_a_life_outlasts_what_the_leader_writes(tmp_path: Path) -> None:
    """Of who died before it fetched from this leader: it is back with less than was acknowledged under the one before,
    and the controller is another one, which saw nothing of that.
    """
    where, live = TopicPartition("t", 0), {1: EPOCH, 2: EPOCH, 3: EPOCH}
    elected = PartitionState(1, 4, (3, 1, 2), (3, 1), version=0, isr_epochs=((3, EPOCH), (1, EPOCH)))
    topic = TopicState("t", UUID(int=1), (elected,))
    order = LeaderAndIsr(2, 1, EPOCH, {"t": topic}, {where: elected}, {})
    ordered = leader_and_isr_order(leader_and_isr_request(order)).partitions[where]
    world = World(tmp_path, state=ordered)
    live[3] = EPOCH + 1
    world.fetch(2, 1)
    await world.keeper.expand()
    assert world.isr() == (3, 1, 2)
    written = replace(world.store.states[where], written_at=EPOCH + 2)
    brokers = {node: LiveBroker(BrokerRegistration(node, ()), epoch) for node, epoch in live.items()}
    after = Cluster({"t": replace(topic, partitions=(written,))}, brokers).elections_after_taking_over()[where]
    assert (after.leader, after.isr) == (1, (1, 2))


async def test_a_change_that_was_made_and_not_answered_is_found(tmp_path: Path) -> None:
    world = World(tmp_path, isr=(1,))
    world.store.lost = True
    world.fetch(2, 1)
    await world.keeper.expand()
    assert (world.partitions[0].isr, world.leading().maximal_isr) == ((1,), frozenset({1, 2}))
    await world.keeper.read_back()
    assert (world.isr(), world.leading().pending) == ((1, 2), None)


async def test_a_change_that_was_not_made_is_asked_for_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.clock.advance(LAG_MS + 1)
    world.store.meets = refuse("write")
    await world.keeper.shrink()
    assert world.leading().maximal_isr == {1, 2, 3}
    await world.keeper.shrink()
    assert world.store.writes == [], "while it is not known what became of the first there is no second"
    world.store.meets = refuse("read")
    await world.keeper.read_back()
    assert world.leading().pending == frozenset({1})
    world.store.meets = lambda request: None
    await world.keeper.read_back()
    await world.keeper.shrink()
    assert world.isr() == (1,)


async def test_a_partition_of_which_nothing_is_known_stops_no_other(tmp_path: Path) -> None:
    """Somebody else leads it, and this broker was not told yet."""
    world = World(tmp_path, isr=(1,), count=2)
    first = TopicPartition("t", 0)
    world.store.states[first] = replace(world.store.states[first], leader=2, leader_epoch=5, version=1)
    world.fetch(2, 1, index=0)
    await world.keeper.expand()
    assert world.leading(0).pending == frozenset({1, 2})
    world.fetch(2, 1, index=1)
    await world.keeper.expand()
    assert world.isr(1) == (1, 2)
    world.partitions[0].follow(world.store.states[first])
    await world.keeper.read_back()
    assert world.partitions[0].isr == (1,)


async def test_what_fell_behind_together_is_written_together(tmp_path: Path) -> None:
    world = World(tmp_path, count=5)
    world.clock.advance(LAG_MS + 1)
    await world.keeper.shrink()
    assert [len(write) for write in world.store.writes] == [5]


def refuse(unknown: str) -> Callable[[str], None]:
    def meet(request: str) -> None:
        if request == unknown:
            raise OutcomeUnknown("the connection broke")

    return meet
