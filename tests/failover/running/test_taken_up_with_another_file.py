"""An operation that is taken up on a machine whose file declares the link otherwise than the one that began it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.groups import commit_offsets, committed_offsets
from broker.client.model import CommittedOffset
from failover.errors import OtherFile
from failover.freezing.hooks import Hooks
from failover.journal.standing import OperationState, standing_of
from failover.running.taking_up import resume
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import ID, die_in, ready
from tests.failover.stage import GROUP, PARTITIONS, RARE, mirrored, now_ms, two_sites

OTHER = "billing"
ALL_HOOKS = Hooks(freeze=("true",), thaw=("true",), before=("true",), after=("true",))


@pytest.mark.parametrize("step", ["drain", "fence", "move_groups"])
async def test_the_groups_that_were_consented_to_are_not_left_out_by_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The plan that somebody said yes to moves two groups; the file of who goes on with it selects one of them."""
    quick(monkeypatch)
    async with two_sites(tmp_path) as stage, mirrored(stage, RARE):
        await commit_offsets(stage.source, OTHER, {PARTITIONS[0]: CommittedOffset(40)})
        await die_in(stage, monkeypatch, step)
        planned = _groups((await stage.log(ID)).entries[0].detail["plans"][0]["moves"])
        assert planned == {GROUP, OTHER}
        narrower = replace(stage.link, groups=(GROUP,))
        async with machine(HEIR, narrower) as sites:
            with pytest.raises(OtherFile, match=r"groups = .*, here \["):
                await resume(await stage.log(ID), sites, Hooks(), "an heir")
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert {move.group for move in result.moves} == {GROUP, OTHER}
        assert result.verified
        assert await committed_offsets(stage.target, OTHER)


def _groups(moves: list[dict[str, Any]]) -> set[str]:
    return {move["group"] for move in moves}


@pytest.mark.parametrize(
    ("step", "lacking"),
    [
        ("before_hook", "before"),
        ("before_hook", "freeze"),
        ("freeze", "freeze"),
        ("freeze", "after"),
        ("drain", "after"),
    ],
)
async def test_before_the_fence_no_hook_that_was_consented_to_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, lacking: str
) -> None:
    """It ended as verified, and the program that says no, or turns the clients, never ran."""
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, step, hooks=ALL_HOOKS)
        async with machine(HEIR, stage.link) as sites:
            with pytest.raises(OtherFile, match=f'{lacking}_hook = "a program", here "none"; nothing more was') as told:
                await resume(await stage.log(ID), sites, replace(ALL_HOOKS, **{lacking: ()}), "an heir")
            assert f"operation abort {ID}" in told.value.hint
            (result,) = await resume(await stage.log(ID), sites, ALL_HOOKS, "an heir")
        assert (result.verified, result.hook_error) == (True, "")


async def test_what_ran_before_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, "drain", hooks=ALL_HOOKS)
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(after=("true",)), "an heir")
        assert (result.verified, result.hook_error) == (True, "")


@pytest.mark.parametrize("step", ["fence", "move_groups", "after_hook"])
async def test_behind_the_fence_the_move_ends_and_says_that_the_after_hook_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    quick(monkeypatch)
    async with ready(tmp_path) as stage:
        await die_in(stage, monkeypatch, step, hooks=ALL_HOOKS)
        async with machine(HEIR, stage.link) as sites:
            (result,) = await resume(await stage.log(ID), sites, Hooks(), "an heir")
        assert (result.verified, result.has_findings) == (True, True)
        assert result.hook_error == "the after_hook was not run: this machine's file has none"
        assert standing_of(await stage.log(ID), now_ms()).state is OperationState.FINDINGS
