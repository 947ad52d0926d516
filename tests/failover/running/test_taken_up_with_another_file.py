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
from failover.running.taking_up import resume
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import ID, die_in
from tests.failover.stage import GROUP, PARTITIONS, RARE, mirrored, two_sites

OTHER = "billing"


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
