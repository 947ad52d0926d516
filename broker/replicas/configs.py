"""What is set on topics and on this broker, changed by any broker and known to all: the metadata store tells of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from broker.base.clock import Clock
from broker.base.waiting import WAITING
from broker.client.errors import ClientError
from broker.cluster.metadata import DEFAULT_ENTITY, BrokerRegistration, ChangeKind, ConfigResource, Configs
from broker.cluster.metadata_store import MetadataConflict, MetadataStore
from broker.cluster.view import ClusterView
from broker.errors import BrokerError
from broker.replicas.manager import ReplicaManager
from broker.topics.broker_configs import dynamic_config, topic_defaults
from broker.topics.configs import log_config
from broker.topics.site_role import SiteFrozen, check_site_change, site_standing
from broker.wire.site_role import SiteRole, SiteStanding, is_own_client
from broker.wire.vocabulary import ConfigSource

log = logging.getLogger(__name__)

NOBODY_WAS_THERE: Final = "it was started, and no broker of it was there (site_start_frozen)"
HEARD_AGAIN_S: Final = 0.5

Hear = Callable[[BrokerRegistration, str], Awaitable[None]]
"""Returns when a broker of the cluster with this id answers there, and is registered. Raises ClientError."""


class BrokerConfigs:
    """What is set on this broker, and on all of them, while they run. `listeners` are called when that is another."""

    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self.own: Mapping[str, str] = {}
        self.default: Mapping[str, str] = {}
        self.site = SiteStanding()
        self.listeners: list[Callable[[], None]] = []
        # In which registration that was read: meanwhile others may have set what this broker was not told.
        self._learnt_in = 0
        self._overdue = asyncio.Event()
        self._told = ""
        self._store = store
        self._node_id = node_id
        self._own = ConfigResource("brokers", str(node_id))
        self._default = ConfigResource("brokers", DEFAULT_ENTITY)
        self._turn = asyncio.Lock()

    def value(self, name: str) -> str | None:
        """What this broker goes by: its own before the one of all; None where neither is set."""
        return self.own.get(name, self.default.get(name))

    def sources(self, name: str) -> list[tuple[str, ConfigSource]]:
        """Where it is set, what is in force first."""
        found = ((self.own, ConfigSource.DYNAMIC_BROKER), (self.default, ConfigSource.DYNAMIC_DEFAULT_BROKER))
        return [(values[name], source) for values, source in found if name in values]

    @property
    def topic_defaults(self) -> dict[str, str]:
        return topic_defaults(self.own, self.default)

    async def alter(self, *, default: bool, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """What is set on this broker, or (`default`) on all; as `TopicConfigs.alter`. Raises MetadataConflict, and what
        `change` raises.
        """
        resource = self._default if default else self._own
        async with self._turn:
            known = await self._store.configs(resource)
            configs = dict(change(known.values))
            check_site_change(known.values, configs, default=default)
            if configs != known.values:
                await self._store.set_configs(resource, Configs(configs, known.version))
            await self._learn()

    async def freeze_where_nobody_was(self, hear: Hear, clock: Clock) -> None:
        """Before this broker is registered. While a site was down another may have become the active one.

        Who died is registered until its session is over, which begins anew where ZooKeeper was down, too. So only one
        that can be heard was there: what that one found at its own start holds. One that is neither heard nor gone may
        live or not: frozen beside the living the site would lose writes that it could take, and open behind a loss it
        would be a second active one.
        """
        told = ""
        while not self.site.covers(()) and (others := await self._others()):
            if None in (unheard := await self._unheard(others, hear)).values():
                return
            why = "; ".join(f"broker {node_id}: {error}" for node_id, error in sorted(unheard.items()))
            if why != told:
                told = why
                said = (
                    "%s until one of them answers, or their sessions are over, to know whether this site was down: %s"
                )
                log.warning(said, WAITING, why)
            await clock.sleep(HEARD_AGAIN_S)
            await self.learn()

        def frozen(known: Mapping[str, str]) -> Mapping[str, str]:
            now = site_standing(known)
            return known if now.covers(()) else {**known, **now.closed(SiteRole.FROZEN, NOBODY_WAS_THERE, ()).configs()}

        while True:
            with suppress(MetadataConflict):  # another broker, which starts too, was the first
                await self.alter(default=True, change=frozen)
                return

    async def _others(self) -> list[BrokerRegistration]:
        found = await self._store.brokers()
        return [broker.registration for node_id, broker in sorted(found.items()) if node_id != self._node_id]

    async def _unheard(self, others: Iterable[BrokerRegistration], hear: Hear) -> dict[int, ClientError | None]:
        """Why each of them was not; None: it was, and no other is waited for."""

        async def ask(broker: BrokerRegistration) -> tuple[int, ClientError | None]:
            try:
                await hear(broker, self._store.cluster_id)
            except ClientError as error:
                return broker.node_id, error
            return broker.node_id, None

        found: dict[int, ClientError | None] = {}
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(broker)) for broker in others]
            for each in asyncio.as_completed(asked):
                node_id, error = await each
                found[node_id] = error
                if error is None:
                    for other in asked:
                        other.cancel()
                    break
        return found

    async def learn(self) -> None:
        """What the metadata store holds now. Raises what the store raises."""
        async with self._turn:
            await self._learn()

    def check_writable(self, client_id: str | None, topic: str) -> None:
        """Raises SiteFrozen where records of this client are not to be taken now, or that is not known."""
        is_known = self._learnt_in >= self._store.broker_epoch
        if is_own_client(client_id) or (is_known and not self.site.refuses(topic)):
            return
        if is_known:
            what = f"{topic} at this site" if self.site.topics else "this site"
            raise SiteFrozen(f"{what} is {self.site.role}, since {self.site.reason or 'somebody said so'}")
        self._overdue.set()
        raise SiteFrozen("this broker was registered anew, and has still to read whether its site takes writes")

    async def _learn(self) -> None:
        learnt_in = self._store.broker_epoch
        own, default = await self._known(self._own), await self._known(self._default)
        self._learnt_in, self.site = learnt_in, site_standing(default)
        if (own, default) != (self.own, self.default):
            self.own, self.default = own, default
            for listener in self.listeners:
                listener()

    async def _known(self, resource: ConfigResource) -> Mapping[str, str]:
        """Of what is set there all that has a meaning: others may write to the store."""
        known = {}
        for name, value in (await self._store.configs(resource)).values.items():
            try:
                known[name] = dynamic_config(name).check(value)
            except BrokerError as error:
                log.warning("%s of %s is left out: %s", name, resource.path, error)
        return known

    async def run(self) -> None:
        """Learns what other brokers and tools set; ends only by being cancelled."""
        async with self._store.watch(ChangeKind.CONFIGS, ChangeKind.SESSION) as changes, asyncio.TaskGroup() as tasks:
            await self._try_learn()
            tasks.create_task(self._learn_overdue())
            async for change in changes:
                if change.name in ("", self._own.path, self._default.path):
                    await self._try_learn()

    async def _learn_overdue(self) -> None:
        """Whoever writes waits for it, and asks again: nothing else tells of a registration in the same session."""
        while True:
            await self._overdue.wait()
            await self._try_learn()
            self._overdue.clear()

    async def _try_learn(self) -> None:
        told = ""
        try:
            await self.learn()
        except BrokerError as error:
            told = str(error)
            if told != self._told:
                log.warning("what is set on this broker could not be read: %s", error)
        self._told = told


class TopicConfigs:
    def __init__(self, store: MetadataStore, view: ClusterView, replicas: ReplicaManager) -> None:
        self._store = store
        self._view = view
        self._replicas = replicas
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def alter(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """`change` makes of what is set now what is set from now on, checked; it holds here when this returns. Raises
        UnknownTopic, InvalidTopicConfig, MetadataConflict, and what `change` raises.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            self._view.require(name)
            resource = ConfigResource("topics", name)
            # Read, not remembered: of an earlier change it may not be known what became of it.
            known = await self._store.configs(resource)
            configs = dict(change(known.values))
            log_config(configs)
            if configs != known.values:
                known = await self._store.set_configs(resource, Configs(configs, known.version))
            self._replicas.learn_configs(name, known)

    async def run(self) -> None:
        """Learns what other brokers and tools set; ends only by being cancelled."""
        async with self._store.watch(ChangeKind.CONFIGS, ChangeKind.SESSION) as changes:
            async for change in changes:
                kind, _, name = change.name.partition("/")
                # Without a name, and after a session was lost, any may have changed.
                names = [name] if kind == "topics" else [] if kind else list(self._view.topics)
                await self._learn(names)

    async def _learn(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._view.topics:
                continue
            try:
                self._replicas.learn_configs(name, await self._store.configs(ConfigResource("topics", name)))
            except BrokerError as error:
                log.warning("what is set on topic %s was not taken over: %s", name, error)
