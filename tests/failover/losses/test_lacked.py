"""What the target of a failover lost of its own, and only the source has, is in the statement of loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.limits import ClientLimits
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.client.topics import delete_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from failover.freezing.choice import UNFROZEN
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.values import Event
from failover.losses.lacked import count_lacked
from failover.losses.stated_losses import counted, stated_losses
from failover.losses.statements import Certainty
from failover.observing.contact import SiteFinding
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.link_run import LinkMove
from failover.running.moves_again import move_again
from failover.running.steps import Operation
from failover.running.taking_up import planned
from mirror.offsets.acceptance import ask_to_accept
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import GapKind
from mirror.offsets.state import read_entries
from mirror.worker import parted
from mirror.worker.parted import PartingKind, SourceParting, source_partings
from tests.broker.faults import Faults, injected
from tests.failover.failback.older_disk import GROUP, NEWER, OLDER, OTHER, SINCE, WHERE, Disks, Up, lose_an_end
from tests.failover.failback.stage import transaction
from tests.failover.observing.test_half_gone_source import deaf_to
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, mirrored, now_ms, two_sites
from tests.mirror.harness import contents, eventually, make_topic, read_all, running, some_records, wait_for_records

READ = 5
"""So many of the records that east lost the group has read at west."""


INTENT = Intent(
    *(Operation.FAILOVER, ("west-east",), "west", "east"),
    allow_data_loss=True,
    even_if_source_answers=True,
    even_if_source_partly_there=True,
)
IMPATIENT = ClientLimits(retry_backoff_max_ms=100, retry_timeout_ms=500, partition_patience_ms=300)


async def failover_along_the_link_back(up: Up) -> LinkMove:
    sites = Sites(up.back, up.target, up.source, (), now_ms)
    return await counted(await plan_link(INTENT, sites, Hooks()), always=True)


async def at_west(up: Up, value: int) -> int:
    """The offset of a record of the tests."""
    (wanted,) = contents(some_records(value, 1))
    return next(one.offset for one in await read_all(up.target, WHERE) if contents([one]) == [wanted])


async def test_records_that_the_target_lost_of_its_own_are_counted_and_skipped(tmp_path: Path) -> None:
    """It said 0 records, exactly, and that a group that stood before them skips none."""
    disks = Disks(tmp_path)
    await lose_an_end(disks)
    async with disks.up() as up:
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        stands = {GROUP: READ, "early": 0, "late": SINCE}
        for group, read in stands.items():
            at = await at_west(up, 100 + read) if read < SINCE else await at_west(up, 200)
            await commit_offsets(up.target, group, {WHERE: CommittedOffset(at)})
        move = await failover_along_the_link_back(up)
        plan = move.plan
        assert plan.refusals == ()
        (loss,) = plan.losses
        assert (loss.records, loss.lacked_records, loss.certainty) == (SINCE, SINCE, Certainty.EXACT)
        assert not loss.is_none
        assert (plan.loss.records, plan.loss.partitions_with_loss) == (SINCE, 1)
        skipped = {one.group: one.skipped_records for one in plan.group_totals}
        assert skipped == {"early": SINCE, "late": 0, GROUP: skipped[GROUP]}
        assert SINCE - READ <= (skipped[GROUP] or 0) <= SINCE
        (again,) = await stated_losses(move.sites, await move.sites.look_past_source())
        assert (again.records, again.lacked_records) == (SINCE, SINCE), "behind the fence, too"
        await check_taken_up_without_the_source(up, move)


async def check_taken_up_without_the_source(up: Up, move: LinkMove) -> None:
    """By another machine, which has the journal, and of west nothing any more. It said that nothing of it is known."""
    writer, _ = await claim(up.source, ("west", "east"), lambda _: None)
    journal = OperationJournal(up.source, "failover-3", "tests", writer, ("west", "east"))
    await journal.record_all([(Event.PLANNED, planned([move], INTENT, "tests", UNFROZEN, {}))])
    log = (await load_operations(up.source))["failover-3"]
    without = Sites(up.back, None, up.source, (), now_ms)
    again = (await move_again(log, INTENT, without, Hooks(), is_moved=False)).plan
    assert again.lacks == move.plan.lacks
    (loss,) = again.losses
    assert (loss.lacked_records, loss.lacked_offsets, again.loss.lacked_records) == (SINCE, SINCE, SINCE)


async def test_of_a_source_that_is_there_in_part_it_is_told_too_and_what_it_does_not_tell_is_not_known(
    tmp_path: Path,
) -> None:
    """It said 0 records, exactly, of a living partition: that was asked of a whole source alone."""
    disks = Disks(tmp_path)
    await lose_an_end(disks)
    async with disks.up() as up:
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        await commit_offsets(up.target, GROUP, {WHERE: CommittedOffset(0)})
        address = up.back.source.bootstrap_servers
        for api in (ApiKey.OFFSET_FETCH, ApiKey.FETCH):
            async with (
                deaf_to(api, address) as half,
                Cluster(Site("west", half, {address: half}), limits=IMPATIENT) as west,
            ):
                plan = (await failover_along_the_link_back(replace(up, target=west))).plan
            assert plan.snapshot.source_finding is SiteFinding.PARTLY_THERE
            ((lacks,), (loss,)) = plan.lacks, plan.losses
            assert lacks.where == WHERE
            if api is ApiKey.OFFSET_FETCH:  # of the groups alone it tells nothing
                assert lacks.is_known
                assert (loss.certainty, loss.records, loss.lacked_records) == (Certainty.EXACT, SINCE, SINCE)
            else:
                assert not lacks.is_known
                assert (loss.certainty, loss.records, loss.lacked_records) == (Certainty.UNKNOWN, None, None)
                assert plan.loss.certainty is not Certainty.EXACT


async def test_where_some_brokers_are_dead_the_partitions_of_the_others_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks, faults = Disks(tmp_path), Faults()
    await lose_an_end(disks, whole=3)
    async with disks.up() as up:
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        with injected(monkeypatch, {up.broker: faults}):
            faults.leaderless.add(OTHER)
            async with Cluster(up.back.source, limits=IMPATIENT) as west:
                plan = (await failover_along_the_link_back(replace(up, target=west))).plan
    assert plan.snapshot.source_finding is SiteFinding.PARTLY_THERE
    assert {one.where: one.is_known for one in plan.lacks} == {WHERE: True, OTHER: False}
    living, dead = plan.losses
    assert (living.certainty, living.lacked_records) == (Certainty.EXACT, SINCE)
    assert (dead.certainty, dead.records, dead.lacked_records) == (Certainty.UNKNOWN, None, None)
    assert (plan.loss.uncompared_partitions, plan.loss.lacked_offsets, plan.loss.lacked_records) == (1, SINCE, None)


async def test_a_partition_that_cannot_be_read_keeps_no_other_one_from_being_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(partitions={(ApiKey.FETCH, PARTITIONS[0]): ErrorCode.KAFKA_STORAGE_ERROR})
    async with two_sites(tmp_path) as stage:
        with injected(monkeypatch, {stage.brokers[0]: faults}):
            async with Cluster(stage.link.source, limits=IMPATIENT) as source:
                lacks = [
                    SourceParting(*at, PartingKind.CUT, 3, 9, "", target_topic=at.topic, target_from=3, target_next=9)
                    for at in PARTITIONS
                ]
                found = await count_lacked(replace(stage.sites, source=source), lacks)
    assert [(one.partition, one.records, one.offsets) for one in found] == [(0, None, 6), (1, 0, 0)]


@pytest.mark.parametrize("is_made_again", [True, False])
async def test_of_a_partition_that_was_repaired_each_record_is_counted_once(
    tmp_path: Path, *, is_made_again: bool
) -> None:
    """The old copy stands until the repair deletes it, and both were counted."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            asked = Acceptance(*PARTITIONS[1], RECORDS, GapKind.MIRRORED_ANEW, now_ms(), 0, "repair")
            await ask_to_accept(stage.link, stage.target, [asked])

            async def is_whole() -> bool:
                at = (await read_entries(stage.link, stage.target)).checkpoints[PARTITIONS[1]]
                return at.position == RECORDS and at.end.target_next > 2 * RECORDS

            await eventually(is_whole, "the new copy")
        await delete_topics(stage.source, [TOPIC])
        if is_made_again:
            await make_topic(stage.source, TOPIC, len(PARTITIONS))
        back = replace(stage.link, name="west-east", source=stage.link.target, target=stage.link.source)
        sites = Sites(replace(back, reverse_links=(stage.link,)), stage.target, stage.source, (), now_ms)
        found = await count_lacked(sites, await source_partings(stage.link, stage.source, stage.target))
    assert [(one.partition, one.records) for one in found] == [(0, RECORDS), (1, RECORDS)]


async def test_what_is_behind_the_start_of_an_open_transaction_is_not_counted(tmp_path: Path) -> None:
    """It was counted up to there, and that was said to be all."""
    async with two_sites(tmp_path) as stage, transaction(stage.link.source.bootstrap_servers) as producer:
        lacks = [
            SourceParting(
                *at, PartingKind.CUT, 3, RECORDS + 2, "", target_topic=at.topic, target_from=3, target_next=end
            )
            for at, end in zip(PARTITIONS, (RECORDS, RECORDS + 9), strict=True)
        ]
        for at in PARTITIONS:
            await producer.send_and_wait(at.topic, b"open", partition=at.partition)
        found = await count_lacked(stage.sites, lacks)
        assert [(one.partition, one.records) for one in found] == [(0, 0), (1, None)]
        await producer.abort_transaction()
        assert [one.records for one in await count_lacked(stage.sites, lacks)] == [0, 0]


async def test_what_could_not_be_compared_is_not_said_to_be_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = Disks(tmp_path)
    await lose_an_end(disks)
    async with disks.up() as up:
        async with running(up.back):
            await wait_for_records(up.source, WHERE, OLDER + NEWER)
        monkeypatch.setattr(parted, "PARTED_LOOK_MS", 0)
        plan = (await failover_along_the_link_back(up)).plan
        assert [one.certainty for one in plan.losses] == [Certainty.UNKNOWN]
        assert plan.loss.certainty is not Certainty.EXACT
