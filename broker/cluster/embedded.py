"""The metadata of a cluster of one broker, in `metadata.json` of its data directory.

The file is small (a topic of 12 partitions takes about 1 kB) and rarely changed, so each change writes it whole: to a
temporary file, fsync, rename, fsync of the directory. A crash leaves the old or the new one. With ten thousand topics
that takes tens of milliseconds, and an fsync any time: it is done in a thread, one change after the other. A change
that was begun ends, whoever gives up waiting for it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from broker.access.acls import ResourcePattern
from broker.cluster.embedded_file import Contents, Encoded, decode, encode
from broker.cluster.metadata import (
    NO_LEADER,
    UNWRITTEN,
    BrokerRegistration,
    Change,
    ChangeKind,
    ConfigResource,
    Configs,
    Controller,
    DeletedTopic,
    LiveBroker,
    PartitionState,
    PatternAcls,
    TopicState,
    Written,
    new_cluster_id,
)
from broker.cluster.metadata_store import ControllerMoved, MetadataConflict, MetadataUnreadable
from broker.cluster.turns import in_turn
from broker.cluster.watchers import Watchers
from broker.errors import LogStorageError
from broker.log.disk import OS_DISK, Disk
from broker.wire.vocabulary import TopicPartition

FILE_NAME = "metadata.json"


class EmbeddedMetadataStore:
    """For the one process that holds the lock of the data directory, which is always granted the controllership."""

    def __init__(self, path: Path, contents: Contents, disk: Disk) -> None:
        """Use `open`."""
        self._path = path
        self._contents = contents
        self._disk = disk
        self._brokers: dict[int, LiveBroker] = {}
        self._controller: Controller | None = None
        self._isr_changes: set[TopicPartition] = set()
        self._failed_log_dirs: set[int] = set()
        # A change has it from what it is decided by until it is written and told.
        self.turn = asyncio.Lock()
        self._watchers = Watchers()
        # What was last written of each topic.
        self._encoded: Encoded = {}

    @classmethod
    def open(cls, data_dir: Path, cluster_id: str | None = None, disk: Disk = OS_DISK) -> EmbeddedMetadataStore:
        """Reads the file, or begins a cluster with `cluster_id` (None: a new random one).

        Raises MetadataUnreadable (also when the file belongs to another cluster than asked for), LogStorageError.
        """
        path = data_dir / FILE_NAME
        try:
            data = disk.read_file(path)
        except FileNotFoundError:
            store = cls(path, Contents(cluster_id or new_cluster_id()), disk)
            store._encoded = store._write(store._contents)
            return store
        except OSError as error:
            raise LogStorageError(f"cannot read {path}: {error}") from error
        contents = decode(data, path)
        if cluster_id is not None and contents.cluster_id != cluster_id:
            raise MetadataUnreadable(
                f"{path} belongs to cluster {contents.cluster_id}, not to {cluster_id}",
                hint="check data_dir and cluster_id of this broker",
            )
        return cls(path, contents, disk)

    @property
    def cluster_id(self) -> str:
        return self._contents.cluster_id

    @property
    def alive_until(self) -> float:
        """The data directory's lock holds as long as the process."""
        return math.inf

    @property
    def broker_epoch(self) -> int:
        return self._contents.broker_epoch

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self._brokers.clear()
        self._controller = None

    # -- reading ---------------------------------------------------------------------------------------------

    async def topics(self, names: Collection[str] | None = None) -> dict[str, TopicState]:
        known = self._contents.topics
        return dict(known) if names is None else {name: known[name] for name in names if name in known}

    async def assignment_version(self, name: str) -> int | None:
        topic = self._contents.topics.get(name)
        return None if topic is None else topic.version

    async def partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        found = {where: state for where in states if (state := self._state(where)) is not None}
        return Written(found, frozenset(states.keys() - found.keys()))

    def _state(self, where: TopicPartition) -> PartitionState | None:
        topic = self._contents.topics.get(where.topic)
        if topic is None or not 0 <= where.partition < len(topic.partitions):
            return None
        return topic.partitions[where.partition]

    async def brokers(self) -> dict[int, LiveBroker]:
        return dict(self._brokers)

    async def controller(self) -> int | None:
        return None if self._controller is None else self._controller.node_id

    async def controller_epoch(self) -> int:
        return self._contents.controller_epoch

    async def secret(self) -> bytes:
        return self._contents.secret

    async def configs(self, resource: ConfigResource) -> Configs:
        if resource.entity_type == "topics":
            topic = self._contents.topics.get(resource.entity_name)
            return Configs({}, UNWRITTEN) if topic is None else Configs(topic.configs, topic.config_version)
        return self._contents.configs.get(resource.path, Configs({}, UNWRITTEN))

    async def config_names(self, entity_type: str) -> Collection[str]:
        return [path.split("/", 1)[1] for path in self._contents.configs if path.startswith(f"{entity_type}/")]

    async def acls(self, patterns: Collection[ResourcePattern] | None = None) -> Mapping[ResourcePattern, PatternAcls]:
        known = self._contents.acls
        return known if patterns is None else {pattern: known.get(pattern, PatternAcls()) for pattern in patterns}

    def watch(self, *kinds: ChangeKind) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        return self._watchers.watch(*kinds)

    # -- membership ------------------------------------------------------------------------------------------

    @in_turn
    async def register_broker(self, registration: BrokerRegistration) -> int:
        epoch = self._contents.broker_epoch + 1
        await self._save(replace(self._contents, broker_epoch=epoch))
        self._brokers[registration.node_id] = LiveBroker(registration, epoch)
        self._watchers.tell(Change(ChangeKind.BROKERS))
        return epoch

    @in_turn
    async def elect_controller(self, node_id: int, after: int = 0) -> Controller | None:
        if self._controller is None or self._controller.node_id != node_id or self._controller.epoch <= after:
            epoch = max(self._contents.controller_epoch, after) + 1
            await self._save(replace(self._contents, controller_epoch=epoch))
            self._controller = Controller(node_id, epoch, epoch)
            self._watchers.tell(Change(ChangeKind.CONTROLLER))
        return self._controller

    async def resign_controller(self, controller: Controller) -> None:
        if controller == self._controller:
            self._controller = None
            self._watchers.tell(Change(ChangeKind.CONTROLLER))

    def _check_controller(self, controller: Controller) -> None:
        # As in ZooKeeper: fenced is who was followed by another, not who resigned.
        if controller.version != self._contents.controller_epoch:
            raise ControllerMoved(f"controller epoch {controller.epoch} is over")

    # -- the controller's writes -----------------------------------------------------------------------------

    @in_turn
    async def create_topic(self, controller: Controller, topic: TopicState) -> TopicState:
        self._check_controller(controller)
        if topic.name in self._contents.topics:
            raise MetadataConflict(f"topic {topic.name} exists")
        created = replace(topic, partitions=self._begun(topic), version=0, config_version=0)
        topics = {**self._contents.topics, topic.name: created}
        wishes = self._contents.topic_deletions - {topic.name}
        await self._save(replace(self._contents, topics=topics, topic_deletions=wishes))
        self._watchers.tell(Change(ChangeKind.TOPICS), Change(ChangeKind.ASSIGNMENT, topic.name))
        return created

    @in_turn
    async def set_assignment(self, controller: Controller, topic: TopicState) -> TopicState:
        self._check_controller(controller)
        known = self._current(topic)
        # Leaders and ISRs are not the assignment's: those of partitions that were elected stay as they are.
        partitions = tuple(
            state
            if index >= len(known.partitions) or known.partitions[index].version == UNWRITTEN
            else replace(
                known.partitions[index],
                replicas=state.replicas,
                adding_replicas=state.adding_replicas,
                removing_replicas=state.removing_replicas,
            )
            for index, state in enumerate(topic.partitions)
        )
        begun = self._begun(replace(known, partitions=partitions))
        changed = replace(known, partitions=begun, version=topic.version + 1)
        await self._save_topics([changed])
        self._watchers.tell(Change(ChangeKind.ASSIGNMENT, topic.name))
        return changed

    @in_turn
    async def delete_topic(self, controller: Controller, topic: TopicState) -> None:
        self._check_controller(controller)
        self._current(topic)
        left = {name: other for name, other in self._contents.topics.items() if name != topic.name}
        wishes = self._contents.topic_deletions - {topic.name}
        deleted = {**self._contents.deleted_topics, topic.topic_id: DeletedTopic.of(topic)}
        await self._save(replace(self._contents, topics=left, topic_deletions=wishes, deleted_topics=deleted))
        self._watchers.tell(Change(ChangeKind.TOPICS))

    async def deleted_topics(self) -> Mapping[UUID, DeletedTopic]:
        return self._contents.deleted_topics

    @in_turn
    async def set_deleted_topics(self, controller: Controller, changed: Collection[DeletedTopic]) -> None:
        self._check_controller(controller)
        deleted = {**self._contents.deleted_topics, **{topic.topic_id: topic for topic in changed}}
        left = {topic_id: topic for topic_id, topic in deleted.items() if topic.nodes}
        await self._save(replace(self._contents, deleted_topics=left))

    @in_turn
    async def write_partition_states(
        self, controller: Controller, states: Mapping[TopicPartition, PartitionState]
    ) -> Written:
        self._check_controller(controller)
        return await self._write_states(states)

    async def _write_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        written: dict[TopicPartition, PartitionState] = {}
        changed: dict[str, list[PartitionState]] = {}
        for where, state in states.items():
            known = self._state(where)
            if known is None or known.version != state.version:
                continue
            written[where] = replace(
                state,
                replicas=known.replicas,
                adding_replicas=known.adding_replicas,
                removing_replicas=known.removing_replicas,
                version=state.version + 1,
                written_at=self._contents.broker_epoch,
            )
            if where.topic not in changed:
                changed[where.topic] = list(self._contents.topics[where.topic].partitions)
            changed[where.topic][where.partition] = written[where]
        topics = self._contents.topics
        await self._save_topics([replace(topics[name], partitions=tuple(states)) for name, states in changed.items()])
        return Written(written, frozenset(states.keys() - written.keys()))

    async def take_isr_changes(self, controller: Controller) -> set[TopicPartition]:
        self._check_controller(controller)
        taken, self._isr_changes = self._isr_changes, set()
        return taken

    async def take_log_dir_failures(self, controller: Controller) -> set[int]:
        self._check_controller(controller)
        taken, self._failed_log_dirs = self._failed_log_dirs, set()
        return taken

    # -- the leaders' writes ---------------------------------------------------------------------------------

    @in_turn
    async def write_isr(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        written = await self._write_states(states)
        if written.states:
            self._isr_changes |= written.states.keys()
            self._watchers.tell(Change(ChangeKind.ISR))
        return written

    async def tell_log_dir_failed(self, node_id: int) -> None:
        self._failed_log_dirs.add(node_id)
        self._watchers.tell(Change(ChangeKind.LOG_DIR_FAILURES))

    @in_turn
    async def allocate_producer_ids(self, node_id: int, count: int) -> range:
        first = self._contents.next_producer_id
        await self._save(replace(self._contents, next_producer_id=first + count))
        return range(first, first + count)

    # -- requests --------------------------------------------------------------------------------------------

    @in_turn
    async def set_configs(self, resource: ConfigResource, configs: Configs) -> Configs:
        if (await self.configs(resource)).version != configs.version:
            raise MetadataConflict(f"configs of {resource.path} were changed since version {configs.version}")
        changed = Configs(dict(configs.values), configs.version + 1)
        if resource.entity_type == "topics":
            topic = self._contents.topics.get(resource.entity_name)
            if topic is None:
                raise MetadataConflict(f"topic {resource.entity_name} is gone")
            await self._save_topics([replace(topic, configs=changed.values, config_version=changed.version)])
        else:
            await self._save(replace(self._contents, configs={**self._contents.configs, resource.path: changed}))
        self._watchers.tell(Change(ChangeKind.CONFIGS, resource.path))
        return changed

    @in_turn
    async def set_acls(self, changed: Mapping[ResourcePattern, PatternAcls]) -> frozenset[ResourcePattern]:
        known = dict(self._contents.acls)
        refused = frozenset(p for p, acls in changed.items() if known.get(p, PatternAcls()).version != acls.version)
        for pattern in changed.keys() - refused:
            acls = changed[pattern]
            known[pattern] = acls._replace(version=acls.version + 1)
        await self._save(replace(self._contents, acls={p: acls for p, acls in known.items() if acls.bindings}))
        self._watchers.tell(*(Change(ChangeKind.ACLS, pattern.text) for pattern in changed.keys() - refused))
        return refused

    async def topic_deletions(self) -> set[str]:
        return set(self._contents.topic_deletions)

    @in_turn
    async def request_topic_deletion(self, name: str) -> None:
        await self._save(replace(self._contents, topic_deletions=self._contents.topic_deletions | {name}))
        self._watchers.tell(Change(ChangeKind.TOPIC_DELETIONS))

    async def reassignments(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        return self._contents.reassignments

    @in_turn
    async def set_reassignments(self, controller: Controller, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        self._check_controller(controller)
        await self._save(replace(self._contents, reassignments=dict(wanted)))
        self._watchers.tell(Change(ChangeKind.REASSIGNMENTS))

    async def preferred_elections(self) -> set[TopicPartition]:
        return set(self._contents.preferred_elections)

    @in_turn
    async def request_preferred_elections(self, partitions: Collection[TopicPartition]) -> None:
        if self._contents.preferred_elections:
            raise MetadataConflict("elections of preferred leaders are under way")
        await self._save(replace(self._contents, preferred_elections=frozenset(partitions)))
        self._watchers.tell(Change(ChangeKind.PREFERRED_ELECTIONS))

    @in_turn
    async def end_preferred_elections(self, controller: Controller) -> None:
        self._check_controller(controller)
        await self._save(replace(self._contents, preferred_elections=frozenset()))
        self._watchers.tell(Change(ChangeKind.PREFERRED_ELECTIONS))

    # -- inside ----------------------------------------------------------------------------------------------

    def _begun(self, topic: TopicState) -> tuple[PartitionState, ...]:
        """The states with those in the store's hands that have a leader by now; equal ones stay one object."""
        written: dict[int, PartitionState] = {}
        for state in topic.partitions:
            if id(state) not in written:
                begins = state.leader != NO_LEADER and state.version == UNWRITTEN
                epoch = self._contents.broker_epoch
                written[id(state)] = replace(state, version=0, written_at=epoch) if begins else state
        return tuple(written[id(state)] for state in topic.partitions)

    def _current(self, topic: TopicState) -> TopicState:
        known = self._contents.topics.get(topic.name)
        if known is None or (known.topic_id, known.version) != (topic.topic_id, topic.version):
            raise MetadataConflict(f"topic {topic.name} was changed since version {topic.version}")
        return known

    async def _save_topics(self, changed: Iterable[TopicState]) -> None:
        merged = {**self._contents.topics, **{topic.name: topic for topic in changed}}
        if any(self._contents.topics.get(name) is not topic for name, topic in merged.items()):
            await self._save(replace(self._contents, topics=merged))

    async def _save(self, contents: Contents) -> None:
        """The new contents count only once they are on the disk. Raises LogStorageError."""
        assert self.turn.locked(), "what is saved was decided by what is saved already"
        self._encoded = await asyncio.to_thread(self._write, contents)
        self._contents = contents

    def _write(self, contents: Contents) -> Encoded:
        """May run in a thread. Raises LogStorageError."""
        text, encoded = encode(contents, self._encoded)
        try:
            self._disk.write_file(self._path, text.encode(), durable=True)
        except OSError as error:
            raise LogStorageError(f"cannot write {self._path}: {error}") from error
        return encoded
