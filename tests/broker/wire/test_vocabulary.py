"""The numbers, compared with those of librdkafka's client."""

from __future__ import annotations

import pytest
from confluent_kafka import IsolationLevel as TheirIsolationLevel
from confluent_kafka.admin import AlterConfigOpType, OffsetSpec, ResourceType
from confluent_kafka.admin import ConfigSource as TheirConfigSource

from broker.wire import vocabulary
from broker.wire.vocabulary import ConfigOperation, ConfigSource, GroupState, IsolationLevel, TopicPartition


def test_a_partition_is_told_as_kafka_tells_it() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"
    assert TopicPartition("orders", 3) == ("orders", 3)


def test_timestamps_of_list_offsets() -> None:
    theirs = [spec._value for spec in (OffsetSpec.latest(), OffsetSpec.earliest(), OffsetSpec.max_timestamp())]
    assert theirs == [vocabulary.LATEST, vocabulary.EARLIEST, vocabulary.MAX_TIMESTAMP]


def test_isolation_levels() -> None:
    assert {level.name: level.value for level in IsolationLevel} == {
        level.name: level.value for level in TheirIsolationLevel
    }


def test_config_sources() -> None:
    theirs = {source.value: source.name for source in TheirConfigSource}
    told = {source: f"{source.name}_CONFIG" for source in ConfigSource} | {ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG"}
    assert told == {source: theirs[source] for source in ConfigSource}


def test_config_operations_and_resources() -> None:
    assert {operation.name: operation.value for operation in ConfigOperation} == {
        operation.name: operation.value for operation in AlterConfigOpType
    }
    assert (ResourceType.TOPIC.value, ResourceType.BROKER.value) == (
        vocabulary.TOPIC_RESOURCE,
        vocabulary.BROKER_RESOURCE,
    )


@pytest.mark.parametrize("state", GroupState)
def test_only_an_empty_or_dead_group_is_known_to_have_no_members(state: GroupState) -> None:
    assert state.has_no_members == (state.value in ("Empty", "Dead"))
