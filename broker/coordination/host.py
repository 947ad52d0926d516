"""What the coordinators need of the broker they run in."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from broker.base.clock import Clock
from broker.groups.model import MigrationPolicy
from broker.log.partition_log import PartitionLog


class TopicShape(NamedTuple):
    """What an assignment of a topic's partitions depends on."""

    topic_id: uuid.UUID
    partitions: int


class HostPartition(Protocol):
    """A partition that this broker leads."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def leader_epoch(self) -> int: ...


class HostConfig(Protocol):
    """The settings of group and transaction coordination, named as Kafka's with `_` for `.`."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_consumer_migration_policy(self) -> MigrationPolicy: ...
    @property
    def offsets_topic_num_partitions(self) -> int: ...
    @property
    def transaction_state_log_num_partitions(self) -> int: ...
    @property
    def transaction_max_timeout_ms(self) -> int: ...


class CoordinatorHost(Protocol):
    @property
    def clock(self) -> Clock: ...
    @property
    def config(self) -> HostConfig: ...

    def partition(self, topic: str, index: int) -> HostPartition | None: ...

    def check_leading(self) -> None:
        """Raises BrokerError while this broker may not act as a leader."""
        ...

    def topic_names(self) -> Collection[str]:
        """All topics but the internal ones."""
        ...

    def topic_shape(self, name: str) -> TopicShape | None: ...

    def topic_name(self, topic_id: uuid.UUID) -> str | None: ...

    def ensure_internal_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> object:
        """That the topic is there. Raises BrokerError where it could not be made."""
        ...

    def allocate_producer_id(self) -> int:
        """A producer id that was never given out before. Raises BrokerError."""
        ...
