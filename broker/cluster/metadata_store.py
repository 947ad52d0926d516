"""The seam between a broker and the place where its cluster's metadata lives.

State model as in Kafka: a partition has a leader, a leader epoch that never goes down for one topic id, replicas and
an ISR. Every change is a compare-and-set on the topic's version, so that two writers cannot undo each other.
`tests/broker/cluster/contract.py` holds every implementation to what is said here.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who leads a partition and who follows closely. The high watermark is the leader's own and not kept here."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic; `partitions[i]` is partition i. `configs` holds only what was set on the topic. `version` is the
    store's.
    """

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataConflict(BrokerError):
    """Somebody else changed the topic since it was read."""

    error_code = ErrorCode.INVALID_UPDATE_VERSION
    retriable = True
    hint = "read the topic again and repeat the change"


class MetadataUnreadable(BrokerError):
    """The store holds something that is not metadata of a version known here."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "restore metadata.json of the data directory from a backup; the partitions' files are whole without it"


class MetadataStore(Protocol):
    """Every method returns after its change is durable. Raises LogStorageError when it cannot be made so."""

    @property
    def cluster_id(self) -> str: ...

    def topics(self) -> Mapping[str, TopicState]: ...

    def create_topic(self, topic: TopicState) -> TopicState:
        """Raises MetadataConflict when a topic of that name exists."""
        ...

    def update_topics(self, topics: Sequence[TopicState]) -> list[TopicState]:
        """All or none. Raises MetadataConflict when one was changed since the `version` given, or is gone."""
        ...

    def delete_topic(self, topic: TopicState) -> None:
        """Raises MetadataConflict as `update_topics`."""
        ...

    def register_broker(self, registration: BrokerRegistration) -> int:
        """The broker's epoch: higher than that of every earlier registration of the cluster (KIP-380)."""
        ...

    def brokers(self) -> Mapping[int, BrokerRegistration]: ...

    def allocate_producer_ids(self, count: int) -> range:
        """`count` producer ids that were never given out before and never will be again."""
        ...
