"""The metadata of a cluster of brokers, in ZooKeeper: a MetadataStore over the session that `kept_session.py` keeps."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from uuid import UUID

from broker.access.acls import ResourcePattern
from broker.base.clock import Clock
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
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper import acls, deletions, foundation, membership, requests, secret, topics
from broker.cluster.zookeeper.errors import SessionExpired
from broker.cluster.zookeeper.kept_session import Connect, KeptSession
from broker.cluster.zookeeper.seen import Seen
from broker.cluster.zookeeper.session import catch_up
from broker.cluster.zookeeper.watching import Changes
from broker.wire.vocabulary import TopicPartition


class ZooKeeperMetadataStore(KeptSession):
    """Use `open`."""

    @classmethod
    async def open(
        cls,
        connect: Connect,
        clock: Clock,
        cluster_id: str | None = None,
        *,
        may_be_new: bool = True,
        seen: Seen | None = None,
    ) -> ZooKeeperMetadataStore:
        """Makes what a new cluster needs, with `cluster_id` (None: a new random one), if it `may_be_new`.

        Raises ZooKeeperUnreachable, ConnectionLost, MetadataUnreadable (also where there is no cluster, or another one
        than was asked for, or an older copy of it than was `seen`).
        """
        store = cls(connect, await connect(), clock, seen or Seen())
        async with contextlib.AsyncExitStack() as unopened:
            unopened.push_async_callback(store.close)
            if not may_be_new:
                await store._asked(lambda zk, again: foundation.read_cluster_id(zk))
            store._cluster_id = await store._asked(lambda zk, again: foundation.laid(zk, cluster_id))
            if cluster_id not in (None, store.cluster_id):
                raise MetadataUnreadable(
                    f"ZooKeeper has cluster {store.cluster_id}, not {cluster_id}",
                    hint="check the addresses and the chroot in zookeeper, and cluster_id of this broker",
                )
            await store._asked(lambda zk, again: store._seen.note(zk, store.cluster_id))
            unopened.pop_all()
        return store

    # -- reading ---------------------------------------------------------------------------------------------

    async def topics(self, names: Collection[str] | None = None) -> dict[str, TopicState]:
        if names is not None:
            await self._asked(lambda zk, again: catch_up(zk))
        return await self._asked(lambda zk, again: topics.read_topics(zk, names))

    async def assignment_version(self, name: str) -> int | None:
        return await self._asked(lambda zk, again: topics.read_assignment_version(zk, name))

    async def partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        found = await self._asked(lambda zk, again: topics.read_newest_states(zk, states))
        there = {where: state for where, state in found.items() if isinstance(state, PartitionState)}
        return Written(there, frozenset(where for where, state in found.items() if state is None))

    async def brokers(self) -> dict[int, LiveBroker]:
        return await self._asked(lambda zk, again: membership.read_brokers(zk))

    async def controller(self) -> int | None:
        return await self._asked(lambda zk, again: membership.read_controller(zk))

    async def controller_epoch(self) -> int:
        await self._asked(lambda zk, again: catch_up(zk))
        return (await self._asked(lambda zk, again: membership.read_controller_epoch(zk)))[0]

    async def secret(self) -> bytes:
        return await self._asked(lambda zk, again: secret.read_secret(zk))

    async def configs(self, resource: ConfigResource) -> Configs:
        return await self._asked(lambda zk, again: requests.read_configs(zk, resource))

    async def config_names(self, entity_type: str) -> Collection[str]:
        return await self._asked(lambda zk, again: requests.read_config_names(zk, entity_type))

    async def acls(self, patterns: Collection[ResourcePattern] | None = None) -> Mapping[ResourcePattern, PatternAcls]:
        return await self._asked(lambda zk, again: acls.read_acls(zk, patterns))

    @contextlib.asynccontextmanager
    async def watch(self, *kinds: ChangeKind) -> AsyncIterator[AsyncIterator[Change]]:
        changes = Changes(self._session, self._mended, kinds)
        try:
            await changes.begin()
            self._watching[changes] = None
            yield changes
        finally:
            self._watching.pop(changes, None)
            changes.end(self._zk)

    # -- membership ------------------------------------------------------------------------------------------

    async def register_broker(self, registration: BrokerRegistration) -> int:
        by = self._zk
        epoch = await self._asked(lambda zk, again: membership.register(zk, registration, self._clock))
        async with self._opened:
            if by.expired:
                raise SessionExpired("the ZooKeeper session is over, and the next one knows of no registration")
            self._registration, self._registered_by, self._broker_epoch = registration, by, epoch
            self._opened.notify_all()
        return epoch

    async def elect_controller(self, node_id: int, after: int = 0) -> Controller | None:
        return await self._asked(lambda zk, again: membership.elect(zk, node_id, self._clock, after))

    async def resign_controller(self, controller: Controller) -> None:
        await self._asked(lambda zk, again: membership.resign(zk, controller))

    # -- the controller's writes -----------------------------------------------------------------------------

    async def create_topic(self, controller: Controller, topic: TopicState) -> TopicState:
        made = await self._asked(lambda zk, again: topics.create_topic(zk, controller, topic, again))
        return await self._with_states(controller, made)

    async def set_assignment(self, controller: Controller, topic: TopicState) -> TopicState:
        changed = await self._asked(lambda zk, again: topics.set_assignment(zk, controller, topic, again))
        return await self._with_states(controller, changed)

    async def _with_states(self, controller: Controller, topic: TopicState) -> TopicState:
        written = await self.write_partition_states(controller, topics.elected(topic))
        return topics.with_states(topic, written.states)

    async def delete_topic(self, controller: Controller, topic: TopicState) -> None:
        await self._asked(lambda zk, again: deletions.delete_topic(zk, controller, topic, again))

    async def deleted_topics(self) -> Mapping[UUID, DeletedTopic]:
        return await self._asked(lambda zk, again: deletions.read_deleted_topics(zk))

    async def set_deleted_topics(self, controller: Controller, changed: Collection[DeletedTopic]) -> None:
        await self._asked(lambda zk, again: deletions.set_deleted_topics(zk, controller, changed))

    async def write_partition_states(
        self, controller: Controller, states: Mapping[TopicPartition, PartitionState]
    ) -> Written:
        return await self._asked(topics.StateWriter(controller, states).carry_on)

    async def take_isr_changes(self, controller: Controller) -> set[TopicPartition]:
        taken: set[TopicPartition] = set()
        await self._asked(lambda zk, again: requests.take_isr_changes(zk, controller, taken))
        return taken

    async def take_log_dir_failures(self, controller: Controller) -> set[int]:
        taken: set[int] = set()
        await self._asked(lambda zk, again: requests.take_log_dir_failures(zk, controller, taken))
        return taken

    # -- the leaders' writes ---------------------------------------------------------------------------------

    async def write_isr(self, states: Mapping[TopicPartition, PartitionState]) -> Written:
        return await self._asked(topics.StateWriter(None, states).carry_on)

    async def tell_log_dir_failed(self, node_id: int) -> None:
        await self._asked(lambda zk, again: requests.tell_log_dir_failed(zk, node_id))

    async def allocate_producer_ids(self, node_id: int, count: int) -> range:
        now_ms = self._clock.now_ms()
        return await self._asked(lambda zk, again: self._producer_ids.allocate(zk, node_id, count, now_ms))

    # -- requests --------------------------------------------------------------------------------------------

    async def set_configs(self, resource: ConfigResource, configs: Configs) -> Configs:
        now_ms = self._clock.now_ms()
        return await self._asked(lambda zk, again: requests.set_configs(zk, resource, configs, now_ms, again))

    async def set_acls(self, changed: Mapping[ResourcePattern, PatternAcls]) -> frozenset[ResourcePattern]:
        return await self._asked(lambda zk, again: acls.set_acls(zk, changed, self._clock.now_ms(), again))

    async def topic_deletions(self) -> set[str]:
        return await self._asked(lambda zk, again: requests.read_topic_deletions(zk))

    async def request_topic_deletion(self, name: str) -> None:
        await self._asked(lambda zk, again: requests.request_topic_deletion(zk, name))

    async def reassignments(self) -> Mapping[TopicPartition, tuple[int, ...]]:
        return await self._asked(lambda zk, again: requests.read_reassignments(zk))

    async def set_reassignments(self, controller: Controller, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        await self._asked(lambda zk, again: requests.set_reassignments(zk, controller, wanted))

    async def preferred_elections(self) -> set[TopicPartition]:
        return await self._asked(lambda zk, again: requests.read_preferred_elections(zk))

    async def request_preferred_elections(self, partitions: Collection[TopicPartition]) -> None:
        await self._asked(lambda zk, again: requests.request_preferred_elections(zk, partitions, again))

    async def end_preferred_elections(self, controller: Controller) -> None:
        await self._asked(lambda zk, again: requests.end_preferred_elections(zk, controller))
