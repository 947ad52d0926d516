"""What the controller tells brokers, as values: Kafka's LeaderAndIsr, StopReplica and UpdateMetadata.

Orders to one broker come in order, and each may come twice. Epochs say which counts: one of a controller that was
followed by another is refused, so is one for an earlier life of the broker (KIP-380), and of a partition's states the
one with the highest leader epoch holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from broker.cluster.metadata import LiveBroker, PartitionState, TopicState
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Which of these partitions the broker leads and which it follows. `topics` has the topic of each: its id and
    configs; its other partitions may not be told.

    `new`: nobody was ever elected for these. Their folders are made and durable when the order is answered; then the
    broker counts as in sync. An order has either these alone, all or none of which are made, or none of them.
    `complete`: these are all that this broker is to have; what else it has goes, but for the topics whose metadata is
    `unreadable`: of those nothing may be concluded.
    """

    controller: int
    controller_epoch: int
    broker_epoch: int
    topics: Mapping[str, TopicState]
    partitions: Mapping[TopicPartition, PartitionState]
    brokers: Mapping[int, LiveBroker]
    new: frozenset[TopicPartition] = frozenset()
    complete: bool = False
    unreadable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """What clients are told. `topics`: those that changed, each whole; `gone`: those that were deleted. `complete`:
    these are all topics, but for those that are `unreadable`.
    """

    controller: int
    controller_epoch: int
    broker_epoch: int
    topics: Mapping[str, TopicState]
    gone: frozenset[str]
    brokers: Mapping[int, LiveBroker]
    complete: bool = False
    unreadable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Partitions, with their leader epochs, that the broker has no more; `delete`: nor their files. `topic_ids` say of
    which topics: one of the same name that was made since stays.
    """

    controller: int
    controller_epoch: int
    broker_epoch: int
    topic_ids: Mapping[str, UUID]
    partitions: Mapping[TopicPartition, int]
    delete: bool


Order: TypeAlias = LeaderAndIsr | UpdateMetadata | StopReplica
Failures: TypeAlias = Mapping[TopicPartition, ErrorCode]
"""The partitions for which the broker could not do as ordered, and why."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """What a replica has of a partition, of which the metadata do not say who has all."""

    leader_epoch: int
    """The latest that it knows of, by its log or by orders: none below may be given out again."""
    epochs: tuple[tuple[int, int], ...]
    """Of its records: leader epochs, each with the offset at which it begins; both ascend."""
    end_offset: int
    high_watermark: int
    """What lies before it was acknowledged, as far as this replica was told."""


class Carried(NamedTuple):
    """What came of an order to lead and follow. `logs`: of the partitions that nobody is to lead before their replicas
    are compared, and of those whose log is of a later leader epoch than the order.
    """

    failures: Failures
    logs: Mapping[TopicPartition, ReplicaLog]


class StaleController(BrokerError):
    """The order is of a controller that was followed by another."""

    error_code = ErrorCode.STALE_CONTROLLER_EPOCH
    hint = "stop acting as the controller"


class StaleBrokerEpoch(BrokerError):
    """The order is for an earlier life of this broker."""

    error_code = ErrorCode.STALE_BROKER_EPOCH
    hint = "read the broker's registration again"


class BrokerUnreachable(BrokerError):
    """The order may have come through or not: it is given again until the broker is gone."""

    error_code = ErrorCode.NETWORK_EXCEPTION
    retriable = True
    hint = "check the broker, and the network between it and the controller"


class BrokerOrders(Protocol):
    """One broker, as the controller sees it. Each raises StaleController, StaleBrokerEpoch and BrokerUnreachable."""

    async def lead_and_follow(self, order: LeaderAndIsr) -> Carried:
        """Raises what kept the broker from making `new` partitions; none of them was then made."""
        ...

    async def stop(self, order: StopReplica) -> Failures: ...

    async def learn(self, order: UpdateMetadata) -> None: ...
