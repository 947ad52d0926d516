"""What people are told of a group on a link. Pure."""

from __future__ import annotations

import pytest

from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.groups.description import REASONS, CarriedGroup, CarriedPartition, carried_group
from mirror.link import Link
from mirror.offsets.group_entries import SETTLED, GroupAction, GroupSync, GroupSyncs, GroupSyncTimes, Written

LINK = Link("l", Site("east", "e:1"), Site("west", "w:1"), ("t.*",), "prefixed", (".*",))


def at(*offsets: int, topic: str = "t") -> dict[TopicPartition, CommittedOffset]:
    return {TopicPartition(topic, n): CommittedOffset(offset) for n, offset in enumerate(offsets)}


def test_each_partition_says_where_it_stands_and_what_it_waits_for() -> None:
    entry = GroupSync("g", 5, {("t", 0): Written(7, 9)}, {("t", 1): GroupAction.SKIP_ACTIVE}, "", 4)
    syncs = GroupSyncs({"g": entry}, GroupSyncTimes(looked_at_ms=8))
    found = carried_group(LINK, "g", syncs, at(7, 3, 2) | at(1, topic="other"), at(9, 20, topic="east.t"))
    assert (found.looked_at_ms, found.synced_at_ms, found.failure) == (8, 4, "")
    carried, waiting, young = found.partitions
    assert (carried.source_offset, carried.target_offset, carried.state) == (7, 9, "carried")
    assert (carried.written_source_offset, carried.written_target_offset, carried.reason) == (7, 9, "")
    assert (waiting.source_offset, waiting.target_offset, waiting.state) == (3, 20, "waiting")
    assert waiting.reason == f"skip_active: {REASONS[GroupAction.SKIP_ACTIVE]}"
    assert (young.partition, young.target_offset, young.state) == (2, None, "not_seen")


def test_without_the_source_the_state_still_tells() -> None:
    entry = GroupSync("g", 5, {("t", 0): Written(7, 9)}, {}, "COORDINATOR_NOT_AVAILABLE", 4)
    found = carried_group(LINK, "g", GroupSyncs({"g": entry}), None, at(9, topic="east.t"))
    assert (found.source_answers, found.failure) == (False, "COORDINATOR_NOT_AVAILABLE")
    assert [(p.source_offset, p.target_offset) for p in found.partitions] == [(None, 9)]


@pytest.mark.parametrize("action", sorted(set(GroupAction) - SETTLED))
def test_every_reason_to_wait_has_words(action: GroupAction) -> None:
    assert REASONS[action]


def test_a_group_that_the_link_has_not_looked_at_yet_is_told_as_it_is_at_both_sites() -> None:
    found = carried_group(LINK, "g", GroupSyncs({}), at(7, 3) | at(1, topic="other"), at(9, topic="east.t"))
    assert found == CarriedGroup(
        "g",
        "l",
        True,
        None,
        None,
        "",
        (
            CarriedPartition("t", 0, 7, 9, None, None, "not_seen", ""),
            CarriedPartition("t", 1, 3, None, None, None, "not_seen", ""),
        ),
    )
