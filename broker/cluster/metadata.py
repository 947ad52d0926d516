"""What all brokers of a cluster agree on, as values. The words are Kafka's."""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from broker.access.acls import AclBinding
from broker.wire.vocabulary import TopicPartition

NO_LEADER: Final = -1
UNWRITTEN: Final = -1
"""The version of what the store does not hold yet."""
NO_TOPIC_ID: Final = uuid.UUID(int=0)
"""Of a topic that Kafka before 2.8 made: whoever is controller gives it one."""
CLIENT_LISTENER: Final = "PLAINTEXT"
"""The name of the listener for clients, as tools of old expect it."""
INTER_BROKER_LISTENER: Final = "INTERNAL"
"""The name of the one for the brokers of the cluster."""
DEFAULT_ENTITY: Final = "<default>"
SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Where a partition's replicas are, who leads and who follows closely. The high watermark is the leader's own and
    not kept here.

    `version` is the store's, for compare-and-set of leader, epochs and ISR (Kafka's partition epoch); with UNWRITTEN
    nobody was elected yet. The replicas belong to the topic, and are changed with it.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    controller_epoch: int = 0
    recovering: bool = False
    """Elected from outside of the ISR and not yet sure of its log (Kafka's leader recovery state, KIP-704)."""
    version: int = UNWRITTEN
    written_at: int = field(default=0, compare=False)
    """When this was written, counted as the brokers' epochs are: who registered later was restarted since. 0 is before
    every registration.
    """
    isr_epochs: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Node ids of the ISR with the epoch of the registration in which each was found in sync, as far as the writer knew
    it (KIP-903): in a later life it may lack records. Leaders are told, and write it on for those of whom they heard
    nothing themselves.
    """

    @property
    def is_undecided(self) -> bool:
        """Nobody leads, and of nobody it is known that it is in sync: the metadata were older than the logs, and every
        replica is asked for what it has.
        """
        return self.leader == NO_LEADER and not self.isr and self.version != UNWRITTEN


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic; `partitions[i]` is partition i. `configs` holds only what was set on the topic. `version` is that of the
    assignment of replicas, `config_version` that of the configs.

    `damage` says why what the store holds of it cannot be read; there are no partitions then, and nobody may conclude
    from that what becomes of its files.
    """

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = UNWRITTEN
    config_version: int = UNWRITTEN
    damage: str = ""


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """Gone from the metadata by a deletion; the brokers `nodes` have not said yet that they removed its records."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    nodes: frozenset[int]

    @classmethod
    def of(cls, topic: TopicState) -> DeletedTopic:
        nodes = frozenset(node for state in topic.partitions for node in state.replicas)
        return cls(topic.name, topic.topic_id, len(topic.partitions), nodes)


class Endpoint(NamedTuple):
    """Where one listener of a broker is dialled."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker says of itself. The first endpoint is the one for clients."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker that is registered now. `epoch` is higher than that of every earlier registration (KIP-380)."""

    registration: BrokerRegistration
    epoch: int


class Controller(NamedTuple):
    """The right to write as the controller, until another one is elected. `version` is what fences it in the store."""

    node_id: int
    epoch: int
    version: int


class ConfigResource(NamedTuple):
    """`entity_type` is "topics", "brokers", "users", "clients" or "ips"; `entity_name` a topic, a node id, a name as
    `broker/access/entities.py` has it ("USER/clients/CLIENT", too), or DEFAULT_ENTITY.
    """

    entity_type: str
    entity_name: str

    @property
    def path(self) -> str:
        return f"{self.entity_type}/{self.entity_name}"


class Configs(NamedTuple):
    """What is set on a resource. `version` UNWRITTEN: nothing was ever."""

    values: Mapping[str, str]
    version: int


class PatternAcls(NamedTuple):
    """The ACLs of one pattern of resources. `version` UNWRITTEN: there are none. `damage` says why those that the store
    holds cannot be read.
    """

    bindings: frozenset[AclBinding] = frozenset()
    version: int = UNWRITTEN
    damage: str = ""


class ChangeKind(Enum):
    """What may have changed. A change that is told is read from the store; being told once too often is no harm."""

    BROKERS = "brokers"
    CONTROLLER = "controller"
    TOPICS = "topics"
    """Topics came or went."""
    ASSIGNMENT = "assignment"
    """The replicas of topic `name`."""
    CONFIGS = "configs"
    """`name` is a ConfigResource.path; empty: any may have changed."""
    ACLS = "acls"
    """`name` is a ResourcePattern.text; empty: any may have changed."""
    ISR = "isr"
    """Leaders changed the ISR of partitions: `take_isr_changes`."""
    LOG_DIR_FAILURES = "log directories"
    """Partitions went offline at brokers: `take_log_dir_failures`."""
    TOPIC_DELETIONS = "topic deletions"
    REASSIGNMENTS = "reassignments"
    PREFERRED_ELECTIONS = "preferred elections"
    SESSION = "session"
    """The store's session was lost and a new one is open; the broker is registered again with a new epoch."""


class Change(NamedTuple):
    kind: ChangeKind
    name: str = ""


class Written(NamedTuple):
    """Of several compare-and-sets: what stands in the store now, and which were refused because another was first."""

    states: Mapping[TopicPartition, PartitionState]
    refused: frozenset[TopicPartition]


def new_cluster_id() -> str:
    """A cluster id as Kafka makes them: a random UUID, 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def new_secret() -> bytes:
    """Nobody can guess it."""
    return secrets.token_bytes(SECRET_BYTES)
