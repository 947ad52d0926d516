"""Topic and config plans. Pure."""

from __future__ import annotations

import uuid

from broker.client.configs import ConfigEntry
from broker.client.model import Partition, Topic
from broker.client.site import Site
from broker.client.topics import NewTopic
from broker.wire.vocabulary import ConfigSource
from mirror.link import Link
from mirror.topics.plan import (
    ConfigAction,
    ConfigChange,
    FindingKind,
    MirroredTopic,
    check_target,
    creation_configs,
    due_changes,
    pair_topics,
    plan_configs,
    plan_topics,
)

LINK = Link("l", Site("east", "e:1"), Site("west", "w:1"), ("flights", "orders"), "prefixed")


def topic(name: str, partitions: int, replicas: int = 3) -> Topic:
    ids = tuple(range(replicas))
    made = tuple(Partition(index, 0, 0, ids, ids) for index in range(partitions))
    return Topic(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), False, made)


def own(**values: str) -> dict[str, ConfigEntry]:
    return entries(ConfigSource.TOPIC, **values)


def default(**values: str) -> dict[str, ConfigEntry]:
    return entries(ConfigSource.DEFAULT, **values)


def entries(source: ConfigSource, **values: str) -> dict[str, ConfigEntry]:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return {name: ConfigEntry(name, value, source) for name, value in named.items()}


def test_missing_topics_are_made_like_the_source() -> None:
    source = {"flights": topic("flights", 4), "other": topic("other", 1)}
    configs = {"flights": own(retention_ms="-1", min_insync_replicas="2") | default(segment_bytes="1")}
    plan = plan_topics(LINK, source, {}, configs, target_broker_count=2)
    made = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    assert plan.create == (NewTopic("east.flights", 4, 2, made),)
    assert not plan.grow


def test_a_topic_whose_configs_are_unknown_waits() -> None:
    assert plan_topics(LINK, {"flights": topic("flights", 1)}, {}, {}, 1).is_empty


def test_partitions_grow_and_never_shrink() -> None:
    source = {"flights": topic("flights", 4), "orders": topic("orders", 2)}
    target = {"east.flights": topic("east.flights", 3), "east.orders": topic("east.orders", 5)}
    plan = plan_topics(LINK, source, target, {}, 1)
    assert plan.create == ()
    assert plan.grow == {"east.flights": 4}
    assert [(pair.source_topic, pair.partitions) for pair in pair_topics(LINK, source, target)] == [
        ("flights", 3),
        ("orders", 2),
    ]


def test_a_recreated_topic_shows_another_id() -> None:
    before = pair_topics(LINK, {"flights": topic("flights", 1)}, {"east.flights": topic("east.flights", 1)})
    anew = Topic("flights", uuid.uuid4(), False, topic("flights", 1).partitions)
    after = pair_topics(LINK, {"flights": anew}, {"east.flights": topic("east.flights", 1)})
    assert before[0].source_topic_id != after[0].source_topic_id


def test_drift_is_set_and_deleted_and_unknown_names_are_left() -> None:
    source = own(retention_ms="1000", new_config="x", min_insync_replicas="2") | default(segment_bytes="7")
    target = default(retention_ms="2000", min_insync_replicas="1") | own(segment_bytes="9")
    assert plan_configs("t", source, target) == [
        ConfigChange("t", "retention.ms", ConfigAction.SET, "1000", "2000"),
        ConfigChange("t", "segment.bytes", ConfigAction.DELETE, "7", "9"),
    ]


def test_equal_effective_values_are_no_drift() -> None:
    assert plan_configs("t", own(retention_ms="5"), default(retention_ms="5")) == []
    assert plan_configs("t", default(retention_ms="5"), default(retention_ms="6")) == []


def test_sensitive_and_read_only_configs_are_not_carried() -> None:
    hidden = {"secret": ConfigEntry("secret", None, ConfigSource.TOPIC, is_sensitive=True)}
    fixed = {"fixed": ConfigEntry("fixed", "1", ConfigSource.TOPIC, is_read_only=True)}
    assert creation_configs(hidden | fixed) == {"message.timestamp.type": "CreateTime"}
    assert plan_configs("t", hidden | fixed, default(secret="x", fixed="2")) == []


def test_the_target_always_keeps_create_time() -> None:
    source = own(message_timestamp_type="LogAppendTime")
    assert creation_configs(source) == {"message.timestamp.type": "CreateTime"}
    assert plan_configs("t", source, default(message_timestamp_type="CreateTime")) == []
    (change,) = plan_configs("t", source, default(message_timestamp_type="LogAppendTime"))
    assert change.source_value == "CreateTime"


def test_changes_are_due_one_pass_after_they_were_shown() -> None:
    change = ConfigChange("t", "retention.ms", ConfigAction.SET, "1", "2")
    assert due_changes([change], frozenset()) == []
    assert due_changes([change], frozenset({change})) == [change]
    changed_again = ConfigChange("t", "retention.ms", ConfigAction.SET, "3", "2")
    assert due_changes([changed_again], frozenset({change})) == []


def test_concerns() -> None:
    pair = MirroredTopic("flights", "east.flights", None, 2)
    source = own(retention_ms="-1", max_message_bytes="2000", compression_type="zstd")
    target = own(
        retention_ms="1000",
        max_message_bytes="1000",
        compression_type="gzip",
        message_timestamp_before_max_ms="5000",
        message_timestamp_type="LogAppendTime",
        cleanup_policy="delete",
    )
    kinds = {finding.kind for finding in check_target(pair, source, target, 6000, 3)}
    assert kinds == set(FindingKind)
    assert check_target(pair, source, source, 6000, 2) == []
    assert check_target(pair, own(retention_ms="5"), own(retention_ms="-1"), None, 2) == []
