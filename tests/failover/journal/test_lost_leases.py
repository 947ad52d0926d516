"""A machine that may have lost its operation, by its lease, undoes and writes nothing of it any more."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.site_role import site_standing
from failover.errors import GateRefused, JournalUnanswered, OperationTakenUp, OperationUnderWay, StillFrozen
from failover.freezing.choice import read_roles
from failover.freezing.freeze import Freeze
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, claim
from failover.journal.standing import role_before
from failover.journal.values import Event
from failover.limits import HEARTBEAT_S, LEASE_S, UNHEARD_S
from failover.running.aborting import abort, plan_abort
from failover.running.moving import promoted_again
from failover.running.steps import OperationStep
from failover.running.taking_up import resume
from mirror.api import promote_link, resume_link
from mirror.offsets.taking_over import claim_link
from tests.failover.machines import HEIR, VICTIM, machine
from tests.failover.running.test_late_promotions import (
    Asleep,
    SleepyClock,
    before_a_request,
    begin_anew,
    cut_in_its_fence,
    is_promoted,
    takes_writes,
    two_quiet_sites,
)
from tests.failover.running.test_taking_up import ID, SWITCHOVER
from tests.failover.stage import Stage, now_ms, two_sites
from tests.mirror.harness import eventually

BETWEEN = ("east", "west")
WAITS = "import signal, sys; print('begun', file=open(sys.argv[1], 'w'), flush=True); signal.pause()"


async def freezing_by(
    stage: Stage, source: Cluster, target: Cluster, operation_id: str, hooks: Hooks | None = None
) -> tuple[OperationJournal, Freeze]:
    """An operation that is about to freeze its source."""
    writer, _ = await claim(target, BETWEEN, lambda _: None)
    journal = OperationJournal(target, operation_id, "a victim", writer, BETWEEN)
    roles = await read_roles(stage.link, source, target)
    assert roles.source is not None
    detail = {"intent": SWITCHOVER.document(), "who": "a victim", "role_before": roles.source.configs()}
    await journal.record(Event.PLANNED, detail)
    await journal.record(Event.STARTED, {"step": OperationStep.FREEZE.value})
    plan = replace(roles, freezes=True, hooks=hooks or Hooks())
    freeze = Freeze(plan, stage.link, (source, target), operation_id, journal.renew)
    await freeze.begin()
    return journal, freeze


async def frozen_by(
    stage: Stage, source: Cluster, target: Cluster, operation_id: str, hooks: Hooks | None = None
) -> tuple[OperationJournal, Freeze]:
    """An operation that has frozen its source."""
    journal, freeze = await freezing_by(stage, source, target, operation_id, hooks)
    await freeze.refuse_writes()
    return journal, freeze


async def take_up_and_move(stage: Stage, operation_id: str) -> None:
    """As an heir does it: it has the source closed, and then moves the link."""
    log = await stage.log(operation_id)
    writer, _ = await claim(stage.target, BETWEEN, lambda _: None)
    journal = OperationJournal(stage.target, operation_id, "an heir", writer, BETWEEN, log)
    await journal.record(Event.TAKEN_UP, {"who": "an heir"})
    roles = await read_roles(stage.link, stage.source, stage.target)
    plan = replace(roles, freezes=True, before=role_before(log))
    freeze = Freeze(plan, stage.link, (stage.source, stage.target), operation_id, journal.renew)
    await freeze.refuse_writes()
    await promote_link(stage.link, stage.target, operation_id, check=journal.renew)


@pytest.mark.parametrize("counted_s", [LEASE_S, 0.0], ids=["suspended", "stopped by its hypervisor"])
async def test_a_freeze_is_not_undone_by_who_slept_in_that_while_its_heir_moved_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted_s: float
) -> None:
    """Before each of its requests: it went on where it was when it woke, and the source of a moved link took writes.
    Its clock may have stood still meanwhile.
    """
    async with two_sites(tmp_path) as stage:
        for at in count(1):
            operation_id, clock = f"operation-{at}", SleepyClock()
            async with (
                Cluster(stage.link.source, client_id=VICTIM) as source,
                Cluster(stage.link.target, client_id=VICTIM, clock=clock) as target,
            ):
                journal, freeze = await frozen_by(stage, source, target, operation_id)

                async def taken_up(operation_id: str = operation_id, clock: SleepyClock = clock) -> None:
                    clock.slept_s = counted_s
                    await take_up_and_move(stage, operation_id)

                asleep = Asleep(at, taken_up)
                refused = suppress(JournalUnanswered, OperationTakenUp, StillFrozen)
                with before_a_request(monkeypatch, VICTIM, asleep), refused:
                    await journal.while_held(freeze.undo(RuntimeError("given up")))
            if asleep.requests < at:
                break
            assert await is_promoted(stage)
            assert not await takes_writes(stage), at
            await begin_anew(stage)
        assert at > 2


async def test_a_thaw_hook_is_cut_off_when_the_lease_is_over(tmp_path: Path) -> None:
    """It had its minute, and then the next thing was undone."""
    noted = tmp_path / "noted"
    hooks = Hooks(thaw=(sys.executable, "-c", WAITS, str(noted)))
    clock = SleepyClock()
    async with two_sites(tmp_path) as stage, Cluster(stage.link.target, client_id=VICTIM, clock=clock) as target:
        journal, freeze = await frozen_by(stage, stage.source, target, ID, hooks)
        undoing = asyncio.create_task(journal.while_held(freeze.undo(RuntimeError("given up"))))

        async def is_begun() -> bool:
            return noted.exists()

        await eventually(is_begun, "the hook to run")
        clock.slept_s = LEASE_S
        with pytest.raises(JournalUnanswered):
            await undoing


@dataclass
class SimulatedClock(SystemClock):
    """Time goes on only where somebody waits for it, and then something happens."""

    ahead_ms: int = 0
    now_s: float = 1_000.0
    passed: Callable[[], Awaitable[None]] | None = None

    def now_ms(self) -> int:
        return now_ms() + self.ahead_ms

    def boottime(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.passed is not None:
            await self.passed()


@pytest.mark.parametrize("ahead_ms", [-3_000_000, 0, 3_000_000])
@pytest.mark.parametrize("heard_for_s", [0.0, HEARTBEAT_S, LEASE_S + 1, 1_000.0])
@pytest.mark.parametrize("verb", ["abort", "resume"])
async def test_of_two_machines_only_one_writes_on_whatever_their_clocks_say(
    tmp_path: Path, verb: str, heard_for_s: float, ahead_ms: int
) -> None:
    """The first one lives, and is heard for so long; then its line is cut."""
    first, other = SimulatedClock(), SimulatedClock(ahead_ms)
    async with (
        two_sites(tmp_path) as stage,
        Cluster(stage.link.target, client_id=VICTIM, clock=first) as its_target,
        Cluster(stage.link.target, client_id=HEIR, clock=other) as target,
    ):
        journal, _ = await frozen_by(stage, stage.source, its_target, ID)
        began_s = heard_s = first.now_s
        lost_s: list[float] = []

        async def passed() -> None:
            nonlocal heard_s
            first.now_s = other.now_s
            if first.now_s - heard_s >= HEARTBEAT_S and first.now_s - began_s <= heard_for_s:
                heard_s = first.now_s
                await journal.record(Event.DONE, {"step": OperationStep.FREEZE.value})
            with suppress(JournalUnanswered):
                journal.check_held()
                return
            lost_s.append(first.now_s)

        other.passed = passed
        log = await stage.log(ID)
        sites = [replace(stage.sites, target=target, now_ms=other.now_ms)]
        resuming = partial(resume, log, sites, Hooks(), "an heir")
        take_it = partial(plan_abort, log, sites) if verb == "abort" else resuming
        if heard_for_s > 0:
            with pytest.raises(OperationUnderWay, match="a victim"):
                await take_it()
            journal.check_held()
            await journal.record(Event.DONE, {"step": OperationStep.FREEZE.value})
            return
        if verb == "abort":
            await plan_abort(log, sites)
        else:
            with pytest.raises(GateRefused, match="nothing_mirrored"):  # all that is in its way
                await resuming()
        assert lost_s, "it had stopped by itself before anybody took it up"
        assert lost_s[0] - began_s <= LEASE_S <= other.now_s - began_s <= UNHEARD_S + 2
        await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir")
        with pytest.raises(OperationTakenUp):
            await journal.record(Event.GIVING_UP, {})
        standing = await site_standing(stage.source)
        assert standing is not None
        assert standing.takes_writes


async def test_a_link_that_was_resumed_behind_an_abort_is_not_promoted_again_by_who_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each request of its second promotion, by a clock that stood still: the mirror was stopped by it."""
    refused = set[str]()
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        for at in count(1):
            operation_id = f"operation-{at}"
            async with machine(VICTIM, stage.link) as (sites,):
                journal = await cut_in_its_fence(stage, sites.target, operation_id)
                promote = partial(promote_link, stage.link, sites.target, operation_id, check=journal.renew)
                first = await promote()
                await claim_link(stage.target, stage.link, "a worker")

                async def aborted_and_resumed(operation_id: str = operation_id) -> None:
                    log = await stage.log(operation_id)
                    await abort(log, [stage.sites], await plan_abort(log, [stage.sites]), Hooks(), "an heir")
                    await resume_link(stage.link, stage.target, "resume-1")

                asleep = Asleep(at, aborted_and_resumed)
                with before_a_request(monkeypatch, VICTIM, asleep):
                    try:
                        await promoted_again(sites, operation_id, first, promote)
                    except OperationTakenUp as error:
                        refused.add(str(error).replace(operation_id, "it"))
            if asleep.requests < at:
                assert await is_promoted(stage)
                break
            assert not await is_promoted(stage), at
            await begin_anew(stage)
    assert refused == {str(OperationTakenUp("it"))}
