"""The seam between a broker and the place where its cluster's metadata lives.

State model as in Kafka: a partition has a leader, a leader epoch that never goes down for one topic id, replicas and
an ISR. Every change is a compare-and-set on the version that was read, so that two writers cannot undo each other, and
what only the controller may write is refused to one that was deposed. `tests/broker/cluster/contract.py` holds every
implementation to what is said here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import UUID

from broker.access.acls import ResourcePattern
from broker.cluster.metadata import (
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
)
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition


class MetadataConflict(BrokerError):
    """Somebody else changed it since it was read."""

    error_code = ErrorCode.INVALID_UPDATE_VERSION
    retriable = True
    hint = "read it again and repeat the change"


class NameUnstorable(BrokerError):
    """The store cannot keep anything of a resource that is called so."""

    error_code = ErrorCode.INVALID_REQUEST
    hint = "take another name"


class OutcomeUnknown(BrokerError):
    """The change was asked for, and it is not known whether it was made: read again."""


class ControllerMoved(BrokerError):
    """Another broker was elected controller since: nothing was written."""

    error_code = ErrorCode.NOT_CONTROLLER
    retriable = True
    hint = "stop acting as the controller; the request may be repeated at the new one"


class NodeIdTaken(BrokerError):
    """Another process has registered this node id, and keeps it."""

    error_code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    hint = "give each broker a node id of its own, or stop the other one"


class MetadataUnreadable(BrokerError):
    """The store holds something that is not metadata of a version known here."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "restore metadata.json of the data directory from a backup; the partitions' files are whole without it"


class MetadataStore(Protocol):
    """Every method returns after its change is durable. Any may raise what its store raises when it cannot be reached
    or written: LogStorageError, ZooKeeperError.
    """

    @property
    def cluster_id(self) -> str: ...

    @property
    def alive_until(self) -> float:
        """The moment, by `Clock.boottime`, until which this broker's registration and controllership surely hold. A
        broker that is past it leads nothing, until the moment was put off (`ZooKeeper.alive_until`).
        """
        ...

    @property
    def broker_epoch(self) -> int:
        """That of this broker's newest registration; 0 before the first."""
        ...

    async def run(self) -> None:
        """Keeps the session, and after its end opens the next one and registers the broker again; ends only by being
        cancelled.
        """
        ...

    async def close(self) -> None:
        """Gives up the registration and the controllership."""
        ...

    # -- reading ---------------------------------------------------------------------------------------------

    async def topics(self, names: Collection[str] | None = None) -> dict[str, TopicState]:
        """All, or those of `names` that exist: one that is not among them did not when this was asked. What cannot be
        read of one is its `damage`, and stops no other.
        """
        ...

    async def assignment_version(self, name: str) -> int | None:
        """That of a topic's `TopicState.version`; None where there is no such topic."""
        ...

    async def partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        """The newest leaders, epochs and ISRs of what was read earlier; `refused` are the partitions that are gone.

        One whose state cannot be read is in neither.
        """
        ...

    async def brokers(self) -> dict[int, LiveBroker]: ...

    async def controller(self) -> int | None:
        """The node id of the controller, None while there is none."""
        ...

    async def controller_epoch(self) -> int:
        """Of the newest controller, also when it is gone."""
        ...

    async def secret(self) -> bytes:
        """The same at all brokers of the cluster, in all their lives, and known to nobody who does not read what the
        store holds; made at random when it is first asked for.
        """
        ...

    async def configs(self, resource: ConfigResource) -> Configs: ...

    async def config_names(self, entity_type: str) -> Collection[str]:
        """ConfigResource.entity_name of all users, clients or addresses on which something is set, or was."""
        ...

    async def acls(self, patterns: Collection[ResourcePattern] | None = None) -> Mapping[ResourcePattern, PatternAcls]:
        """Of all patterns that have any, or of each of `patterns`, as they were when this was asked or later."""
        ...

    def watch(self, *kinds: ChangeKind) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """Tells what may have changed since it was entered; whoever reads after being told, misses nothing. Changes
        that were made through this store are told too.
        """
        ...

    # -- membership ------------------------------------------------------------------------------------------

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """The broker's epoch. Waits for an earlier life of this node id to be over. Raises NodeIdTaken."""
        ...

    async def elect_controller(self, node_id: int, after: int = 0) -> Controller | None:
        """None: another broker is the controller. The epoch is higher than that of every earlier one, and than `after`:
        the newest that this broker knows of, whatever hands did to the store.
        """
        ...

    async def resign_controller(self, controller: Controller) -> None:
        """Lets others be elected. Nothing happens where another one was elected already."""
        ...

    # -- what only the controller writes; each raises ControllerMoved ------------------------------------------

    async def create_topic(self, controller: Controller, topic: TopicState) -> TopicState:
        """With its configs. Partitions that have a leader in `topic` are written with it, the others wait for an
        election (NO_LEADER, UNWRITTEN). A crash in the middle leaves the topic with some partitions waiting. A wish to
        delete a topic of that name was for an earlier one, and goes.

        Raises MetadataConflict when a topic of that name exists.
        """
        ...

    async def set_assignment(self, controller: Controller, topic: TopicState) -> TopicState:
        """The replicas of all partitions, and more partitions: new ones are treated as in `create_topic`.

        Raises MetadataConflict when the assignment was changed since `topic.version`.
        """
        ...

    async def delete_topic(self, controller: Controller, topic: TopicState) -> None:
        """With its configs and its entry among `topic_deletions`, which goes last: what a crash cuts off is still
        there. From then on it is among `deleted_topics`, if any broker may have something of it.

        Raises MetadataConflict as `set_assignment`.
        """
        ...

    async def deleted_topics(self) -> Mapping[UUID, DeletedTopic]:
        """Those of which brokers still have to remove the records. What is in neither these nor `topics` nobody
        deleted.
        """
        ...

    async def set_deleted_topics(self, controller: Controller, changed: Collection[DeletedTopic]) -> None:
        """Which brokers still have to; of one for which none has to nothing is left."""
        ...

    async def write_partition_states(
        self, controller: Controller, states: Mapping[TopicPartition, PartitionState]
    ) -> Written:
        """Leaders, epochs and ISRs, each by compare-and-set on its `version`; their replicas are not looked at."""
        ...

    async def take_isr_changes(self, controller: Controller) -> set[TopicPartition]:
        """The partitions that `write_isr` told of since it was last asked; to be read again."""
        ...

    async def take_log_dir_failures(self, controller: Controller) -> set[int]:
        """The brokers that `tell_log_dir_failed` named since it was last asked."""
        ...

    # -- what leaders write ------------------------------------------------------------------------------------

    async def write_isr(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        """As `write_partition_states`, by the leaders of the partitions; the controller is told. An ISR that was
        refused must not be used.
        """
        ...

    async def tell_log_dir_failed(self, node_id: int) -> None:
        """The controller is told that partitions of this broker went offline."""
        ...

    async def allocate_producer_ids(self, node_id: int, count: int) -> range:
        """`count` producer ids that were never given out before and never will be again."""
        ...

    # -- what any broker writes --------------------------------------------------------------------------------

    async def set_configs(self, resource: ConfigResource, configs: Configs) -> Configs:
        """`configs.values` are all that is set from now on. Raises MetadataConflict when others were set since
        `configs.version`, or the topic is gone, and NameUnstorable.
        """
        ...

    async def set_acls(self, changed: Mapping[ResourcePattern, PatternAcls]) -> frozenset[ResourcePattern]:
        """All that these patterns have from now on, each by compare-and-set on its `version` -> those that others
        changed since, which stay as they are. Raises AclInvalid for what the store cannot hold.
        """
        ...

    async def topic_deletions(self) -> set[str]:
        """Topics that are to be deleted."""
        ...

    async def request_topic_deletion(self, name: str) -> None: ...

    async def reassignments(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        """What tools of old asked for: the replicas that partitions are to have."""
        ...

    async def set_reassignments(self, controller: Controller, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """What is left of them; none ends them."""
        ...

    async def preferred_elections(self) -> set[TopicPartition]:
        """Partitions that are to be led by their first replica."""
        ...

    async def request_preferred_elections(self, partitions: Collection[TopicPartition]) -> None:
        """Raises MetadataConflict while earlier ones are waiting."""
        ...

    async def end_preferred_elections(self, controller: Controller) -> None: ...
