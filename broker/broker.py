"""One broker put together: its data directory, metadata, topics and coordinators. No sockets (see server.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from broker import descriptors
from broker.access.known_acls import KnownAcls
from broker.access.known_entities import KnownEntities
from broker.access.known_users import KnownUsers
from broker.access.listeners import EVERY_INTERFACE
from broker.base.address import Address
from broker.base.clock import steady_ms
from broker.base.time_limits import timeout
from broker.base.waiting import told_if_long
from broker.cluster.metadata import (
    CLIENT_LISTENER,
    INTER_BROKER_LISTENER,
    BrokerRegistration,
    Endpoint,
    LiveBroker,
)
from broker.cluster.metadata_store import MetadataStore
from broker.cluster.order_ways import OrderWays
from broker.cluster.orders import BrokerOrders
from broker.cluster.peers import Peers
from broker.cluster.remote_broker import RemoteBrokers
from broker.cluster.view import ClusterView
from broker.config import BrokerConfig
from broker.controller.controller import ClusterController
from broker.controller.errors import NotController
from broker.controller.leaders import LeaderBalance
from broker.controller.requests import ControllerRequests
from broker.controller.routed import RoutedController
from broker.coordination.coordinators import Coordinators
from broker.coordination.damage import damage_hint
from broker.coordination.host import InternalTopic, TopicShape
from broker.coordination.internal_log import TRANSACTIONS_TOPIC, StateLog
from broker.coordination.internal_topics import make_internal_topic, offsets_topic, transactions_topic
from broker.data_dir import DataDirectory
from broker.errors import BrokerError
from broker.groups.coordinator import GroupCoordinator
from broker.groups.coordinators import GroupCoordinators
from broker.limits import CONTROLLED_SHUTDOWN_MS, PRODUCER_ID_BLOCK
from broker.openings import Openings
from broker.outside import Outside
from broker.quotas.client_quotas import ClientQuotas
from broker.replicas.configs import BrokerConfigs, TopicConfigs
from broker.replicas.damage import FoundDamage
from broker.replicas.files import PartitionFiles
from broker.replicas.manager import ReplicaManager
from broker.replicas.upkeep import Upkeep
from broker.replication.checkpoint import HighWatermarkCheckpoint
from broker.replication.followers import Followers
from broker.replication.in_sync import InSyncReplicas
from broker.replication.throttling import UNLIMITED, ReplicationQuota
from broker.starting import open_store, when_back
from broker.topics.broker_configs import CLEANER_BACKOFF, FOLLOWER_RATE, LEADER_RATE
from broker.topics.errors import NotLeading, UnknownTopic
from broker.topics.fetch_sessions import FetchSessions
from broker.topics.naming import INTERNAL_TOPICS
from broker.topics.partition import Partition, Topic
from broker.transactions.channels import ReceivedChannels
from broker.transactions.cluster_markers import ClusterMarkers
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.markers import LocalMarkers
from broker.transactions.verification import Verification
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import ReplicaState
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)

STARTING_TOLD_S: Final = 10
"""So often a start that waits for the controller says so."""


class Broker:
    """What the handlers work on. One event loop owns it; nothing here may be called from another thread."""

    def __init__(
        self, config: BrokerConfig, outside: Outside, data: DataDirectory, store: MetadataStore, users: KnownUsers
    ) -> None:
        """Use `open`."""
        self.config = config
        clock = self.clock = outside.clock
        self._rng = outside.rng
        self.cluster_id = store.cluster_id
        self.view = ClusterView()
        self.peers = Peers(self.view, config.node_id, config.address_map, config.inter_broker_security())
        checkpoint = HighWatermarkCheckpoint(config.data_dir, outside.disk)
        files = PartitionFiles(data.folders, clock, config.node_id, checkpoint.read())
        replica = partial(_replica, config.node_id, store)
        self.leader_quota, self._follower_quota = ReplicationQuota(), ReplicationQuota()
        self.followers = Followers(self.peers.connect, replica, clock, self._rng, self._follower_quota)
        self.replicas = ReplicaManager(
            files, self.view, self.followers, clock, config.node_id, lambda: store.broker_epoch
        )
        self.in_sync = InSyncReplicas(
            store, self.replicas.partitions, lambda: self.view.brokers, clock, config.replica_lag_time_max_ms
        )
        self._upkeep = Upkeep(self.replicas, config, checkpoint)
        self.topic_configs = TopicConfigs(store, self.view, self.replicas)
        self.broker_configs = BrokerConfigs(store, config.node_id)
        self.broker_configs.listeners.append(self._take_configs)
        self.own_controller = self._controller(store)
        self._advertised = {each.name: each.advertised(each.address) for each in config.client_listeners()}
        self._remote = RemoteBrokers(self.peers.connect_to)
        self.order_ways = OrderWays()
        self.controller: ControllerRequests = RoutedController(
            self.own_controller, config.node_id, store, self.view, self.peers.connect_to, clock
        )
        self.fetch_sessions = FetchSessions(clock, lambda: self._rng.randrange(1, 2**31))
        self.acls = KnownAcls(store, config.authorizer(clock), clock)
        self.users, self.entities = users, KnownEntities(store, clock)
        self.quotas = ClientQuotas(clock)
        self.entities.listeners += [users.take, self.quotas.take]
        self.openings = Openings()
        # What connections hold of answers that their clients do not take.
        self.unsent_bytes = 0
        self._data = data
        self._store = store
        self._producer_ids = range(0)
        self._making_internal = asyncio.Lock()
        self._joined = asyncio.Event()
        self.groups = GroupCoordinators(self, offsets_topic(config), self._group_coordinator)
        self.markers = LocalMarkers(self, self.groups.end_transaction)
        self.marker_channels = ReceivedChannels()
        self._cluster_markers = ClusterMarkers(
            self, self.markers, self.view, lambda: (config.node_id, store.broker_epoch), self.peers.connect, clock
        )
        self.transactions = Coordinators(self, transactions_topic(config), self._transaction_coordinator)
        self._found_damage = FoundDamage(store, config.node_id, clock)
        self.replicas.damage_listeners.append(self._found_damage.note)
        self.verification = Verification(self.transactions, self.view, self.peers)
        self.replicas.leadership_listeners.append(self._leads)
        self.view.deletion_listeners.append(self.groups.forget_topic)

    @classmethod
    async def open(
        cls, config: BrokerConfig, outside: Outside, data: DataDirectory, users: KnownUsers | None = None
    ) -> Broker:
        """Opens the metadata. `data` is the broker's from then on, and closed with it.

        Raises DataDirectoryError, MetadataUnreadable, LogStorageError, TooFewDescriptors, ZooKeeperError.
        """
        descriptors.require(data.folders.segments(), f"the logs in {config.data_dir}")
        return cls(config, outside, data, await open_store(config, outside, data), users or config.users(outside.clock))

    @property
    def advertised(self) -> Address:
        """The address of the first listener for clients, as they are told it."""
        return next(iter(self._advertised.values()))

    def advertised_at(self, listener: str) -> Address:
        """What those are told who came by this listener."""
        return self._advertised[listener]

    async def bound(self, clients: Sequence[Address], brokers: Address | None = None) -> None:
        """Tells where the server listens for clients, in the order of the config's listeners, and for other brokers,
        which it only knows when it does (port 0), and registers the broker; `run` goes on beside it, as its session may
        end meanwhile. Raises LogStorageError, NodeIdTaken, ZooKeeperError.
        """
        listeners = self.config.client_listeners()
        told = {each.name: each.advertised(where) for each, where in zip(listeners, clients, strict=True)}
        endpoints = [Endpoint(each.name, *told[each.name], each.protocol) for each in listeners]
        if brokers is not None:
            dialled = endpoints[0].host if brokers.host in EVERY_INTERFACE else brokers.host
            protocol = self.config.security_inter_broker_protocol
            endpoints.append(Endpoint(INTER_BROKER_LISTENER, dialled, brokers.port, protocol))
            told[INTER_BROKER_LISTENER] = Address(dialled, brokers.port)
        self._advertised = told
        registration = BrokerRegistration(self.config.node_id, tuple(endpoints), self.config.rack)
        await when_back(self.clock, partial(self._join, registration))
        self._joined.set()

    async def _join(self, registration: BrokerRegistration) -> None:
        await self.broker_configs.learn()
        await self.acls.learn()
        await self.entities.learn()
        if self.config.sasl_enabled_mechanisms:
            self.users.secret = await self._store.secret()
        if self.config.site_start_frozen:
            await self.broker_configs.freeze_where_nobody_was(self.peers.hear, self.clock)
        # Before any controller can know of this life of ours: one that was followed may not have noticed yet.
        self.replicas.follow_controller(await self._store.controller_epoch())
        await self._store.register_broker(registration)
        await self.broker_configs.learn()  # what was set before others could see that this broker is there

    async def ready(self) -> None:
        """Returns when the controller has said what this broker has, every log is open, and the coordinators are
        loaded; `bound` and `run` first. Raises LogStorageError.
        """
        with told_if_long(log.info, "for the controller to say what this broker has, and for its logs to be open"):
            await self._begun()
        with told_if_long(log.info, "for what it keeps of groups and transactions to be read"):
            await self.groups.load()
            await self.transactions.load()

    async def _begun(self) -> None:
        while not self.replicas.began.done():
            await asyncio.wait([self.replicas.began], timeout=STARTING_TOLD_S)
            if not self.replicas.began.done():
                log.warning("the controller has not said yet what this broker has: is there one, and can it dial this?")
        self.replicas.began.result()

    async def leave(self) -> None:
        """Has others lead what this broker leads, as far as they can; nothing keeps it from stopping."""
        if len(self.view.brokers) < 2:
            return
        self.replicas.leaving = True
        self.groups.hand_over()
        self.transactions.hand_over()
        node_id, limit_ms = self.config.node_id, CONTROLLED_SHUTDOWN_MS
        try:
            async with timeout(limit_ms / 1000):
                kept = await self.controller.controlled_shutdown(node_id, self._store.broker_epoch, limit_ms)
        except NotController as error:
            # It is mostly stopped in the same moment, with all brokers of the site.
            log.info("others will lead when they miss this broker; there is no controller to tell: %s", error)
        except TimeoutError:
            log.warning("others will lead when they miss this broker; the controller did not answer in %d ms", limit_ms)
        except BrokerError as error:
            log.warning("others will lead when they miss this broker; the controller was not told: %s", error)
        else:
            if kept:
                log.warning("%d partitions stay without a leader until this broker is back", len(kept))

    def _controller(self, store: MetadataStore) -> ClusterController:
        config = self.config
        balance = LeaderBalance(
            config.leader_imbalance_check_interval_seconds, config.leader_imbalance_per_broker_percentage
        )
        return ClusterController(
            store,
            config.node_id,
            self._orders_to,
            lambda: self.replicas.controller_epoch,
            self.clock,
            self._rng,
            config.num_partitions,
            balance if config.auto_leader_rebalance_enable else None,
        )

    def _orders_to(self, broker: LiveBroker) -> BrokerOrders:
        if broker.registration.node_id == self.config.node_id:
            return self.replicas
        return self._remote.broker(broker.registration)

    @property
    def broker_epoch(self) -> int:
        """Of the newest registration; 0 before the first."""
        return self._store.broker_epoch

    @property
    def topics(self) -> dict[str, Topic]:
        return self.replicas.topics

    def partition(self, topic: str, index: int) -> Partition | None:
        return self.replicas.partition(topic, index)

    def check_leading(self) -> None:
        """By our own clock, and in time: nobody else leads before our session can be over. Raises NotLeading."""
        if self.clock.boottime() >= self._store.alive_until:
            raise NotLeading(f"broker {self.config.node_id} has lost its session with ZooKeeper")

    def require_partition(self, topic: str, index: int) -> Partition:
        """One that this broker leads. Raises UnknownTopic, PartitionOffline, NotLeading."""
        self.check_leading()
        found = self.replicas.partition(topic, index)
        if found is None:
            if self.view.has_partition(topic, index):
                raise NotLeading(f"This broker has no replica of {topic}-{index}.")
            raise UnknownTopic(f"There is no partition {topic}-{index}.")
        if found.offline is not None:
            raise found.refusal()
        if found.leading is None:
            raise NotLeading(f"{topic}-{index} is led by broker {found.state.leader}")
        if found.ordered_in < self._store.broker_epoch:
            # Since the session before this one ended others may lead, and their records are not here.
            raise NotLeading(f"{topic}-{index} was led here before broker {self.config.node_id} was registered anew")
        return found

    def topic_names(self) -> list[str]:
        return [name for name in self.view.topics if name not in INTERNAL_TOPICS]

    def topic_shape(self, name: str) -> TopicShape | None:
        topic = self.view.topics.get(name)
        return None if topic is None else TopicShape(topic.topic_id, len(topic.partitions))

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.view.by_id(topic_id)
        return None if topic is None else topic.name

    async def gone_topics(self, names: Collection[str]) -> set[str]:
        """Those of `names` that the cluster does not have. Raises what the metadata store raises."""
        return set(names) - (await self._store.topics(names)).keys()

    async def make_internal_topic(self, topic: InternalTopic) -> None:
        """That the topic is there. Raises what its creation met."""
        async with self._making_internal:
            if topic.name not in self.view.topics:
                await make_internal_topic(topic, self.controller, max(len(self.view.brokers), 1))

    def leader_address(self, topic: str, index: int, listener: str = CLIENT_LISTENER) -> tuple[int, str, int] | None:
        """Node id, host and port of who leads the partition; None while nobody is known to."""
        leader = self.view.leader_of(topic, index)
        found = None if leader is None else self.view.endpoints(listener).get(leader)
        return None if leader is None or found is None else (leader, found[0].host, found[0].port)

    def damage_hint(self, topic: str, index: int) -> str:
        folder = self._data.folders.path / f"{topic}-{index}"
        return damage_hint(topic, self.topics[topic].state.topic_id, folder)

    async def prepare_producer_ids(self) -> None:
        """Until the event loop has its turn again, `allocate_producer_id` has one to give. Raises what the metadata
        store raises.
        """
        while not self._producer_ids:
            async with self._making_internal:
                if not self._producer_ids:
                    allocated = await self._store.allocate_producer_ids(self.config.node_id, PRODUCER_ID_BLOCK)
                    self._producer_ids = allocated

    def allocate_producer_id(self) -> int:
        """A producer id that was never given out before. Raises BrokerError where `prepare_producer_ids` was not
        asked.
        """
        if not self._producer_ids:
            raise BrokerError("there is no producer id", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return producer_id

    async def run(self) -> None:
        """Everything that happens by time alone; ends only by being cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store.run())
            await self._joined.wait()
            tasks.create_task(self.own_controller.run())
            tasks.create_task(self.topic_configs.run())
            tasks.create_task(self.broker_configs.run())
            tasks.create_task(self.acls.run())
            tasks.create_task(self.entities.run())
            tasks.create_task(self.groups.run())
            tasks.create_task(self.transactions.run())
            tasks.create_task(self._cluster_markers.run())
            tasks.create_task(self.replicas.removing.run())
            tasks.create_task(self.followers.run())
            tasks.create_task(self.in_sync.run())
            tasks.create_task(self._found_damage.run())
            tasks.create_task(self._upkeep.note_high_watermarks())
            tasks.create_task(self._upkeep.enforce_retention())
            tasks.create_task(self._upkeep.compact())

    async def close(self) -> None:
        """Closes the logs, gives up what the broker is registered with, and unlocks the data directory. Raises
        LogStorageError, after everything was tried.
        """
        self._remote.close()
        self.verification.close()
        self._upkeep.try_checkpoint()
        try:
            self.replicas.close()
        finally:
            try:
                await self._store.close()
            finally:
                self._data.close()

    def _group_coordinator(self, state: StateLog) -> GroupCoordinator:
        return GroupCoordinator(self, state)

    def _transaction_coordinator(self, state: StateLog) -> TransactionCoordinator:
        return TransactionCoordinator(self, state, self._cluster_markers)

    def _take_configs(self) -> None:
        self.replicas.learn_defaults(self.broker_configs.topic_defaults)
        now_ms = steady_ms(self.clock)
        for quota, name in ((self.leader_quota, LEADER_RATE), (self._follower_quota, FOLLOWER_RATE)):
            quota.limit(int(self.broker_configs.value(name) or UNLIMITED), now_ms)
        backoff_ms = self.broker_configs.value(CLEANER_BACKOFF) or self.config.log_cleaner_backoff_ms
        self._upkeep.set_cleaner_backoff(int(backoff_ms))

    def _leads(self, where: TopicPartition, leader_epoch: int | None) -> None:
        if where.topic == OFFSETS_TOPIC:
            self.groups.leads(where.partition, leader_epoch)
        elif where.topic == TRANSACTIONS_TOPIC:
            self.transactions.leads(where.partition, leader_epoch)


def _replica(node_id: int, store: MetadataStore) -> ReplicaState:
    return ReplicaState(node_id, store.broker_epoch)
