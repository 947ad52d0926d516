"""A source of which a partition is gone, while its groups' coordinator and all its other partitions answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets
from broker.client.limits import ClientLimits
from broker.client.model import CommittedOffset, Partition
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER
from deploy.cli.group_lines import kept_lines
from failover.losses.statements import Certainty, total_loss
from failover.observing.contact import SiteFinding
from failover.observing.doubted import is_led_by_nobody_since
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan, plan_failover
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Writer
from mirror.offsets.histories import EpochStart
from mirror.offsets.intervals import End
from mirror.offsets.state import load_link_state, read_entries
from tests.broker.faults import Faults, injected
from tests.failover.stage import GROUP, PARTITIONS, RARE, RECORDS, Stage, commit_group, mirrored, two_sites
from tests.mirror.harness import eventually, running, some_records, wait_for_records, write

IMPATIENT = ClientLimits(retry_backoff_max_ms=100, retry_timeout_ms=500, partition_patience_ms=300)
GONE = PARTITIONS[1]


@asynccontextmanager
async def half_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_leader: bool, came_back: bool = False
) -> AsyncIterator[Stage]:
    """The group was carried at 20 and 30, and has read on; then the worker sees that one partition does not answer.
    `came_back`: a link back had brought to the source what was written at the target.
    """
    async with two_sites(folder) as stage:
        east = Faults()
        with injected(monkeypatch, {stage.brokers[0]: east}):
            if came_back:
                stage.link = await brought_back(stage)
            async with mirrored(stage, RARE):
                await commit_group(stage.source, 25, 35)
                if has_leader:
                    for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
                        east.partitions[api, GONE] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    east.leaderless.add(GONE)
                await eventually(lambda: is_held(stage), "a hold")
            async with Cluster(stage.link.source, client_id="farshore-test", limits=IMPATIENT) as source:
                yield replace(stage, source=source)


async def brought_back(stage: Stage) -> Link:
    """The link, beside one back that has run."""
    there = stage.link
    back = replace(there, name="west-east", source=there.target, target=there.source)
    async with mirrored(stage, RARE):
        pass
    async with running(replace(back, reverse_links=(there,))):
        for at in PARTITIONS:
            await write(stage.target, at, some_records(8_000, 1))
            await wait_for_records(stage.source, at, RECORDS + 1)
    return replace(there, reverse_links=(back,))


async def is_held(stage: Stage) -> bool:
    return tuple(GONE) in (await read_entries(stage.link, stage.target)).in_doubt(asks_source=True)


async def plan_of(stage: Stage) -> OperationPlan:
    seen = await stage.sites.look_past_source()
    assert seen.source_finding is SiteFinding.PARTLY_THERE
    return plan_failover(seen, allow_data_loss=True, even_if_source_answers=False, even_if_source_partly_there=True)


async def test_where_a_group_read_in_a_log_that_nobody_led_since_is_told_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused, as nobody could know where the group goes on, though all of it was told."""
    async with half_gone(tmp_path, monkeypatch, has_leader=False) as stage:
        plan = await plan_of(stage)
        to = (await load_link_state(stage.link, stage.target)).map.to_target(*GONE, 35)
    assert plan.refusals == ()
    assert not list(kept_lines(plan))
    here, gone = plan.moves
    assert (here.kind, here.source_offset) == (MoveKind.TRANSLATED, 25)
    assert (gone.kind, gone.source_offset, gone.target_offset) == (MoveKind.TRANSLATED, 35, to)
    assert (gone.read_again_records, gone.skipped_records) == (0, 0)


async def test_where_the_log_may_have_been_another_one_the_group_goes_on_as_with_a_lost_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with half_gone(tmp_path, monkeypatch, has_leader=True) as stage:
        plan = await plan_of(stage)
        stands = (await stage.group_at(stage.target))[GONE]
    assert plan.refusals == ()
    here, gone = plan.moves
    assert (here.kind, here.source_offset) == (MoveKind.TRANSLATED, 25)
    assert (gone.kind, gone.source_offset, gone.target_offset) == (MoveKind.KEPT, None, stands)
    assert gone.read_again_records is None
    (why,) = kept_lines(plan)
    assert why.startswith(
        "east does not tell its log of flights:1: what groups committed there does not count where"
    ), why
    assert "a replica that left the ISR looks like another leader" in why


async def test_where_a_link_back_wrote_in_the_log_that_is_gone_the_group_goes_on_as_with_a_lost_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused: what the link back had brought there nobody can read, so nothing was translated."""
    async with half_gone(tmp_path, monkeypatch, has_leader=False, came_back=True) as stage:
        plan = await plan_of(stage)
        stands = (await stage.group_at(stage.target))[GONE]
        drilled = plan_failover(
            await stage.without_source.look_past_source(), allow_data_loss=True, even_if_source_answers=False
        )
        result = await stage.run(plan, stage.sites.as_found(plan.snapshot))
    assert plan.refusals == ()
    here, gone = plan.moves
    assert (here.kind, here.source_offset) == (MoveKind.TRANSLATED, 25)
    assert (gone.kind, gone.source_offset, gone.target_offset) == (MoveKind.KEPT, None, stands)
    assert (gone.read_again_records, gone.skipped_records) == (None, None)
    assert [move.kind for move in drilled.moves] == [MoveKind.KEPT, MoveKind.KEPT], "as a drill foresees it"
    assert result.verified, result.differences


async def test_the_loss_of_the_part_that_is_gone_is_what_the_worker_last_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was said to be known of it, although its end had been watched."""
    async with half_gone(tmp_path, monkeypatch, has_leader=False) as stage:
        await write(stage.source, PARTITIONS[0], some_records(9_000, 3))
        plan = await plan_of(stage)
    here, gone = plan.losses
    assert (here.certainty, here.offsets) == (Certainty.EXACT, 3)
    assert (gone.certainty, gone.offsets, gone.end_offset) == (Certainty.AT_LEAST, 0, RECORDS)
    assert gone.seen_at_ms is not None
    total = total_loss(plan.losses, plan.snapshot.taken_at_ms, plan.snapshot.last_look)
    assert (total.certainty, total.unseen_partitions) == (Certainty.AT_LEAST, 0)
    assert total.pace_at_ms is not None, "what is likely is told by the same looks"


@pytest.mark.parametrize(("leader_epoch", "offsets"), [(0, 36), (-1, 0)], ids=["read", "set by hand"])
async def test_how_far_a_group_has_read_proves_that_the_log_went_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader_epoch: int, offsets: int
) -> None:
    """The table of its groups had 651 beside an end of 615 and a loss of 0."""
    async with half_gone(tmp_path, monkeypatch, has_leader=False) as stage:
        read = CommittedOffset(RECORDS + 36, leader_epoch=leader_epoch)
        await commit_offsets(stage.source, GROUP, {GONE: read})
        plan = await plan_of(stage)
    here, gone = plan.losses
    assert (here.certainty, here.offsets) == (Certainty.EXACT, 0)
    assert (gone.certainty, gone.offsets, gone.end_offset) == (Certainty.AT_LEAST, offsets, RECORDS + offsets)
    assert plan.loss.offsets == offsets


@pytest.mark.parametrize(
    ("leader_id", "leader_epoch", "is_so"),
    [(NO_LEADER, 7, True), (NO_LEADER, 8, True), (NO_LEADER, 9, False), (NO_LEADER, 6, False), (1, 7, False)],
)
def test_whether_another_leader_was_there_since_is_told_by_the_epoch(
    leader_id: int, leader_epoch: int, is_so: bool
) -> None:
    checkpoint = Checkpoint(
        *GONE, End(5, 5), 5, Writer(1, 0), 0, 5, 0, 0, leader_epochs=(EpochStart(3, 0), EpochStart(7, 2))
    )
    partition = Partition(GONE.partition, leader_id, leader_epoch, (1,), (1,))
    assert is_led_by_nobody_since(checkpoint, partition) is is_so
    assert not is_led_by_nobody_since(replace(checkpoint, leader_epochs=()), partition)
