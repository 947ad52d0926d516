"""Whole brokers on simulated time: all that `serving` runs, three or four times, in one event loop.

Real are the brokers, from their connections to their logs: the controller, replicas, coordinators, and what they say to
each other, byte by byte. Simulated are time, the network, ZooKeeper, threads and a disk that dies at any change. A
broker may die or stand still at any await. Everything that happens follows from the seed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from uuid import UUID

from broker.base.clock import Clock
from broker.base.errors import FarshoreError
from broker.cluster.view import ClusterView
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import ZooKeeperUnreachable
from broker.cluster.zookeeper.session import OpenSession, ZooKeeper
from broker.config import BrokerConfig
from broker.log.partition_log import PartitionLog
from broker.outside import Outside
from broker.server import Server, serving
from broker.topics.partition import Partition
from tests.broker.controller.checked_zookeeper import Judge as StateJudge
from tests.broker.replication.simulation.judge import Found, Judge
from tests.broker.simulation.host import NodeClock, SimDisk
from tests.broker.simulation.loop import NOBODY, ClusterLoop, Life, context_of
from tests.broker.simulation.network import CLIENTS, Network, name_of
from tests.broker.simulation.zookeeper import ZOOKEEPER, SimSession, SimZooKeeper
from tests.mirror.simulation.loop import SimulatedClock

SESSION_MS: Final = 1500
TICK_S: Final = 0.1
LAG_MS: Final = 800
CONNECT_S: Final = 2.0
LOCK_FILE: Final = ".lock"


@dataclass(frozen=True, slots=True)
class SimReplica:
    """One partition of one life, as the judge looks at it."""

    node_id: int
    life: int
    partition: Partition

    @property
    def log(self) -> PartitionLog:
        return self.partition.log


class SimNode:
    """A host: its folder outlives the processes on it."""

    def __init__(self, node_id: int, folder: Path, clock: NodeClock) -> None:
        self.node_id = node_id
        self.folder = folder
        self.clock = clock
        self.life = Life(node_id, 0, dead=True)
        self.disk: SimDisk | None = None
        self.server: Server | None = None
        self.stop = asyncio.Event()
        self.is_full = False
        """Its disk takes nothing."""
        self.seen: dict[int, tuple[object, ...]] = {}

    @property
    def runs(self) -> bool:
        return self.server is not None and not self.life.dead


class World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.loop = ClusterLoop(random.Random(f"threads {seed}"))
        self.loop.turned = self._look
        asyncio.set_event_loop(self.loop)
        self.clock = SimulatedClock(self.loop)
        self.network = Network(self.loop, random.Random(f"network {seed}"), self.rng.choice([0.0, 0.01, 0.05]))
        self.states = StateJudge()
        self.zookeeper = SimZooKeeper(self.clock, self.states, self.network, SESSION_MS)
        size = self.rng.choice([3, 3, 4])
        self.nodes = {one: SimNode(one, folder / f"{one}", NodeClock(self.loop)) for one in range(1, size + 1)}
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.judges: dict[tuple[UUID, int], Judge] = {}
        self.ended: list[asyncio.Task[None]] = []
        """Those of dead lives are kept: if they were collected, what they do in the end would be done now."""
        self._topic_ids: dict[str, UUID] = {}
        self._lives = count(1)
        self.over = False

    def note(self, what: str) -> None:
        self.trace.append(f"{self.loop.time():9.4f} {what}")

    # -- lives -----------------------------------------------------------------------------------------------------

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if not node.life.dead:
            return
        life = node.life = Life(node_id, next(self._lives))
        disk = node.disk = SimDisk(lambda: self._torn(life), lambda: node.is_full)
        node.server, node.stop = None, asyncio.Event()
        self.note(f"{node_id} starts")
        outside = Outside(
            node.clock, self._open_session(node), disk, random.Random(self.rng.random()), self.network.bind
        )
        task = self.loop.create_task(self._live(node, life, outside), context=context_of(life))
        task.add_done_callback(lambda done: self._ended(node, life, done), context=NOBODY)
        self.ended.append(task)

    async def _live(self, node: SimNode, life: Life, outside: Outside) -> None:
        config = BrokerConfig(
            node.folder,
            name_of(life),
            node_id=node.node_id,
            zookeeper="zk",
            zookeeper_session_timeout_ms=SESSION_MS,
            replica_lag_time_max_ms=LAG_MS,
            inter_broker_listen_port=9093,
            leader_imbalance_check_interval_seconds=3,
            leader_imbalance_per_broker_percentage=0,
            offsets_topic_replication_factor=3,
            transaction_state_log_replication_factor=3,
            auto_create_topics_enable=False,
        )
        async with serving(config, outside) as server:
            node.server = server
            self.counts["starts"] += 1
            self.note(f"{node.node_id} serves")
            await node.stop.wait()

    def _open_session(self, node: SimNode) -> OpenSession:
        async def open_session(servers: str, timeout_ms: int, clock: Clock, connect_timeout_ms: int) -> ZooKeeper:
            here, until = f"node-{node.node_id}", self.loop.time() + CONNECT_S
            while self.network.is_cut(here, ZOOKEEPER):
                await clock.sleep(0.1)
                if self.loop.time() > until:
                    raise ZooKeeperUnreachable("nobody answers")
            await clock.sleep(self.network.latency_s())
            return self.zookeeper.connect()

        return open_session

    def _ended(self, node: SimNode, life: Life, task: asyncio.Task[None]) -> None:
        """A process that nobody killed: what keeps it from its start is said, and it is started again."""
        if life.dead or self.over:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, FarshoreError):
            self.loop.stop_at(error)
        self.note(f"{node.node_id} ended: {error!r}")
        self._bury(node)
        self.loop.call_later(self.rng.uniform(0.1, 0.5), self.start, node.node_id)

    def kill(self, node_id: int) -> None:
        """As SIGKILL does: what was written stays, nothing else is done."""
        node = self.nodes[node_id]
        if node.life.dead or self.over:
            return
        self.note(f"{node_id} dies")
        self.counts["crashes"] += 1
        self._bury(node)

    def _torn(self, life: Life) -> None:
        if not life.dead:
            self.counts["torn"] += 1
            self.kill(life.node_id)

    def _bury(self, node: SimNode) -> None:
        node.life.dead = True
        node.life.paused = False
        if node.disk is not None:
            node.disk.dies_at = 0
        self.network.die(node.life)
        _unlock(node.folder / LOCK_FILE)
        node.server = None

    def pause(self, node_id: int) -> None:
        life = self.nodes[node_id].life
        if not life.dead and not life.paused:
            self.note(f"{node_id} stands still")
            self.counts["pauses"] += 1
            life.paused = True

    def go_on(self, node_id: int) -> None:
        life = self.nodes[node_id].life
        if life.paused:
            self.note(f"{node_id} goes on")
            life.paused = False
            self.loop.go_on(life)

    def set_wall(self, node_id: int, wrong_ms: int) -> None:
        self.note(f"the wall clock of {node_id} is wrong by {wrong_ms / 1000:.0f} s")
        self.counts["clocks"] += 1
        self.nodes[node_id].clock.wrong_ms = wrong_ms

    def fill(self, node_id: int) -> None:
        self.note(f"the disk of {node_id} is full")
        self.counts["full"] += 1
        self.nodes[node_id].is_full = True

    def make_room(self, node_id: int) -> None:
        if self.nodes[node_id].is_full:
            self.note(f"the disk of {node_id} has room")
            self.nodes[node_id].is_full = False

    def cut(self, here: str, there: str) -> None:
        self.network.cut(here, there)
        for session in self._sessions_between(here, there):
            session.cut()

    def mend(self, here: str, there: str) -> None:
        self.network.mend(here, there)
        for session in self._sessions_between(here, there):
            session.mend()

    def _sessions_between(self, here: str, there: str) -> list[SimSession]:
        if ZOOKEEPER not in (here, there):
            return []
        (host,) = {here, there} - {ZOOKEEPER}
        lives = [node.life for node in self.nodes.values() if name_of(node.life) == host and not node.life.dead]
        return [session for life in lives for session in self.zookeeper.of(life)]

    # -- looking ---------------------------------------------------------------------------------------------------

    def _look(self, lives: set[Life]) -> None:
        try:
            for life in lives if len(lives) == 1 else sorted(lives, key=lambda one: one.number):
                node = self.nodes[life.node_id]
                if node.life is life and node.runs:
                    self._look_at(node)
            if self.states.violations:
                raise self.states.violations[0]
        except AssertionError as found:
            self.loop.stop_at(found)

    def _look_at(self, node: SimNode) -> None:
        assert node.server is not None
        number, seen = node.life.number, node.seen
        for topic in node.server.broker.replicas.topics.values():
            for partition in topic.partitions.values():
                if partition.offline is not None:
                    continue
                log = partition.log
                # What was set is told from what follows of it: this is asked a hundred thousand times in each world.
                ends = (number, log.log_start_offset, log.log_end_offset, partition.leading, log._high_watermark)
                if seen.get(id(partition)) == ends:
                    continue
                seen[id(partition)] = ends
                judge = self.judges.setdefault((topic.state.topic_id, partition.index), Judge(frozenset(self.nodes)))
                judge.look(SimReplica(node.node_id, node.life.number, partition))

    def servers(self) -> Iterator[Server]:
        for node in self.nodes.values():
            if node.runs and node.server is not None:
                yield node.server

    def leader_of(self, topic: str, index: int) -> int | None:
        """As some broker tells clients, which may be long ago."""
        servers = list(self.servers())
        return self.rng.choice(servers).broker.view.leader_of(topic, index) if servers else None

    def controller(self) -> int | None:
        """As ZooKeeper has it."""
        found = self.zookeeper.find(layout.CONTROLLER)
        return None if found is None else layout.decode_controller(found.data)

    def judge(self, topic: str, index: int) -> Judge:
        """Of a topic that some broker has told of at some time."""
        for server in self.servers():
            if topic in server.broker.view.topics:
                self._topic_ids[topic] = server.broker.view.topics[topic].topic_id
        return self.judges.setdefault((self._topic_ids[topic], index), Judge(frozenset(self.nodes)))

    # -- the end ---------------------------------------------------------------------------------------------------

    def ways(self) -> list[tuple[str, str]]:
        hosts = [f"node-{one}" for one in self.nodes]
        found = [(a, b) for a in hosts for b in hosts if a != b]
        found += [way for a in hosts for way in ((a, ZOOKEEPER), (ZOOKEEPER, a), (CLIENTS, a), (a, CLIENTS))]
        return found

    def heal(self) -> None:
        for way in self.ways():
            self.mend(*way)
        for node_id, node in self.nodes.items():
            self.go_on(node_id)
            self.make_room(node_id)
            if node.disk is not None and not node.life.dead:
                node.disk.dies_at = None
            self.start(node_id)

    def unsettled(self, *topics: str) -> str | None:
        """What is not as it must be in the end, when nothing is in the way; `topics` were never deleted."""
        servers = list(self.servers())
        if len(servers) < len(self.nodes):
            return "not every broker runs"
        one = servers[0].broker.view
        for server in servers:
            view = server.broker.view
            if set(view.brokers) != set(self.nodes) or view.controller != one.controller:
                return f"{server.broker.config.node_id} knows of {sorted(view.brokers)} and of {view.controller}"
            if (theirs := _told(view)) != (ours := _told(one)):
                return f"{server.broker.config.node_id} knows {theirs}, another one {ours}"
        if lacking := set(topics) - one.topics.keys():
            return f"{lacking} are gone"
        for name, topic in one.topics.items():
            for index, state in enumerate(topic.partitions):
                if set(state.isr) != set(state.replicas) or state.adding_replicas or state.removing_replicas:
                    return f"{name}-{index}: {state}"
                if (problem := self._differ(name, index, state.replicas)) is not None:
                    return problem
        return next((found for server in servers if (found := _left_over(server, one)) is not None), None)

    def _differ(self, topic: str, index: int, replicas: tuple[int, ...]) -> str | None:
        judge = self.judge(topic, index)
        found = []
        for node_id in replicas:
            server = self.nodes[node_id].server
            partition = None if server is None else server.broker.partition(topic, index)
            if partition is None or partition.offline is not None:
                return f"{topic}-{index} is not at {node_id}"
            if partition.log.high_watermark != partition.log.log_end_offset:
                return f"{topic}-{index}: {node_id} ends at {partition.log.log_end_offset}"
            found.append(judge.content(SimReplica(node_id, 0, partition)))
        longest = max(found, key=len)
        if any(other != longest[: len(other)] for other in found):
            raise Found(f"{topic}-{index}: the replicas {replicas} have different records")
        if any(len(other) < len(longest) for other in found):
            return f"{topic}-{index}: one of {replicas} lags, and nobody was told yet that it is out of sync"
        if lost := [batch for batch in judge.committed if batch not in found[0]]:
            raise Found(f"{topic}-{index}: {lost[0]} was acknowledged, and nobody has it in the end")
        return None

    def close(self) -> None:
        """What is left ends, and may not touch a disk any more."""
        self.over = True
        self.loop.end_all()
        for node in self.nodes.values():
            if node.disk is not None:
                node.disk.dies_at = 0


def _left_over(server: Server, view: ClusterView) -> str | None:
    """What it has though it is no replica."""
    node_id = server.broker.config.node_id
    for name, topic in server.broker.replicas.topics.items():
        known = view.topics.get(name)
        for index in topic.partitions:
            if known is None or node_id not in known.partitions[index].replicas:
                return f"{node_id} has {name}-{index} left"
    return None


def _told(view: ClusterView) -> dict[tuple[str, UUID], list[tuple[object, ...]]]:
    """What brokers must agree on: versions and times are the controller's own."""
    return {
        (name, topic.topic_id): [
            (at.leader, at.leader_epoch, at.replicas, at.isr, at.adding_replicas, at.removing_replicas)
            for at in topic.partitions
        ]
        for name, topic in view.topics.items()
    }


def _unlock(lock: Path) -> None:
    """A process that died holds no lock; this one, which stands for it, does."""
    held = str(lock.resolve())
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == held:
                fcntl.flock(int(name), fcntl.LOCK_UN)
        except OSError:
            continue
