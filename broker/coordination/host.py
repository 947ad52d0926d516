"""What the coordinators need of the broker they run in."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import NamedTuple, Protocol

from broker.base.clock import Clock
from broker.groups.model import MigrationPolicy
from broker.log.partition_log import PartitionLog
from broker.wire.vocabulary import TopicPartition


class TopicShape(NamedTuple):
    """What an assignment of a topic's partitions depends on."""

    topic_id: uuid.UUID
    partitions: int


class InternalTopic(NamedTuple):
    """A coordinator's topic. `partitions` is the count to make it with: one that exists keeps its own, or keys would
    move. It is not made before there are brokers for all `replicas`.
    """

    name: str
    partitions: int
    replicas: int = 1
    min_insync_replicas: int = 1


class HostPartition(Protocol):
    """A partition that this broker has."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def leader_epoch(self) -> int: ...

    def check_may_append(self) -> None:
        """Raises BrokerError where what is appended now could not get to as many replicas as it must."""
        ...

    async def wait_replicated(self, offset: int, timeout_ms: float, leader_epoch: int) -> None:
        """Returns when everything before `offset` is below the high watermark: without giving up the event loop where
        it is already. Raises NotLeading when the leadership of that epoch ends, other BrokerErrors where it is not
        known.
        """
        ...


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
    def transaction_max_timeout_ms(self) -> int: ...


class Topics(Protocol):
    """All topics of the cluster, as far as this broker has heard."""

    def topic_shape(self, name: str) -> TopicShape | None: ...


def has_partition(topics: Topics, where: TopicPartition) -> bool:
    """Whoever leads it."""
    shape = topics.topic_shape(where.topic)
    return shape is not None and 0 <= where.partition < shape.partitions


class CoordinatorHost(Protocol):
    @property
    def clock(self) -> Clock: ...
    @property
    def config(self) -> HostConfig: ...

    def require_partition(self, topic: str, index: int) -> HostPartition:
        """One that this broker leads, may lead still, and has the log of. Raises BrokerError, PartitionOffline of them
        where it has not.
        """
        ...

    def topic_names(self) -> Collection[str]:
        """All topics but the internal ones."""
        ...

    def topic_shape(self, name: str) -> TopicShape | None: ...

    def topic_name(self, topic_id: uuid.UUID) -> str | None: ...

    async def gone_topics(self, names: Collection[str]) -> set[str]:
        """Those of `names` that the cluster does not have. Raises BrokerError where that cannot be known."""
        ...

    async def make_internal_topic(self, topic: InternalTopic) -> None:
        """That the topic is there. Raises BrokerError where it could not be made."""
        ...

    def damage_hint(self, topic: str, index: int) -> str:
        """What to do about a coordinator's partition that cannot be read, and what going on without it loses."""
        ...

    def allocate_producer_id(self) -> int:
        """A producer id that was never given out before. Raises BrokerError."""
        ...
