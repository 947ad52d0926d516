"""Topics and partition states as znodes: read, and written by transactions that prove the writer's right.

A write whose answer was lost is tried again with `again`: what stands in ZooKeeper is then read first. The session
carries out requests in order, so what was still on its way is seen by that reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from broker.cluster.metadata import NO_LEADER, NO_TOPIC_ID, UNWRITTEN, Controller, PartitionState, TopicState, Written
from broker.cluster.metadata_store import ControllerMoved, MetadataConflict, MetadataUnreadable
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import BadVersion, FoundationMissing, NodeExists, NoNode, ZooKeeperError
from broker.cluster.zookeeper.seen import COUNTED
from broker.cluster.zookeeper.session import Check, Create, Delete, Operation, SetData, ZooKeeper, catch_up
from broker.wire.vocabulary import TopicPartition

PARTITIONS_AT_ONCE: Final = 100
"""In one transaction: two znodes each, far below ZooKeeper's 1 MiB for a request."""
READS_AT_ONCE: Final = 500

T = TypeVar("T")
R = TypeVar("R")


async def read_each(items: Iterable[T], read: Callable[[T], Awaitable[R]]) -> list[R]:
    """Many at once, but not so many that nobody else has a turn meanwhile."""
    listed, answers = list(items), []
    for start in range(0, len(listed), READS_AT_ONCE):
        answers += await asyncio.gather(*(read(item) for item in listed[start : start + READS_AT_ONCE]))
    return answers


async def read_topics(zk: ZooKeeper, names: Collection[str] | None) -> dict[str, TopicState]:
    listed = await zk.children(layout.TOPICS) if names is None else names
    found = [topic for topic in await read_each(listed, lambda name: _read_listed(zk, name)) if topic is not None]
    found = await _told_apart(zk, found)
    # All partitions of all topics at once: most topics are small.
    states = await read_states(zk, {TopicPartition(t.name, i): s for t in found for i, s in enumerate(t.partitions)})
    return {topic.name: _completed(topic, states) for topic in found}


async def _told_apart(zk: ZooKeeper, found: Sequence[TopicState]) -> list[TopicState]:
    """One topic has an id. Where a hand copied a znode under another name, the one that was made first has it, and that
    is the damage of the other: what is ordered of it would be of the first one's records.
    """
    by_id: dict[UUID, list[TopicState]] = {}
    for topic in found:
        if topic.topic_id != NO_TOPIC_ID:
            by_id.setdefault(topic.topic_id, []).append(topic)
    damage: dict[str, str] = {}
    for same in (topics for topics in by_id.values() if len(topics) > 1):
        stats = await read_each(same, lambda topic: zk.exists(layout.topic(topic.name)))
        made = sorted((stat.czxid, topic.name) for topic, stat in zip(same, stats, strict=True) if stat is not None)
        damage |= {
            name: f"its topic id is that of topic {made[0][1]}, which was made before it" for _, name in made[1:]
        }
    return [replace(t, partitions=(), damage=damage[t.name]) if t.name in damage else t for t in found]


def _completed(
    topic: TopicState, read: Mapping[TopicPartition, PartitionState | MetadataUnreadable | None]
) -> TopicState:
    states: list[PartitionState] = []
    for index, assigned in enumerate(topic.partitions):
        state = read[TopicPartition(topic.name, index)]
        if isinstance(state, MetadataUnreadable):
            return replace(topic, partitions=(), damage=str(state))
        states.append(state or assigned)
    return replace(topic, partitions=tuple(states))


async def read_states(
    zk: ZooKeeper, assigned: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, PartitionState | MetadataUnreadable | None]:
    """Each stands alone. None: nobody was elected yet, or the partition is gone."""

    async def read(item: tuple[TopicPartition, PartitionState]) -> PartitionState | MetadataUnreadable | None:
        try:
            return await read_state(zk, *item)
        except MetadataUnreadable as error:
            return error

    return dict(zip(assigned, await read_each(assigned.items(), read), strict=True))


async def read_newest_states(
    zk: ZooKeeper, assigned: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, PartitionState | MetadataUnreadable | None]:
    """A write of which the answer was lost may be known to other servers than this session's."""
    if assigned:
        await catch_up(zk)
    return await read_states(zk, assigned)


async def _read_listed(zk: ZooKeeper, name: str) -> TopicState | None:
    """As `_read_assignment`; one that cannot be read has its damage, and the version to delete it by."""
    try:
        return await _read_assignment(zk, name)
    except MetadataUnreadable as error:
        stat = await zk.exists(layout.topic(name))
        return None if stat is None else TopicState(name, NO_TOPIC_ID, (), {}, stat.version, damage=str(error))


async def _read_assignment(zk: ZooKeeper, name: str) -> TopicState | None:
    """The topic with its configs, and states as nobody was elected yet."""
    path = layout.config(f"topics/{name}")
    try:
        data, stat = await zk.get(layout.topic(name))
    except NoNode:
        return None
    topic_id, states = layout.decode_topic(name, data)
    try:
        configs, config_stat = await zk.get(path)
    except NoNode:
        return TopicState(name, topic_id, tuple(states), {}, stat.version, UNWRITTEN)
    values = layout.decode_configs(path, configs)
    return TopicState(name, topic_id, tuple(states), values, stat.version, config_stat.version)


async def read_assignment_version(zk: ZooKeeper, name: str) -> int | None:
    stat = await zk.exists(layout.topic(name))
    return None if stat is None else stat.version


async def read_state(zk: ZooKeeper, where: TopicPartition, assigned: PartitionState) -> PartitionState | None:
    """None: nobody was elected yet, or the partition is gone."""
    try:
        data, stat = await zk.get(layout.partition_state(where))
    except NoNode:
        return None
    return replace(layout.decode_partition_state(where, data, stat.version, assigned), written_at=stat.mzxid)


def fence(controller: Controller) -> Check:
    """The first operation of each of the controller's transactions."""
    return Check(layout.CONTROLLER_EPOCH, controller.version)


async def fenced(zk: ZooKeeper, controller: Controller, operations: Sequence[Operation]) -> list[Any]:
    """The answers to `operations`. Raises ControllerMoved, FoundationMissing; what they raise has their own place as
    `operation`.
    """
    counted = [fence(controller), *operations, COUNTED]
    try:
        return (await zk.multi(counted))[1:-1]
    except ZooKeeperError as refused:
        at = refused.operation
        if at == 0 and isinstance(refused, BadVersion | NoNode):
            raise ControllerMoved(f"controller epoch {controller.epoch} is over") from refused
        if at == len(counted) - 1 and isinstance(refused, NoNode):
            raise FoundationMissing(str(refused)) from refused
        raise _placed(refused) from None


def _placed(refused: ZooKeeperError) -> ZooKeeperError:
    if refused.operation is not None:
        refused.operation -= 1
    return refused


async def create_topic(zk: ZooKeeper, controller: Controller, topic: TopicState, again: bool) -> TopicState:
    """The assignment and the configs; the states are another step. A wish to delete was for an earlier topic of that
    name: left standing it would take this one.
    """
    path, config_path = layout.topic(topic.name), layout.config(f"topics/{topic.name}")
    if again:
        made = await _read_assignment(zk, topic.name)
        if made is not None and made.topic_id == topic.topic_id:
            return replace(topic, version=made.version, config_version=made.config_version)
    left = await zk.exists(config_path)
    configs = layout.encode_configs(topic.configs)
    # Kafka writes the configs before the topic, and so may have left some where it was cut off.
    config = Create(config_path, configs) if left is None else SetData(config_path, configs, left.version)
    wish = layout.topic_deletion(topic.name)
    unwished = [Delete(wish)] if await zk.exists(wish) else []
    assignment = Create(path, layout.encode_topic(topic.topic_id, topic.partitions))
    try:
        await fenced(zk, controller, [assignment, Create(layout.partitions(topic.name)), config, *unwished])
    except (NodeExists, BadVersion) as refused:
        raise MetadataConflict(f"topic {topic.name} exists") from refused
    return replace(topic, version=0, config_version=0 if left is None else left.version + 1)


async def set_assignment(zk: ZooKeeper, controller: Controller, topic: TopicState, again: bool) -> TopicState:
    path, data = layout.topic(topic.name), layout.encode_topic(topic.topic_id, topic.partitions)
    try:
        if again and await _stands(zk, path, data, topic.version + 1):
            return replace(topic, version=topic.version + 1)
        (stat,) = await fenced(zk, controller, [SetData(path, data, topic.version)])
    except (BadVersion, NoNode) as refused:
        raise MetadataConflict(f"topic {topic.name} was changed since version {topic.version}") from refused
    return replace(topic, version=stat.version)


async def _stands(zk: ZooKeeper, path: str, data: bytes, version: int) -> bool:
    """Raises NoNode."""
    found, stat = await zk.get(path)
    return found == data and stat.version == version


def elected(topic: TopicState) -> dict[TopicPartition, PartitionState]:
    """The partitions that have a leader, which the store does not hold yet."""
    return {
        TopicPartition(topic.name, index): state
        for index, state in enumerate(topic.partitions)
        if state.leader != NO_LEADER and state.version == UNWRITTEN
    }


def with_states(topic: TopicState, states: Mapping[TopicPartition, PartitionState]) -> TopicState:
    return replace(
        topic,
        partitions=tuple(
            states.get(TopicPartition(topic.name, index), state) for index, state in enumerate(topic.partitions)
        ),
    )


class StateWriter:
    """Writes partition states by compare-and-set, many in one transaction. `carry_on` may be repeated until it returns.

    With a controller each transaction proves that it still is; without, it is the leaders who write their ISR, and the
    transaction tells the controller of it.
    """

    def __init__(self, controller: Controller | None, states: Mapping[TopicPartition, PartitionState]) -> None:
        self._controller = controller
        self._left = dict(states)
        self._written: dict[TopicPartition, PartitionState] = {}
        self._refused: set[TopicPartition] = set()
        # Partitions whose own znode is there, though their state is not, and topics that lack the znode of them all:
        # tools of old made the topic's alone.
        self._placed: set[TopicPartition] = set()
        self._bare: set[str] = set()

    async def carry_on(self, zk: ZooKeeper, again: bool) -> Written:
        """Raises ControllerMoved."""
        if again:
            await self._find_written(zk)
        while self._left:
            await self._write_some(zk, dict(list(self._left.items())[:PARTITIONS_AT_ONCE]))
        return Written(self._written, frozenset(self._refused))

    async def _write_some(self, zk: ZooKeeper, some: Mapping[TopicPartition, PartitionState]) -> None:
        operations: list[Operation] = []
        owners: list[TopicPartition] = []
        bare = set(self._bare)
        for where, state in some.items():
            own = self._operations(where, state)
            if where.topic in bare:
                bare.discard(where.topic)
                own.insert(0, Create(layout.partitions(where.topic)))
            operations += own
            owners += [where] * len(own)
        try:
            if self._controller is not None:
                answers = await fenced(zk, self._controller, operations)
            else:
                told = Create(layout.ISR_CHANGE_PREFIX, layout.encode_partitions(some), sequence=True)
                answers = await zk.multi([*operations, told, COUNTED])
        except (BadVersion, NoNode, NodeExists) as refused:
            self._note_refused(operations, owners, refused)
            return
        self._bare.clear()
        versions = {where: getattr(answer, "version", 0) for where, answer in zip(owners, answers, strict=False)}
        for where, version in versions.items():
            self._written[where] = replace(self._left.pop(where), version=version)

    def _operations(self, where: TopicPartition, state: PartitionState) -> list[Operation]:
        """To make or change the state alone."""
        path, data = layout.partition_state(where), layout.encode_partition_state(state)
        if state.version != UNWRITTEN:
            return [SetData(path, data, state.version)]
        own = [] if where in self._placed else [Create(layout.partition(where))]
        return [*own, Create(path, data)]

    def _note_refused(
        self, operations: Sequence[Operation], owners: Sequence[TopicPartition], refused: ZooKeeperError
    ) -> None:
        """One of them stops its whole transaction; the next goes without it."""
        at = refused.operation
        if at is None or not 0 <= at < len(owners):
            raise refused
        where = owners[at]
        if isinstance(refused, NodeExists) and operations[at].path == layout.partition(where):
            self._placed.add(where)
            return
        if isinstance(refused, NodeExists) and operations[at].path == layout.partitions(where.topic):
            self._bare.discard(where.topic)
            return
        if isinstance(refused, NoNode) and operations[at].path == layout.partition(where):
            self._bare.add(where.topic)
            return
        del self._left[where]
        self._refused.add(where)

    async def _find_written(self, zk: ZooKeeper) -> None:
        """What an earlier try whose answer was lost has done."""
        found = await read_each(list(self._left.items()), lambda item: read_state(zk, *item))
        for (where, wanted), state in zip(list(self._left.items()), found, strict=True):
            if state is not None and state == replace(wanted, version=wanted.version + 1):
                self._written[where] = state
                del self._left[where]
