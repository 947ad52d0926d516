"""What every MetadataStore must do. An implementation's test module subclasses this and says how to open one."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from broker.cluster.metadata_store import (
    BrokerRegistration,
    MetadataConflict,
    MetadataStore,
    PartitionState,
    TopicState,
)

LED_BY_ONE = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))


def topic(name: str, partitions: int = 2, **configs: str) -> TopicState:
    return TopicState(name, uuid.uuid4(), (LED_BY_ONE,) * partitions, configs)


class MetadataStoreContract:
    def open(self, place: Path) -> MetadataStore:
        """A store at this place; opened a second time it is the same cluster."""
        raise NotImplementedError

    def test_what_was_made_is_there_after_opening_again(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        made = store.create_topic(topic("flights", retention="x"))
        again = self.open(tmp_path)
        assert again.topics() == {"flights": made}
        assert again.cluster_id == store.cluster_id

    def test_a_name_is_given_once(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        first = store.create_topic(topic("flights"))
        with pytest.raises(MetadataConflict):
            store.create_topic(topic("flights"))
        assert store.topics()["flights"] == first

    def test_a_change_counts_only_on_the_version_that_was_read(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        read = store.create_topic(topic("flights"))
        (changed,) = store.update_topics([replace(read, configs={"retention.ms": "1"})])
        with pytest.raises(MetadataConflict):
            store.update_topics([replace(read, configs={"retention.ms": "2"})])
        with pytest.raises(MetadataConflict):
            store.delete_topic(read)
        assert store.topics()["flights"] == changed
        assert changed.version > read.version

    def test_several_topics_change_together_or_not_at_all(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        a, b = store.create_topic(topic("a")), store.create_topic(topic("b"))
        store.update_topics([b])
        with pytest.raises(MetadataConflict):
            store.update_topics([replace(a, configs={"x": "1"}), replace(b, configs={"x": "1"})])
        assert store.topics()["a"] == a
        assert self.open(tmp_path).topics()["a"] == a

    def test_a_topic_recreated_is_not_the_old_one(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        old = store.create_topic(topic("flights"))
        store.delete_topic(old)
        assert store.topics() == {}
        new = store.create_topic(topic("flights"))
        with pytest.raises(MetadataConflict):
            store.update_topics([old])
        assert self.open(tmp_path).topics() == {"flights": new}

    def test_a_deleted_topic_cannot_be_changed(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        made = store.create_topic(topic("flights"))
        store.delete_topic(made)
        with pytest.raises(MetadataConflict):
            store.update_topics([made])

    def test_broker_epochs_rise_over_restarts(self, tmp_path: Path) -> None:
        one = BrokerRegistration(1, "127.0.0.1", 9092)
        epochs = [self.open(tmp_path).register_broker(one), self.open(tmp_path).register_broker(one)]
        store = self.open(tmp_path)
        epochs.append(store.register_broker(BrokerRegistration(2, "127.0.0.1", 9093, "rack")))
        assert epochs == sorted(set(epochs))
        assert self.open(tmp_path).brokers() == {1: one, 2: BrokerRegistration(2, "127.0.0.1", 9093, "rack")}

    def test_producer_ids_are_never_given_twice(self, tmp_path: Path) -> None:
        given: list[int] = []
        for count in (1, 1000, 3):
            store = self.open(tmp_path)
            given += store.allocate_producer_ids(count)
            given += store.allocate_producer_ids(count)
        assert len(given) == len(set(given)) == 2008
