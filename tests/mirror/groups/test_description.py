"""What people are told of a group on a link."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.errors import GroupNotCarried
from mirror.groups.description import (
    REASONS,
    CarriedGroup,
    CarriedPartition,
    carried_group,
    describe_carried_group,
)
from mirror.link import Link
from mirror.offsets.group_entries import SETTLED, GroupAction, GroupSync, GroupSyncs, GroupSyncTimes, Written
from mirror.offsets.state_writer import ensure_own_topics
from mirror.offsets.taking_over import claim_link
from tests.broker.running import running_broker
from tests.mirror.harness import make_topic

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


async def test_a_group_is_looked_at_where_it_is_and_one_that_is_not_carried_is_said_to_be_none(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address:
        link = replace(LINK, source=Site("east", address), target=Site("west", address), groups=("g.*",))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            for topic in ("t", "east.t", "other"):
                await make_topic(source, topic)
            await commit_offsets(source, "g", at(7) | at(9, topic="east.t"))
            await commit_offsets(source, "gone-elsewhere", at(1, topic="other"))
            found = await describe_carried_group(link, source, target, "g")
            assert found.source_answers
            assert [(one.source_offset, one.target_offset) for one in found.partitions] == [(7, 9)]
            with pytest.raises(GroupNotCarried, match="link l does not carry group x: its groups do not name it"):
                await describe_carried_group(link, source, target, "x")
            for asked in (source, None):
                with pytest.raises(GroupNotCarried, match="group gone-elsewhere has no offset in a topic that link l"):
                    await describe_carried_group(link, asked, target, "gone-elsewhere")
            await ensure_own_topics(target, link)
            log = (await claim_link(target, link, "worker")).log
            await log.append([GroupSync("x", 5, {("t", 0): Written(7, 9)}, {}, "", 4)])
            known = await describe_carried_group(link, None, target, "x")
            assert (known.source_answers, known.synced_at_ms) == (False, 4)
            assert [(one.written_source_offset, one.target_offset) for one in known.partitions] == [(7, None)]
