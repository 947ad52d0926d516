"""An operation that is taken up when what it goes by is not as it was: by the consent it has, and by what is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, delete_groups
from broker.client.model import CommittedOffset
from deploy.cli.consent_again import _plan_now
from failover.errors import GateRefused, JournalDamaged, NotMovable, SkipsMore
from failover.freezing.hooks import Hooks
from failover.journal.consented import consented_loss, consented_moves
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, OperationLog
from failover.losses.statements import Certainty
from failover.observing.sites import Sites
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.moves import MoveKind
from failover.running.groups_stand import GroupsStand
from failover.running.late_commits import LateCommit
from failover.running.link_run import LinkRun
from failover.running.taking_up import resume
from mirror.api import resume_link
from tests.broker.faults import Faults, injected
from tests.deploy.cli.test_taking_up import TheseLinks
from tests.failover.machines import HEIR, machine, quick
from tests.failover.observing.test_leaderless_source import IMPATIENT
from tests.failover.running.test_taking_up import FAILOVER, ID, SWITCHOVER, die_in, ready
from tests.failover.stage import (
    FIRST_TIMESTAMP_MS,
    GROUP,
    PARTITIONS,
    RARE,
    RECORDS,
    TOPIC,
    commit_group,
    now_ms,
)
from tests.mirror.harness import eventually


async def test_of_a_link_that_was_let_run_since_the_groups_are_moved_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version let it run amid the operation. It was drained and fenced anew, and its groups counted as
    moved: none was, and the journal had the new moves as made.
    """
    quick(monkeypatch)
    async with ready(tmp_path, RARE) as stage:
        await die_in(stage, monkeypatch, "hand_over")
        moved = await stage.group_at(stage.target)
        await commit_group(stage.source, 36, RECORDS)
        await resume_link(stage.link, stage.target, "resume-1")

        async def is_passed() -> bool:
            return await stage.group_at(stage.target) != moved

        await eventually(is_passed, "the only pass over groups of the mirror that was let run")
        await commit_group(stage.source, 44, RECORDS)
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert result.verified, result.differences
        for at in PARTITIONS:
            assert await stage.next_record(stage.target, at) == await stage.next_record(stage.source, at)


async def test_one_that_went_on_at_the_target_before_the_fence_is_refused_as_if_the_machine_had_lived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan that was made anew skipped those records, and was held against itself: verified, exit code 0."""
    quick(monkeypatch)
    async with ready(tmp_path, RARE) as stage:
        await die_in(stage, monkeypatch, "drain")
        await commit_group(stage.target, 48, RECORDS)
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(SkipsMore, match=f"{GROUP} on {TOPIC}-0"):
                await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert (await stage.sites.look()).link_state == "running"
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.GIVEN_UP


async def test_a_failover_that_is_not_fenced_yet_skips_no_more_than_somebody_said_yes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no drain that would judge that: it was a finding of the end, when the group had skipped them."""
    quick(monkeypatch)
    async with ready(tmp_path, RARE) as stage:
        await die_in(stage, monkeypatch, "fence", FAILOVER)
        await commit_group(stage.target, 48, RECORDS)
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            shown = await _plan_now(TheseLinks((stage.link,)), log, sites[0])  # type: ignore[arg-type]
            with pytest.raises(GateRefused, match=rf"group_went_on \({GROUP}\); nothing more was changed") as refused:
                await resume(log, sites, Hooks(), "an heir")
        assert f"`farshore operation abort {ID}` gives it up" in refused.value.hint
        assert shown is not None
        assert GateRefusal(RefusalReason.GROUP_WENT_ON, GROUP) in shown.plan.refusals, "who is asked is told before"
        assert (await stage.sites.look()).link_state == "running"
        assert not (await stage.log(ID)).is_ended, "to be aborted, and planned anew"


@pytest.mark.parametrize("intent", [SWITCHOVER, FAILOVER], ids=lambda intent: intent.operation.value)
async def test_one_that_went_on_there_behind_the_fence_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, intent: Intent
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path, RARE) as stage:
        await die_in(stage, monkeypatch, "fence", intent, when=Event.DONE)
        await commit_group(stage.target, 48, RECORDS + 1)
        stands: list[GroupsStand] = []
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir", stands.append)
        assert result.verified, result.differences
        assert [(one.group, one.partition) for one in result.unplanned_skips] == [(GROUP, 0)]
        assert [stand.left_groups for stand in stands] == [(GROUP,)], "its applications are not told to start"
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.FINDINGS


async def test_a_group_that_was_to_be_moved_and_is_at_neither_site_by_now_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path, RARE) as stage:
        await die_in(stage, monkeypatch, "drain")
        for cluster in (stage.source, stage.target):
            assert await delete_groups(cluster, [GROUP]) == {}
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(NotMovable, match=f"where {GROUP} would go on"):
                await resume(await stage.log(ID), sites, Hooks(), "an heir")


@asynccontextmanager
async def answering_in_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[OperationLog, Sites]]:
    """A switchover that was cut short before its fence, and its sites by now: a partition of its source is away."""
    quick(monkeypatch)
    async with ready(folder) as stage:
        await die_in(stage, monkeypatch, "drain")
        log, east = await stage.log(ID), Faults()
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with (
                machine(HEIR, stage.link) as (sites,),
                Cluster(stage.link.source, client_id=HEIR, limits=IMPATIENT) as source,
            ):
                east.leaderless.add(PARTITIONS[1])
                yield log, replace(sites, source=source)
            east.heal()


async def test_a_switchover_whose_source_answers_in_part_by_now_is_refused_and_names_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the error of the first partition that did not answer, and nothing said how to get out of it."""
    async with answering_in_part(tmp_path, monkeypatch) as (log, sites):
        with pytest.raises(GateRefused, match="source_partly_there") as refused:
            await resume(log, [sites], Hooks(), "an heir")
    assert f"`farshore operation abort {ID}` gives it up" in refused.value.hint


async def test_by_a_time_it_is_told_of_one_that_nobody_tells_of_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pass had carried it, and the source died: nothing was committed of it, nothing was said, and it was let in."""
    quick(monkeypatch)
    newcomers, by_time = "newcomers", replace(FAILOVER, timestamp_ms=FIRST_TIMESTAMP_MS)
    async with ready(tmp_path, RARE) as stage:
        await commit_offsets(stage.source, newcomers, {PARTITIONS[0]: CommittedOffset(11)})
        await die_in(stage, monkeypatch, "fence", by_time)
        stands: list[GroupsStand] = []
        async with machine(HEIR, stage.link) as (sites,):
            gone = [replace(sites, source=None)]
            (result,) = await resume(await stage.log(ID), gone, Hooks(), "an heir", stands.append)
        assert {(move.group, move.kind) for move in result.moves} == {
            (GROUP, MoveKind.BY_TIMESTAMP),
            (newcomers, MoveKind.UNKNOWN),
        }
        assert result.left_groups == (newcomers,)
        assert {found.subject for found in result.differences} == {f"{newcomers} on {TOPIC}"}
        assert stands == [], "nobody is told that its applications may start"


@pytest.mark.parametrize("reads_on", [False, True])
async def test_what_was_committed_at_a_source_before_it_went_is_no_reading_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reads_on: bool
) -> None:
    """Every group was told to have read on there, and to have lost its offset there, so that nobody was let in."""
    quick(monkeypatch)
    real = LinkRun.watch_source

    async def watch(self: LinkRun) -> None:
        if reads_on:
            await commit_group(stage.source, 44, RECORDS)
        await real(self)

    monkeypatch.setattr(LinkRun, "watch_source", watch)
    async with ready(tmp_path, RARE) as stage:
        await die_in(stage, monkeypatch, "verify", FAILOVER, source_lives=False)
        stands: list[GroupsStand] = []
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir", stands.append)
        assert {(move.kind, move.source_offset) for move in result.moves} == {(MoveKind.KEPT, None)}
        assert result.verified, result.differences
        assert result.late_commits == ((LateCommit(GROUP, TOPIC, 0, 33, 44),) if reads_on else ())
        assert (result.unplanned_read_again, result.unplanned_skips) == ((), ())
        assert [stand.left_groups for stand in stands] == [()]


async def test_an_earlier_versions_plan_is_read_and_one_that_is_none_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain")
        log = await stage.log(ID)
    name, (first, *others) = stage.link.name, log.entries
    (plan,) = first.detail["plans"]

    def but(**changed: object) -> OperationLog:
        detail = {**first.detail, "plans": [{**plan, **changed}]}
        return replace(log, entries=(replace(first, detail=detail), *others))

    moves = consented_moves(log, name)
    assert moves is not None
    assert [(move.group, move.kind, move.source_offset) for move in moves] == [
        (GROUP, MoveKind.TRANSLATED, 33),
        (GROUP, MoveKind.TRANSLATED, RECORDS),
    ]
    older = [{key: value for key, value in one.items() if key != "brought_offset"} for one in plan["moves"]]
    assert consented_moves(but(moves=older), name) == tuple(replace(move, brought_offset=None) for move in moves)
    loss = consented_loss(log, name)
    assert loss is not None
    assert (loss.offsets, loss.certainty) == (0, Certainty.EXACT)
    assert loss.stated_at_ms is not None
    assert abs(now_ms() - loss.stated_at_ms) < 600_000
    bare = replace(log, entries=(replace(first, detail={"intent": first.detail["intent"]}), *others))
    assert (consented_moves(bare, name), consented_loss(bare, name)) == (None, None)
    for damaged in (but(moves=[{"kind": "sideways"}]), but(moves=7)):
        with pytest.raises(JournalDamaged, match="where groups were to go"):
            consented_moves(damaged, name)
    nothing: list[object] = []
    for none in ({"certainty": "quite"}, {"certainty": "exact", "stated_at": "noon"}, nothing):
        with pytest.raises(JournalDamaged, match="what was to be lost"):
            consented_loss(but(loss=none), name)
