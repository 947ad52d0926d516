"""The files of this broker's partitions: made, opened and taken away, in threads."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from broker import descriptors
from broker.base.clock import Clock, steady_ms
from broker.cluster.metadata import PartitionState, TopicState
from broker.errors import BrokerError, LogStorageError
from broker.log.config import LogConfig
from broker.log.guard import may_pass
from broker.log.partition_log import PartitionLog
from broker.replication.checkpoint import HighWatermarks
from broker.topics.configs import log_config
from broker.topics.errors import InvalidTopicConfig, MetadataBehind, PartitionOffline
from broker.topics.folders import PartitionFolders
from broker.topics.partition import Partition
from broker.wire.errors import ErrorCode, WireError
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)


class NotNew(BrokerError):
    """A partition that nobody ever led, as far as the metadata knows, has records: its state was lost."""

    error_code = ErrorCode.INELIGIBLE_REPLICA
    hint = "restore the partition's state in the metadata, or delete the topic"


def has_records(partition: Partition) -> bool:
    """Also where that cannot be known."""
    return partition.offline is not None or partition.log.log_end_offset > 0


class PartitionFiles:
    """What is asked here waits for the disk. Nobody else may have the partitions that are made or taken away."""

    def __init__(self, folders: PartitionFolders, clock: Clock, node_id: int, high_watermarks: HighWatermarks) -> None:
        """`high_watermarks` are those that were noted before the start: each is for the first opening of its log."""
        self._folders = folders
        self._high_watermarks = dict(high_watermarks)
        self._waiting: set[tuple[uuid.UUID, int]] = set()
        """Partitions that could not be opened for a reason that may pass, which was said."""
        self._clock = clock
        self._node_id = node_id
        self.defaults: Mapping[str, str] = {}
        """What holds for topics on which it is not set; by their configs' names."""

    def config_of(self, topic: TopicState) -> LogConfig:
        """Raises InvalidTopicConfig."""
        try:
            return log_config({**self.defaults, **topic.configs})
        except InvalidTopicConfig:
            # Each by itself is checked when it is set: the topic's own hold where they speak against the defaults.
            return log_config(topic.configs)

    def configure(self, topic: TopicState, partitions: Iterable[Partition]) -> None:
        """What is set on the topic holds for its logs from now on."""
        online = [partition for partition in partitions if partition.offline is None]
        if online:
            config = self.config_of(topic)
            for partition in online:
                partition.log.update_config(config)

    def make(self, topic: TopicState, states: Mapping[int, PartitionState]) -> list[Partition]:
        """New partitions, all or none, durable when this returns. Raises LogStorageError, TooFewDescriptors, NotNew."""
        descriptors.require(len(states), f"{len(states)} partitions of {topic.name}")
        config = self.config_of(topic)
        made: list[Partition] = []
        try:
            try:
                paths = self._folders.prepare(topic.name, list(states), topic.topic_id)
            except OSError as error:
                raise LogStorageError(f"cannot make the partitions of {topic.name}: {error}") from error
            for (index, state), path in zip(states.items(), paths, strict=True):
                partition = self._opened(path, topic, index, state, config, high_watermark=0)
                if has_records(partition):
                    partition.log.close()
                    raise NotNew(f"{topic.name}-{index} is to be new, and there are records in {path}")
                made.append(partition)
        except BrokerError:
            self.retire(made)
            raise
        return made

    def load(self, topic: TopicState, states: Iterable[tuple[int, PartitionState]]) -> list[Partition]:
        """Partitions that were ordered before; one that cannot be opened is offline, and the log says why."""
        try:
            config = self.config_of(topic)
        except BrokerError as error:
            return [self._offline(topic, index, state, error) for index, state in states]
        return [self._loaded(topic, index, state, config) for index, state in states]

    def _loaded(self, topic: TopicState, index: int, state: PartitionState, config: LogConfig) -> Partition:
        try:
            if self._node_id in state.isr or self._node_id == state.leader or state.is_undecided:
                path = self._folders.find(topic.name, index, topic.topic_id)
            else:
                # Nobody counts on what is here: all of it may come from the leader.
                (path,) = self._folders.prepare(topic.name, [index], topic.topic_id)
            noted = self._high_watermarks.get((topic.topic_id, index), 0)
            opened = self._opened(path, topic, index, state, config, high_watermark=noted)
        except (BrokerError, OSError, WireError) as error:
            return self._offline(topic, index, state, error)
        except Exception as error:  # whatever damaged files make the opening raise concerns this partition alone
            log.exception("%s-%d is offline", topic.name, index)
            return Partition(topic.name, index, PartitionOffline(repr(error)), state)
        self._high_watermarks.pop((topic.topic_id, index), None)
        if (topic.topic_id, index) in self._waiting:
            self._waiting.remove((topic.topic_id, index))
            log.warning("%s-%d is open: its disk takes records again", topic.name, index)
        return opened

    def _offline(self, topic: TopicState, index: int, state: PartitionState, error: Exception) -> Partition:
        offline = PartitionOffline(str(error))
        offline.may_pass = may_pass(error)
        if (topic.topic_id, index) not in self._waiting:
            log.error("%s-%d is offline: %s", topic.name, index, error)
        if offline.may_pass:
            self._waiting.add((topic.topic_id, index))
        return Partition(topic.name, index, offline, state)

    def _opened(
        self,
        path: Path,
        topic: TopicState,
        index: int,
        state: PartitionState,
        config: LogConfig,
        *,
        high_watermark: int,
    ) -> Partition:
        opened = PartitionLog.open(path, config, self._clock, self._folders.disk)
        partition = Partition(topic.name, index, opened, state, high_watermark)
        if state.leader == self._node_id:
            # Who orders it to lead is told. A disk that takes nothing now may do so when that is ordered again.
            with suppress(MetadataBehind, LogStorageError):
                partition.lead(state, steady_ms(self._clock))
        return partition

    def retire(self, partitions: Iterable[Partition]) -> tuple[list[Path], dict[TopicPartition, LogStorageError]]:
        """Ends the logs of these -> what is to be removed, and those of which it could not be taken away. What is
        offline has no open log.
        """
        doomed: list[Path] = []
        failures: dict[TopicPartition, LogStorageError] = {}
        for partition in partitions:
            try:
                doomed += [] if partition.offline is not None else [partition.log.retire()]
            except LogStorageError as error:
                failures[TopicPartition(partition.topic, partition.index)] = error
        return doomed, failures

    def retire_folders(self, deleted: Mapping[TopicPartition, uuid.UUID]) -> list[Path]:
        """As PartitionFolders.retire. Raises LogStorageError."""
        with self._clearing():
            return self._folders.retire(deleted)

    def set_aside(self, partitions: Iterable[Partition]) -> list[Path]:
        """Ends the logs of these, and keeps their records -> what had none, to be removed. One that cannot be moved now
        is found by a complete order.
        """
        doomed: list[Path] = []
        for partition in partitions:
            path = self._folders.path / f"{partition.topic}-{partition.index}"
            try:
                if partition.offline is None:
                    partition.log.close()
                empty = self._folders.set_aside(path) if path.exists() else None
            except (LogStorageError, OSError) as error:
                log.warning("%s stays where it is until the next start: %s", path, error)
            else:
                doomed += [] if empty is None else [empty]
        return doomed

    def set_aside_leftovers(self, kept: Collection[tuple[uuid.UUID, int]], unreadable: Collection[str]) -> list[Path]:
        """As PartitionFolders.set_aside_leftovers. Raises LogStorageError."""
        with self._clearing():
            return self._folders.set_aside_leftovers(kept, unreadable)

    @contextmanager
    def _clearing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogStorageError(f"cannot clear {self._folders.path}: {error}") from error

    def remove(self, path: Path) -> None:
        """What was taken away."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return  # a complete order found it too
        except OSError as error:
            # The next complete order finds it by its name.
            log.warning("%s of a deleted topic cannot be removed: %s", path, error)


def close_all(partitions: Iterable[Partition]) -> None:
    """Raises LogStorageError."""
    failures = []
    for partition in partitions:
        if partition.offline is not None:
            continue
        try:
            partition.log.close()
        except LogStorageError as error:
            failures.append(error)
    if failures:
        raise failures[0]
