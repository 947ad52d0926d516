"""A site's failback where somebody else was there before it; the rest is in test_failback.py and test_two_pairs.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from broker.client.errors import ClusterUnreachable
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


def test_a_link_of_which_nothing_was_begun_is_refused_and_the_next_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A site that did not answer one look was told as a failback that was cut short, of no operation; nor did any other
    link begin.
    """
    next_link = replace(LINK, name="orders-ew")

    async def look(app: AppContext, link: Link, folder: Path, operation_id: str) -> tuple[FailbackPlan, None]:
        if link is LINK:
            raise ClusterUnreachable("site east does not answer")
        return planned(FailbackRefusal.NOT_PROMOTED), None

    monkeypatch.setattr(failback_site, "look_at", look)
    seen = [LinkBack(link, tmp_path, planned(), None, None) for link in (LINK, next_link)]
    came = failback_site._come_back_in_turn(cast(AppContext, None), seen, 1.0, yes=True)
    assert [(one["link"], one["outcome"], one["exit_code"], one["operation_id"]) for one in came] == [
        (LINK.name, Outcome.REFUSED, ExitCode.ERROR, ""),
        (next_link.name, Outcome.NOT_AWAY, ExitCode.DONE, ""),
    ]
    assert came[0]["error"] == "site east does not answer"
    assert "cut short" not in capsys.readouterr().err
