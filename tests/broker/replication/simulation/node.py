"""One replica: the broker's own code over a real log on a disk that can die, and what stands for the rest of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

from broker.broker import Broker
from broker.cluster.metadata import PartitionState
from broker.handlers import fetch
from broker.handlers.handler import RequestContext
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.replication.following import Following
from broker.topics.errors import NotEnoughReplicasAfterAppend, NotLeading, UnknownTopic
from broker.topics.fetch_sessions import FetchSessions
from broker.topics.partition import Partition
from broker.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from tests.broker.log.crashing import CrashingDisk

TOPIC: Final = "t"
TOPIC_ID: Final = UUID(int=7)
LAG_MS: Final = 400.0
_CONTEXT: Final = RequestContext(17, "follower", "node", {}, inter_broker=True)


class WorldClock:
    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic(self) -> float:
        return self.ms / 1000

    def boottime(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits {seconds} s by himself in here")


@dataclass(eq=False)
class Appended:
    """What a producer waits for."""

    life: int
    leader_epoch: int
    end_offset: int


@dataclass(eq=False)
class Node:
    """`life` counts starts: what was asked in another life reaches nobody."""

    node_id: int
    directory: Path
    clock: WorldClock
    rng: random.Random
    config: LogConfig
    peers: tuple[int, ...]
    life: int = 0
    up: bool = False
    paused_until_ms: float = 0.0
    known: PartitionState | None = None
    checkpoint: int = 0
    disk: CrashingDisk = field(default_factory=CrashingDisk)
    awaited: list[Appended] = field(default_factory=list)
    # Of the store's answers: a change that was asked for, and when.
    asked_ms: float | None = None
    polled: dict[int, FetchRequest | None] = field(default_factory=dict)
    """The fetches whose answers are waited for, by the broker that was asked."""

    def start(self) -> None:
        self.life += 1
        self.up, self.known, self.asked_ms, self.polled, self.awaited = True, None, None, {}, []
        self.disk = CrashingDisk()
        opened = PartitionLog.open(self.directory, self.config, self.clock, self.disk)
        self.partition = Partition(TOPIC, 0, opened, PartitionState(-1, -1, (), ()), self.checkpoint)
        replica = ReplicaState(self.node_id, self.life)
        self.following = {peer: Following(replica, lambda _: 20.0) for peer in self.peers}
        self.sessions = FetchSessions(self.clock, lambda: self.rng.randrange(1, 2**31))
        self._broker = cast(
            Broker,
            SimpleNamespace(
                config=SimpleNamespace(fetch_max_bytes=1 << 20, node_id=self.node_id, rack=None),
                unsent_bytes=0,
                advertised=("node", self.node_id),
                clock=self.clock,
                fetch_sessions=self.sessions,
                view=SimpleNamespace(require_by_id=self._topic),
                require_partition=self._led,
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

    def _led(self, topic: str, index: int) -> Partition:
        if self.partition.leading is None:
            raise NotLeading(f"{topic}-{index}")
        return self.partition

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    @property
    def leads(self) -> bool:
        return self.up and self.partition.leading is not None

    # -- orders ----------------------------------------------------------------------------------------------------

    def order(self, state: PartitionState) -> None:
        """As a broker takes LeaderAndIsr: each leader epoch once, in their order."""
        if self.known is not None and state.leader_epoch <= self.known.leader_epoch:
            return
        self.known, self.asked_ms = state, None
        for following in self.following.values():
            following.forget(TOPIC_ID, 0)
        if state.leader == self.node_id:
            self.partition.lead(state, self.clock.ms)
            return
        self.partition.follow(state)
        if state.leader >= 0:
            self.following[state.leader].follow(TOPIC_ID, self.partition)

    def stored(self, state: PartitionState) -> None:
        """What the store says of the partition: the outcome of a change of the ISR."""
        self.asked_ms = None
        if state.leader_epoch == self.partition.leader_epoch and state.version >= self.partition.state.version:
            self.partition.take_state(state, self.clock.ms)

    def wanted_isr(self) -> PartitionState | None:
        """A change of the ISR that this leader is to ask the store for now."""
        leading, state = self.partition.leading, self.partition.state
        if leading is None:
            return None
        isr = leading.shrink(self.log.log_end_offset, LAG_MS, self.clock.ms)
        for node_id in state.replicas:
            if isr is None and node_id != self.node_id:
                isr = leading.expand(node_id)
        if isr is None:
            return None
        leading.begin_change(isr)
        self.asked_ms = self.clock.ms
        return PartitionState(self.node_id, leading.epoch, state.replicas, tuple(sorted(isr)), version=state.version)

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
        if leading is None or (acks < 0 and not leading.may_append(self.log.config.min_insync_replicas)):
            return None
        appended = self.log.append(batch, leader_epoch=leading.epoch)
        if acks < 0:
            self.awaited.append(Appended(self.life, leading.epoch, appended.last_offset + 1))
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
