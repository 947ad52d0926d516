"""Failbacks as a machine of this name carries them out, from its look to the end, and what stands then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.base.documents import to_document
from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from broker.client.site_role import site_standing
from failover.failback.looking import groups_to_come, look_back
from failover.failback.operation import Beginning, come_back, first_entry, open_failback, open_switchover
from failover.failback.way_back import CameBack, Hands, SwitchoverEnd, WayBack
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, load_operations
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry, OperationLog
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.steps import Operation
from failover.running.taking_up import begin, resume
from mirror.offsets.state import read_entries
from tests.failover.failback.stage import Lost, lost_and_back
from tests.failover.machines import VICTIM, Death, PlanRefused, is_death, machine, mortal, quick
from tests.failover.stage import GROUP, PARTITIONS, RECORDS, now_ms
from tests.mirror.harness import contents, eventually, read_all, running, wait_for_records

ID = "failback-1"
INNER = "switchover-of-failback-1"


@asynccontextmanager
async def ready(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lost]:
    """East is back with a tail, and its group stood further there than where it reads at west; the link back runs, and
    has brought all: before that a move along it may be refused for where its group turns out to be.
    """
    quick(monkeypatch)
    tails, news = (7, 2), (9, 4)
    async with lost_and_back(folder, 3, tails, news) as lost:
        await commit_offsets(lost.stage.source, GROUP, {PARTITIONS[0]: CommittedOffset(53)})
        await commit_offsets(lost.stage.target, GROUP, {PARTITIONS[0]: CommittedOffset(40)})
        async with running(lost.back):
            await eventually(lambda: is_run(lost), "the worker of the link back")
            for at, tail, new in zip(PARTITIONS, tails, news, strict=True):
                await wait_for_records(lost.stage.source, at, RECORDS + tail + new)
            yield lost


async def is_run(lost: Lost) -> bool:
    owner = (await read_entries(lost.back, lost.stage.source)).owner
    return owner is not None and owner.is_worker


async def go_back(
    who: str,
    lost: Lost,
    folder: Path,
    operation_id: str = ID,
    meanwhile: Callable[[], Awaitable[object]] | None = None,
) -> CameBack:
    """As the command does it; one that was cut short is taken up. `meanwhile`: between its look and its beginning."""
    async with machine(who, lost.there) as (sites,):
        assert sites.source is not None
        log = await open_failback(sites)
        ends, own_id = (sites.source, sites.target), log.operation_id if log is not None else ""
        plan = await look_back(lost.there, (lost.there, lost.back), ends, str(folder / "saved"), own_id)
        assert plan.refusals == ()
        if meanwhile is not None:
            await meanwhile()
        intent = Intent(Operation.FAILBACK, (lost.there.name,), lost.there.source.name, lost.there.target.name)
        detail = first_entry(intent.document(), who, lost.back.name, to_document(plan))
        way = WayBack(lost.there, lost.back, ends, plan, Hands(partial(switch_over, who, lost), 20.0))
        await come_back(sites, lost.back, way, Beginning(own_id or operation_id, who, detail, log))
        return way.came_back


async def switch_over(who: str, lost: Lost, journal: OperationJournal) -> SwitchoverEnd:
    """Along the link back."""
    async with machine(who, lost.back) as (sites,):
        assert sites.source is not None
        sites = replace(sites, within=journal.operation_id)
        log = open_switchover(lost.back, await load_operations(sites.target), now_ms())
        if log is not None:
            (result,) = await resume(log, [sites], Hooks(), who)
            assert result.verified, result.differences
        seen = await sites.look()
        groups = await groups_to_come(lost.there, lost.back, seen, (sites.target, lost.stage.target))
        if log is not None and not groups.coming:
            return SwitchoverEnd.VERIFIED
        intent = Intent(
            Operation.SWITCHOVER,
            (lost.back.name,),
            lost.back.source.name,
            lost.back.target.name,
            groups=groups.named,
            no_groups=groups.is_none,
        )
        move = await plan_link(intent, sites, Hooks())
        if move.plan.refusals:
            raise PlanRefused(move.plan.refusals)
        said = {"within": journal.operation_id}
        (result,) = await begin([move], intent, INNER, who, said, still_wanted=journal.renew)
        assert result.verified, result.differences
        return SwitchoverEnd.VERIFIED


@dataclass(frozen=True)
class Stands:
    """What stands when all is over, by content."""

    link: str
    link_back: str
    at_east: list[list[tuple[object, ...]]]
    at_west: list[list[tuple[object, ...]]]
    next_records: list[tuple[object, ...]]
    roles: list[str]
    state: OperationState


async def stands(lost: Lost, operation_id: str = ID) -> Stands:
    east, west = lost.stage.source, lost.stage.target
    there, back = await read_entries(lost.there, west), await read_entries(lost.back, east)
    assert there.run is not None
    assert back.run is not None
    return Stands(
        there.run.state.value,
        back.run.state.value,
        [contents(await read_all(east, at)) for at in PARTITIONS],
        [contents(await read_all(west, at)) for at in PARTITIONS],
        [await lost.stage.next_record(east, at) for at in PARTITIONS],
        [found.role.value for site in (east, west) if (found := await site_standing(site))],
        standing_of(await lost.stage.log(operation_id), now_ms()).state,
    )


async def expected(lost: Lost) -> Stands:
    """From what stands before: each group reads next what it would have read at west."""
    west = lost.stage.target
    at_west = [contents(await read_all(west, at)) for at in PARTITIONS]
    tails = [await lost.only_at_source(at) for at in PARTITIONS]
    return Stands(
        "running",
        "promoted",
        [[*there[:RECORDS], *tail, *there[RECORDS:]] for there, tail in zip(at_west, tails, strict=True)],
        at_west,
        [await lost.stage.next_record(west, at) for at in PARTITIONS],
        ["active", "standby"],
        OperationState.VERIFIED,
    )


async def at_death(lost: Lost, folder: Path) -> None:
    """Come back on the mortal machine, and return when that is dead."""
    try:
        await go_back(VICTIM, lost, folder)
    except BaseException as error:  # a death is no Exception, so that nothing in between handles it
        if not is_death(error):
            raise


async def die_in_step(
    lost: Lost, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: Event = Event.STARTED, saying: str = ""
) -> None:
    """The machine dies when it has said that it begins the step (`saying` this), or would say that it has done it."""
    death = Death()
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: Any) -> list[JournalEntry]:
        told: list[tuple[str, Mapping[str, Any]]] = list(noted)
        is_now = any(
            event == when and detail["step"] == step and (not saying or saying in detail) for event, detail in told
        )
        if is_now and when == Event.DONE:
            death.at = death.requests + 1
        entries = await real(self, told)
        if is_now:
            death.at = death.requests + 1
        return entries

    with mortal(monkeypatch, death), monkeypatch.context() as patched:
        patched.setattr(OperationJournal, "record_all", record_all)
        await at_death(lost, folder)
    assert death.is_dead


async def log_of(lost: Lost, operation_id: str = ID) -> OperationLog:
    return await lost.stage.log(operation_id)


async def group_at_east(lost: Lost) -> int:
    return (await committed_offsets(lost.stage.source, GROUP))[PARTITIONS[0]].offset
