"""What is in the way of mirroring, and what a session must begin anew for. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.client.errors import KafkaError
from broker.client.model import Partition, Topic
from broker.client.site import Site
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER
from mirror.link import Link
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.topics.seen import TopicChange, TopicsSeen, find_changes, find_holds, lacking_topics, leaders_of

LINK = Link("l", Site("east", "e:1"), Site("west", "w:1"), (".*",), "prefixed")


def topic(name: str, leaders: Sequence[int], generation: int = 0) -> Topic:
    made = tuple(Partition(index, leader, 0, (1, 2), (1, 2)) for index, leader in enumerate(leaders))
    return Topic(name, uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}{generation}"), False, made)


def seen(source: Sequence[Topic], target: Sequence[Topic]) -> TopicsSeen:
    return TopicsSeen({t.name: t for t in source}, {}, {t.name: t for t in target}, {})


BOTH = seen([topic("a", [1, 2])], [topic("east.a", [1, 2])])

ERROR = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic")
LONG = "x" * 245

HOLDS: dict[str, tuple[TopicsSeen, set[tuple[str, int | None, HoldReason]]]] = {
    "nothing": (BOTH, set()),
    "leaders": (
        seen([topic("a", [NO_LEADER, 2])], [topic("east.a", [1, NO_LEADER])]),
        {("a", 0, HoldReason.NO_LEADER_AT_SOURCE), ("a", 1, HoldReason.NO_LEADER_AT_TARGET)},
    ),
    "not created": (seen([topic("a", [1])], []), {("a", None, HoldReason.TOPIC_NOT_CREATED)}),
    "not grown": (seen([topic("a", [1, 2])], [topic("east.a", [1])]), {("a", 1, HoldReason.TOPIC_NOT_GROWN)}),
    "name": (seen([topic(LONG, [1])], []), {(LONG, None, HoldReason.NAME_TOO_LONG)}),
    "denied at the source": (
        replace(BOTH, source={}, source_failures={"a": ERROR}),
        {("a", None, HoldReason.ERROR_AT_SOURCE)},
    ),
    "denied at the target": (
        replace(BOTH, target={}, target_failures={"east.a": ERROR}),
        {("a", None, HoldReason.ERROR_AT_TARGET)},
    ),
}


@pytest.mark.parametrize("name", HOLDS)
def test_what_is_in_the_way_is_named(name: str) -> None:
    looked, expected = HOLDS[name]
    assert {(hold.topic, hold.partition, hold.reason) for hold in find_holds(LINK, looked, {}, 7)} == expected


def test_why_a_topic_was_not_made_is_told() -> None:
    failure = KafkaError(ErrorCode.POLICY_VIOLATION, "topic east.a at west")
    (hold,) = find_holds(LINK, seen([topic("a", [1])], []), {"east.a": failure}, 7)
    assert hold == Hold("a", None, HoldReason.TOPIC_NOT_CREATED, str(failure), 7)


CHANGES: dict[str, tuple[TopicsSeen, TopicChange | None]] = {
    "nothing": (BOTH, None),
    "born at the source": (seen([topic("a", [1, 2]), topic("b", [1])], [topic("east.a", [1, 2])]), None),
    "gone at the source": (seen([], []), TopicChange("a at east is gone", at_target=False)),
    "recreated at the source": (
        seen([topic("a", [1, 2], 1)], [topic("east.a", [1, 2])]),
        TopicChange("a at east was deleted and recreated", at_target=False),
    ),
    "grown at the source": (
        seen([topic("a", [1, 2, 1])], [topic("east.a", [1, 2])]),
        None,
    ),
    "led elsewhere at the source": (seen([topic("a", [1, 3])], [topic("east.a", [1, 2])]), None),
    "led elsewhere at the target": (seen([topic("a", [1, 2])], [topic("east.a", [3, 2])]), None),
    "gone at the target": (seen([topic("a", [1, 2])], []), TopicChange("east.a at west is gone", at_target=True)),
    "recreated at the target": (
        seen([topic("a", [1, 2])], [topic("east.a", [1, 2], 1)]),
        TopicChange("east.a at west was deleted and recreated", at_target=True),
    ),
    "recreated at both": (
        seen([topic("a", [1, 2], 1)], [topic("east.a", [1, 2], 1)]),
        TopicChange("a at east was deleted and recreated", at_target=True),
    ),
    "grown at the target": (
        seen([topic("a", [1, 2])], [topic("east.a", [1, 2, 1])]),
        None,
    ),
    "without a leader": (seen([topic("a", [NO_LEADER, 2])], [topic("east.a", [1, NO_LEADER])]), None),
    "not described at the source": (replace(BOTH, source={}, source_failures={"a": ERROR}), None),
    "not described at the target": (replace(BOTH, target={}, target_failures={"east.a": ERROR}), None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_only_a_topic_that_is_gone_or_another_leaves(name: str) -> None:
    now, expected = CHANGES[name]
    assert find_changes(LINK, BOTH, now) == ({"a": expected} if expected else {})


def test_each_topic_leaves_for_itself() -> None:
    before = seen([topic("a", [1]), topic("b", [1])], [topic("east.a", [1]), topic("east.b", [1])])
    assert find_changes(LINK, before, BOTH).keys() == {"b"}
    left = before.without_pairs({"b": "east.b"})
    assert (set(left.source), set(left.target)) == ({"a"}, {"east.a"})
    assert not find_changes(LINK, left, BOTH)


def test_what_lost_partitions_is_another_topic() -> None:
    assert find_changes(LINK, BOTH, seen([topic("a", [1])], [topic("east.a", [1, 2])]))
    assert find_changes(LINK, BOTH, seen([topic("a", [1, 2])], [topic("east.a", [1])]))


def test_who_leads_is_told_where_it_is_known() -> None:
    assert leaders_of({"a": topic("a", [1, NO_LEADER])}) == {("a", 0): 1}


def test_what_is_to_be_made_or_grown() -> None:
    looked = seen([topic("a", [1, 2]), topic("b", [1]), topic("c", [1]), topic(LONG, [1])], [topic("east.a", [1])])
    assert lacking_topics(LINK, looked) == {"east.a", "east.b", "east.c"}
    assert lacking_topics(LINK, replace(looked, target_failures={"east.b": ERROR})) == {"east.a", "east.c"}
