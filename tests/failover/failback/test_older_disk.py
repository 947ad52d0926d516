"""A lost site that comes back with an older disk lacks what was mirrored from it, and no link brings that back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.client.topics import delete_records, delete_topics
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from failover.failback.stranding import leave_at_source, look_for_stranded
from failover.freezing.hooks import Hooks
from failover.observing.sites import Sites
from failover.planning.gates import RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.planning.plan import OperationPlan
from failover.running.steps import Operation
from mirror.heartbeat import HeartbeatWatch
from mirror.link_finding import LinkFindingKind
from mirror.offsets.operations import promote_link, resume_link
from mirror.status import link_status
from mirror.worker import parted
from mirror.worker.parted import PartingKind, source_partings, that_are_missing
from tests.failover.failback.older_disk import NEWER, OLDER, SINCE, WHERE, Disks, Up, lose_an_end
from tests.failover.failback.stage import lost_and_back
from tests.failover.failback.test_stranding import come_back
from tests.mirror.harness import contents, make_topic, read_all, running, some_records, wait_for_records, write


def now_ms() -> int:
    return round(time.time() * 1000)


async def refusals(up: Up) -> list[tuple[RefusalReason, str]]:
    """Of a switchover along the link back."""
    return [(one.reason, one.subject) for one in (await switchover_plan(up)).refusals]


async def switchover_plan(up: Up) -> OperationPlan:
    """Along the link back."""
    sites = Sites(up.back, up.target, up.source, (), now_ms)
    intent = Intent(Operation.SWITCHOVER, (up.back.name,), up.back.source.name, up.back.target.name)
    return (await plan_link(intent, sites, Hooks())).plan


async def failover_plan(up: Up, *, allow_data_loss: bool) -> OperationPlan:
    """Along the link back, of a source that answers."""
    sites = Sites(up.back, up.target, up.source, (), now_ms)
    intent = Intent(
        Operation.FAILOVER,
        (up.back.name,),
        up.back.source.name,
        up.back.target.name,
        allow_data_loss=allow_data_loss,
        even_if_source_answers=True,
    )
    return (await plan_link(intent, sites, Hooks())).plan


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


@pytest.mark.parametrize("case", ["shorter", "grown by the link back", "grown beyond by its own"])
async def test_what_the_older_disk_lacks_refuses_the_way_back(disks: Disks, case: str) -> None:
    await lose_an_end(disks)
    async with disks.up() as up:
        if case == "grown beyond by its own":
            await write(up.source, WHERE, some_records(700, SINCE + 9))
        if case != "shorter":
            own = SINCE + 9 if case == "grown beyond by its own" else 0
            async with running(up.back):
                await wait_for_records(up.source, WHERE, OLDER + own + NEWER)
            at_east = contents(await read_all(up.source, WHERE))
            assert not [one for one in contents(some_records(100, SINCE)) if one in at_east]
        (parting,) = await source_partings(up.there, up.source, up.target)
        assert (parting.where, parting.kind, parting.from_offset) == (WHERE, PartingKind.CUT, OLDER)
        assert parting.mirrored_next >= OLDER + SINCE
        if case != "shorter":  # else nothing was ever mirrored along it, which is said, too
            assert await refusals(up) == [(RefusalReason.TARGET_LACKS, "flights-0")]
        drilled = await drill_link(up.back, HeartbeatWatch(up.source.clock), AuditNote(), now_ms)
        assert ("target_lacks", "flights-0") in [(one.kind, one.subject) for one in drilled.findings]


@pytest.mark.parametrize("is_compared", [True, False])
async def test_a_failover_along_the_link_back_says_what_the_older_disk_lacks(
    disks: Disks, monkeypatch: pytest.MonkeyPatch, is_compared: bool
) -> None:
    """It said that nothing is lost, of a site without SINCE of its own records, which the source has."""
    await lose_an_end(disks)
    async with disks.up() as up:
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        if not is_compared:
            monkeypatch.setattr(parted, "PARTED_LOOK_MS", 0)
        reason = RefusalReason.TARGET_LACKS if is_compared else RefusalReason.TARGET_NOT_COMPARED
        plan = await failover_plan(up, allow_data_loss=False)
        assert (reason, "flights-0") in [(one.reason, one.subject) for one in plan.refusals]
        consented = await failover_plan(up, allow_data_loss=True)
        assert consented.refusals == ()
        (lacks,) = consented.lacks
        assert (lacks.where, lacks.is_known) == (WHERE, is_compared)
        if is_compared:
            assert lacks.from_offset == OLDER


async def test_what_the_older_disk_lacks_is_a_finding_however_far_its_log_has_grown(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was one until the link back had written beyond what was mirrored. A comparison that takes long hides nothing
    else that a look finds, and is one itself: nothing was said of it.
    """
    await lose_an_end(disks)
    async with disks.up() as up:
        await write(up.source, WHERE, some_records(700, SINCE + 9))
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + SINCE + 9 + NEWER)
        for _ in range(2):
            status = await link_status(up.there, HeartbeatWatch(up.source.clock))
            lacking = [one for one in status.findings if one.kind is LinkFindingKind.SOURCE_LACKS]
            assert [(one.topic, one.partition) for one in lacking] == [tuple(WHERE)]
            assert f"offsets {OLDER} to " in lacking[0].detail
            assert lacking[0].next_step
            await promote_link(up.back, up.source, "failover-2")  # nothing is settled by that
        monkeypatch.setattr("mirror.looking.LACKS_LOOK_MS", 0)
        status = await link_status(up.there, HeartbeatWatch(up.source.clock))
        kinds = {one.kind: one for one in status.findings}
        assert LinkFindingKind.SOURCE_LACKS not in kinds
        assert len(kinds) > 1
        unknown = kinds[LinkFindingKind.SOURCE_NOT_COMPARED]
        assert unknown.detail.startswith("whether east still has what was mirrored from it is not known: ")
        assert unknown.next_step.endswith(": farshore failback --link east-west --dry-run")


async def test_a_topic_that_was_made_anew_at_the_old_site_is_not_what_was_mirrored(disks: Disks) -> None:
    await lose_an_end(disks)
    async with disks.up() as up:
        await delete_topics(up.source, [WHERE.topic])
        assert [one.kind for one in await source_partings(up.there, up.source, up.target)] == [PartingKind.GONE]
        await make_topic(up.source, WHERE.topic)
        (parting,) = that_are_missing(await source_partings(up.there, up.source, up.target))
        assert (parting.kind, parting.from_offset) == (PartingKind.OTHER_TOPIC, 0)


async def test_a_site_with_empty_disks_is_brought_everything(disks: Disks) -> None:
    """It is another cluster: what came from the old one is no news of its own."""
    await lose_an_end(disks)
    disks.empty()
    async with disks.up() as up:
        (parting,) = await source_partings(up.there, up.source, up.target)
        assert (parting.kind, that_are_missing([parting])) == (PartingKind.GONE, ())
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + SINCE + NEWER)
        (parting,) = await source_partings(up.there, up.source, up.target)
        assert (parting.kind, that_are_missing([parting])) == (PartingKind.OTHER_TOPIC, ())
        assert await refusals(up) == []


async def test_a_source_that_has_what_was_mirrored_is_nothing_to_refuse(tmp_path: Path) -> None:
    """Also with a tail of its own, when the link back has brought what is newer."""
    async with lost_and_back(tmp_path, 12, (6, 0), (3, 4)) as lost:
        await come_back(lost)
        assert await source_partings(lost.there, lost.stage.source, lost.stage.target) == ()


async def test_what_the_other_site_has_no_more_is_not_missing(disks: Disks) -> None:
    await lose_an_end(disks)
    async with disks.up() as up:
        end = OLDER + SINCE + NEWER  # less than the log has, since fences leave markers
        assert await delete_records(up.target, {WHERE: end}) == {WHERE: end}
        assert that_are_missing(await source_partings(up.there, up.source, up.target)) == ()


@pytest.mark.parametrize("own", [0, 7, SINCE + 9])
async def test_what_a_shortened_log_has_written_since_is_stranded_from_where_the_logs_part(
    disks: Disks, own: int
) -> None:
    """It lies below the last offset that was mirrored: nothing of it was listed, and none of it saved."""
    await lose_an_end(disks)
    async with disks.up() as up:
        if own:
            await write(up.source, WHERE, some_records(700, own))
        found = await look_for_stranded(up.there, up.source, up.target)
        assert (found.records, found.not_compared) == (own, ())
        if own:
            (tail,) = found.undecided
            assert (tail.first_offset, tail.end_offset, tail.target_wrote) == (OLDER, OLDER + own, True)


async def test_of_a_topic_that_was_made_anew_all_is_stranded_that_no_link_brought(disks: Disks) -> None:
    await lose_an_end(disks)
    disks.empty()
    async with disks.up() as up:
        await make_topic(up.source, WHERE.topic)
        await write(up.source, WHERE, some_records(700, 4))
        async with running(up.back):
            await wait_for_records(up.source, WHERE, 4 + OLDER + SINCE + NEWER)
        found = await look_for_stranded(up.there, up.source, up.target)
        assert [(tail.first_offset, tail.records) for tail in found.undecided] == [(0, 4)]


async def test_what_cannot_be_compared_is_not_said_to_be_nothing(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parted, "PARTED_LOOK_MS", 0)
    await lose_an_end(disks)
    async with disks.up() as up:
        found = await look_for_stranded(up.there, up.source, up.target)
        assert (found.records, [one.kind for one in found.not_compared]) == (None, [PartingKind.NOT_COMPARED])


async def test_what_was_left_in_the_log_that_is_lost_is_not_said_of_the_records_in_its_place(disks: Disks) -> None:
    """A person decided about records that are not there: of those that are, as many were never listed, nor saved."""
    await lose_an_end(disks, own=7)
    async with disks.up() as up:
        await write(up.source, WHERE, some_records(800, SINCE + 9))
        found = await look_for_stranded(up.there, up.source, up.target)
        assert (found.undecided_records, found.left_records, found.records) == (SINCE + 9, 0, SINCE + 9)
        await leave_at_source(up.there, up.target, found.undecided, "by a test")
        await write(up.source, WHERE, some_records(900, 4))
        found = await look_for_stranded(up.there, up.source, up.target)
        assert (found.undecided_records, found.left_records) == (4, SINCE + 9), "of this log it is said"


async def test_what_was_left_before_the_link_ran_again_is_not_counted_twice(disks: Disks) -> None:
    """The older disk is of the day before that: where those records stood, others do now, or nobody knows."""
    async with disks.up() as up:
        await make_topic(up.source, WHERE.topic)
        await write(up.source, WHERE, some_records(0, OLDER))
        async with running(up.there):
            await wait_for_records(up.target, WHERE, OLDER)
        await promote_link(up.there, up.target, "failover-1")
        await write(up.source, WHERE, some_records(700, 5))
    disks.keep()
    async with disks.up() as up:
        found = await look_for_stranded(up.there, up.source, up.target)
        await leave_at_source(up.there, up.target, found.undecided, "by a test")
        await resume_link(up.there, up.target, "resume-1")
        await write(up.source, WHERE, some_records(100, SINCE))
        async with running(up.there):
            await wait_for_records(up.target, WHERE, OLDER + SINCE)
        await promote_link(up.there, up.target, "failover-2")
        await write(up.target, WHERE, some_records(200, NEWER))
    disks.restore()
    async with disks.up() as up:
        await write(up.source, WHERE, some_records(900, 4))
        found = await look_for_stranded(up.there, up.source, up.target)
        assert [(tail.first_offset, tail.end_offset, tail.left) for tail in found.tails] == [(OLDER, OLDER + 9, False)]
        assert (found.undecided_records, found.left_records, found.records) == (9, 0, 9)
