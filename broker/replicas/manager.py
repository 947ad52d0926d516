"""The partitions of this broker, as the controller orders them.

New ones are made first, folders durable, and only then is it written who leads them: so a partition of which that is
written has a folder at every broker that is in sync, and where it is gone, records are gone (`PartitionFolders.find`).
What goes is first taken out of the metadata. A crash in between leaves folders that no topic has: a complete order
knows which those are. What it does not name is set aside, and only what is ordered to be deleted is (`Removing`).

Orders are carried out one at a time (`_applying`), but that new partitions are made beside them, and beside each other.
Whatever is about the same partition waits for its turn there first (`Turns`; a complete order for all of them), and
holds it to its end, with what it takes back of a making that came too late.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from broker.base.clock import Clock, steady_ms
from broker.base.ending import to_its_end
from broker.cluster.metadata import NO_LEADER, Configs, PartitionState, TopicState
from broker.cluster.orders import (
    Carried,
    Failures,
    LeaderAndIsr,
    Order,
    ReplicaLog,
    StaleBrokerEpoch,
    StaleController,
    StopReplica,
    UpdateMetadata,
)
from broker.cluster.view import ClusterView, with_newest_configs
from broker.errors import BrokerError
from broker.replicas.files import NotNew, PartitionFiles, close_all, has_records
from broker.replicas.removing import Removing
from broker.replicas.turns import Turns
from broker.replication.followers import Followers
from broker.topics.errors import MetadataBehind
from broker.topics.naming import INTERNAL_TOPICS
from broker.topics.partition import Partition, Topic
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)
T = TypeVar("T")
AnOrder = TypeVar("AnOrder", LeaderAndIsr, StopReplica)

TAKEN_PER_TURN: Final = 500
"""Partitions whose orders are carried out before others get the event loop."""

BEHIND: Final = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)
"""Of an order whose leader epoch is below what this replica knows of."""

LeadershipListener = Callable[[TopicPartition, int | None], None]


@dataclass(slots=True)
class _Prepared:
    """A new partition that nobody leads yet."""

    topic: TopicState
    partition: Partition


class ReplicaManager:
    """Implements BrokerOrders for this broker, in its own event loop."""

    def __init__(
        self,
        files: PartitionFiles,
        view: ClusterView,
        followers: Followers,
        clock: Clock,
        node_id: int,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.topics: dict[str, Topic] = {}
        self.leadership_listeners: list[LeadershipListener] = []
        """Called in the event loop after a partition began to be led here, with its leader epoch, or ceased to (None).
        """
        self.damage_listeners: list[Callable[[], None]] = []
        """Called when a partition went offline that was open."""
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the first complete orders were carried out; what kept them from being so is its exception."""
        self.controller_epoch = 0
        """Of the newest controller that was followed."""
        # About to stop: what it is ordered to follow it does not, or leaders would take it in again, and wait for it.
        self.leaving = False
        self.removing = Removing(files)
        self._files = files
        self._view = view
        self._followers = followers
        self._clock = clock
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._prepared: dict[TopicPartition, _Prepared] = {}
        self._leading: dict[TopicPartition, int] = {}
        # Who has a turn may wait for `_applying`; whoever applies waits for no turn.
        self._turns = Turns()
        self._applying = asyncio.Lock()

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def partitions(self) -> list[Partition]:
        """Those that are online."""
        return [p for topic in self.topics.values() for p in topic.partitions.values() if p.offline is None]

    # -- orders ----------------------------------------------------------------------------------------------

    def follow_controller(self, epoch: int) -> None:
        """Refuse orders of earlier controllers. To a broker that has just begun one that was followed would say that
        all which it does not know of itself is to be removed.
        """
        self.controller_epoch = max(self.controller_epoch, epoch)

    async def lead_and_follow(self, order: LeaderAndIsr) -> Carried:
        self._check(order)
        if order.new:
            return Carried(await to_its_end(self._make(order)), {})
        wheres = None if order.complete else order.partitions
        return await to_its_end(self._in_turn(order, wheres, self._lead_and_follow))

    async def stop(self, order: StopReplica) -> Failures:
        self._check(order)
        return await to_its_end(self._in_turn(order, order.partitions, self._stop))

    async def learn(self, order: UpdateMetadata) -> None:
        self._check(order)
        self._view.learn(order)
        if order.complete and not self.began.done():
            # The controller tells a broker what is its own first.
            self.began.set_result(None)

    def learn_configs(self, name: str, configs: Configs) -> None:
        """What is set on a topic now; older configs than are known are no news."""
        self._view.learn_configs(name, configs)
        topic = self.topics.get(name)
        if topic is not None and configs.version > topic.state.config_version:
            topic.state = replace(topic.state, configs=configs.values, config_version=configs.version)
            self._files.configure(topic.state, topic.partitions.values())

    def learn_defaults(self, defaults: Mapping[str, str]) -> None:
        """What holds for topics on which it is not set, by their configs' names."""
        self._files.defaults = defaults
        for topic in self.topics.values():
            self._files.configure(topic.state, topic.partitions.values())

    def _check(self, order: Order) -> None:
        if order.controller_epoch < self.controller_epoch:
            raise StaleController(
                f"controller epoch {order.controller_epoch} of broker {order.controller} was followed by "
                f"{self.controller_epoch}"
            )
        if order.broker_epoch < (epoch := self._broker_epoch()):
            raise StaleBrokerEpoch(f"this broker has epoch {epoch}, the order is for {order.broker_epoch}")
        self.controller_epoch = order.controller_epoch

    async def _in_turn(
        self, order: AnOrder, wheres: Collection[TopicPartition] | None, carry_out: Callable[[AnOrder], Awaitable[T]]
    ) -> T:
        """One at a time: the controller may be another one by then."""
        async with self._turns.at(wheres), self._applying:
            self._check(order)
            return await carry_out(order)

    # -- new partitions --------------------------------------------------------------------------------------

    async def _make(self, order: LeaderAndIsr) -> Failures:
        async with self._turns.at(order.new):
            self._check(order)
            return await self._make_in_turn(order)

    async def _make_in_turn(self, order: LeaderAndIsr) -> Failures:
        made: list[_Prepared] = []
        try:
            for name, wheres in _by_topic(order.new).items():
                topic = order.topics[name]
                await self._make_way(topic, wheres)
                states = {w.partition: order.partitions[w] for w in wheres if not self._has(topic, w)}
                partitions = await asyncio.to_thread(self._files.make, topic, states) if states else []
                made += [_Prepared(topic, partition) for partition in partitions]
            # Meanwhile there may have come another controller, to whose complete order these are strays.
            self._check(order)
        except BrokerError:
            await self.removing.retire(prepared.partition for prepared in made)
            raise
        for prepared in made:
            self._prepared[TopicPartition(prepared.topic.name, prepared.partition.index)] = prepared
        return {}

    async def _make_way(self, topic: TopicState, wheres: Iterable[TopicPartition]) -> None:
        """An earlier topic of that name whose end has not come here yet: its log must not be open where the new one's
        folder is.
        """
        async with self._applying:
            here = self.topics.get(topic.name)
            earlier = [] if here is None or here.topic_id == topic.topic_id else self._forget(wheres)
            for where in wheres:
                prepared = self._prepared.get(where)
                if prepared is not None and prepared.topic.topic_id != topic.topic_id:
                    earlier.append(self._prepared.pop(where).partition)
            await self.removing.set_aside(earlier)

    def _has(self, topic: TopicState, where: TopicPartition) -> bool:
        """Also where it is only prepared. Raises NotNew."""
        prepared = self._prepared.get(where)
        if prepared is not None and prepared.topic.topic_id == topic.topic_id:
            return True
        if (here := self._find(where, topic.topic_id)) is not None and has_records(here):
            raise NotNew(f"{where} is to be new, and has records here")
        return here is not None

    def _find(self, where: TopicPartition, topic_id: uuid.UUID) -> Partition | None:
        topic = self.topics.get(where.topic)
        return None if topic is None or topic.topic_id != topic_id else topic.partitions.get(where.partition)

    # -- leading and following -------------------------------------------------------------------------------

    async def _lead_and_follow(self, order: LeaderAndIsr) -> Carried:
        try:
            await self._remove_others(order)
            # Strays may be where folders are to be made; where none is missing, who leads must not wait for the disk.
            sweeps_later = order.complete and self.began.done() and not self._missing(order)
            if order.complete and not sweeps_later:
                await self.removing.set_aside_leftovers(order)
            await self._open_missing(order)
        except BrokerError as error:
            if order.complete and not self.began.done():
                self.began.set_exception(error)
            raise
        failures: dict[TopicPartition, ErrorCode] = {}
        logs: dict[TopicPartition, ReplicaLog] = {}
        for number, (where, state) in enumerate(order.partitions.items(), 1):
            code = self._take(where, state, order.broker_epoch)
            if code is not ErrorCode.NONE:
                failures[where] = code
            partition = self.topics[where.topic].partitions[where.partition]
            if partition.offline is None and (code in BEHIND or state.is_undecided):
                logs[where] = partition.told()
            if number % TAKEN_PER_TURN == 0:
                await asyncio.sleep(0)
        counts = len(order.partitions), len(self._leading)
        log.info("controller epoch %d ordered %d partitions; this broker leads %d", order.controller_epoch, *counts)
        if sweeps_later:
            await self.removing.set_aside_leftovers(order)
        return Carried(failures, logs)

    def _missing(self, order: LeaderAndIsr) -> bool:
        """Whether any of the order's partitions is not open yet."""
        return any(self._to_open(where, order.topics[where.topic].topic_id) for where in order.partitions)

    def _to_open(self, where: TopicPartition, topic_id: uuid.UUID) -> bool:
        """Also what could not be opened for a reason that may have passed."""
        found = self._find(where, topic_id)
        return found is None or (found.offline is not None and found.offline.may_pass)

    async def _remove_others(self, order: LeaderAndIsr) -> None:
        """Topics of the same names that are gone, and in a complete order everything that it does not name."""
        others: list[TopicPartition] = []
        for name in list(self.topics) if order.complete else order.topics.keys() & self.topics.keys():
            topic, told = self.topics[name], order.topics.get(name)
            another = told is not None and told.topic_id != topic.topic_id
            for where in (TopicPartition(name, index) for index in topic.partitions):
                stray = order.complete and where not in order.partitions and name not in order.unreadable
                if another or stray:
                    others.append(where)
        if order.complete:
            strays = [where for where in self._prepared if where not in order.partitions]
            others_made = [self._prepared.pop(where).partition for where in strays]
            await self.removing.set_aside(others_made)
        await self.removing.set_aside(self._forget(others))

    async def _open_missing(self, order: LeaderAndIsr) -> None:
        """Every partition of the order is here after this; those that cannot be opened are offline."""
        for name, wheres in _by_topic(order.partitions).items():
            told = order.topics[name]
            topic = self.topics.get(name)
            if topic is None:
                topic = self.topics[name] = Topic(told, {}, name in INTERNAL_TOPICS)
            topic.state = with_newest_configs(told, topic.state)
            missing = [where for where in wheres if self._to_open(where, told.topic_id)]
            prepared = [found for where in missing if (found := self._prepared_of(where, told.topic_id)) is not None]
            known = {each.partition.index for each in prepared}
            wanted = [(w.partition, order.partitions[w]) for w in missing if w.partition not in known]
            opened = await asyncio.to_thread(self._files.load, topic.state, wanted) if wanted else []
            self._files.configure(topic.state, [each.partition for each in prepared])
            for partition in [*(each.partition for each in prepared), *opened]:
                self._cease(TopicPartition(name, partition.index))  # who keeps something in it loads it then
                topic.partitions[partition.index] = partition
                partition.offline_listeners = self.damage_listeners

    def _prepared_of(self, where: TopicPartition, topic_id: uuid.UUID) -> _Prepared | None:
        """Taken out: it is no new one any more."""
        found = self._prepared.get(where)
        return None if found is None or found.topic.topic_id != topic_id else self._prepared.pop(where)

    def _take(self, where: TopicPartition, state: PartitionState, broker_epoch: int) -> ErrorCode:
        topic = self.topics[where.topic]
        partition = topic.partitions[where.partition]
        if state.leader_epoch < partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        partition.ordered_in = broker_epoch
        self._followers.forget(topic.topic_id, where.partition)
        try:
            partition.check_not_behind(state)
        except MetadataBehind as error:
            log.error("%s; %s", error, error.hint)  # noqa: TRY400 - foreseen
            partition.follow(state)
            self._cease(where)
            return error.error_code
        if state.leader != self._node_id:
            partition.follow(state)
            self._cease(where)
            if state.leader != NO_LEADER and not self.leaving:
                self._followers.follow(state.leader, topic.topic_id, partition)
        else:
            try:
                self._lead(where, partition, state)
            except BrokerError as error:
                return error.error_code
        return ErrorCode.KAFKA_STORAGE_ERROR if partition.offline is not None else ErrorCode.NONE

    def _lead(self, where: TopicPartition, partition: Partition, state: PartitionState) -> None:
        """Of one that is offline too: whoever is asked about it says what is damaged. Raises LogStorageError."""
        if partition.offline is None:
            partition.lead(state, steady_ms(self._clock))
        else:
            partition.state = state
        if self._leading.get(where) != state.leader_epoch:
            self._leading[where] = state.leader_epoch
            self._tell_leadership(where, state.leader_epoch)

    def _cease(self, where: TopicPartition) -> None:
        if self._leading.pop(where, None) is not None:
            self._tell_leadership(where, None)

    def _tell_leadership(self, where: TopicPartition, leader_epoch: int | None) -> None:
        for listener in self.leadership_listeners:
            listener(where, leader_epoch)

    # -- removing --------------------------------------------------------------------------------------------

    async def _stop(self, order: StopReplica) -> Failures:
        failures: dict[TopicPartition, ErrorCode] = {}
        stopped: list[TopicPartition] = []
        gone: list[Partition] = []
        for where, leader_epoch in order.partitions.items():
            topic_id = order.topic_ids[where.topic]
            if (prepared := self._prepared_of(where, topic_id)) is not None:
                gone.append(prepared.partition)
            partition = self._find(where, topic_id)
            if partition is not None and leader_epoch < partition.leader_epoch:
                failures[where] = ErrorCode.FENCED_LEADER_EPOCH
            elif partition is not None:
                stopped.append(where)
        gone += self._forget(stopped)
        if order.delete:
            deleted = {where: order.topic_ids[where.topic] for where in order.partitions if where not in failures}
            for where, error in (await self.removing.delete(gone, deleted)).items():
                failures[where] = error.error_code
        else:
            await asyncio.to_thread(close_all, gone)
        return failures

    def _forget(self, wheres: Iterable[TopicPartition]) -> list[Partition]:
        """Nobody finds these partitions any more, and who waits at them is told."""
        gone = []
        for where in wheres:
            topic = self.topics.get(where.topic)
            partition = None if topic is None else topic.partitions.pop(where.partition, None)
            if topic is None or partition is None:
                continue
            self._followers.forget(topic.topic_id, where.partition)
            if not topic.partitions:
                del self.topics[where.topic]
            gone.append(partition)
            partition.stop_leading()
            self._cease(where)
        return gone

    def close(self) -> None:
        """Closes every log; each is tried, the first failure is raised (LogStorageError)."""
        close_all([*self.partitions(), *(prepared.partition for prepared in self._prepared.values())])


def _by_topic(wheres: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for where in sorted(wheres):
        found.setdefault(where.topic, []).append(where)
    return found
