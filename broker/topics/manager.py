"""The topics of this broker: metadata and logs changed together.

Order of a change: what is new is made on disk first and then named in the metadata store; what goes is first taken out
of the store. So a change that fails changes nothing, and a crash in its middle leaves only folders that no topic of the
store has, or empty ones: `PartitionFolders.retire_leftovers` and the next creation know them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from broker import descriptors
from broker.base.clock import Clock
from broker.cluster.metadata import ConfigResource, Configs, TopicState
from broker.cluster.metadata_store import MetadataConflict, MetadataStore, OutcomeUnknown
from broker.cluster.sole_controller import SoleController
from broker.errors import BrokerError, LogStorageError
from broker.limits import PARTITIONS_PER_TOPIC_MAX
from broker.log.config import LogConfig
from broker.log.partition_log import PartitionLog
from broker.topics import configs as topic_configs
from broker.topics.errors import InvalidPartitions, PartitionOffline, TopicExists, UnknownTopic
from broker.topics.folders import PartitionFolders
from broker.topics.leading import identified, lead_anew, leading
from broker.topics.naming import INTERNAL_TOPICS, check_collision, check_name
from broker.topics.partition import Partition, Topic
from broker.wire.errors import ErrorCode, WireError
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)
T = TypeVar("T")


class TopicManager:
    def __init__(self, store: MetadataStore, folders: PartitionFolders, clock: Clock, node_id: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.deletion_listeners: list[Callable[[str], None]] = []
        """Called with the name of a topic that is gone, so that committed offsets go too."""
        self.leadership_listeners: list[Callable[[TopicPartition, int | None], None]] = []
        """Called after a partition began to be led here, with its leader epoch, or ceased to be (None)."""
        self._by_id: dict[uuid.UUID, Topic] = {}
        self.controllership = SoleController(store, node_id)
        self._store = store
        self._folders = folders
        self._clock = clock
        self._node_id = node_id
        # Names whose partitions are being made, and one lock for each topic that is being changed.
        self._making: set[str] = set()
        # Folders that are to be removed. Threads add to it; the event is only set in the loop.
        self._doomed: deque[Path] = deque()
        self._sweep_wanted = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def load(self) -> None:
        """Opens every log, each in a new leader epoch; a partition that cannot be opened is offline, and the log says
        why. Raises LogStorageError, and what the metadata store raises.

        The epoch rises at every start, so that one that a client has seen never goes back (it would ignore us), and
        what a client remembers of the log's end in an earlier epoch is checked (KIP-320).
        """
        controller = await self.controllership.current()
        known = await self._store.topics()
        for name in await self._store.topic_deletions():
            # A deletion that was cut off: nobody can ask for that topic any more.
            if (topic := known.pop(name, None)) is not None:
                await self._store.delete_topic(controller, topic)
        ids, unreadable = {t.topic_id for t in known.values()}, {t.name for t in known.values() if t.damage}
        try:
            self._doomed.extend(self._folders.retire_leftovers(ids, unreadable))
        except OSError as error:
            raise LogStorageError(f"cannot clear {self._folders.path}: {error}") from error
        self._sweep_wanted.set()
        await self._lead(known)

    async def _lead(self, known: Mapping[str, TopicState]) -> None:
        """Opens the logs of topics that the metadata has; one that cannot be read there is not here, and its files stay
        as they are. Raises MetadataConflict.
        """
        for topic in known.values():
            if topic.damage:
                log.error("topic %s is offline until the next start: %s", topic.name, topic.damage)
        controller = await self.controllership.current()
        readable = await identified(self._store, controller, [topic for topic in known.values() if not topic.damage])
        for state in await lead_anew(self._store, controller, readable):
            self._adopt(state, [self._load_partition(state, index) for index in range(len(state.partitions))])

    async def create(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> Topic:
        """Its files are made in a thread; everybody else is served meanwhile.

        Raises InvalidTopicName, TopicExists, InvalidPartitions, InvalidTopicConfig, LogStorageError.
        """
        return await self._changing(name, self._create(name, partitions, configs))

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> Topic:
        state = self._new_state(name, partitions, configs)
        self._making.add(name)
        try:
            controller = await self.controllership.current()
            if found := await self._store.topics([name]):
                # Made by a request of which it was not known what became of it.
                await self._lead(found)
                raise TopicExists(f"Topic '{name}' already exists.")
            made = await asyncio.to_thread(self._make, state, range(partitions))
            return self._adopt(await self._named(made, self._store.create_topic(controller, state)), made)
        finally:
            self._making.discard(name)

    def _new_state(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> TopicState:
        kept = self.check_new(name, partitions, configs)
        return TopicState(name, uuid.uuid4(), (leading(self._node_id),) * partitions, kept)

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Everything that `create` would refuse -> the configs as they would be kept."""
        self.check_free(name)
        check_partition_count(partitions)
        return topic_configs.checked(configs)

    def check_free(self, name: str) -> None:
        """Raises InvalidTopicName, TopicExists."""
        check_name(name)
        if name in self.topics or name in self._making:
            raise TopicExists(f"Topic '{name}' already exists.")
        check_collision(name, self.topics)
        check_collision(name, self._making)

    async def delete(self, name: str) -> None:
        """The topic is gone at once, its name is free when this returns, and `sweep` removes the files.

        Raises UnknownTopic, LogStorageError.
        """
        await self._changing(name, self._delete(name))

    async def _delete(self, name: str) -> None:
        topic = self.require(name)
        try:
            await self._store.delete_topic(await self.controllership.current(), topic.state)
        except MetadataConflict:
            # An earlier request, of which it was not known what became of it, may have deleted it.
            if await self._store.topics([name]):
                raise
        del self.topics[name], self._by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.stop_leading()
            self._tell_leadership(partition, None)
        try:
            for listener in self.deletion_listeners:
                listener(name)
        finally:
            # The metadata has forgotten the topic: whatever becomes of the rest, its files go.
            failures = await asyncio.to_thread(self._retire_all, topic.partitions)
        if failures:
            # The topic is gone; the next start removes what is left of its files.
            raise failures[0]

    async def add_partitions(self, name: str, count: int) -> None:
        """Makes `count` the new number of partitions. Raises UnknownTopic, InvalidPartitions, LogStorageError."""
        await self._changing(name, self._add_partitions(name, count))

    async def _add_partitions(self, name: str, count: int) -> None:
        topic = self.require(name)
        await self._catch_up(topic)
        self.check_growth(topic, count)
        now = len(topic.partitions)
        grown = replace(topic.state, partitions=topic.state.partitions + (leading(self._node_id),) * (count - now))
        controller = await self.controllership.current()
        made = await asyncio.to_thread(self._make, grown, range(now, count))
        topic.state = await self._named(made, self._store.set_assignment(controller, grown))
        topic.partitions.extend(made)
        self._tell_states(topic)
        for partition in made:
            self._tell_leadership(partition, partition.leader_epoch)

    async def _catch_up(self, topic: Topic) -> None:
        """Takes over the partitions of a growth of which it was not known what became of it."""
        known = (await self._store.topics([topic.name])).get(topic.name)
        if known is None or known.damage or (known.topic_id, known.version) == (topic.topic_id, topic.state.version):
            return
        here = len(topic.partitions)
        controller = await self.controllership.current()
        (topic.state,) = await lead_anew(self._store, controller, [known], since=here)
        topic.partitions.extend(self._load_partition(topic.state, i) for i in range(here, len(known.partitions)))
        self._tell_states(topic)
        for partition in topic.partitions[here:]:
            self._tell_leadership(partition, partition.leader_epoch)

    async def _changing(self, name: str, change: Coroutine[Any, Any, T]) -> T:
        """One change of a topic at a time, and each to its end: whoever asked for it may be gone by then."""
        lock = self._locks.setdefault(name, asyncio.Lock())

        async def in_turn() -> T:
            async with lock:
                return await change

        task = asyncio.create_task(in_turn())
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        self._sweep_wanted.set()
        if cancelled is not None:
            task.exception()
            raise cancelled
        return task.result()

    def check_growth(self, topic: Topic, count: int) -> None:
        """Raises InvalidPartitions."""
        now = len(topic.partitions)
        if not now < count <= PARTITIONS_PER_TOPIC_MAX:
            raise InvalidPartitions(
                f"Topic currently has {now} partitions, {count} is not an increase up to {PARTITIONS_PER_TOPIC_MAX}."
            )

    async def alter_configs(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """`change` makes of what is set now what is set from now on, checked. Raises UnknownTopic, InvalidTopicConfig,
        MetadataConflict, and what `change` raises.
        """
        await self._changing(name, self._alter_configs(name, change))

    async def _alter_configs(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        topic, resource = self.require(name), ConfigResource("topics", name)
        # Read, not remembered: of an earlier change it may not be known what became of it.
        known = await self._store.configs(resource)
        configs = dict(change(known.values))
        config = topic_configs.log_config(configs)
        if configs != known.values:
            known = await self._store.set_configs(resource, Configs(configs, known.version))
        topic.state = replace(topic.state, configs=known.values, config_version=known.version)
        for partition in topic.partitions:
            if partition.offline is None:
                partition.log.update_config(config)

    def require(self, name: str) -> Topic:
        """Raises UnknownTopic."""
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"Topic '{name}' does not exist.")
        return topic

    def require_by_id(self, topic_id: uuid.UUID) -> Topic:
        """Raises UnknownTopic, with the code that clients know for ids."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopic(f"No topic has the id {topic_id}.", error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def close(self) -> None:
        """Closes every log; each is tried, the first failure is raised (LogStorageError)."""
        failures = []
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.offline is not None:
                    continue
                try:
                    partition.log.close()
                except LogStorageError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def sweep(self) -> None:
        """Removes the folders of what was deleted, one at a time; ends only by being cancelled."""
        while True:
            await self._sweep_wanted.wait()
            self._sweep_wanted.clear()
            await self.sweep_now()

    async def sweep_now(self) -> None:
        while self._doomed:
            path = self._doomed.popleft()
            try:
                await asyncio.to_thread(shutil.rmtree, path)
            except OSError as error:
                # The next start finds it by its name.
                log.warning("%s of a deleted topic cannot be removed: %s", path, error)

    def _adopt(self, state: TopicState, partitions: list[Partition]) -> Topic:
        topic = Topic(state, partitions, state.name in INTERNAL_TOPICS)
        self._tell_states(topic)
        self.topics[state.name] = self._by_id[state.topic_id] = topic
        for partition in partitions:
            self._tell_leadership(partition, partition.leader_epoch)
        return topic

    def _tell_leadership(self, partition: Partition, leader_epoch: int | None) -> None:
        for listener in self.leadership_listeners:
            listener(TopicPartition(partition.topic, partition.index), leader_epoch)

    def _tell_states(self, topic: Topic) -> None:
        for partition, state in zip(topic.partitions, topic.state.partitions, strict=True):
            partition.take_state(state, self._clock.monotonic() * 1000)

    def _make(self, state: TopicState, indexes: range) -> list[Partition]:
        """New partitions, all or none; may run in a thread. Raises LogStorageError, TooFewDescriptors."""
        descriptors.require(len(indexes), f"{len(indexes)} partitions of {state.name}")
        config = topic_configs.log_config(state.configs)
        made: list[Partition] = []
        try:
            try:
                paths = self._folders.prepare(state.name, indexes, state.topic_id)
            except OSError as error:
                raise LogStorageError(f"cannot make the partitions of {state.name}: {error}") from error
            for index, path in zip(indexes, paths, strict=True):
                made.append(self._opened(path, state, index, config))
        except BrokerError:
            self._retire_all(made)
            raise
        return made

    async def _named(self, made: list[Partition], naming: Awaitable[TopicState]) -> TopicState:
        """What the metadata store now holds; where it refuses, the partitions made for it go again. Where it is not
        known what it holds they stay: the next start removes them, or opens them.
        """
        try:
            return await naming
        except OutcomeUnknown:
            await asyncio.to_thread(_close_all, made)
            raise
        except BrokerError:
            await asyncio.to_thread(self._retire_all, made)
            raise

    def _retire_all(self, partitions: list[Partition]) -> list[LogStorageError]:
        """May run in a thread: nobody else has these partitions any more."""
        failures = []
        for partition in partitions:
            try:
                self._doomed.extend(self._retire(partition))
            except LogStorageError as error:
                failures.append(error)
        return failures

    def _load_partition(self, state: TopicState, index: int) -> Partition:
        try:
            path = self._folders.find(state.name, index, state.topic_id)
            return self._opened(path, state, index, topic_configs.log_config(state.configs))
        except (BrokerError, OSError, WireError) as error:
            log.error("%s-%d is offline: %s", state.name, index, error)  # noqa: TRY400 - foreseen: the text says all
            why = PartitionOffline(str(error))
        except Exception as error:  # whatever damaged files make the opening raise concerns this partition alone
            log.exception("%s-%d is offline", state.name, index)
            why = PartitionOffline(repr(error))
        return Partition(state.name, index, why, state.partitions[index])

    def _opened(self, path: Path, state: TopicState, index: int, config: LogConfig) -> Partition:
        opened = PartitionLog.open(path, config, self._clock, self._folders.disk)
        partition = Partition(state.name, index, opened, state.partitions[index])
        partition.lead(state.partitions[index], self._clock.monotonic() * 1000)
        return partition

    def _retire(self, partition: Partition) -> list[Path]:
        """Raises LogStorageError."""
        if partition.offline is None:
            return [partition.log.retire()]
        try:
            return self._folders.retire(partition.topic, partition.index)
        except OSError as error:
            raise LogStorageError(f"cannot remove {partition.topic}-{partition.index}: {error}") from error


def check_partition_count(partitions: int) -> None:
    """Of a new topic. Raises InvalidPartitions."""
    if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidPartitions(
            f"Number of partitions was set to {partitions}, allowed are 1 to {PARTITIONS_PER_TOPIC_MAX}."
        )


def _close_all(partitions: list[Partition]) -> None:
    """May run in a thread, as `_retire_all`. Raises LogStorageError."""
    for partition in partitions:
        partition.log.close()
