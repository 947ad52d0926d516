"""Every partition that a site or the link's state knows of is frozen, or left out with a reason."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from broker.client.model import Partition, Topic
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.api import Link, OffsetMap, StateEntries
from mirror.offsets.entries import Checkpoint, LinkRun, Owner, RunState, Writer
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.topic_entries import TopicPause
from monitoring.audit.frozen import Seen, SiteSeen, frozen_partitions
from monitoring.audit.model import FrozenPartition, Span
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import Reason

EAST, WEST = Site("east", "localhost:1"), Site("west", "localhost:2")
LINK = Link("east-west", EAST, WEST, ("data-.*",), "prefixed")


def site(*names: str, partitions: int = 1, prefix: str = "") -> SiteSeen:
    made = [Partition(number, 1, 0, (1,), (1,)) for number in range(partitions)]
    topics = {prefix + name: Topic(prefix + name, uuid.uuid4(), False, tuple(made)) for name in names}
    spans = {TopicPartition(name, item.partition): Span(0, 10) for name in topics for item in made}
    return SiteSeen(topics, spans, spans, {name: {} for name in topics})


def seen(source: SiteSeen, target: SiteSeen, *mirrored: str) -> Seen:
    """As if all ten records of partition 0 of `mirrored` had been mirrored."""
    end = End(10, 10)
    writer = Writer(1, 0)
    checkpoints = {(name, 0): Checkpoint(name, 0, end, 10, writer, 0, 10, 1_000, 1_000) for name in mirrored}
    known = OffsetMap({(name, 0): PartitionMap([Interval(0, 0)], end, 10) for name in mirrored})
    return Seen(LINK, StateEntries(LINK, exists=True, checkpoints=checkpoints), known, (), source, target)


def there(*names: str, partitions: int = 1) -> SiteSeen:
    return site(*names, partitions=partitions, prefix="east.")


def one(found: Seen) -> FrozenPartition:
    (partition,) = frozen_partitions(found)
    return partition


def test_what_both_sites_have() -> None:
    partition = one(seen(site("data-a", "other"), there("data-a"), "data-a"))
    assert (partition.topic, partition.target_topic, partition.left_out) == ("data-a", "east.data-a", None)
    assert (partition.source, partition.target, partition.mirrored_end) == (Span(0, 10), Span(0, 10), (10, 10))


def test_a_topic_that_was_deleted_at_the_source_is_left_out_with_a_word() -> None:
    partition = one(seen(site(), there("data-a"), "data-a"))
    assert (partition.left_out, partition.target) == (Reason.SOURCE_DELETED, Span(0, 10))
    assert [item.reason for item in comparable(partition)[1]] == [Reason.SOURCE_DELETED] * 2
    assert frozen_partitions(seen(site(), there(), "data-a")) == []


def test_records_in_a_partition_that_only_the_target_has_are_compared() -> None:
    _, partition = frozen_partitions(seen(site("data-a"), there("data-a", partitions=2), "data-a"))
    found, left_out = comparable(partition)
    assert found is not None
    assert (partition.partition, found.source, found.target, left_out) == (1, Span(0, 0), Span(0, 10), ())


def test_what_a_site_could_not_say_is_left_out_with_a_word() -> None:
    source, target = site("data-a"), there("data-a")
    for broken in (
        seen(replace(source, stable={}), target, "data-a"),
        seen(replace(source, configs={}), target, "data-a"),
        seen(source, replace(target, stable={}), "data-a"),
        seen(source, replace(target, configs={}), "data-a"),
        seen(source, replace(target, topics={}, unclear=("east.data-a",)), "data-a"),
        seen(replace(source, topics={}, unclear=("data-a",)), target, "data-a"),
        seen(replace(source, topics={}, unclear=("data-a",)), there()),
        replace(seen(source, target, "data-a"), unread={("data-a", 0)}),
    ):
        partition = one(broken)
        assert partition.left_out is Reason.NOT_READABLE
        assert comparable(partition)[0] is None
        assert comparable(partition)[1]


def test_what_is_behind_an_open_transaction_is_known() -> None:
    where, there_ = TopicPartition("data-a", 0), TopicPartition("east.data-a", 0)
    source = replace(site("data-a"), stable={where: Span(0, 8)})
    partition = one(seen(source, replace(there("data-a"), stable={there_: Span(0, 7)}), "data-a"))
    assert (partition.source, partition.open_at_source) == (Span(0, 8), Span(8, 10))
    assert (partition.target, partition.open_at_target) == (Span(0, 10), Span(7, 10))


def test_a_timestamp_that_spark_cannot_hold_is_left_out_with_a_word() -> None:
    source, target = site("data-a"), there("data-a")
    for odd in (
        seen(replace(source, beyond_spark={TopicPartition("data-a", 0)}), target, "data-a"),
        seen(source, replace(target, beyond_spark={TopicPartition("east.data-a", 0)}), "data-a"),
    ):
        assert one(odd).left_out is Reason.TIMESTAMP_NOT_READABLE


def test_what_the_mirror_has_not_reached_yet_is_in_flight() -> None:
    source = site("data-a", "data-new", partitions=2)
    born_topic = {
        partition.topic: partition for partition in frozen_partitions(seen(source, there("data-a"), "data-a"))
    }
    new = born_topic["data-new"]
    assert (new.left_out, new.target) == (Reason.NOT_REACHED_YET, None)
    (left_out,) = comparable(new)[1]
    assert (left_out.reason, left_out.offsets, left_out.reason.is_finding) == (Reason.NOT_REACHED_YET, 10, False)
    _, born = frozen_partitions(seen(site("data-a", partitions=2), there("data-a", partitions=2), "data-a"))
    assert born.left_out is Reason.NOT_REACHED_YET
    first = seen(site("data-a"), there())
    owner = Owner(Writer(1, 0), "worker", 1_000)
    assert one(replace(first, entries=replace(first.entries, owner=owner))).left_out is Reason.NOT_REACHED_YET


@pytest.mark.parametrize(
    "changes",
    [
        {"holds": {("data-new", None): Hold("data-new", None, HoldReason.NO_LEADER_AT_SOURCE, "", 1)}},
        {"holds": {("data-new", 0): Hold("data-new", 0, HoldReason.NO_LEADER_AT_SOURCE, "", 1)}},
        {"paused": {"data-new": TopicPause("data-new", "op-1", 1)}},
        {"run": LinkRun(RunState.PROMOTED, "op-1", 1)},
        {"run": LinkRun(RunState.PAUSED, "op-1", 1)},
        {"checkpoints": {}},
    ],
)
def test_what_stands_still_is_missing(changes: dict[str, Any]) -> None:
    found = seen(site("data-a", "data-new"), there("data-a", "data-new"), "data-a")
    _, new = frozen_partitions(replace(found, entries=replace(found.entries, **changes)))
    assert new.left_out is None
    assert [item.reason for item in comparable(new)[1] if item.offsets] == [Reason.NEVER_MIRRORED] * 2
