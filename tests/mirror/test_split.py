"""Both sites of a promoted link are written to: found, by content, and told from what is none of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import TopicPartition
from failover.failback.stranding import leave_at_source, read_stranded
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.link_finding import LinkFindingKind
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.operations import leave_stranded, promote_link, resume_link
from mirror.offsets.source_ends import EndsSeen, TopicShape, load_observation
from mirror.offsets.state import load_link_state
from mirror.split import EndSeen, LocalWrites, SourceTail, Split, look_for_split, promoted_backs
from mirror.status import LinkCondition, link_status
from mirror.worker.observing import entries_batch
from mirror.worker.stranding import TailReader
from tests.broker.faults import Faults, injected
from tests.broker.running import running_broker, running_server
from tests.mirror.harness import (
    Later,
    eventually,
    link_between,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

WHERE = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)
MIRRORED = 20


@dataclass
class Pair:
    """A link from east to west that has brought MIRRORED records of WHERE."""

    link: Link
    east: Cluster
    west: Cluster

    async def look(self) -> Split | None:
        state = await load_link_state(self.link, self.west)
        backs = await promoted_backs(self.link, self.east, self.west, state.entries)
        return await look_for_split(self.link, self.east, self.west, state, backs)

    async def found(self) -> Split:
        split = await self.look()
        assert split is not None
        return split

    async def last_look_ms(self) -> int:
        last = (await load_observation(self.link, self.west)).last
        assert last is not None
        return last.at_ms


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    async with running_broker(folder / "east") as east, running_broker(folder / "west") as west:
        link = link_between(east, west, [WHERE.topic])
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            both = Pair(link, source, target)
            await make_topic(source, WHERE.topic, 2)
            await write(source, WHERE, some_records(0, MIRRORED))

            async def is_seen() -> bool:
                ends = (await load_observation(link, target)).ends
                return WHERE in ends and ends[WHERE].end == MIRRORED

            async with running(link):
                await wait_for_records(target, WHERE, MIRRORED)
                await eventually(is_seen, "the source's end to be seen")
            yield both


async def test_each_sites_own_records_since_the_promotion_are_counted_and_only_both_together_are_a_split(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        assert await both.look() is None, "nobody promoted it"
        await promote_link(both.link, both.west, "a failover")
        assert await both.found() == replace(await both.found(), two_active=True, at_source=(), at_target=())
        await write(both.west, WHERE, some_records(5_000, 7))
        assert not (await both.found()).is_split, "that is what it was promoted for"
        await write(both.east, WHERE, some_records(6_000, 3))
        await write(both.east, WHERE, some_records(6_500, 1))
        await write(both.east, OTHER, some_records(7_000, 2))
        split = await both.found()
        assert split.is_split
        assert [(at.topic, at.partition, at.first_offset, at.records) for at in split.at_source] == [
            (*WHERE, MIRRORED, 4),
            (*OTHER, 0, 2),
        ]
        (there,) = split.at_target
        at_west = [record for record in await read_all(both.west, WHERE) if record.offset >= there.first_offset]
        assert there == LocalWrites(*WHERE, at_west[0].offset, 7, at_west[0].timestamp)
        assert len(at_west) == 7


async def test_status_names_both_what_was_written_where_and_the_next_step(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await promote_link(both.link, both.west, "a failover")
        watch = HeartbeatWatch(SystemClock())
        open_ = (await link_status(both.link, watch)).findings
        assert [finding.kind for finding in open_] == [LinkFindingKind.TWO_ACTIVE]
        assert open_[0].next_step == "farshore site standby --site east --topic flights"
        await set_site_role(both.east, SiteRole.STANDBY, "a test", await site_standing(both.east), ["flights"])
        closed = await link_status(both.link, watch)
        assert closed.findings == ()
        assert closed.split is not None
        assert closed.split.two_active is False
        await write(both.east, WHERE, some_records(6_000, 3))  # as a farshore client may
        await write(both.west, OTHER, some_records(5_000, 7))
        found = (await link_status(both.link, watch)).findings
        assert [(finding.kind, finding.partition) for finding in found] == [
            (LinkFindingKind.SPLIT_BRAIN, 0),
            (LinkFindingKind.SPLIT_BRAIN, 1),
        ]
        assert found[0].detail.startswith(f"3 of its own at east from offset {MIRRORED} on, the first stamped 2023-11")
        assert "; none at west. Where the log ended at east" in found[0].detail
        assert found[1].detail.startswith("none at east; 7 of its own at west")
        assert found[0].next_step == f"farshore stranded list --link {both.link.name}", "nobody writes there any more"


async def test_of_a_link_back_that_never_ran_no_lag_is_told_that_is_the_other_sites_own_copies(tmp_path: Path) -> None:
    """It was behind by all that the link had brought, which it leaves out."""
    async with pair(tmp_path) as both:
        back = replace(both.link, name="west-east", source=both.link.target, target=both.link.source)
        status = await link_status(back, HeartbeatWatch(SystemClock()))
        assert (status.condition, status.partitions) == (LinkCondition.NEVER_RAN, 2)
        assert (status.lag_records, status.lag_bytes, status.lag_seconds) == (None, None, None)
        assert status.partition_lags == (), "which count it all the same"
        assert len(status.lags_unknown) == 2
        other = await link_status(replace(both.link, name="another"), HeartbeatWatch(SystemClock()))
        assert (other.condition, other.lag_records) == (LinkCondition.NEVER_RAN, MIRRORED)


async def test_what_was_decided_to_stay_at_the_source_is_no_split_any_more(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await promote_link(both.link, both.west, "a failover")
        await write(both.west, WHERE, some_records(5_000, 7))
        await write(both.east, WHERE, some_records(6_000, 3))
        assert (await both.found()).is_split
        _, stranded = await read_stranded(both.link, both.east, both.west)
        await leave_at_source(both.link, both.west, stranded.undecided, "a test")
        assert not (await both.found()).is_split
        await write(both.east, WHERE, some_records(7_000, 2))
        split = await both.found()
        assert split.is_split, "nobody decided about these"
        assert [at.records for at in split.at_source] == [2]


async def test_what_came_to_the_site_that_was_left_alone_is_found_until_somebody_decides_about_it(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        await promote_link(both.link, both.west, "a way back")
        await set_site_role(both.east, SiteRole.STANDBY, "a test", await site_standing(both.east), ["flights"])
        await write(both.east, WHERE, some_records(6_000, 3))
        watch = HeartbeatWatch(SystemClock())
        (found,) = (await link_status(both.link, watch)).findings
        assert (found.kind, found.topic, found.partition) == (LinkFindingKind.SOURCE_ALONE, *WHERE)
        assert found.detail.startswith(f"3 of its own at east from offset {MIRRORED} on, the first stamped 2023-11")
        assert "are not at west, and none came there" in found.detail
        assert "farshore link resume --link east-west" in found.next_step
        reader = TailReader(both.link, both.east, both.west)
        await reader.look()
        gaps = [tail.as_left(0, "a test") for tail in await reader.tails(lambda _done, _there: None)]
        await leave_stranded(both.link, both.west, gaps)
        assert (await link_status(both.link, watch)).findings == ()
        await write(both.east, WHERE, some_records(7_000, 2))
        (since,) = (await both.found()).alone
        assert (since.first_offset, since.records) == (MIRRORED + 3, 2)


async def test_what_was_stamped_between_the_last_look_and_the_promotion_is_of_the_loss(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await write(both.east, WHERE, some_records(0, 1, await both.last_look_ms() + 6))
        await promote_link(both.link, both.west, "a failover")
        await write(both.west, WHERE, some_records(5_000, 7))
        assert (await both.found()).at_source == ()
        await write(both.east, WHERE, some_records(0, 2))
        await write(both.east, WHERE, some_records(0, 4, (await both.found()).promoted_at_ms + 60_000))
        (here,) = (await both.found()).at_source
        assert (here.first_offset, here.records) == (MIRRORED + 1, 6)


async def test_what_was_stamped_right_before_the_last_look_was_on_its_way_then(tmp_path: Path) -> None:
    """A producer stamps a record before it sends it: what waited to be sent at the look was taken for written since."""
    async with pair(tmp_path) as both:
        await write(both.east, WHERE, some_records(0, 3, await both.last_look_ms() - 2_000))
        await promote_link(both.link, both.west, "a failover")
        await write(both.west, WHERE, some_records(5_000, 7))
        assert (await both.found()).at_source == ()


async def test_what_a_mirror_brings_back_is_no_sites_own_and_after_the_way_back_the_other_link_is_asked(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        await promote_link(both.link, both.west, "a switchover")
        back = replace(both.link, name=f"{both.link.name}-back", source=both.link.target, target=both.link.source)
        one = replace(both, link=replace(both.link, reverse_links=(back,)))
        await write(both.west, WHERE, some_records(5_000, 7))
        async with running(replace(back, reverse_links=(both.link,))):
            await wait_for_records(both.east, WHERE, MIRRORED + 7)
            split = await one.found()
            assert (split.at_source, split.is_split) == ((), False)
        await promote_link(back, both.east, "the way back")
        await write(both.east, WHERE, some_records(8_000, 2))
        assert await one.look() is None
        other = Pair(replace(back, reverse_links=(both.link,)), both.west, both.east)
        assert not (await other.found()).is_split
        await write(both.west, WHERE, some_records(9_000, 1))
        assert (await other.found()).is_split


async def test_who_promoted_with_a_clock_that_is_ahead_hides_no_split(tmp_path: Path) -> None:
    """All that comes now is stamped before the promotion, by that machine's word."""
    async with pair(tmp_path) as both:
        clock = Later(by_ms=3_600_000)
        async with Cluster(both.link.target, client_id="farshore-test", clock=clock) as ahead:
            await promote_link(both.link, ahead, "a failover")
        await write(both.west, WHERE, some_records(5_000, 7))
        await write(both.east, WHERE, some_records(0, 3, SystemClock().now_ms()))
        split = await both.found()
        assert split.is_split
        assert [(at.first_offset, at.records) for at in split.at_source] == [(MIRRORED, 3)]


async def seen_by_a_worker_since(both: Pair) -> None:
    """As one does that has not noticed its fence yet."""
    seen, now_ms = EndsSeen(), SystemClock().now_ms()
    ends = await log_end_offsets(both.east, (WHERE, OTHER))
    seen.take(now_ms, 0.0, {WHERE.topic: TopicShape("", 2)}, ends, {})
    ends_topic = TopicPartition(both.link.ends_topic, 0)
    await append(both.west, ends_topic, entries_batch(seen.entries(), now_ms))


FENCE_MS = 1_700_000_500_000


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "last seen"])
async def test_what_comes_before_a_worker_notices_the_promotion_is_found(tmp_path: Path, is_told: bool) -> None:
    """It was counted as older than the promotion, so that no split was found where nothing came behind it."""
    async with pair(tmp_path) as both:
        before = {WHERE: FenceEnd(MIRRORED, FENCE_MS, is_told), OTHER: FenceEnd(0, FENCE_MS, is_told)}
        await promote_link(both.link, both.west, "a failover", ends=before)
        await write(both.east, WHERE, some_records(6_000, 3))
        await seen_by_a_worker_since(both)
        await write(both.west, WHERE, some_records(5_000, 7))
        split = await both.found()
        assert split.is_split
        how = EndSeen.TOLD if is_told else EndSeen.LAST_SEEN
        assert [(at.first_offset, at.records, at.end_seen) for at in split.at_source] == [(MIRRORED, 3, how)]
        assert split.end_seen is how
        found = (await link_status(both.link, HeartbeatWatch(SystemClock()))).findings
        (detail,) = [finding.detail for finding in found if finding.kind is LinkFindingKind.SPLIT_BRAIN]
        assert detail.startswith(f"3 of its own at east from offset {MIRRORED} on")
        assert ("did not say where its log ended" in detail) is not is_told


async def test_time_tells_of_the_loss_only_where_the_source_did_not_say_where_it_ended(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        now_ms = SystemClock().now_ms()
        ends = {WHERE: FenceEnd(MIRRORED, now_ms - 600_000, is_told=False), OTHER: FenceEnd(0, now_ms, is_told=True)}
        await promote_link(both.link, both.west, "a failover", ends=ends)
        for where in (WHERE, OTHER):
            await write(both.east, where, some_records(0, 2, now_ms - 300_000))
        assert [(at.partition, at.records) for at in (await both.found()).at_source] == [(OTHER.partition, 2)]


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "last seen"])
async def test_what_was_lost_with_the_source_is_named_until_somebody_decides_about_it(
    tmp_path: Path, is_told: bool
) -> None:
    """It was the loss, and no finding: no word of `status` led to it, however long it stood at one site alone."""
    async with pair(tmp_path) as both:
        now_ms = SystemClock().now_ms()
        await write(both.east, WHERE, some_records(6_000, 3, now_ms - 300_000))
        end = FenceEnd(MIRRORED + 3, now_ms, is_told=True)
        ends = {WHERE: end if is_told else FenceEnd(MIRRORED, now_ms - 600_000, is_told=False)}
        await promote_link(both.link, both.west, "a failover", ends={**ends, OTHER: FenceEnd(0, now_ms, is_told=True)})
        split = await both.found()
        assert (split.at_source, split.tails) == ((), (SourceTail(*WHERE, MIRRORED),))
        _, stranded = await read_stranded(both.link, both.east, both.west)
        await leave_at_source(both.link, both.west, stranded.undecided, "a test")
        assert (await both.found()).tails == ()


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "last seen"])
async def test_the_first_fence_counts_also_for_groups_that_follow_and_not_behind_a_resume(
    tmp_path: Path, is_told: bool
) -> None:
    """What came between the first and the next was taken for a part of the loss, so that no split was found."""
    async with pair(tmp_path) as both:
        first = {where: FenceEnd(end, FENCE_MS, is_told) for where, end in ((WHERE, MIRRORED), (OTHER, 0))}
        clock = Later(by_ms=-3_600_000)
        async with Cluster(both.link.target, client_id="farshore-test", clock=clock) as an_hour_ago:
            await promote_link(both.link, an_hour_ago, "a failover", ends=first)
        promoted_at_ms = (await both.found()).promoted_at_ms
        await write(both.east, WHERE, some_records(6_000, 3, promoted_at_ms + 1_800_000))
        later = {**first, WHERE: FenceEnd(MIRRORED + 3, promoted_at_ms + 1_800_001, is_told)}
        await promote_link(both.link, both.west, "a failover", ends=later)
        await promote_link(both.link, both.west, "a second wave", ends=later)
        await promote_link(both.link, both.west, "a third wave")
        split = await both.found()
        how = EndSeen.TOLD if is_told else EndSeen.LAST_SEEN
        assert [(at.first_offset, at.records, at.end_seen) for at in split.at_source] == [(MIRRORED, 3, how)]
        assert split.promoted_at_ms == promoted_at_ms < SystemClock().now_ms() - 1_800_000
        await resume_link(both.link, both.west, "the way back")
        await promote_link(both.link, both.west, "another failover", ends=later)
        again = await both.found()
        assert (again.at_source, again.promoted_at_ms > promoted_at_ms) == ((), True)


async def test_a_partition_that_was_born_behind_the_fence_counts_from_its_start(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await promote_link(both.link, both.west, "o", ends={WHERE: FenceEnd(MIRRORED, FENCE_MS, is_told=True)})
        await write(both.east, OTHER, some_records(6_000, 2))
        await seen_by_a_worker_since(both)
        (here,) = (await both.found()).at_source
        assert (here.partition, here.first_offset, here.records) == (OTHER.partition, 0, 2)


@pytest.mark.parametrize("is_one_told", [True, False], ids=["some told", "none told"])
async def test_of_a_partition_that_was_not_there_only_time_tells_where_the_source_did_not_tell_all(
    tmp_path: Path, is_one_told: bool
) -> None:
    """One that was made before the source was left, and that no look had seen, counted from its start."""
    async with pair(tmp_path) as both:
        now_ms = SystemClock().now_ms()
        silent = FenceEnd(0, now_ms - 600_000, is_told=False)
        ends = {WHERE: FenceEnd(MIRRORED, now_ms - 600_000, is_one_told), TopicPartition("another", 0): silent}
        await promote_link(both.link, both.west, "a failover", ends=ends)
        await write(both.east, OTHER, some_records(0, 3, now_ms - 300_000))
        assert (await both.found()).at_source == ()
        await write(both.east, OTHER, some_records(0, 2, now_ms + 300_000))
        (here,) = (await both.found()).at_source
        assert (here.partition, here.first_offset, here.records) == (OTHER.partition, 3, 2)
        assert here.end_seen is EndSeen.LAST_SEEN


async def test_what_an_older_version_promoted_is_said_not_to_be_known(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await promote_link(both.link, both.west, "a failover")
        assert (await both.found()).end_seen is EndSeen.UNKNOWN
        await write(both.west, WHERE, some_records(5_000, 7))
        await write(both.east, WHERE, some_records(6_000, 3))
        found = (await link_status(both.link, HeartbeatWatch(SystemClock()))).findings
        (detail,) = [finding.detail for finding in found if finding.kind is LinkFindingKind.SPLIT_BRAIN]
        assert "was not kept" in detail


async def test_a_topic_of_ends_that_cannot_be_written_holds_up_no_promotion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_server(tmp_path / "west") as west, running_broker(tmp_path / "east") as east:
        link = link_between(east, west.address, [WHERE.topic])
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, WHERE.topic, 1)
            await write(source, WHERE, some_records(0, MIRRORED))
            async with running(link):
                await wait_for_records(target, WHERE, MIRRORED)

                async def is_kept() -> bool:
                    return bool((await load_observation(link, target)).ends)

                await eventually(is_kept, "the source's ends to be kept")
            faults = Faults(leaderless={TopicPartition(link.ends_topic, 0)})
            with injected(monkeypatch, {west.broker: faults}):
                await promote_link(link, target, "o", ends={WHERE: FenceEnd(MIRRORED, FENCE_MS, is_told=True)})
            state = await load_link_state(link, target)
            assert state.entries.run is not None
            assert state.entries.run.operation_id == "o"
            split = await look_for_split(link, source, target, state, ())
            assert split is not None
            assert split.end_seen is EndSeen.UNKNOWN
