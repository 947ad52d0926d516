"""While a failback has not ended, whoever would move the link or the link back is told who has them, and moves none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.site_role import site_standing
from failover.errors import OperationUnderWay
from failover.failback.operation import refuse_amid_failback
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.standing import OperationState, standing_of, within
from failover.journal.values import Event, JournalEntry
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.steps import Operation
from failover.running.taking_up import begin, resume
from mirror.link import Link
from tests.failover.failback.returning import ID, INNER, die_in_step, expected, go_back, log_of, ready, stands
from tests.failover.failback.stage import Lost
from tests.failover.machines import HEIR, VICTIM, machine
from tests.failover.stage import now_ms


async def move(lost: Lost, link: Link, operation: Operation, name: str = "another") -> object:
    """As another operator's command would, behind its look."""
    asked: dict[str, Any] = {"allow_data_loss": True, "even_if_source_answers": True, "drain_timeout_s": 5.0}
    intent = Intent(operation, (link.name,), link.source.name, link.target.name, **asked)
    async with machine(HEIR, link) as (sites,):
        return await begin([await plan_link(intent, sites, Hooks())], intent, name, "another operator", {})


@asynccontextmanager
async def carrying(lost: Lost, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """A failback is under way, and waits in its step `carry` until it is let go on."""
    goes_on, carries = asyncio.Event(), asyncio.Event()
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: Any) -> list[JournalEntry]:
        told = list(noted)
        entries = await real(self, told)
        if self.operation_id == ID and (Event.STARTED, {"step": "carry"}) in told:
            carries.set()
            await goes_on.wait()
        return entries

    monkeypatch.setattr(OperationJournal, "record_all", record_all)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(go_back(VICTIM, lost, folder))
        await asyncio.wait_for(carries.wait(), 60.0)
        try:
            yield goes_on
        finally:
            goes_on.set()


async def test_who_moves_either_link_meanwhile_is_told_who_has_them_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second operator was told nothing, and both acted."""
    monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 0.1)
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        async with carrying(lost, tmp_path, monkeypatch):
            who = rf"{ID} moves {lost.there.name}: {VICTIM}, heard of 0 s ago, in its step carry"
            with pytest.raises(OperationUnderWay, match=who):
                await go_back(HEIR, lost, tmp_path / "another", "failback-2")
            for link in (lost.there, lost.back):
                for operation in (Operation.SWITCHOVER, Operation.FAILOVER):
                    with pytest.raises(OperationUnderWay, match=who) as told:
                        await move(lost, link, operation)
                    assert told.value.operation_id == ID
                    assert told.value.hint == f"`farshore operation wait {ID}` says how it ends"
            for link, source, target in (
                (lost.there, lost.stage.source, lost.stage.target),
                (lost.back, lost.stage.target, lost.stage.source),
            ):
                with pytest.raises(OperationUnderWay, match=who):
                    await refuse_amid_failback(link, source, target, now_ms())
        assert await stands(lost) == wanted
        for link, source, target in (
            (lost.there, lost.stage.source, lost.stage.target),
            (lost.back, lost.stage.target, lost.stage.source),
        ):
            await refuse_amid_failback(link, source, target, now_ms())


async def test_cut_short_it_keeps_both_links_until_it_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        await die_in_step(lost, tmp_path, monkeypatch, "carry")
        log = await log_of(lost)
        assert standing_of(log, now_ms() + 30_000).state is OperationState.CUT_SHORT
        for link in (lost.there, lost.back):
            with pytest.raises(OperationUnderWay, match=ID):
                await move(lost, link, Operation.SWITCHOVER)


@pytest.mark.parametrize("later_s", [0.0, 0.005, 0.01, 0.02, 0.05])
async def test_of_two_that_begin_at_once_one_comes_back_and_the_other_is_told_who(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)

        async def second() -> object:
            await asyncio.sleep(later_s)
            return await go_back(HEIR, lost, tmp_path / "another", "failback-2")

        names = (ID, "failback-2")
        found = await asyncio.gather(go_back(VICTIM, lost, tmp_path), second(), return_exceptions=True)
        refused = [one for one in found if isinstance(one, BaseException)]
        (won,) = [name for name, one in zip(names, found, strict=True) if not isinstance(one, BaseException)]
        assert len(refused) == 1
        assert isinstance(refused[0], OperationUnderWay), refused
        assert won in f"{refused[0]} {refused[0].hint}"
        assert await stands(lost, won) == wanted


@pytest.mark.parametrize("later_s", [0.0, 0.05, 0.3])
async def test_of_a_failback_and_a_move_along_the_link_back_at_once_no_two_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    """Their journals stand at different sites: each looks at the other's behind its own first entry."""
    async with ready(tmp_path, monkeypatch) as lost:

        async def second() -> object:
            await asyncio.sleep(later_s)
            return await move(lost, lost.back, Operation.SWITCHOVER)

        found = await asyncio.gather(go_back(VICTIM, lost, tmp_path), second(), return_exceptions=True)
        refused = [one for one in found if isinstance(one, BaseException)]
        assert refused
        assert all(isinstance(one, OperationUnderWay) for one in refused), refused
        known = {**await load_operations(lost.stage.source), **await load_operations(lost.stage.target)}
        verified = [name for name, log in known.items() if _state(log) is OperationState.VERIFIED]
        assert verified in ([], ["another"], [INNER, ID])
        standing = [await site_standing(site) for site in (lost.stage.source, lost.stage.target)]
        assert [one is not None and one.takes_writes for one in standing].count(True) == (1 if verified else 2)


def _state(log: Any) -> OperationState:
    return standing_of(log, now_ms()).state


async def test_who_was_fenced_by_one_who_gave_up_then_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other had looked before the first entry was there. Nobody came back: one was fenced, the other refused."""
    fenced: list[object] = []
    real = OperationJournal.record_all

    async def record_all(self: OperationJournal, noted: Any) -> list[JournalEntry]:
        told = list(noted)
        entries = await real(self, told)
        if self.operation_id == ID and (Event.STARTED, {"step": "leave"}) in told and not fenced:
            fenced.append(await claim(lost.stage.target, ("east", "west"), lambda _: None))
        return entries

    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        monkeypatch.setattr(OperationJournal, "record_all", record_all)
        await go_back(VICTIM, lost, tmp_path)
        assert fenced
        assert await stands(lost) == wanted
        assert [entry.event for entry in (await log_of(lost)).entries].count(Event.TAKEN_UP) == 1


@pytest.mark.parametrize("how", ["alone", "with the failback"])
async def test_its_switchover_that_was_cut_short_is_brought_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with ready(tmp_path, monkeypatch) as lost:
        wanted = await expected(lost)
        await die_in_step(lost, tmp_path, monkeypatch, "move_groups")
        if how == "alone":
            inner = (await load_operations(lost.stage.source))[INNER]
            async with machine(HEIR, lost.back) as (sites,):
                with pytest.raises(OperationUnderWay, match=ID):
                    await resume(inner, [sites], Hooks(), "as if it were nobody's step")
                log = (await load_operations(lost.stage.source))[INNER]
                (result,) = await resume(log, [replace(sites, within=within(log))], Hooks(), "an heir")
                assert result.verified, result.differences
                assert not (await log_of(lost)).is_ended, "it is to be gone on with"
        await go_back(HEIR, lost, tmp_path / "another")
        assert await stands(lost) == wanted
        assert _state((await load_operations(lost.stage.source))[INNER]) is OperationState.VERIFIED
