"""Passes over a few groups: what is committed, what the link's state keeps, and what a failure leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.groups import committed_offsets
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.coordinator_keys import partition_for
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.list_groups import ListGroupsResponse
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced
from mirror.groups.sync import GroupSyncMemory, GroupSyncReport, sync_groups
from mirror.limits import GROUPS_PER_TRANSACTION
from mirror.link import Link
from mirror.offsets.fence import fence_groups_of_earlier
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
    assert ApiKey.TXN_OFFSET_COMMIT not in west.requests
    assert ApiKey.INIT_PRODUCER_ID not in west.requests
    assert [type(change) for change in changes] == [GroupSyncTimes]


async def test_what_was_equal_before_the_link_looked_counts_as_written_by_it() -> None:
    """Else a group that is set back at the source later would look as if it had moved on at the target."""
    east, west, memory = GroupSite({"g": at(3)}), GroupSite({"g": at(8)}), GroupSyncMemory()
    await passes(east, west, memory)
    assert memory.by_group["g"].written == {WHERE: Written(3, 8)}
    east.offsets = {"g": at(1)}
    await passes(east, west, memory)
    assert west.offsets == {"g": at(6)}


async def test_a_group_of_kafka_streams_own_protocol_is_carried_over() -> None:
    east, west, memory = GroupSite({"g": at(3)}, types={"g": "streams"}), GroupSite(), GroupSyncMemory()
    await passes(east, west, memory)
    assert west.offsets == {"g": at(8)}
    assert memory.by_group["g"].written == {WHERE: Written(3, 8)}


async def test_a_group_with_members_at_the_target_is_left_alone() -> None:
    east, west, memory = GroupSite({"g": at(3)}), GroupSite({"g": at(6)}, states={"g": "Stable"}), GroupSyncMemory()
    await passes(east, west, memory)
    assert west.offsets == {"g": at(6)}
    assert memory.by_group["g"].waiting == {WHERE: GroupAction.SKIP_ACTIVE}


async def test_a_commit_that_fails_again_and_again_is_written_ahead_twice() -> None:
    """And taken back where it failed first."""
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    east, west, memory = GroupSite({"g": at(3)}), GroupSite(commit_errors={"g": code}), GroupSyncMemory()
    report, changes = await passes(east, west, memory)
    assert set(report.failures) == {"g"}
    ahead, failed, _ = changes
    assert isinstance(ahead, GroupSync)
    assert isinstance(failed, GroupSync)
    assert (ahead.failure, code.name in failed.failure) == ("", True)
    assert (ahead.written, failed.written) == ({WHERE: Written(3, 8)}, {})
    assert not memory.by_group["g"].is_settled
    for first in (GroupSync, GroupSyncTimes):
        report, changes = await passes(east, west, memory)
        assert set(report.failures) == {"g"}
        assert [type(change) for change in changes] == [first, GroupSyncTimes], "the fence is asked all the same"
    west.commit_errors.clear()
    await passes(east, west, memory)
    assert memory.by_group["g"].is_settled
    assert west.offsets == {"g": at(8)}


class Unheard(GroupSite):
    """Takes commits, and says nothing."""

    def _write(self, writer: asyncio.StreamWriter, header: RequestHeader, reply: Message) -> None:
        if header.api_key != ApiKey.TXN_OFFSET_COMMIT:
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
    groups = {f"g{n}": at(3) for n in range(GROUPS_PER_TRANSACTION + 1)}
    east, west, memory = GroupSite(groups), GroupSite(), GroupSyncMemory()
    writes = 0

    def fence(_written: Sequence[Change]) -> None:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise LinkFenced("another owner took over")

    with pytest.raises(LinkFenced):
        await passes(east, west, memory, meanwhile=fence)
    assert len(west.offsets) == GROUPS_PER_TRANSACTION
    west.offsets.clear()
    writes = 1
    with pytest.raises(LinkFenced):
        await passes(east, west, memory, meanwhile=fence)
    assert not west.offsets


class DeafForStaging(GroupSite):
    """Its first broker does not answer what stages offsets."""

    def _write(self, writer: asyncio.StreamWriter, header: RequestHeader, reply: Message) -> None:
        port = writer.get_extra_info("sockname")[1]
        if header.api_key != ApiKey.TXN_OFFSET_COMMIT or port != self.ports[0]:
            super()._write(writer, header, reply)


async def test_groups_whose_coordinator_hangs_drop_no_others() -> None:
    """What they staged, if they did, is taken back; the others are staged anew."""
    groups = {f"g{n}": at(3) for n in range(6)}
    east, west, memory = GroupSite(groups), DeafForStaging(), GroupSyncMemory()
    report, _ = await passes(east, west, memory)
    deaf = {group for group in groups if west.node_of(group) == 0}
    assert set(report.failures) == deaf
    assert west.offsets == {group: at(8) for group in groups.keys() - deaf}
    assert not west.staged


class LateForStaging(DeafForStaging):
    """And takes what stages offsets only when the next transaction ends; a job has come and gone in between."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[TxnOffsetCommitRequest] = []

    def _stage(self, asked: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        if self.node_of(asked.group_id) == 0:
            self.late.append(asked)
            return TxnOffsetCommitResponse()
        return super()._stage(asked)

    def _end(self, asked: EndTxnRequest) -> EndTxnResponse:
        for late in self.late if asked.committed else ():
            self.offsets[late.group_id] = at(90)
            super()._stage(late)
        return super()._end(asked)


async def test_what_was_staged_too_late_does_not_come_with_the_next_transaction() -> None:
    groups = {f"g{n}": at(3) for n in range(6)}
    east, west, memory = GroupSite(groups), LateForStaging(), GroupSyncMemory()
    report, _ = await passes(east, west, memory)
    late = {group for group in groups if west.node_of(group) == 0}
    assert set(report.failures) == late
    assert west.offsets == {group: at(90 if group in late else 8) for group in groups}


async def test_groups_whose_place_takes_no_marker_are_left_out() -> None:
    """A transaction with one of them would not end, and the next would wait for it: for all groups of the link."""
    groups = {f"g{n}": at(3) for n in range(40)}
    east, west, memory = GroupSite(groups), GroupSite(leaders=[0, -1, 0, 0]), GroupSyncMemory()
    report, _ = await passes(east, west, memory)
    unled = {group for group in groups if partition_for(group, 4) == 1}
    assert len(unled) > 5
    assert set(report.failures) == unled
    assert {error.code for error in report.failures.values() if isinstance(error, KafkaError)} == {
        ErrorCode.LEADER_NOT_AVAILABLE
    }
    assert set(west.offsets) == groups.keys() - unled
    assert west.requests[ApiKey.ADD_OFFSETS_TO_TXN] == 3, "one for each place"


async def test_refused_groups_and_those_that_changed_drop_no_others() -> None:
    """A job came to one group and stays, and to another one and left, since the target was looked at."""
    groups = {group: at(3) for group in ("refused", "live", "left", "moved", "moved too")}
    east, west, memory = GroupSite(groups), GroupSite({"left": at(6), "live": at(6)}), GroupSyncMemory()
    west.commit_errors["refused"] = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def jobs(_written: Sequence[Change]) -> None:
        west.states["live"] = "Stable"
        west.offsets["left"] = at(90)

    report, _ = await passes(east, west, memory, meanwhile=jobs)
    told = {group: str(error) for group, error in report.failures.items()}
    assert set(told) == {"refused", "live", "left"}
    assert "GROUP_AUTHORIZATION_FAILED" in told["refused"]
    assert "UNKNOWN_MEMBER_ID" in told["live"]
    assert "changed while" in told["left"]
    assert west.offsets == {"left": at(90), "live": at(6), "moved": at(8), "moved too": at(8)}


class Silent(GroupSite):
    """It answers what stages offsets without a word on any partition."""

    def _stage(self, _asked: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse()


async def test_what_is_not_answered_for_was_not_committed() -> None:
    """It ends neither the link nor is it taken for done."""
    east, west, memory = GroupSite({"g": at(3)}), Silent(), GroupSyncMemory()
    report, _ = await passes(east, west, memory)
    assert "UNKNOWN_SERVER_ERROR" in str(report.failures["g"])


class Delayed(GroupSite):
    """One request, counted down to, arrives only when it is let through: its sender, or the network, hangs."""

    def __init__(self, offsets: dict[str, dict[TopicPartition, CommittedOffset]]) -> None:
        super().__init__(offsets)
        self.left = 0
        self.hangs = asyncio.Event()
        self.let_through = asyncio.Event()

    async def arriving(self, header: RequestHeader) -> None:
        self.left -= 1
        if self.left == 0:
            self.hangs.set()
            await self.let_through.wait()


async def hang_at(held: int) -> bool:
    """A pass whose request of this number comes after a promotion that has moved the group -> whether there is one."""
    east, west, memory = GroupSite({"g": at(3)}), Delayed({"g": at(6)}), GroupSyncMemory()

    async def load_map() -> GroupMap:
        return GroupMap(MAP)

    async def write(_written: Sequence[Change]) -> None:
        if west.hangs.is_set():
            raise LinkFenced("promoted")

    async with serving(east, "east") as source, serving(west, "west") as target:
        link = Link("l", source, target, ("t",), groups=(".*",))
        async with Cluster(source) as here, Cluster(target) as there, Cluster(target) as failover:
            west.left = held
            one = asyncio.create_task(sync_groups(link, here, there, load_map, memory, write))
            hangs = asyncio.create_task(west.hangs.wait())
            await asyncio.wait({one, hangs}, return_when=asyncio.FIRST_COMPLETED)
            if hangs.done():
                await fence_groups_of_earlier(failover, link)
                west.offsets["g"] = at(2)
                west.let_through.set()
                await committed_offsets(failover, "g")  # behind it
            hangs.cancel()
            with suppress(LinkFenced):
                await one
    assert west.offsets == {"g": at(2) if west.hangs.is_set() else at(8)}
    return west.hangs.is_set()


async def test_whatever_arrives_after_a_promotion_moves_no_group() -> None:
    """However long the worker, or what it sent, has hung. A plain commit would move it."""
    held = 1
    while await hang_at(held):
        held += 1
    assert held > 8, "each request of the pass was held once"


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


class Unlisting(GroupSite):
    """A broker that lists the groups that it coordinates, without those whose coordinator is offline."""

    def _answer(self, header: RequestHeader, message: Message) -> Message:
        response = super()._answer(header, message)
        if isinstance(response, ListGroupsResponse):
            response.groups = [g for g in response.groups if g.group_id not in self.coordinator_errors]
        return response


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.GROUP_AUTHORIZATION_FAILED])
async def test_a_group_that_nobody_lists_is_gone_only_when_its_coordinator_says_so(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Apache Kafka, where the other brokers answer without it, and without an error."""
    east, west, memory = Unlisting({"g": at(30), "other": at(1)}), GroupSite(), GroupSyncMemory()
    await passes(east, west, memory)
    synced_at_ms = memory.syncs.synced_at("g")
    assert synced_at_ms is not None
    east.coordinator_errors["g"] = code
    with monkeypatch.context() as impatient:
        impatient.setattr("mirror.groups.sync.GROUP_SYNC_TIMEOUT_MS", 600)
        report, changes = await passes(east, west, memory, 2)
    assert set(report.failures) == {"g"}
    assert not [change for change in changes if isinstance(change, VoidGroup)]
    entry = memory.by_group["g"]
    assert (entry.written, entry.synced_at_ms) == ({WHERE: Written(30, 35)}, synced_at_ms)
    assert entry.failure
    assert memory.syncs.synced_at("g") == synced_at_ms, "its age grows"
    assert (memory.syncs.synced_at("other") or 0) > synced_at_ms
    del east.offsets["g"]
    east.coordinator_errors.clear()
    _, changes = await passes(east, west, memory)
    assert changes[0] == VoidGroup("g")


def test_a_group_is_as_fresh_as_the_last_look_that_could_have_found_otherwise() -> None:
    """An entry that is written ahead says nothing until its pass is over."""
    ahead = GroupSync("g", at_ms=20, synced_at_ms=9)
    for looked_at_ms, expected in ((None, 9), (19, 9), (20, 20), (30, 30)):
        assert GroupSyncs({"g": ahead}, GroupSyncTimes(looked_at_ms=looked_at_ms)).synced_at("g") == expected
    held = GroupSync("g", 20, {}, {("t", 0): GroupAction.SKIP_ACTIVE}, "", 9)
    assert GroupSyncs({"g": held}, GroupSyncTimes(looked_at_ms=30)).synced_at("g") == 9
    assert GroupSyncs({}, GroupSyncTimes({"g": 4}, 30)).synced_at("g") == 4
