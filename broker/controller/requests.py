"""What clients ask of the controller, as a seam: the broker they asked may be the controller, or pass it on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from broker.cluster.metadata import TopicState
from broker.controller.reassignment import Assignment
from broker.errors import BrokerError
from broker.wire.vocabulary import BROKER_DEFAULT, TopicPartition

CHANGE_MS_MIN: Final = 30_000
"""Kafka answers a request with a shorter timeout that it is late, and carries it out: who asks is told here instead."""

Outcomes: TypeAlias = Mapping[TopicPartition, BrokerError | None]
"""Of each partition that was asked for; None: it was done."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """`assignment`: the replicas of each partition, the preferred leader first; then both numbers are left out."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


class ControllerRequests(Protocol):
    """Each returns when every broker that is there has applied the change. Each raises NotController, StillUnderWay
    after `timeout_ms`, LogStorageError, and what the metadata store raises; with `validate_only` nothing is changed.
    """

    async def create_topic(self, new: NewTopic, timeout_ms: int, *, validate_only: bool = False) -> TopicState:
        """Raises InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment,
        InvalidTopicRequest, InvalidTopicConfig, TooFewDescriptors.
        """
        ...

    async def delete_topic(self, name: str, timeout_ms: int) -> None:
        """The name is free when this returns. Raises UnknownTopic."""
        ...

    async def grow_topic(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        timeout_ms: int,
        *,
        validate_only: bool = False,
    ) -> None:
        """`count` is the new number of partitions, `assignment` the replicas of those that are added. Raises
        UnknownTopic, InvalidPartitions, InvalidReplicaAssignment, InvalidTopicRequest, TooFewDescriptors.
        """
        ...

    async def controlled_shutdown(self, node_id: int, broker_epoch: int, timeout_ms: int) -> frozenset[TopicPartition]:
        """The broker is about to stop: others lead what they have in sync, and it leaves the ISRs -> the partitions
        that only it can lead. Raises StaleBrokerEpoch.
        """
        ...

    async def elect_leaders(
        self, wheres: Collection[TopicPartition] | None, timeout_ms: int, *, unclean: bool
    ) -> Outcomes:
        """Has partitions led by their first replicas, or, `unclean`, those that have no leader by whoever is there:
        what that one lacks is lost. None: all partitions, of which those that need no election are left out.
        """
        ...

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
    ) -> Outcomes:
        """Has partitions move to other replicas, or, None, calls that off. It is written when this returns; the move
        itself ends when all that it is to have are in sync.
        """
        ...

    async def reassignments(
        self, wheres: Collection[TopicPartition] | None, timeout_ms: int
    ) -> Mapping[TopicPartition, Assignment]:
        """Those that are under way, among `wheres` or (None) of all partitions."""
        ...
