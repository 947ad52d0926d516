"""An operation that is taken up when what it goes by is not as it was: by the consent it has, and by what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from failover.freezing.hooks import Hooks
from failover.running.taking_up import resume
from mirror.api import resume_link
from tests.failover.machines import HEIR, machine, quick
from tests.failover.running.test_taking_up import ID, die_in, ready
from tests.failover.stage import PARTITIONS, RARE, RECORDS, commit_group
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
