"""Topic and config plans. Pure."""

from __future__ import annotations

import uuid

import pytest

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
    select_topics,
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


PAIR = MirroredTopic("flights", "east.flights", None, 2)


def concerns(source: dict[str, ConfigEntry], target: dict[str, ConfigEntry], age_ms: int | None = None) -> list[str]:
    return [finding.config for finding in check_target(PAIR, source, target, age_ms, 2)]


def test_topics_are_selected_in_one_order_and_only_those_of_the_link() -> None:
    assert select_topics(LINK, ["orders", "other", "__consumer_offsets", "flights"]) == ("flights", "orders")


def test_a_topic_is_made_with_no_more_replicas_than_brokers_and_no_fewer_than_one() -> None:
    for replicas, brokers, expected in ((3, 5, 3), (3, 2, 2), (0, 2, 1), (3, 0, 1)):
        plan = plan_topics(LINK, {"flights": topic("flights", 1, replicas)}, {}, {"flights": {}}, brokers)
        assert [new.replication_factor for new in plan.create] == [expected], (replicas, brokers)


def test_a_topic_of_no_partitions_yet_is_not_made() -> None:
    assert plan_topics(LINK, {"flights": topic("flights", 0)}, {}, {"flights": {}}, 1).is_empty


def test_a_plan_that_only_grows_is_not_empty() -> None:
    target = {"east.flights": topic("east.flights", 1)}
    assert not plan_topics(LINK, {"flights": topic("flights", 2)}, target, {}, 1).is_empty
    assert plan_topics(LINK, {"flights": topic("flights", 1)}, target, {}, 1).is_empty


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [("1000", "999", True), ("1000", "1000", False), ("-1", "1000", True), ("1000", "-1", False), ("-1", "-1", False)],
)
def test_a_shorter_retention_is_told_and_for_ever_is_the_longest(ours: str, theirs: str, told: bool) -> None:
    for config in ("retention_ms", "retention_bytes"):
        found = concerns(own(**{config: ours}), own(**{config: theirs}))
        assert found == ([config.replace("_", ".")] if told else [])


def test_retention_does_not_matter_where_nothing_is_deleted() -> None:
    source, target = own(retention_ms="-1"), own(retention_ms="5")
    assert concerns(source, target | own(cleanup_policy="compact")) == []
    assert concerns(source, target | own(cleanup_policy="compact,delete")) == ["retention.ms"]


@pytest.mark.parametrize("config", ["message_timestamp_before_max_ms", "message_timestamp_difference_max_ms"])
def test_records_exactly_as_old_as_allowed_are_taken(config: str) -> None:
    target = own(**{config: "5000"})
    assert concerns({}, target, 5000) == []
    assert concerns({}, target, 5001) == ["message.timestamp.before.max.ms"]
    assert concerns({}, target, None) == []


def test_what_the_target_recompresses_is_told() -> None:
    zstd = own(compression_type="zstd")
    assert concerns(zstd, own(compression_type="producer")) == []
    assert concerns(zstd, zstd) == []
    assert concerns(own(compression_type="producer"), zstd) == ["compression.type"]


def test_a_read_only_config_of_the_target_is_not_deleted() -> None:
    fixed = {"segment.bytes": ConfigEntry("segment.bytes", "9", ConfigSource.TOPIC, is_read_only=True)}
    assert plan_configs("t", default(segment_bytes="7"), fixed) == []
