"""The metadata of a cluster of brokers, in ZooKeeper: a MetadataStore over one session at a time.

Requests that a broken connection cut off are repeated for as long as a session's timeout, each after reading what an
earlier try may have done. When the session is over, `run` opens the next one and registers the broker anew; what was
asked of the old one is refused, never carried over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar, cast
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
from broker.cluster.zookeeper import acls, deletions, foundation, membership, requests, topics
from broker.cluster.zookeeper.errors import MISSING, ConnectionLost, NoNode, SessionExpired, ZooKeeperUnreachable
from broker.cluster.zookeeper.seen import MetadataWentBack, Seen
from broker.cluster.zookeeper.session import ZooKeeper, catch_up
from broker.cluster.zookeeper.watching import Changes
from broker.errors import BrokerError
from broker.wire.vocabulary import TopicPartition

Connect = Callable[[], Awaitable[ZooKeeper]]
"""Opens a session. Raises ZooKeeperUnreachable."""

CONNECT_PAUSE_S: Final = 0.5
SEEN_SAVED_S: Final = 15.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class ZooKeeperMetadataStore:
    """Use `open`."""

    def __init__(self, connect: Connect, zk: ZooKeeper, clock: Clock, seen: Seen) -> None:
        self._connect = connect
        self._seen = seen
        self._zk = zk
        self._clock = clock
        self._cluster_id = ""
        self._broker_epoch = 0
        self._producer_ids = requests.ProducerIds()
        self._registration: BrokerRegistration | None = None
        self._registered_by: ZooKeeper | None = None
        self._opened = asyncio.Condition()
        self._watching: dict[Changes, None] = {}
        self._told = ""  # why the session that was opened last is of no use: once

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

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def alive_until(self) -> float:
        is_unregistered = self._registration is not None and self._registered_by is not self._zk
        return -math.inf if is_unregistered or self._seen.went_back else self._zk.alive_until

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch

    async def run(self) -> None:
        while True:
            async with asyncio.TaskGroup() as tasks:
                noting = self._seen.note_on(lambda: self._zk, self.cluster_id, self._clock, SEEN_SAVED_S)
                beside = [tasks.create_task(self._stay_registered(self._zk)), tasks.create_task(noting)]
                await self._zk.run()
                for task in beside:
                    task.cancel()
            await self._zk.close()
            zk = await self._connect_again()
            try:
                if not await self._is_ours(zk):
                    await zk.close()
                    await self._clock.sleep(CONNECT_PAUSE_S)
                    continue
                if self._registration is not None:
                    self._broker_epoch = await self._registered(zk, self._registration)
            except (ConnectionLost, SessionExpired):
                await zk.close()
                continue
            except BaseException:  # somebody has our node id, or we are cancelled: the new session is of no use
                await zk.close()
                raise
            self._told = ""
            log.warning("ZooKeeper answers: this broker has a new session, the one before is over")
            async with self._opened:
                self._zk = self._registered_by = zk
                self._opened.notify_all()
            for changes in self._watching:
                changes.tell(Change(ChangeKind.SESSION))

    async def close(self) -> None:
        try:
            with contextlib.suppress(BrokerError):  # what is not known at the end was known a moment before
                await self._seen.note(self._zk, self.cluster_id)
            self._seen.save()
        finally:
            await self._zk.close()

    async def _stay_registered(self, zk: ZooKeeper) -> None:
        """Where somebody removed the registration it is made again, in a new epoch; until then the broker leads
        nothing, for others may. Ends with the session. Raises NodeIdTaken.
        """
        while True:
            async with self._opened:
                await self._opened.wait_for(lambda: self._registered_by is zk and self._registration is not None)
            registration = cast("BrokerRegistration", self._registration)
            try:
                await membership.unregistered(zk, registration.node_id)
                self._registered_by = None
                log.error("broker %d was taken off ZooKeeper by another hand; it registers anew", registration.node_id)
                epoch = await self._registered(zk, registration)
            except SessionExpired:
                return
            async with self._opened:
                self._registered_by, self._broker_epoch = zk, epoch

    async def _registered(self, zk: ZooKeeper, registration: BrokerRegistration) -> int:
        """The new epoch. Raises NodeIdTaken, SessionExpired."""
        while True:
            try:
                await zk.wait_connected()
                return await membership.register(zk, registration, self._clock)
            except NoNode:
                await self._mended(zk)
            except ConnectionLost:
                await self._clock.sleep(CONNECT_PAUSE_S)

    async def _mended(self, zk: ZooKeeper) -> None:
        """Puts back what a cluster always has; waits for it where our cluster is not there. Raises SessionExpired."""
        while True:
            with contextlib.suppress(ConnectionLost):  # asked again after the pause
                await zk.wait_connected()
                if await self._is_ours(zk):
                    await foundation.mend(zk)
                    return
            await self._clock.sleep(CONNECT_PAUSE_S)

    async def _connect_again(self) -> ZooKeeper:
        while True:
            try:
                return await self._connect()
            except ZooKeeperUnreachable:
                await self._clock.sleep(CONNECT_PAUSE_S)

    async def _is_ours(self, zk: ZooKeeper) -> bool:
        """Whether our cluster is there. In another one, also in one that was made anew where ours was lost, all that
        this broker has would be set aside.
        """
        try:
            if (found := await foundation.read_cluster_id(zk)) == self._cluster_id:
                await self._seen.note(zk, self.cluster_id)
                return True
            told = f"cluster {self._cluster_id} is not in ZooKeeper any more, but {found}"
        except MetadataWentBack as error:
            told = str(error)
        except MetadataUnreadable as error:
            told = f"cluster {self._cluster_id} is not in ZooKeeper any more: {error}"
        if told != self._told:
            log.error("%s; until our cluster is there as it was this broker leads nothing, and keeps what it has", told)
        self._told = told
        return False

    async def _session(self) -> ZooKeeper:
        async with self._opened:
            await self._opened.wait_for(lambda: not self._zk.expired)
        return self._zk

    async def _asked(self, ask: Callable[[ZooKeeper, bool], Awaitable[T]]) -> T:
        """`ask` with the session, and whether it was tried before and may have been carried out. Raises ConnectionLost,
        when there was no connection for a session's timeout, and SessionExpired.
        """
        zk = self._zk
        give_up_at = self._clock.monotonic() + zk.session_timeout_ms / 1000
        again = False
        while True:
            try:
                return await self._tried(zk, ask, again)
            except ConnectionLost:
                again = True
                left_s = give_up_at - self._clock.monotonic()
                if left_s <= 0:
                    raise
                try:
                    async with asyncio.timeout(left_s):
                        await zk.wait_connected()
                except TimeoutError:
                    raise ConnectionLost("no connection to ZooKeeper: it is not known what became of it") from None

    async def _tried(self, zk: ZooKeeper, ask: Callable[[ZooKeeper, bool], Awaitable[T]], again: bool) -> T:
        """Where a znode may rightly be missing, `ask` knows it: any other is put back, if it is one that holds nothing.
        Raises MetadataUnreadable.
        """
        try:
            return await ask(zk, again)
        except MISSING as missing:
            if not await self._is_ours(zk):
                raise MetadataUnreadable(f"{self._told}: {missing}", hint=foundation.RESTORE) from missing
        await foundation.mend(zk)
        try:
            return await ask(zk, True)
        except MISSING as missing:
            raise MetadataUnreadable(str(missing), hint=foundation.RESTORE) from missing

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
