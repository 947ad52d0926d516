"""What is set on topics and on this broker, changed by any broker and known to all: the metadata store tells of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakValueDictionary

from broker.cluster.metadata import ChangeKind, ConfigResource, Configs
from broker.cluster.metadata_store import MetadataStore
from broker.cluster.view import ClusterView
from broker.errors import BrokerError
from broker.replicas.manager import ReplicaManager
from broker.topics.configs import log_config

log = logging.getLogger(__name__)


class OwnConfigs:
    """What is set on this broker while it runs."""

    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self._store = store
        self._resource = ConfigResource("brokers", str(node_id))

    async def values(self) -> Mapping[str, str]:
        return (await self._store.configs(self._resource)).values

    async def alter(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """As `TopicConfigs.alter`. Raises MetadataConflict, and what `change` raises."""
        known = await self._store.configs(self._resource)
        configs = dict(change(known.values))
        if configs != known.values:
            await self._store.set_configs(self._resource, Configs(configs, known.version))


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
                try:
                    await self._learn(names)
                except BrokerError as error:
                    log.warning("what is set on %s could not be read: %s", change.name or "topics", error)

    async def _learn(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._view.topics:
                self._replicas.learn_configs(name, await self._store.configs(ConfigResource("topics", name)))
