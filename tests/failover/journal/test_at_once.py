"""Two operators begin the same at once: one of them moves, the other is told who does, and nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from failover.errors import OperationUnderWay, Overtaken
from failover.freezing.hooks import Hooks
from failover.journal.log import OperationJournal, claim, load_operations
from failover.journal.standing import OperationState, standing_of
from failover.journal.values import Event, JournalEntry
from failover.planning.intent import Intent
from failover.planning.links import plan_link
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from failover.running.taking_up import begin
from tests.failover.machines import HEIR, VICTIM, machine, quick
from tests.failover.stage import Stage, mirrored, now_ms, two_sites
from tests.mirror.harness import accept_all

INTENT = Intent(Operation.FAILOVER, ("east-west",), "east", "west", allow_data_loss=True, even_if_source_answers=True)
LATER_S = (0.0, 0.0, 0.003, 0.006, 0.01, 0.015, 0.02, 0.03, 0.05)
"""The second one than the first, so that it comes in the midst of its look, its claim, or its first entries."""


async def state_of(stage: Stage, operation_id: str) -> OperationState:
    return standing_of(await stage.log(operation_id), now_ms()).state


async def test_one_of_them_moves_and_the_other_is_told_who(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was overtaken before its first entry was told of an operation that nobody knew."""
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage, mirrored(stage):
        for turn, later_s in enumerate(LATER_S):
            async with machine(VICTIM, stage.link) as one, machine(HEIR, stage.link) as other:
                plans = [await plan_link(INTENT, sites[0], Hooks()) for sites in (one, other)]
                names = [f"move-{turn}-{number}" for number in range(len(plans))]

                async def begin_at(
                    number: int, after_s: float, plans: list[LinkMove] = plans, names: list[str] = names
                ) -> object:
                    await asyncio.sleep(after_s)
                    return await begin([plans[number]], INTENT, names[number], names[number], {})

                found = await asyncio.gather(begin_at(0, 0.0), begin_at(1, later_s), return_exceptions=True)
            moved = [name for name, result in zip(names, found, strict=True) if not isinstance(result, BaseException)]
            refused = [result for result in found if isinstance(result, BaseException)]
            assert (len(moved), len(refused)) == (1, 1), found
            assert isinstance(refused[0], OperationUnderWay), refused
            # On a busy machine the other one's first entry may come late: then nothing says yet who it is.
            assert isinstance(refused[0], Overtaken) or moved[0] in f"{refused[0]} {refused[0].hint}"
            known = await load_operations(stage.target)
            for name in set(names) & known.keys() - set(moved):  # it came when the other one had ended
                assert known[name].entries[0].at_ms >= known[moved[0]].entries[-1].at_ms
                assert await state_of(stage, name) is OperationState.GIVEN_UP
            assert moved[0] in known
            assert await state_of(stage, moved[0]) is OperationState.VERIFIED
            await accept_all(stage.link, stage.target, f"resume-{turn}")


@pytest.mark.parametrize(("step", "times"), [("fence", 1), ("move_groups", 1), ("verify", 1), ("move_groups", 2)])
async def test_who_is_fenced_amid_a_step_by_one_who_gives_up_then_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    """The other had looked before the first entry was there, or before this machine, which had taken it up and then
    stood still, was heard again. Nobody moved: one was fenced, the other one refused.
    """
    quick(monkeypatch)
    real = OperationJournal.record_all
    fenced: list[object] = []
    async with two_sites(tmp_path) as stage, mirrored(stage):

        async def record_all(self: OperationJournal, noted: list[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
            entries = await real(self, noted)
            begun = {str(detail["step"]) for event, detail in noted if event == Event.STARTED}
            if step in begun and len(fenced) < times:
                fenced.append(await claim(stage.target, ("east", "west"), lambda _: None))
            return entries

        monkeypatch.setattr(OperationJournal, "record_all", record_all)
        async with machine(VICTIM, stage.link) as sites:
            move = await plan_link(INTENT, sites[0], Hooks())
            (result,) = await begin([move], INTENT, "move", "ann", {})
        assert result.verified, result.differences
        assert len(fenced) == times
        assert await state_of(stage, "move") is OperationState.VERIFIED
        assert [entry.event for entry in (await stage.log("move")).entries].count(Event.TAKEN_UP) == times
