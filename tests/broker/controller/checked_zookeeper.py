"""The fake ZooKeeper and the clock of a simulated cluster, with what must hold for each state that is written."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from broker.base.clock import Clock
from broker.cluster.metadata import NO_LEADER, PartitionState
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.session import Check, Delete, Operation, SetData
from broker.wire.vocabulary import TopicPartition
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper

SESSION_MS = 6000


class Violation(AssertionError):
    """Something that must always hold did not."""


class Judge:
    """Keeps what was violated, whatever becomes of the error where it was met."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def must(self, holds: object, text: str) -> None:
        if not holds:
            self.violations.append(Violation(text))
            raise self.violations[-1]


class SimClock:
    """Stands still unless `advance` moves it."""

    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000
        self._sleeping: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def boottime(self) -> float:
        return self._now_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self._now_ms + int(seconds * 1000), self._count, future))
        await future

    def advance(self, by_ms: int) -> None:
        self._now_ms += by_ms
        while self._sleeping and self._sleeping[0][0] <= self._now_ms:
            future = heapq.heappop(self._sleeping)[2]
            if not future.done():
                future.set_result(None)


@cache
def _assigned(name: str, data: bytes) -> list[PartitionState]:
    return layout.decode_topic(name, data)[1]


class CheckedZooKeeper(FakeZooKeeper):
    """Every state that is written must follow from the one before it."""

    def __init__(self, clock: Clock, judge: Judge) -> None:
        super().__init__(clock, SESSION_MS)
        self.written: Callable[[FakeSession], None] = lambda session: None
        """Told of each transaction of a controller, when it took effect and nobody has heard of it yet."""
        self.put_back = False
        """Whether a hand put back states of an earlier day: then the controller asks the logs who has all."""
        self._judge = judge

    def write(self, session: FakeSession, operations: Sequence[Operation]) -> list[Any]:
        before = {op.path: self.find(op.path) for op in operations if isinstance(op, SetData)}
        old = {path: node.data for path, node in before.items() if node is not None}
        answers = super().write(session, operations)
        for path, data in old.items():
            if path.startswith(layout.TOPICS) and path.count("/") == 3:
                self._check_assignment(path.split("/")[3], data)
        by_controller = any(isinstance(op, Check) and op.path == layout.CONTROLLER_EPOCH for op in operations)
        for op in operations:
            if not isinstance(op, Check | Delete) and op.path.endswith("/state"):
                self._check_state(op.path, op.data, old.get(op.path), by_controller)
        if by_controller:
            self.written(session)
        return answers

    def _check_assignment(self, name: str, old: bytes) -> None:
        """Nobody in sync goes, and of those that are no newcomers nobody before all that stay are in sync."""
        now = _assigned(name, self.read(layout.topic(name)).data)
        for index, (before, after) in enumerate(zip(_assigned(name, old), now, strict=False)):
            where = TopicPartition(name, index)
            node = self.find(layout.partition_state(where))
            gone = set(before.replicas) - set(after.replicas)
            if node is None or not gone:
                continue
            isr = set(layout.decode_partition_state(where, node.data, 0, after).isr)
            self._judge.must(not gone & isr, f"{where}: {gone} are no replicas any more, and {isr} in sync")
            all_there = not gone - set(before.adding_replicas) or set(after.replicas) <= isr
            self._judge.must(all_there, f"{where}: {gone} went before all of {after.replicas} were in sync: {isr}")

    def _check_state(self, path: str, data: bytes, old: bytes | None, by_controller: bool) -> None:
        must = self._judge.must
        name, index = path.split("/")[3], int(path.split("/")[5])
        where = TopicPartition(name, index)
        assigned = _assigned(name, self.read(layout.topic(name)).data)[index]
        new = layout.decode_partition_state(where, data, 0, assigned)
        must(set(new.isr) <= set(new.replicas), f"{where}: the ISR {new.isr} is not within {new.replicas}")
        known = None if old is None else layout.decode_partition_state(where, old, 0, assigned)
        must(new.isr or (self.put_back and new.leader == NO_LEADER), f"{where}: nobody is in sync")
        must(new.leader in (NO_LEADER, *new.isr), f"{where}: leader {new.leader} is not in sync, {new.isr} are")
        if not by_controller:
            # Leaders change their ISR with no check of the controller: whatever else changes is a controller's write.
            same = known and (known.leader, known.leader_epoch) == (new.leader, new.leader_epoch)
            must(same, f"{where}: a leader was elected without the check that its controller is one")
            return
        epoch = layout.decode_controller_epoch(self.read(layout.CONTROLLER_EPOCH).data)
        must(new.controller_epoch == epoch, f"{where}: written by controller epoch {new.controller_epoch} in {epoch}")
        if known is not None:
            must(new.leader_epoch > known.leader_epoch, f"{where}: a change in leader epoch {known.leader_epoch}")
            in_sync = set(known.isr or (new.leader,))
            must(set(new.isr) <= in_sync, f"{where}: {new.isr} are called in sync, {known.isr} were")
