"""Passes over a few groups: what is committed, what the link's state keeps, and what a failure leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced
from mirror.groups.sync import GroupSyncMemory, GroupSyncReport, sync_groups
from mirror.limits import GROUPS_IN_FLIGHT
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs, GroupSyncTimes, VoidGroup, Written
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
from tests.broker.client.group_site import GroupSite, serving

WHERE = TopicPartition("t", 0)
MAP = OffsetMap({("t", 0): PartitionMap([Interval(0, 5)], End(100, 105), 100)})


def at(offset: int) -> dict[TopicPartition, CommittedOffset]:
    return {WHERE: CommittedOffset(offset)}


async def passes(
    east: GroupSite,
    west: GroupSite,
    memory: GroupSyncMemory,
    count: int = 1,
    meanwhile: Callable[[Sequence[Change]], None] = lambda _written: None,
) -> tuple[GroupSyncReport, list[Change]]:
    """So many passes -> the last one, and what it wrote."""

    async def load_map() -> GroupMap:
        return GroupMap(MAP)

    changes: list[Change] = []

    async def write(written: Sequence[Change]) -> None:
        meanwhile(written)
        changes.extend(written)

    east.ports.clear()
    west.ports.clear()
    async with serving(east, "east") as source, serving(west, "west") as target:
        link = Link("l", source, target, ("t",), groups=(".*",))
        async with Cluster(source) as here, Cluster(target) as there:
            for _ in range(count):
                changes.clear()
                report = await sync_groups(link, here, there, load_map, memory, write)
    return report, changes


async def test_what_is_equal_is_neither_committed_nor_written_again() -> None:
    east, west, memory = GroupSite({"g": at(3)}), GroupSite(), GroupSyncMemory()
    await passes(east, west, memory)
    assert west.offsets == {"g": at(8)}
    west.requests.clear()
    report, changes = await passes(east, west, memory)
    assert report.count(GroupAction.UP_TO_DATE) == 1
    assert ApiKey.OFFSET_COMMIT not in west.requests
    assert [type(change) for change in changes] == [GroupSyncTimes]


async def test_what_was_equal_before_the_link_looked_counts_as_written_by_it() -> None:
    """Else a group that is set back at the source later would look as if it had moved on at the target."""
    east, west, memory = GroupSite({"g": at(3)}), GroupSite({"g": at(8)}), GroupSyncMemory()
    await passes(east, west, memory)
    assert memory.by_group["g"].written == {WHERE: Written(3, 8)}
    east.offsets = {"g": at(1)}
    await passes(east, west, memory)
    assert west.offsets == {"g": at(6)}


async def test_a_group_with_members_at_the_target_is_left_alone() -> None:
    east, west, memory = GroupSite({"g": at(3)}), GroupSite({"g": at(6)}, states={"g": "Stable"}), GroupSyncMemory()
    await passes(east, west, memory)
    assert west.offsets == {"g": at(6)}
    assert memory.by_group["g"].waiting == {WHERE: GroupAction.SKIP_ACTIVE}


async def test_a_commit_that_fails_again_and_again_is_written_once() -> None:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    east, west, memory = GroupSite({"g": at(3)}), GroupSite(commit_errors={"g": code}), GroupSyncMemory()
    report, changes = await passes(east, west, memory)
    assert set(report.failures) == {"g"}
    ahead, failed, _ = changes
    assert isinstance(ahead, GroupSync)
    assert isinstance(failed, GroupSync)
    assert (ahead.failure, code.name in failed.failure) == ("", True)
    assert not memory.by_group["g"].is_settled
    report, changes = await passes(east, west, memory)
    assert set(report.failures) == {"g"}
    assert [type(change) for change in changes] == [GroupSyncTimes, GroupSyncTimes], "the fence is asked all the same"
    west.commit_errors.clear()
    await passes(east, west, memory)
    assert memory.by_group["g"].is_settled
    assert west.offsets == {"g": at(8)}


class Unheard(GroupSite):
    """Takes commits, and says nothing."""

    def _write(self, writer: asyncio.StreamWriter, header: RequestHeader, reply: Message) -> None:
        if header.api_key != ApiKey.OFFSET_COMMIT:
            super()._write(writer, header, reply)


async def test_a_commit_that_is_not_answered_in_time_is_told_by_group_and_site() -> None:
    east, memory = GroupSite({"f": at(3), "g": at(3)}), GroupSyncMemory()
    report, _ = await passes(east, Unheard(), memory)
    told = {group: str(error) for group, error in report.failures.items()}
    assert told == {group: f"group {group}: its commit at west took too long" for group in ("f", "g")}
    assert {group: memory.by_group[group].failure for group in ("f", "g")} == told


async def test_a_job_that_came_and_left_while_a_pass_looked_is_not_sent_back() -> None:
    """Between the look at the target and the commit lie the map and the write to the link's state."""
    east, west, memory = GroupSite({"g": at(3), "other": at(4)}), GroupSite({"g": at(6)}), GroupSyncMemory()

    def job(_written: Sequence[Change]) -> None:
        west.offsets["g"] = at(90)

    report, _ = await passes(east, west, memory, meanwhile=job)
    assert west.offsets == {"g": at(90), "other": at(9)}
    assert "changed while" in str(report.failures["g"])
    report, _ = await passes(east, west, memory)
    assert not report.failures, "the next pass looks again"
    assert west.offsets["g"] == at(90)


async def test_a_fenced_worker_commits_nothing_more() -> None:
    """Not even the second share of a pass whose first it could still commit, nor what the state knows already."""
    groups = {f"g{n}": at(3) for n in range(GROUPS_IN_FLIGHT + 1)}
    east, west, memory = GroupSite(groups), GroupSite(), GroupSyncMemory()
    writes = 0

    def fence(_written: Sequence[Change]) -> None:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise LinkFenced("another owner took over")

    with pytest.raises(LinkFenced):
        await passes(east, west, memory, meanwhile=fence)
    assert len(west.offsets) == GROUPS_IN_FLIGHT
    west.offsets.clear()
    writes = 1
    with pytest.raises(LinkFenced):
        await passes(east, west, memory, meanwhile=fence)
    assert not west.offsets


async def test_a_group_that_cannot_be_read_keeps_what_is_known_of_it() -> None:
    """When it was last equal, and what the link wrote: it may be set back meanwhile. Gone is another thing."""
    east, west, memory = GroupSite({"g": at(30), "other": at(1)}), GroupSite(), GroupSyncMemory()
    await passes(east, west, memory)
    synced_at_ms = memory.syncs.synced_at("g")
    assert synced_at_ms is not None
    east.fetch_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    await passes(east, west, memory, 2)
    entry = memory.by_group["g"]
    assert (entry.written, entry.synced_at_ms) == ({WHERE: Written(30, 35)}, synced_at_ms)
    assert (memory.syncs.synced_at("other") or 0) > synced_at_ms
    east.fetch_errors.clear()
    east.offsets["g"] = at(3)
    await passes(east, west, memory)
    assert west.offsets["g"] == at(8)
    del east.offsets["g"]
    _, changes = await passes(east, west, memory)
    assert changes[0] == VoidGroup("g")
    assert set(memory.by_group) == {"other"}


def test_a_group_is_as_fresh_as_the_last_look_that_could_have_found_otherwise() -> None:
    """An entry that is written ahead says nothing until its pass is over."""
    ahead = GroupSync("g", at_ms=20, synced_at_ms=9)
    for looked_at_ms, expected in ((None, 9), (19, 9), (20, 20), (30, 30)):
        assert GroupSyncs({"g": ahead}, GroupSyncTimes(looked_at_ms=looked_at_ms)).synced_at("g") == expected
    held = GroupSync("g", 20, {}, {("t", 0): GroupAction.SKIP_ACTIVE}, "", 9)
    assert GroupSyncs({"g": held}, GroupSyncTimes(looked_at_ms=30)).synced_at("g") == 9
    assert GroupSyncs({}, GroupSyncTimes({"g": 4}, 30)).synced_at("g") == 4
