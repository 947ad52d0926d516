"""Operations against two living brokers and a real mirror: what they change, refuse, prove and write down."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.groups import commit_offsets, committed_offsets
from broker.client.log import read_records
from broker.client.model import CommittedOffset
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import exit_code_of
from failover.errors import FailoverError, GroupsRead, NotDrained, OperationUnderWay
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event
from failover.losses.statements import Certainty
from failover.observing.last_seen import last_seen
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.links import mark_interrupted
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.planning.to_datetime import moves_to, parse_datetime
from failover.running.steps import OperationStep
from failover.running.verification import DifferenceKind
from failover.running.verifying import verify
from mirror.offsets.operations import promote_link
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state import load_link_state
from tests.failover.stage import (
    FIRST_TIMESTAMP_MS,
    GROUP,
    PARTITIONS,
    RECORDS,
    TOPIC,
    Stage,
    commit_group,
    metadata_of,
    mirrored,
    now_ms,
    opening,
    reading,
    two_sites,
)
from tests.mirror.harness import contents, read_all, some_records, write

LATER_RECORDS = 7


def reasons(plan: OperationPlan) -> set[RefusalReason]:
    return {refusal.reason for refusal in plan.refusals}


async def failover_plan(stage: Stage, *, allow_data_loss: bool = True) -> OperationPlan:
    snapshot = await stage.without_source.look()
    return plan_failover(snapshot, allow_data_loss=allow_data_loss, even_if_source_answers=False)


async def test_a_switchover_moves_everything_and_proves_it(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await commit_group(stage.source, 33, RECORDS)
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)

        assert result.verified, result.differences
        assert {loss.records for loss in result.losses} == {0}
        assert {loss.certainty for loss in result.losses} == {Certainty.EXACT}
        for at in PARTITIONS:
            assert contents(await read_all(stage.target, at)) == contents(await read_all(stage.source, at))
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)
        at_east = await stage.group_at(stage.source)
        assert at_east == dict(zip(PARTITIONS, (33, RECORDS), strict=True))
        at_west = await committed_offsets(stage.target, GROUP)
        assert {at: found.metadata for at, found in at_west.items()} == {at: metadata_of(at) for at in PARTITIONS}
        state = await load_link_state(stage.link, stage.target)
        assert state.entries.run is not None
        assert (state.entries.run.state.value, state.entries.run.operation_id) == ("promoted", result.operation_id)


async def test_the_journal_has_every_step_and_fits_its_own_hashes(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
        log = await stage.log(result.operation_id)
    steps = [OperationStep.DRAIN, OperationStep.FENCE, OperationStep.MOVE_GROUPS, OperationStep.VERIFY]
    told = [(event, step.value) for step in steps for event in ("started", "done")]
    told.insert(-1, ("groups_verified", "verify"))
    assert [entry.event for entry in log.entries] == ["planned", *(event for event, _ in told), "finished"]
    assert [entry.detail["step"] for entry in log.entries[1:-1]] == [step for _, step in told]
    assert log.entries[-1].detail["verified"] is True
    standing = standing_of(log, now_ms())
    assert (standing.state, [step.step for step in standing.steps]) == (OperationState.VERIFIED, steps)


async def test_a_switchover_waits_for_the_mirror(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        plan = plan_switchover(await stage.sites.look())
        await write(stage.source, PARTITIONS[0], some_records(5000, LATER_RECORDS))
        result = await stage.run(plan, stage.sites)
        assert result.verified, result.differences
        assert len(await read_all(stage.target, PARTITIONS[0])) == RECORDS + LATER_RECORDS


async def test_a_switchover_is_refused_while_producers_write_and_changes_nothing(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        plan = plan_switchover(await stage.sites.look())
        group_before = await stage.group_at(stage.target)

        async def produce() -> None:
            while True:
                await write(stage.source, PARTITIONS[0], some_records(9000, 1))
                await asyncio.sleep(0.2)

        async with asyncio.TaskGroup() as tasks:
            producer = tasks.create_task(produce())
            with pytest.raises(NotDrained, match="nothing was changed") as refused:
                await stage.run(plan, stage.sites, drain_timeout_s=3.0)
            producer.cancel()
        assert "stop the producers" in refused.value.hint
        assert exit_code_of(refused.value) == 3
        assert (await stage.sites.look()).link_state == "running"
        assert await stage.group_at(stage.target) == group_before


async def test_a_switchover_is_refused_for_a_mirror_that_stands_still(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await write(stage.source, PARTITIONS[1], some_records(5000, LATER_RECORDS))
        plan = plan_switchover(await stage.sites.look())
        assert plan.loss.offsets == LATER_RECORDS
        with pytest.raises(NotDrained, match=f"{LATER_RECORDS} offsets in 1 partitions"):
            await stage.run(plan, stage.sites, drain_timeout_s=1.0)
        assert (await stage.sites.look()).link_state == "running"


async def test_refusals_name_what_is_in_the_way(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        assert reasons(plan_switchover(await stage.sites.look())) == {RefusalReason.NOTHING_MIRRORED}
        async with mirrored(stage):
            pass
        gone = plan_switchover(await stage.without_source.look())
        assert GateRefusal(RefusalReason.SOURCE_UNREACHABLE, "east") in gone.refusals
        answers = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=False)
        assert reasons(answers) == {RefusalReason.SOURCE_ANSWERS}
        assert reasons(await failover_plan(stage, allow_data_loss=False)) == {RefusalReason.DATA_LOSS_NOT_ALLOWED}

        await stage.run(await failover_plan(stage), stage.without_source)
        assert reasons(await failover_plan(stage)) == {RefusalReason.LINK_NOT_RUNNING}


async def test_a_failover_without_the_source_states_the_least_and_when_it_was_seen(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        state = await load_link_state(stage.link, stage.target)
        observed = (await load_observation(stage.link, stage.target)).ends
        await write(stage.source, PARTITIONS[0], some_records(5000, LATER_RECORDS))
        group_before = await stage.group_at(stage.target)
        result = await stage.run(await failover_plan(stage), stage.without_source)

        assert result.verified, result.differences
        for loss in result.losses:
            at = TopicPartition(loss.topic, loss.partition)
            assert (loss.certainty, loss.records, loss.end_offset) == (Certainty.AT_LEAST, None, RECORDS)
            last = last_seen(state.entries.checkpoints[at], observed[at])
            assert last is not None
            assert loss.seen_at_ms == last.at_ms
        assert {move.kind for move in result.moves} == {MoveKind.KEPT}
        assert {move.synced_at_ms for move in result.moves} == {state.entries.groups.synced_at_ms[GROUP]}
        assert await stage.group_at(stage.target) == group_before


async def test_a_failover_while_the_source_answers_states_the_loss_exactly(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        lost = some_records(5000, LATER_RECORDS)
        await write(stage.source, PARTITIONS[0], lost)
        await commit_group(stage.source, RECORDS + 3, 30)
        snapshot = await stage.sites.look()
        plan = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True)
        result = await stage.run(plan, stage.sites)

        assert result.verified, result.differences
        first, second = sorted(result.losses, key=lambda loss: loss.partition)
        assert (first.certainty, first.records, first.first_offset) == (Certainty.EXACT, LATER_RECORDS, RECORDS)
        assert (first.first_timestamp_ms, first.last_timestamp_ms) == (lost[0].timestamp, lost[-1].timestamp)
        assert second.is_none
        ahead = next(move for move in result.moves if move.partition == 0)
        assert ahead.kind is MoveKind.AT_END
        assert await stage.next_record(stage.target, PARTITIONS[0]) == ()


@pytest.mark.parametrize("after_first_ms", [0, 1, 500, 10_000_000])
async def test_a_failover_to_a_datetime_goes_on_at_the_first_record_of_then_or_later(
    tmp_path: Path, after_first_ms: int
) -> None:
    async with two_sites(tmp_path) as stage:
        at = PARTITIONS[0]
        one_a_second = [Record(n, FIRST_TIMESTAMP_MS + n * 1000, None, b"%d" % n, ()) for n in range(RECORDS)]
        await write(stage.source, at, one_a_second)
        async with mirrored(stage):
            pass
        timestamp_ms = FIRST_TIMESTAMP_MS + after_first_ms
        snapshot = await stage.without_source.look()
        moves = await moves_to(snapshot, stage.target, timestamp_ms)
        assert [(move.topic, move.partition, move.metadata) for move in moves] == [
            (*at, metadata_of(at)) for at in PARTITIONS
        ]
        assert {move.synced_at_ms for move in moves} == {group.synced_at_ms for group in snapshot.groups}
        plan = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=False, moves=moves)
        result = await stage.run(plan, stage.without_source)

        assert result.verified, result.differences
        at_west = await committed_offsets(stage.target, GROUP)
        assert {at: found.metadata for at, found in at_west.items()} == {at: metadata_of(at) for at in PARTITIONS}
        offset = (await stage.group_at(stage.target))[at]
        before = [record async for record in read_records(stage.target, at, 0, offset)]
        assert all(record.timestamp < timestamp_ms for record in before)
        following = await stage.next_record(stage.target, at)
        assert following == () or int(str(following[0])) >= timestamp_ms


def test_a_time_without_a_zone_is_refused() -> None:
    for text, refusal in (
        ("2013-06-01T00:00:00", "names no time zone"),
        ("yesterday", "no ISO 8601"),
        ("", "no ISO 8601"),
        ("1969-12-31T23:59:59.998Z", "before 1970"),
        ("1970-01-01T00:59:59+01:00", "before 1970"),
    ):
        with pytest.raises(FailoverError, match=refusal) as refused:
            parse_datetime(text)
        assert parse_datetime(refused.value.hint.removeprefix("write it like ")) == 1_795_233_600_000
    assert parse_datetime("1970-01-01T00:00:00Z") == 0
    assert parse_datetime("2013-06-01T00:00:00-04:00") == parse_datetime("2013-06-01T04:00:00Z")


async def test_a_failover_to_a_datetime_sets_partitions_without_a_commit_too(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        first, second = PARTITIONS
        await commit_offsets(stage.target, "half", {first: CommittedOffset(3)})
        ends = await log_end_offsets(stage.target, PARTITIONS)
        snapshot = await replace(stage.without_source, groups=("half",)).look()
        future_ms = now_ms() + 3_600_000
        moves = await moves_to(snapshot, stage.target, future_ms)
        assert [(move.partition, move.kind) for move in moves] == [(n, MoveKind.BY_TIMESTAMP) for n in (0, 1)]
        plan = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=False, moves=moves)
        result = await stage.run(plan, replace(stage.without_source, groups=("half",)))
        assert result.verified, result.differences
        found = await committed_offsets(stage.target, "half")
        assert {at: committed.offset for at, committed in found.items()} == {first: ends[first], second: ends[second]}

        gone = replace(snapshot, partitions=tuple(replace(view, target_end=None) for view in snapshot.partitions))
        unknown = await moves_to(gone, stage.target, future_ms)
        assert [(move.partition, move.kind, move.target_offset) for move in unknown] == [(0, MoveKind.UNKNOWN, None)]


async def test_an_operation_cut_before_the_groups_moved_is_gone_on_with(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 41, 42)
        cut = await stage.journal()
        snapshot = await stage.sites.look()
        await cut.record(Event.PLANNED, opening(plan_switchover(snapshot)).detail)
        await cut.record(Event.STARTED, {"step": OperationStep.FENCE.value})
        await promote_link(stage.link, stage.target, cut.operation_id)

        snapshot = await stage.sites.look()
        assert reasons(plan_switchover(snapshot)) == {RefusalReason.LINK_NOT_RUNNING}
        again = await stage.run(plan_switchover(await mark_interrupted(snapshot, stage.sites)), stage.sites)
        assert again.verified, again.differences
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)
        after = await mark_interrupted(await stage.sites.look(), stage.sites)
        assert reasons(plan_switchover(after)) == {RefusalReason.LINK_NOT_RUNNING}


async def test_what_was_read_at_the_target_is_not_read_again_when_a_cut_operation_is_gone_on_with(
    tmp_path: Path,
) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await promote_link(stage.link, stage.target, "cut")
        await commit_group(stage.target, 45, 46)  # an application has run there
        snapshot = replace(await stage.sites.look(), interrupted=True)
        plan = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True)
        assert {(move.kind, move.read_again_records) for move in plan.moves} == {(MoveKind.AHEAD, 0)}
        result = await stage.run(plan, stage.sites)
        assert result.verified, result.differences
        assert result.group_totals == plan.group_totals
        assert await stage.group_at(stage.target) == dict(zip(PARTITIONS, (45, 46), strict=True))

        asked = plan_failover(
            replace(await stage.sites.look(), interrupted=True),
            allow_data_loss=True,
            even_if_source_answers=True,
            set_back_groups=[GROUP],
        )
        again = await stage.run(asked, stage.sites)
        assert again.verified, again.differences
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)


async def test_an_operation_that_was_not_verified_is_gone_on_with(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        await commit_group(stage.source, RECORDS + 1000, 30)  # beyond the log: nobody knows what is meant
        first = await stage.run(plan, stage.sites)
        assert not first.verified
        await commit_group(stage.source, 20, 30)
        snapshot = await mark_interrupted(await stage.sites.look(), stage.sites)
        again = plan_failover(snapshot, allow_data_loss=True, even_if_source_answers=True)
        second = await stage.run(again, stage.sites)
        assert second.verified, second.differences
        assert not (await mark_interrupted(await stage.sites.look(), stage.sites)).interrupted


async def test_of_two_operations_at_once_one_is_refused_or_not_verified(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        first = await stage.run(plan, stage.sites)
        assert first.verified, first.differences
        with pytest.raises(OperationUnderWay, match=first.operation_id):
            await stage.run(plan, stage.sites)
        assert (await stage.sites.look()).operation_id == first.operation_id

        await promote_link(stage.link, stage.target, "another")
        checked = await verify(plan, stage.sites, plan.snapshot, first.moves, first.operation_id, {})
        assert [difference.kind for difference in checked.differences] == [DifferenceKind.OTHER_OPERATION]


@pytest.mark.parametrize(
    ("site", "reason"),
    [("source", RefusalReason.GROUP_ACTIVE_AT_SOURCE), ("target", RefusalReason.GROUP_ACTIVE_AT_TARGET)],
)
async def test_a_group_that_reads_at_a_site_is_in_the_way(tmp_path: Path, site: str, reason: RefusalReason) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        where = stage.link.source if site == "source" else stage.link.target
        async with reading(where.bootstrap_servers):
            plan = plan_switchover(await stage.sites.look())
            assert plan.refusals == (GateRefusal(reason, GROUP),)
        assert plan_switchover(await stage.sites.look()).refusals == ()


async def test_a_reader_that_never_committed_and_one_that_comes_during_the_drain_are_seen(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        plan = plan_switchover(await stage.sites.look())
        assert plan.refusals == ()
        async with reading(stage.link.source.bootstrap_servers, "newcomers"):
            now = plan_switchover(await stage.sites.look())
            assert now.refusals == (GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, "newcomers"),)
            with pytest.raises(GroupsRead, match="newcomers"):
                await stage.run(plan, stage.sites)
        assert (await stage.sites.look()).link_state == "running"


async def test_a_group_that_is_read_at_the_target_after_the_plan_holds_up_no_other(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            pass
        await commit_group(stage.source, 40, 41)
        await commit_offsets(stage.source, "zebra", {PARTITIONS[0]: CommittedOffset(9)})
        plan = plan_failover(await stage.sites.look(), allow_data_loss=True, even_if_source_answers=True)
        async with reading(stage.link.target.bootstrap_servers):
            result = await stage.run(plan, stage.sites)
        kinds = {(found.kind, found.subject) for found in result.differences}
        assert kinds == {(DifferenceKind.GROUP_OFFSET, f"{GROUP} on {TOPIC}")}
        assert set(await committed_offsets(stage.target, "zebra")) == {PARTITIONS[0]}
