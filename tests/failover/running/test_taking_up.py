"""Operations whose machine dies, at any request, and that another machine takes up: they end as if it had lived."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.groups import commit_offsets
from broker.client.model import CommittedOffset
from broker.client.site_role import set_site_role, site_standing
from broker.wire.site_role import SiteRole
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from failover.errors import OperationEnded, OperationUnderWay
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, load_operations
from failover.journal.standing import OperationState, refuse_second, standing_of
from failover.journal.values import Event, JournalEntry
from failover.planning.intent import Intent
from failover.planning.moves import MoveKind
from failover.running.aborting import AbortKind, abort, plan_abort
from failover.running.steps import Operation, OperationStep
from failover.running.taking_up import resume
from failover.running.verification import DifferenceKind
from mirror.api import HeartbeatWatch, resume_link
from mirror.worker.limits import WorkerLimits
from tests.failover.machines import HEIR, VICTIM, Death, machine, mortal, operate, quick, until_death
from tests.failover.on_its_way import hold_drain
from tests.failover.stage import GROUP, PARTITIONS, RARE, RECORDS, Stage, commit_group, mirrored, now_ms, two_sites
from tests.mirror.harness import QUICK, contents, eventually, read_all

ID = "switchover-east-west-1"
SWITCHOVER = Intent(Operation.SWITCHOVER, ("east-west",), "east", "west", reason="a test")
FAILOVER = replace(SWITCHOVER, operation=Operation.FAILOVER, allow_data_loss=True, even_if_source_answers=True)
STEPS = ("freeze", "drain", "fence", "move_groups", "hand_over", "verify")
SEEDS = range(4)
REQUESTS = 300
"""That a machine sends in the course of a whole operation, about."""


@dataclass(frozen=True)
class Ended:
    """What stands when all is over, by content."""

    link: tuple[str, str]
    records: list[list[tuple[object, ...]]]
    next_records: list[tuple[object, ...]]
    group: list[int]
    roles: list[str]
    state: OperationState


async def ended(stage: Stage, operation_id: str = ID) -> Ended:
    snapshot = await stage.sites.look()
    return Ended(
        (snapshot.link_state, snapshot.operation_id),
        [contents(await read_all(stage.target, at)) for at in PARTITIONS],
        [await stage.next_record(stage.target, at) for at in PARTITIONS],
        [await stage_reads(stage, at) for at in range(len(PARTITIONS))],
        [standing.role.value for site in (stage.source, stage.target) if (standing := await site_standing(site))],
        standing_of(await stage.log(operation_id), now_ms()).state,
    )


async def stage_reads(stage: Stage, partition: int) -> int:
    """How many of the source's records the group has read, as the target has it: markers take no part in it."""
    offset = (await stage.group_at(stage.target))[PARTITIONS[partition]]
    return len([record for record in await read_all(stage.target, PARTITIONS[partition]) if record.offset < offset])


@asynccontextmanager
async def ready(folder: Path, limits: WorkerLimits = QUICK) -> AsyncIterator[Stage]:
    """A mirror runs, and the group has read on since it was last carried over."""
    async with two_sites(folder) as stage, mirrored(stage, limits):
        await commit_group(stage.source, 33, RECORDS)
        yield stage


async def expected(stage: Stage) -> Ended:
    return Ended(
        ("promoted", ID),
        [contents(await read_all(stage.source, at)) for at in PARTITIONS],
        [await stage.next_record(stage.source, at) for at in PARTITIONS],
        [33, RECORDS],
        ["standby", "active"],
        OperationState.VERIFIED,
    )


async def take_up(stage: Stage, operation_id: str = ID) -> None:
    async with machine(HEIR, stage.link) as sites:
        log = (await load_operations(stage.target)).get(operation_id)
        if log is None:  # it died before anything was written down: the command is given again
            await operate(SWITCHOVER, sites, operation_id)
        elif not log.is_ended:
            (result,) = await resume(log, sites, Hooks(), "an heir")
            assert result.verified, result.differences


async def test_one_that_is_not_interrupted_ends_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        with mortal(monkeypatch, Death()) as death:
            await until_death(SWITCHOVER, stage, ID)
        assert 0.7 * REQUESTS < death.requests < 1.4 * REQUESTS, death.requests
        assert await ended(stage) == await expected(stage)
        log = await stage.log(ID)
        assert [entry.detail["step"] for entry in log.entries if entry.event == Event.DONE] == list(STEPS)
        with pytest.raises(OperationEnded, match="has ended: verified"):
            await resume(log, [stage.sites], Hooks(), "an heir")


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_at_any_request_and_taken_up_elsewhere_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    await die_and_take_up(tmp_path, monkeypatch, random.Random(seed), len(SEEDS), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
async def test_killed_at_any_request_many_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    await die_and_take_up(tmp_path, monkeypatch, random.Random(seed), 60, seed - 100)


async def die_and_take_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, shares: int, share: int
) -> None:
    """The end comes somewhere in this share of what an operation asks for."""
    quick(monkeypatch)
    async with ready(folder) as stage:
        at = 1 + round(REQUESTS * (share + rng.random()) / shares)
        with mortal(monkeypatch, Death(at, answered=rng.random() < 0.5)):
            await until_death(SWITCHOVER, stage, ID)
        await take_up(stage)
        assert await ended(stage) == await expected(stage)


@pytest.mark.parametrize("step", STEPS)
async def test_killed_in_each_step_and_taken_up_elsewhere_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, step)
        log = await stage.log(ID)
        assert standing_of(log, now_ms() + 60_000).step == step
        assert not log.is_ended
        await take_up(stage)
        assert await ended(stage) == await expected(stage)
        events = [entry.event for entry in (await stage.log(ID)).entries]
        assert (events.count(Event.TAKEN_UP), events[-1]) == (1, Event.FINISHED)


async def die_in(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    intent: Intent = SWITCHOVER,
    hooks: Hooks | None = None,
    *,
    when: Event = Event.STARTED,
    source_lives: bool = True,
) -> None:
    """The machine dies when it has said that it begins the step, or when it would say that it has done it."""
    death = Death()
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        is_now = any(event == when and detail["step"] == step for event, detail in noted)
        if is_now and when == Event.DONE:
            death.at = death.requests + 1
        entries = await real(self, noted)
        if is_now:
            death.at = death.requests + 1
        return entries

    with mortal(monkeypatch, death), monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        await until_death(intent, stage, ID, hooks, source_lives=source_lives)
    assert death.is_dead


async def test_what_was_set_back_and_read_on_since_is_not_set_back_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the groups were moved: an application that has run since then reads nothing twice."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await commit_group(stage.target, 45, RECORDS)
        back = replace(SWITCHOVER, set_back_groups=(GROUP,))
        await die_in(stage, monkeypatch, "hand_over", back)
        moved = await stage.group_at(stage.target)
        assert [await stage_reads(stage, number) for number in (0, 1)] == [33, RECORDS]
        read_on = {at: offset + 3 for at, offset in moved.items() if at == PARTITIONS[0]}
        await commit_offsets(stage.target, GROUP, {at: CommittedOffset(offset) for at, offset in read_on.items()})
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert await stage.group_at(stage.target) == {**moved, **read_on}
        assert {found.kind for found in result.differences} == {DifferenceKind.GROUP_OFFSET}, "it is said"


async def test_a_drill_finds_what_would_keep_a_failover_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "ready" beside an operation that was cut short, and at a target that refuses its clients."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain")
        await set_site_role(stage.target, SiteRole.STANDBY, "a test", await site_standing(stage.target), ["f.*"])
        drill = await drill_link(stage.link, HeartbeatWatch(stage.target.clock), AuditNote(), now_ms)
        found = {finding.kind: finding for finding in drill.findings}
        assert ID in found["operation_under_way"].detail
        assert ID in found["operation_under_way"].next_step
        assert found["closed_at_target"].next_step == "farshore site thaw --site west --topic 'f.*'"


@pytest.mark.parametrize("source_dies", [False, True])
@pytest.mark.parametrize("is_set_back", [False, True])
async def test_what_was_moved_and_read_on_since_is_not_moved_back_where_nobody_had_said_that_it_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, source_dies: bool, is_set_back: bool
) -> None:
    """Killed between the commits and the line that says so; an application read on, and stopped."""
    quick(monkeypatch)
    async with ready(tmp_path, RARE) as stage:
        if is_set_back:
            await commit_group(stage.target, 45, RECORDS)
        intent = replace(SWITCHOVER, set_back_groups=(GROUP,) if is_set_back else ())
        await die_in(stage, monkeypatch, "move_groups", intent, when=Event.DONE)
        moved = await stage.group_at(stage.target)
        assert [await stage_reads(stage, number) for number in (0, 1)] == [33, RECORDS]
        read_on = {at: offset + 3 for at, offset in moved.items() if at == PARTITIONS[0]}
        await commit_offsets(stage.target, GROUP, {at: CommittedOffset(offset) for at, offset in read_on.items()})
        async with machine(HEIR, stage.link) as sites:
            found = [replace(one, source=None) for one in sites] if source_dies else sites
            (result,) = await resume(await stage.log(ID), found, Hooks(), "an heir")
        assert await stage.group_at(stage.target) == {**moved, **read_on}
        (move,) = [move for move in result.moves if move.partition == 0]
        assert (move.kind, move.target_offset) == (MoveKind.AHEAD, read_on[PARTITIONS[0]])


async def test_what_was_seen_while_another_machine_carried_it_on_is_not_gone_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link was promoted meanwhile: the heir took that for another operation, and gave up what had been begun."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        before = await stage.without_source.look_past_source()
        await die_in(stage, monkeypatch, "move_groups", FAILOVER)
        async with machine(HEIR, stage.link) as sites:
            stale = [replace(one, source=None, ahead=before) for one in sites]
            (result,) = await resume(await stage.log(ID), stale, Hooks(), "an heir")
        assert result.verified, result.differences
        assert [entry.event for entry in (await stage.log(ID)).entries][-1] == Event.FINISHED


async def test_one_that_is_aborted_before_the_fence_leaves_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain")
        frozen = await site_standing(stage.source)
        assert frozen is not None
        assert not frozen.takes_writes
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            planned = await plan_abort(log, sites)
            assert await abort(log, sites, planned, Hooks(), "an heir") == planned
        assert [(one.kind, one.stays) for one in planned] == [
            (AbortKind.LINK_RUNS, False),
            (AbortKind.SOURCE_THAWED, False),
        ]
        thawed = await site_standing(stage.source)
        assert thawed is not None
        assert thawed.takes_writes
        log = await stage.log(ID)
        assert standing_of(log, now_ms()).state is OperationState.ABORTED
        with pytest.raises(OperationEnded):
            await resume(log, [stage.sites], Hooks(), "a third")
        async with machine(HEIR, stage.link) as sites:
            (result,) = await operate(SWITCHOVER, sites, "another")
        assert result.verified, result.differences


async def test_one_that_is_aborted_behind_the_fence_says_what_stays_and_a_new_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "hand_over")
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(OperationUnderWay, match=ID):
                refuse_second(await load_operations(stage.target), ("east", "west"), now_ms())
            log = await stage.log(ID)
            found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
            assert [(one.kind, one.subject) for one in found if one.stays] == [
                (AbortKind.LINK_PROMOTED, stage.link.name),
                (AbortKind.GROUPS_MOVED, "west"),
                (AbortKind.SOURCE_REFUSES_WRITES, "east"),
            ]
            snapshot = await stage.sites.look()
            assert (snapshot.link_state, snapshot.operation_id) == ("promoted", ID)
            standing = await site_standing(stage.source)
            assert standing is not None
            assert not standing.takes_writes
            (result,) = await operate(SWITCHOVER, sites, "another")
            assert result.verified, result.differences


async def test_one_that_is_aborted_when_its_link_was_resumed_opens_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target takes writes by then. It was told as thawed, and with ACLs it was."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "verify")
        await resume_link(stage.link, stage.target, "resume-1")
        async with machine(HEIR, stage.link) as sites:
            log = await stage.log(ID)
            found = await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        assert [(one.kind, one.stays) for one in found] == [
            (AbortKind.LINK_RUNS, False),
            (AbortKind.GROUPS_MOVED, True),
            (AbortKind.SOURCE_REFUSES_WRITES, True),
        ]


async def test_one_that_is_carried_on_is_neither_resumed_nor_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 0.1)
    async with ready(tmp_path) as stage, machine(VICTIM, stage.link) as mine, machine(HEIR, stage.link) as other:
        await hold_drain(stage)
        running = asyncio.create_task(operate(SWITCHOVER, mine, ID))
        await eventually(lambda: _is_begun(stage, OperationStep.DRAIN), "the drain")
        log = await stage.log(ID)
        for take_it in (resume(log, other, Hooks(), "an heir"), plan_abort(log, other)):
            with pytest.raises(OperationUnderWay, match=rf"{ID} .*a victim, heard of 0 s ago, in its step drain"):
                await take_it
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.GIVEN_UP
        assert (await stage.sites.look()).link_state == "running"


async def test_one_that_says_so_late_is_not_taken_from_by_a_machine_whose_clock_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that clock it is silent for an hour; it may be so for its lease, and then it stops by itself."""
    quick(monkeypatch)
    monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 1.2)
    monkeypatch.setattr("failover.running.taking_up.LEASE_S", 2.0)
    monkeypatch.setattr("failover.running.taking_up.UNHEARD_S", 3.0)
    async with ready(tmp_path) as stage, machine(VICTIM, stage.link) as mine, machine(HEIR, stage.link) as other:
        await hold_drain(stage)
        running = asyncio.create_task(operate(SWITCHOVER, mine, ID))
        await eventually(lambda: _is_begun(stage, OperationStep.DRAIN), "the drain")
        log = await stage.log(ID)
        ahead = [replace(one, now_ms=lambda: now_ms() + 3_600_000) for one in other]
        for take_it in (resume(log, ahead, Hooks(), "an heir"), plan_abort(log, ahead)):
            with pytest.raises(OperationUnderWay, match="a victim"):
                await take_it
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def _is_begun(stage: Stage, step: OperationStep) -> bool:
    log = (await load_operations(stage.target)).get(ID)
    return log is not None and any(
        entry.event == Event.STARTED and entry.detail["step"] == step for entry in log.entries
    )
