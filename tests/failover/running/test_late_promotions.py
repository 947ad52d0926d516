"""A promotion that is heard late, of a machine that died or hung: whoever takes the operation up lets no source go on
whose link it moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.base.clock import SystemClock
from broker.base.ending import to_its_end
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import AccessRefused
from broker.client.site_role import set_site_role, site_standing
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.schema import Message
from broker.wire.site_role import SiteRole
from failover.errors import GateRefused, NotAborted, NotDrained, OperationTakenUp, PromotedMeanwhile
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.standing import OPEN_STATES, OperationState, standing_of
from failover.journal.values import Event
from failover.limits import LEASE_S
from failover.running.aborting import AbortFinding, AbortKind, abort, plan_abort
from failover.running.steps import OperationStep
from failover.running.taking_up import resume
from mirror.api import RunState, promote_link, read_entries, resume_link
from mirror.errors import LinkFenced
from mirror.offsets.cutting import state_units
from mirror.offsets.entries import LinkRun
from mirror.offsets.fence import fence_link
from mirror.offsets.state_writer import StateLog
from tests.failover.machines import HEIR, VICTIM, Death, is_death, machine, mortal, quick
from tests.failover.running.test_taking_up import ID, SWITCHOVER, die_in, ready
from tests.failover.stage import Stage, now_ms, two_sites


@dataclass
class SleepyClock(SystemClock):
    """Of a machine that was suspended for so long."""

    slept_s: float = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.slept_s


@dataclass
class Asleep:
    """Before the request `at` (from 1) of its machine somebody else does something; `requests`: how many there were."""

    at: int
    meanwhile: Callable[[], Awaitable[None]]
    requests: int = field(default=0)


@contextmanager
def before_a_request(monkeypatch: pytest.MonkeyPatch, client_id: str, asleep: Asleep) -> Iterator[None]:
    """However short the patience of that machine is: it is out when it wakes, and what others do is not cut short."""
    real = Connection.send
    others: list[asyncio.Future[None]] = []

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if self._client_id == client_id:
            asleep.requests += 1
            if asleep.requests == asleep.at:
                others.append(asyncio.ensure_future(asleep.meanwhile()))
                await to_its_end(others[0])
        return await real(self, message, version, timeout_ms=timeout_ms)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send)
        yield
        for one in others:
            one.result()


@contextmanager
def no_fence(monkeypatch: pytest.MonkeyPatch, transactional_id: str) -> Iterator[None]:
    """Nobody is given an epoch of this id."""
    real = Connection.send

    async def send(
        self: Connection, message: Message, version: int | None = None, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        if isinstance(message, InitProducerIdRequest) and message.transactional_id == transactional_id:
            raise AccessRefused("not to be asked")
        return await real(self, message, version, timeout_ms=timeout_ms)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send)
        yield


async def cut_in_its_fence(stage: Stage, target: Cluster, operation_id: str) -> OperationJournal:
    """An operation whose machine is not heard of any more since it said that it fences the link."""
    before = await site_standing(stage.source)
    assert before is not None
    writer, _ = await claim(target, ("east", "west"), lambda _: None)
    journal = OperationJournal(target, operation_id, "a victim", writer, ("east", "west"))
    detail = {"intent": SWITCHOVER.document(), "who": "a victim", "role_before": before.configs()}
    await journal.record(Event.PLANNED, detail)
    await journal.record(Event.STARTED, {"step": OperationStep.FREEZE.value})
    await set_site_role(stage.source, SiteRole.FROZEN, operation_id, before, [])
    await journal.record(Event.STARTED, {"step": OperationStep.FENCE.value})
    await journal.record(Event.CUT_SHORT, {"step": OperationStep.FENCE.value, "error": "a test"})
    return journal


async def late_promotion(stage: Stage, operation_id: str) -> Callable[[], Awaitable[None]]:
    """What its machine has sent last, still on its way: it had the epoch to write it under."""
    (unit,) = await state_units(stage.link, stage.target)
    log = StateLog(stage.target, unit, (await fence_link(stage.target, unit, [])).writer)

    async def arrive() -> None:
        with suppress(LinkFenced):
            await log.append([LinkRun(RunState.PROMOTED, operation_id, now_ms())])

    return arrive


def before_the_fence(stage: Stage) -> tuple[AbortFinding, ...]:
    """What is told of an abort where nothing was promoted."""
    return (
        AbortFinding(AbortKind.LINK_RUNS, stage.link.name, stays=False),
        AbortFinding(AbortKind.SOURCE_THAWED, "east", stays=False),
    )


async def is_promoted(stage: Stage) -> bool:
    run = (await read_entries(stage.link, stage.target)).run
    return run is not None and run.state is RunState.PROMOTED


async def takes_writes(stage: Stage) -> bool:
    standing = await site_standing(stage.source)
    return standing is not None and standing.takes_writes


async def begin_anew(stage: Stage) -> None:
    """As if nothing had been, for the next one."""
    if await is_promoted(stage):
        await resume_link(stage.link, stage.target, "resume-1")
    if not await takes_writes(stage):
        await set_site_role(stage.source, SiteRole.ACTIVE, "a test", await site_standing(stage.source))


@asynccontextmanager
async def two_quiet_sites(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """No worker runs: what is asked about needs none."""
    monkeypatch.setattr("failover.running.taking_up.LEASE_S", 0.0)  # who is dead is not waited for
    monkeypatch.setattr("failover.running.taking_up.UNHEARD_S", 0.0)
    async with two_sites(folder) as stage:
        yield stage


async def test_a_promotion_that_is_heard_amid_an_abort_keeps_the_source_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of its requests: behind its look the source was thawed, and the link promoted."""
    outcomes = set[str]()
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        for at in count(1):
            operation_id = f"operation-{at}"
            await cut_in_its_fence(stage, stage.target, operation_id)
            asleep = Asleep(at, await late_promotion(stage, operation_id))
            with before_a_request(monkeypatch, HEIR, asleep):
                async with machine(HEIR, stage.link) as sites:
                    outcome = await aborted(stage, sites, operation_id)
            if asleep.requests < at:
                break
            outcomes.add(outcome)
            promoted, thawed = await is_promoted(stage), await takes_writes(stage)
            assert promoted is not thawed, (at, outcome)
            state = standing_of(await stage.log(operation_id), now_ms()).state
            assert (state in OPEN_STATES, promoted) == ((outcome == "promoted meanwhile",) * 2), (at, outcome)
            if promoted:  # it is said what can be done, and that can be done
                log = await stage.log(operation_id)
                found = await abort(log, [stage.sites], await plan_abort(log, [stage.sites]), Hooks(), "an heir")
                assert [one.kind for one in found] == [AbortKind.LINK_PROMOTED, AbortKind.SOURCE_REFUSES_WRITES]
            await begin_anew(stage)
    assert outcomes == {"promoted meanwhile", "aborted"}


async def aborted(stage: Stage, sites: list[Any], operation_id: str) -> str:
    try:
        await abort(await stage.log(operation_id), sites, before_the_fence(stage), Hooks(), "an heir")
    except PromotedMeanwhile:
        return "promoted meanwhile"
    return "aborted"


@pytest.mark.parametrize("counted_s", [LEASE_S, 0.0], ids=["suspended", "stopped by its hypervisor"])
async def test_a_machine_that_slept_in_its_fence_promotes_nothing_that_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted_s: float
) -> None:
    """Before each request of its promotion: when it woke, the source took writes, and it promoted the link. Its clock
    may have stood still meanwhile.
    """
    outcomes, refused = set[str](), set[str]()
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        for at in count(1):
            operation_id = f"operation-{at}"
            clock = SleepyClock()
            async with Cluster(stage.link.target, client_id=VICTIM, clock=clock) as target:
                journal = await cut_in_its_fence(stage, target, operation_id)

                async def abort_it(operation_id: str = operation_id, clock: SleepyClock = clock) -> None:
                    clock.slept_s = counted_s
                    async with machine(HEIR, stage.link) as sites:
                        outcomes.add(await aborted(stage, sites, operation_id))

                asleep = Asleep(at, abort_it)
                with before_a_request(monkeypatch, VICTIM, asleep):
                    try:
                        await promote_link(stage.link, target, operation_id, check=journal.renew)
                    except OperationTakenUp as error:
                        refused.add(str(error).replace(operation_id, "it"))
            if asleep.requests < at:
                assert await is_promoted(stage)
                break
            assert await is_promoted(stage) is not await takes_writes(stage), at
            await begin_anew(stage)
    assert outcomes == {"promoted meanwhile", "aborted"}
    assert refused == {str(OperationTakenUp("it"))}


@pytest.mark.parametrize("answered", [False, True])
async def test_an_abort_that_dies_at_any_request_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    """And the promotion that it had not heard of comes when it is dead."""
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        for at in count(1):
            operation_id = f"operation-{at}"
            await cut_in_its_fence(stage, stage.target, operation_id)
            arrive = await late_promotion(stage, operation_id)
            with mortal(monkeypatch, Death(at, answered=answered)) as death:
                try:
                    async with machine(VICTIM, stage.link) as sites:
                        await abort(await stage.log(operation_id), sites, before_the_fence(stage), Hooks(), "an heir")
                except BaseException as error:  # a death is no Exception
                    if not is_death(error):
                        raise
            await arrive()
            assert not (await is_promoted(stage) and await takes_writes(stage)), at
            if not death.is_dead:
                break
            log = await stage.log(operation_id)
            if not log.is_ended:
                async with machine(HEIR, stage.link) as sites:
                    await abort(log, sites, await plan_abort(log, sites), Hooks(), "another heir")
            assert standing_of(await stage.log(operation_id), now_ms()).state is OperationState.ABORTED
            assert await is_promoted(stage) is not await takes_writes(stage), at
            await begin_anew(stage)


async def test_an_abort_that_cannot_fence_the_link_leaves_the_source_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_quiet_sites(tmp_path, monkeypatch) as stage:
        await cut_in_its_fence(stage, stage.target, ID)

        async with machine(HEIR, stage.link) as sites:
            with no_fence(monkeypatch, stage.link.transactional_id), pytest.raises(NotAborted) as told:
                await abort(await stage.log(ID), sites, before_the_fence(stage), Hooks(), "an heir")
            assert "cannot be told, so that east stays as it is: not to be asked" in str(told.value)
            assert f"when west answers, from any machine: `farshore operation abort {ID}`" in told.value.hint
            assert not await takes_writes(stage)
            log = await stage.log(ID)
            assert log.entries[-1].event == Event.CUT_SHORT, "nobody has to wait for it"
            assert await abort(log, sites, await plan_abort(log, sites), Hooks(), "an heir") == before_the_fence(stage)
            assert await takes_writes(stage)


async def test_a_resume_that_is_given_up_lets_nothing_in_that_is_promoted_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused by a gate before its fence, and thawed what the first machine's last request then moved."""
    async with ready(tmp_path) as stage:
        quick(monkeypatch)
        await die_in(stage, monkeypatch, "fence")
        arrive = await late_promotion(stage, ID)

        async def not_drained(*_: object, **__: object) -> None:
            raise NotDrained("a test")

        monkeypatch.setattr("failover.running.link_run.drain", not_drained)
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(GateRefused):
                await resume((await load_operations(stage.target))[ID], sites, Hooks(), "an heir")
        await arrive()
        assert await takes_writes(stage)
        assert not await is_promoted(stage)
