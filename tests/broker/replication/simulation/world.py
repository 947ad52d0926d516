"""Three replicas of a partition, a store and a controller, on one clock: everything that happens follows from the seed.

Real are the logs, what leaders and followers know of each other, the loops that fetch and those that write the ISR.
What they reach (`surroundings.py`), the store and the model of a controller cannot fail here, but are far away: what
they say comes late, twice, in the wrong order or not at all. A node's connection to the store is in order, as a session
of ZooKeeper is; one to a leader is not: an old request may be answered after a newer one.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from broker.cluster.metadata import NO_LEADER, BrokerRegistration, LiveBroker, PartitionState
from broker.log.config import LogConfig
from broker.replication.followers import Connect
from broker.replication.in_sync import IsrStore
from broker.replication.throttling import ALL, UNLIMITED
from broker.wire.records import Record, encode_batch
from tests.broker.log.crashing import Crashed
from tests.broker.replication.simulation.judge import Found, Judge
from tests.broker.replication.simulation.node import Node, WorldClock
from tests.broker.replication.simulation.surroundings import STORE, SimConnection, SimStore
from tests.mirror.simulation.loop import SimulatedLoop

NODES: Final = (1, 2, 3)
CHAOS_MS: Final = 1500.0
SETTLING_MS: Final = 20.0
SETTLED_MS: Final = 12_000.0
SESSION_MS: Final = 250.0


class World:
    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.loop = SimulatedLoop()
        self.clock = WorldClock(self.loop)
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        config = LogConfig(
            segment_bytes=self.rng.choice([400, 900, 100_000]),
            index_interval_bytes=100,
            retention_ms=-1,
            min_insync_replicas=self.rng.choice([1, 2, 2]),
            leader_replication_throttled_replicas=frozenset(self.rng.choice([(), (ALL,), ("0:1", "0:3")])),
            follower_replication_throttled_replicas=frozenset(self.rng.choice([(), (ALL,), ("0:2",)])),
        )
        self.nodes = {one: Node(one, directory / f"{one}" / "t-0", self.clock, self.rng, config, self) for one in NODES}
        for node in self.nodes.values():
            node.bytes_per_s = self.rng.choice([UNLIMITED, 20_000, 5_000])
        self.state = PartitionState(1, 0, NODES, NODES, version=0)
        self.live = set(NODES)
        self.judge = Judge(frozenset(NODES))
        self.cut: dict[frozenset[int], float] = {}
        self.written = 0
        self._epochs = 0
        self.wild = True
        self._store_ms = dict.fromkeys(NODES, 0.0)
        self._told_ms = dict.fromkeys(NODES, 0.0)
        self._trouble = self.rng.choice([40.0, 90.0, 200.0])
        self._loss = self.rng.choice([0.0, 0.03, 0.1])
        self._near = self.rng.choice([0.98, 0.9, 0.75])

    # -- what nodes reach ------------------------------------------------------------------------------------------

    def connected(self, node: Node) -> Connect:
        async def connect(peer: int) -> SimConnection:
            return SimConnection(self, node, self.nodes[peer])

        return connect

    def store(self, node: Node) -> IsrStore:
        return SimStore(self, node)

    def brokers(self) -> Mapping[int, LiveBroker]:
        return {one: LiveBroker(BrokerRegistration(one, ()), node.epoch) for one, node in self.nodes.items()}

    def new_epoch(self) -> int:
        self._epochs += 1
        return self._epochs

    # -- time and distance -----------------------------------------------------------------------------------------

    def at(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.loop.call_later(delay_ms / 1000, action)

    def at_node(self, delay_ms: float, node: Node, action: Callable[[], None], life: int | None = None) -> None:
        """Where the node is paused, when it goes on; where it is another life by then, never."""
        life = node.life if life is None else life

        def act() -> None:
            if not node.up or node.life != life:
                return
            if node.paused_until_ms > self.clock.ms:
                self.at_node(node.paused_until_ms - self.clock.ms + self.rng.random(), node, action, life)
                return
            try:
                if not node.dead:
                    action()
            except Crashed:
                self.crash(node)
                return
            self.look(node, life)
            # And when the loop that got an answer has done with it what it does.
            self.loop.call_soon(self.look, node, life)

        self.at(delay_ms, act)

    def look(self, node: Node, life: int) -> None:
        if node.dead or node.life != life:
            return
        self.judge.look(node)
        for one in node.acknowledged():
            self.counts["acknowledged"] += 1
            self.judge.acknowledged(node, one)

    def reaches(self, one: int, other: int) -> bool:
        return self.cut.get(frozenset((one, other)), 0.0) <= self.clock.ms and self.rng.random() >= self._loss

    def note(self, what: str) -> None:
        self.trace.append(f"{self.clock.ms:8.1f} {what}")

    # -- the whole -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises Found."""
        try:
            self.loop.run(self._whole())
        finally:
            for node in self.nodes.values():
                if node.up:
                    node.stop()

    async def _whole(self) -> None:
        for node in self.nodes.values():
            self.begin(node)
        self.order_all()
        self.at(10, self.produce)
        self.at(self._trouble, self.disturb)
        await asyncio.sleep(CHAOS_MS / 1000)
        self.wild, self.cut, self._loss = False, {}, 0.0
        while not self.settled():
            if self.clock.ms > SETTLED_MS:
                raise Found(f"nothing settles: {self.state}, {[self.told_of(node) for node in self.nodes.values()]}")
            await asyncio.sleep(SETTLING_MS / 1000)

    def settled(self) -> bool:
        nodes = list(self.nodes.values())
        if set(self.state.isr) != set(NODES) or not all(node.up for node in nodes):
            return False
        if any(node.partition.leader_epoch != self.state.leader_epoch for node in nodes):
            return False
        leader = self.nodes[self.state.leader]
        end = leader.log.log_end_offset
        if any(node.log.log_end_offset != end or node.log.high_watermark != end for node in nodes):
            return False
        for node in nodes:
            start = max(node.log.log_start_offset, leader.log.log_start_offset)
            mine, theirs = ([b for b in self.judge.content(n) if b.next_offset > start] for n in (node, leader))
            if mine != theirs:
                raise Found(f"{node.node_id} and its leader end at {end} with different records")
        return True

    def told_of(self, node: Node) -> str:
        if not node.up:
            return f"{node.node_id} is down"
        end = node.log.log_end_offset
        return f"{node.node_id} leads={node.leads} {node.partition.leader_epoch} {end} {node.log.high_watermark}"

    def begin(self, node: Node) -> None:
        node.start()
        self.note(f"{node.node_id} starts, its log ends at {node.log.log_end_offset}")
        self.at_node(self.rng.uniform(20, 60), node, lambda: self.checkpoint(node))
        node.task = self.loop.create_task(self.live_on(node, node.life))
        self.judge.look(node)

    async def live_on(self, node: Node, life: int) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(node.followers.run())
                tasks.create_task(node.in_sync.run())
        except* Crashed:
            if node.up and node.life == life:
                self.crash(node)

    def checkpoint(self, node: Node) -> None:
        self.at_node(self.rng.uniform(30, 70), node, lambda: self.checkpoint(node))
        node.checkpoint = node.log.high_watermark

    def due_at_store(self, node: Node) -> float:
        """How long what the node asks of the store now is on its way, in order with what it asked before."""
        return self._in_order(self._store_ms, node)

    def due_back(self, node: Node) -> float:
        return self._in_order(self._told_ms, node)

    def _in_order(self, last_ms: dict[int, float], node: Node) -> float:
        due_ms = last_ms[node.node_id] = max(last_ms[node.node_id], self.clock.ms + self.far())
        return due_ms - self.clock.ms

    def far(self) -> float:
        return self.rng.choice([0.5, 1, 3, 3, 8, 30]) if self.rng.random() < self._near else self.rng.uniform(50, 300)

    # -- the store and the controller ------------------------------------------------------------------------------

    def stored(self, state: PartitionState) -> None:
        self.state = state
        self.note(f"stored: leader {state.leader} epoch {state.leader_epoch} isr {state.isr}")
        self.judge.stored(state)

    def elect(self, *, elsewhere: bool = False) -> None:
        """As the controller does: a leader out of those in sync that live; who was last in sync is waited for."""
        state = self.state
        isr = tuple(node for node in state.isr if node in self.live)
        if not isr:
            if state.leader != NO_LEADER:
                self.lead(NO_LEADER, state.isr)
            return
        others = [node for node in isr if node != state.leader]
        if elsewhere and others:
            self.lead(self.rng.choice(others), isr)
        elif state.leader not in isr or isr != state.isr:
            self.lead(state.leader if state.leader in isr else self.rng.choice(isr), isr)

    def lead(self, leader: int, isr: tuple[int, ...]) -> None:
        changed = replace(self.state, leader=leader, isr=isr, leader_epoch=self.state.leader_epoch + 1)
        self.stored(replace(changed, version=self.state.version + 1))
        self.counts["elections"] += 1
        self.order_all()

    def order_all(self) -> None:
        """And again until the next one: a controller asks until it is answered."""
        state = self.state
        for node in self.nodes.values():
            if self.reaches(node.node_id, STORE) or not self.wild:
                self.at_node(self.far(), node, partial(node.order, state, node.epoch))
        self.at(120, lambda: self.order_all() if self.state.leader_epoch == state.leader_epoch else None)

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def produce(self) -> None:
        self.at(self.rng.uniform(2, 25), self.produce)
        leaders = [node for node in self.nodes.values() if node.leads]
        if not leaders or not self.wild:
            return
        node = self.rng.choice(leaders)
        self.written += 1
        values = [b"%d" % self.written] * self.rng.choice([1, 1, 3])
        batch = encode_batch([Record(i, 0, b"k", value) for i, value in enumerate(values)])
        acks = self.rng.choice([-1, -1, -1, 1])
        self.at_node(0, node, lambda: self.counts.update(produced=node.produce(batch, acks) is not None))

    def disturb(self) -> None:
        if not self.wild:
            return
        self.at(self.rng.expovariate(1 / self._trouble), self.disturb)
        node = self.nodes[self.rng.choice(NODES)]
        what = self.rng.choice(
            ["crash", "torn", "pause", "cut", "cut", "elect", "there and back", "there and back", "delete", "delete"]
        )
        if not node.up:
            return
        self.note(f"{what} {node.node_id}")
        if what == "crash":
            self.crash(node)
        elif what == "torn":
            node.disk.dies_at = node.disk.changes + self.rng.randint(1, 8)
        elif what == "pause":
            self.pause(node)
        elif what == "cut":
            other = self.rng.choice([one for one in (STORE, *NODES) if one != node.node_id])
            length_ms = self.rng.uniform(30, 900)
            self.cut[frozenset((node.node_id, other))] = self.clock.ms + length_ms
            if other == STORE:
                self.out(node, length_ms)
        elif what == "elect":
            self.elect(elsewhere=True)
        elif what == "there and back":
            for delay_ms in (0, self.rng.uniform(5, 40), self.rng.uniform(40, 80)):
                self.at(delay_ms, lambda: self.elect(elsewhere=True))
        elif node.leads:
            middle = (node.log.log_start_offset + node.log.high_watermark) // 2
            self.at_node(0, node, lambda: self.counts.update(deleted=node.log.delete_records_before(middle) > 0))

    def crash(self, node: Node) -> None:
        self.counts["crashes"] += 1
        self.counts["torn"] += node.dead
        self.note(f"{node.node_id} dies")
        node.stop()
        node.task.cancel()
        life = node.life
        self.at(self.rng.uniform(20, 300), lambda: self.gone(node, life))
        self.at(self.rng.uniform(10, 700), lambda: self.restart(node))

    def gone(self, node: Node, life: int) -> None:
        if node.life == life:
            self.live.discard(node.node_id)
            self.elect()

    def restart(self, node: Node) -> None:
        """Its registration is a new one: the one before it has ended, whether or not that was noticed."""
        self.live.discard(node.node_id)
        self.elect()
        self.begin(node)
        self.live.add(node.node_id)
        self.elect()
        self.order_all()

    def pause(self, node: Node) -> None:
        self.counts["pauses"] += 1
        length_ms = self.rng.uniform(20, 800)
        node.paused_until_ms = max(node.paused_until_ms, self.clock.ms + length_ms)
        self.out(node, length_ms)

    def out(self, node: Node, length_ms: float) -> None:
        """The store hears nothing of it; if that takes too long its session ends, and it has another one then."""
        now_ms, life = self.clock.ms, node.life
        if node.out_until_ms <= now_ms:
            node.out_since_ms = now_ms
        node.out_until_ms = max(node.out_until_ms, now_ms + length_ms)
        over_ms = node.out_since_ms + SESSION_MS
        if node.out_until_ms > over_ms >= now_ms:
            self.at(over_ms - now_ms, lambda: self.expired(node, life))
        self.at(length_ms, lambda: self.back(node, life))

    def expired(self, node: Node, life: int) -> None:
        if node.up and node.life == life and node.node_id in self.live:
            self.counts["expiries"] += 1
            self.note(f"the session of {node.node_id} is over")
            self.gone(node, life)

    def back(self, node: Node, life: int) -> None:
        if (
            node.life == life
            and node.up
            and self.clock.ms + 0.01 >= node.out_until_ms
            and node.node_id not in self.live
        ):
            node.epoch = self.new_epoch()
            self.live.add(node.node_id)
            self.elect()
            self.order_all()
