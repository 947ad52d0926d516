"""What a broker tells clients of its cluster: all topics and brokers, as the controller last told it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from broker.cluster.metadata import NO_LEADER, Configs, Endpoint, LiveBroker, TopicState
from broker.cluster.orders import UpdateMetadata
from broker.topics.errors import TopicUnreadable, UnknownTopic
from broker.wire.errors import ErrorCode


class ClusterView:
    """One event loop owns it. Configs may be known here before the controller knows them: the newer ones hold."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.brokers: Mapping[int, LiveBroker] = {}
        self.controller: int | None = None
        self.unreadable: frozenset[str] = frozenset()
        """Topics of which what is held cannot be read: among `topics` as far as they were known before."""
        self.deletion_listeners: list[Callable[[str], None]] = []
        """Called with the name of a topic that is gone, so that committed offsets go too."""
        self._names: dict[uuid.UUID, str] = {}

    def learn(self, order: UpdateMetadata) -> None:
        """Raises what a listener raises; everything is learned and every listener told by then."""
        self.controller, self.brokers = order.controller, order.brokers
        gone = {name for name in order.gone if name in self.topics and name not in order.topics}
        if order.complete:
            gone |= self.topics.keys() - order.topics.keys() - order.unreadable
            self.unreadable = order.unreadable
        self.unreadable -= order.topics.keys() | order.gone
        recreated = {
            name
            for name, told in order.topics.items()
            if (known := self.topics.get(name)) is not None and known.topic_id != told.topic_id
        }
        for name in gone | recreated:
            del self._names[self.topics.pop(name).topic_id]
        for name, told in order.topics.items():
            self.topics[name] = with_newest_configs(told, self.topics.get(name))
            self._names[told.topic_id] = name
        self._tell_deleted(gone | recreated)

    def _tell_deleted(self, names: set[str]) -> None:
        failures: list[Exception] = []
        for name in sorted(names):
            for listener in self.deletion_listeners:
                try:
                    listener(name)
                except Exception as error:  # noqa: BLE001 - the others are told, then the first is raised
                    failures.append(error)
        if failures:
            raise failures[0]

    def learn_configs(self, name: str, configs: Configs) -> None:
        known = self.topics.get(name)
        if known is not None and configs.version > known.config_version:
            self.topics[name] = replace(known, configs=configs.values, config_version=configs.version)

    def by_id(self, topic_id: uuid.UUID) -> TopicState | None:
        name = self._names.get(topic_id)
        return None if name is None else self.topics[name]

    def require(self, name: str) -> TopicState:
        """Raises UnknownTopic, TopicUnreadable."""
        topic = self.topics.get(name)
        if topic is None and name in self.unreadable:
            raise TopicUnreadable(f"What the metadata store holds of topic '{name}' cannot be read.")
        if topic is None:
            raise UnknownTopic(f"Topic '{name}' does not exist.")
        return topic

    def require_by_id(self, topic_id: uuid.UUID) -> TopicState:
        """Raises UnknownTopic, with the code that clients know for ids."""
        topic = self.by_id(topic_id)
        if topic is None:
            raise UnknownTopic(f"No topic has the id {topic_id}.", error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def has_partition(self, topic: str, index: int) -> bool:
        known = self.topics.get(topic)
        return known is not None and 0 <= index < len(known.partitions)

    def leader_of(self, topic: str, index: int) -> int | None:
        """Its node id; None while nobody is known to lead the partition."""
        if not self.has_partition(topic, index):
            return None
        leader = self.topics[topic].partitions[index].leader
        return None if leader == NO_LEADER else leader

    def endpoints(self, listener: str) -> dict[int, tuple[Endpoint, str | None]]:
        """Where each live broker that has this listener is dialled, and its rack."""
        return {
            node_id: (endpoint, broker.registration.rack)
            for node_id, broker in sorted(self.brokers.items())
            if (endpoint := broker.registration.endpoint(listener)) is not None
        }


def with_newest_configs(told: TopicState, known: TopicState | None) -> TopicState:
    """What is told of a topic, with the configs that are known already where those are newer."""
    if known is None or known.topic_id != told.topic_id or known.config_version <= told.config_version:
        return told
    return replace(told, configs=known.configs, config_version=known.config_version)
