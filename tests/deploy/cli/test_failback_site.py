"""A site's failback where somebody else was there before it; the rest is in test_failback.py and test_two_pairs.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from deploy.cli import failback_site
from deploy.cli.failback_site import LinkBack, Outcome
from deploy.cli.terminal import AppContext, ExitCode
from failover.failback.plan import FailbackPlan, FailbackRefusal
from mirror.link import Link
from tests.mirror.harness import link_between

LINK = link_between("127.0.0.1:1", "127.0.0.1:2", ["flights"], name="east-west")


def planned(*refusals: FailbackRefusal) -> FailbackPlan:
    return FailbackPlan(LINK.name, "west-east", "east", "west", (), refusals, 0, "", ())


def test_a_link_that_somebody_else_brought_back_meanwhile_is_not_told_as_not_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def look(app: AppContext, link: Link, folder: Path, operation_id: str) -> tuple[FailbackPlan, None]:
        return planned(FailbackRefusal.NOT_PROMOTED), None

    monkeypatch.setattr(failback_site, "look_at", look)
    seen = LinkBack(LINK, tmp_path, planned(), None, None)
    assert seen.outcome is Outcome.COMES_BACK
    came: dict[str, Any] = failback_site._come_back(cast(AppContext, None), seen, 1.0, [LINK.name], yes=True)
    assert (came["outcome"], came["exit_code"]) == (Outcome.NOT_AWAY, ExitCode.DONE)
    assert "not away any more" in capsys.readouterr().err
