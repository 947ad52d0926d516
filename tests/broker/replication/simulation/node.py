"""One replica: the broker's own code over a real log on a disk that can die, and what stands for the rest of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol, cast
from uuid import UUID

from broker.broker import Broker
from broker.cluster.metadata import LiveBroker, PartitionState
from broker.handlers import fetch
from broker.handlers.handler import RequestContext
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.replication.followers import Connect, Followers
from broker.replication.in_sync import InSyncReplicas, IsrStore
from broker.replication.throttling import UNLIMITED, ReplicationQuota
from broker.topics.errors import NotEnoughReplicasAfterAppend, NotLeading, UnknownTopic
from broker.topics.fetch_sessions import FetchSessions
from broker.topics.partition import Partition
from broker.wire.batch import peek
from broker.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from tests.broker.log.crashing import CrashingDisk
from tests.broker.replication.simulation.judge import Appended
from tests.mirror.simulation.loop import SimulatedLoop

TOPIC: Final = "t"
TOPIC_ID: Final = UUID(int=7)
LAG_MS: Final = 400.0
ALIVE_MS: Final = 200.0
"""From what was last heard of the store; a session ends later."""
_CONTEXT: Final = RequestContext(17, "follower", "node", {}, inter_broker=True)


class WorldClock:
    """The time of the simulated loop, from 0 on."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    @property
    def ms(self) -> float:
        return self._loop.now * 1000

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic(self) -> float:
        return self._loop.now

    def boottime(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Surroundings(Protocol):
    """What a node has beside itself."""

    def connected(self, node: Node) -> Connect: ...

    def store(self, node: Node) -> IsrStore: ...

    def brokers(self) -> Mapping[int, LiveBroker]: ...

    def new_epoch(self) -> int: ...


@dataclass(eq=False)
class Node:
    """`life` counts starts: what was asked in another life reaches nobody. `epoch` is that of its registration, which a
    session that ended takes with it: from `alive_until_ms` on, which is before that, the node leads nothing.
    """

    node_id: int
    directory: Path
    clock: WorldClock
    rng: random.Random
    config: LogConfig
    world: Surroundings
    life: int = 0
    up: bool = False
    epoch: int = 0
    out_since_ms: float = 0.0
    out_until_ms: float = 0.0
    paused_until_ms: float = 0.0
    known: PartitionState | None = None
    checkpoint: int = 0
    bytes_per_s: int = UNLIMITED
    """That it copies and lets be copied of what is held back."""
    disk: CrashingDisk = field(default_factory=CrashingDisk)
    task: asyncio.Task[None] = field(init=False)
    """Of this life."""
    awaited: list[Appended] = field(default_factory=list)

    def start(self) -> None:
        self.life += 1
        self.up, self.known, self.awaited = True, None, []
        self.epoch, self.out_until_ms = self.world.new_epoch(), 0.0
        self.disk = CrashingDisk()
        opened = PartitionLog.open(self.directory, self.config, self.clock, self.disk)
        self.partition = Partition(TOPIC, 0, opened, PartitionState(-1, -1, (), ()), self.checkpoint)
        self.quotas = ReplicationQuota(), ReplicationQuota()
        for quota in self.quotas:
            quota.limit(self.bytes_per_s, self.clock.ms)
        self.followers = Followers(self.world.connected(self), self._replica, self.clock, self.rng, self.quotas[0])
        self.in_sync = InSyncReplicas(
            self.world.store(self), lambda: [self.partition], self.world.brokers, self.clock, LAG_MS
        )
        self.sessions = FetchSessions(self.clock, lambda: self.rng.randrange(1, 2**31))
        self._broker = cast(
            Broker,
            SimpleNamespace(
                config=SimpleNamespace(fetch_max_bytes=1 << 20, node_id=self.node_id, rack=None),
                unsent_bytes=0,
                advertised_at=lambda _: ("node", self.node_id),
                clock=self.clock,
                fetch_sessions=self.sessions,
                view=SimpleNamespace(require_by_id=self._topic),
                require_partition=self._led,
                in_sync=self.in_sync,
                leader_quota=self.quotas[1],
            ),
        )

    def stop(self, *, clean: bool = False) -> None:
        self.up = False
        if clean:
            self.partition.log.close()
        else:
            self.partition.log._store.release()

    def _topic(self, topic_id: UUID) -> Any:
        if topic_id != TOPIC_ID:
            raise UnknownTopic(str(topic_id))
        return SimpleNamespace(name=TOPIC)

    def _replica(self) -> ReplicaState:
        return ReplicaState(self.node_id, self.epoch)

    @property
    def alive_until_ms(self) -> float:
        """Nothing is heard of the store: by its own clock it stops before its session is over."""
        out = self.out_since_ms <= self.clock.ms < self.out_until_ms
        return self.out_since_ms + ALIVE_MS if out else float("inf")

    def _led(self, topic: str, index: int) -> Partition:
        if not self.serves:
            raise NotLeading(f"{topic}-{index}")
        return self.partition

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    @property
    def dead(self) -> bool:
        """Its disk is, so whatever it did after that was not done."""
        return not self.up or (self.disk.dies_at is not None and self.disk.changes >= self.disk.dies_at)

    @property
    def leads(self) -> bool:
        return self.up and self.partition.leading is not None

    @property
    def serves(self) -> bool:
        """As `Broker.require_partition` has it."""
        ordered = self.leads and self.partition.ordered_in >= self.epoch
        return ordered and self.clock.ms < self.alive_until_ms

    # -- orders ----------------------------------------------------------------------------------------------------

    def order(self, state: PartitionState, epoch: int) -> None:
        """As a broker takes LeaderAndIsr: in this registration, each leader epoch once, in their order."""
        if epoch < self.epoch or (self.known is not None and state.leader_epoch < self.known.leader_epoch):
            return
        self.partition.ordered_in = epoch
        if self.known is not None and state.leader_epoch == self.known.leader_epoch:
            return
        self.known = state
        self.followers.forget(TOPIC_ID, 0)
        if state.leader == self.node_id:
            self.partition.lead(state, self.clock.ms)
            return
        self.partition.follow(state)
        if state.leader >= 0:
            self.followers.follow(state.leader, TOPIC_ID, self.partition)

    # -- what others ask -------------------------------------------------------------------------------------------

    def answer(self, request: FetchRequest) -> FetchResponse:
        request.max_wait_ms = 0
        work = fetch.handle(self._broker, request, _CONTEXT)
        try:
            work.send(None)
        except StopIteration as done:
            response: FetchResponse = done.value
            return response
        raise AssertionError("a fetch that may not wait did")

    def produce(self, batch: bytearray, acks: int) -> int | None:
        """The end of the batch in the log; None where it was refused."""
        leading = self.partition.leading
        if leading is None or not self.serves:
            return None
        if acks < 0 and not leading.may_append(self.log.config.min_insync_replicas):
            return None
        appended = self.log.append(batch, leader_epoch=leading.epoch)
        if acks < 0:
            self.awaited.append(Appended(leading.epoch, appended.last_offset + 1, peek(batch).crc))
        return appended.last_offset + 1

    def acknowledged(self) -> list[Appended]:
        """Whose wait is over: with success. Failures are dropped, nobody knows what becomes of them."""
        done: list[Appended] = []
        rest: list[Appended] = []
        for one in self.awaited:
            try:
                (done if self.partition.is_replicated(one.end_offset, one.leader_epoch) else rest).append(one)
            except (NotLeading, NotEnoughReplicasAfterAppend):
                continue
        self.awaited = rest
        return done
