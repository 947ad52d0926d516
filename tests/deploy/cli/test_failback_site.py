"""A site's failback where somebody else was there before it; the rest is in test_failback.py and test_two_pairs.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client.errors import ClusterUnreachable
from deploy.cli import failback_site
from deploy.cli.failback_site import LinkBack, Outcome, _result, _tell_plan, _tell_results, still_away
from deploy.cli.failback_words import rest_of_site, start_at
from deploy.cli.next_steps import NextStep
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode, Output
from failover.errors import OperationUnderWay
from failover.failback.plan import FailbackPlan, FailbackRefusal
from failover.journal.values import OperationLog
from failover.observing.readers import Journals
from failover.planning.moves import GroupTotal
from failover.planning.staying import NONE_AWAY, Away, StayingLink
from mirror.link import Link
from tests.mirror.harness import link_between

LINK = link_between("127.0.0.1:1", "127.0.0.1:2", ["flights"], name="east-west")

CUT_SHORT = OperationLog("failback-1", ())


def planned(*refusals: FailbackRefusal) -> FailbackPlan:
    return FailbackPlan(LINK.name, "west-east", "east", "west", (), refusals, 0, "", ())


async def beside_one_cut_short(
    app: AppContext,
    link: Link,
    folder: Path,
    operation_id: str,
    *,
    alone: bool = True,
    journals: Journals | None = None,
) -> tuple[FailbackPlan, OperationLog | None]:
    """As `look_at`, where the failback of the first link was cut short, and no worker runs its link back by now."""
    if link is LINK:
        return planned(FailbackRefusal.LINK_BACK_SILENT), CUT_SHORT
    if alone:
        raise OperationUnderWay("failback-1 moves east-west; nothing was changed", operation_id=CUT_SHORT.operation_id)
    return replace(planned(), link=link.name), None


def found(name: str, *groups: str, refused: bool = False) -> LinkBack:
    plan = replace(planned(), link=name, groups_back=groups)
    why = CommandRefused("a consumer at east", "stop it", ExitCode.REFUSED) if refused else None
    return LinkBack(replace(LINK, name=name), Path(name), plan, None, why)


FLIGHTS, ORDERS = found("east-west", "analysts", "billing"), found("orders-ew", "billing", "packers")


def test_what_reads_along_a_link_that_is_not_back_yet_is_not_to_start_with_the_others() -> None:
    """Behind the first link all were told to start: billing read at east while west's orders were not there."""
    away = still_away([FLIGHTS, ORDERS], {"east-west"}, FLIGHTS.groups)
    assert away == Away((StayingLink("orders-ew", 2),), ("billing",))
    assert still_away([FLIGHTS, ORDERS], {"east-west", "orders-ew"}, ORDERS.groups) == NONE_AWAY
    assert still_away([FLIGHTS, found("bills", refused=True)], {"east-west"}, FLIGHTS.groups) == Away(
        (StayingLink("bills", None),), ()
    )
    at_home = replace(ORDERS, plan=planned(FailbackRefusal.NOT_PROMOTED))
    assert still_away([FLIGHTS, at_home], {"east-west"}, FLIGHTS.groups) == NONE_AWAY


@pytest.mark.parametrize("outcome", [Outcome.BACK, Outcome.FINDINGS])
def test_the_last_word_leaves_out_what_did_not_come_back(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    start = start_at(LINK.source)
    then = start_at(LINK.source, "west", Away((StayingLink("orders-ew", 2), StayingLink("bills", 0)), ()))
    results = [
        {**_result(FLIGHTS.link, outcome, 0), "next": (then,)},
        _result(ORDERS.link, Outcome.REFUSED, ExitCode.REFUSED, error="billing has consumers at east"),
    ]
    with pytest.raises(SystemExit):
        _tell_results("east", "west", [FLIGHTS, ORDERS], results, Output.JSON)
    told = json.loads(capsys.readouterr().out)
    but = (
        "; but not what reads or writes along orders-ew, groups billing among it: that was at west, and is not back yet"
    )
    assert told["next"][0]["what"] == told["links"][0]["next"][0]["what"] == f"{start.what}{but}"


def test_a_dry_run_says_of_each_link_what_the_question_would(capsys: pytest.CaptureFixture[str]) -> None:
    """It was a table alone: neither steps nor groups, nor that records that were replayed come back twice."""
    assert FLIGHTS.plan is not None
    twice = replace(FLIGHTS, plan=replace(FLIGHTS.plan, left_records=7, left_replayed=3))
    _tell_plan("east", "west", [twice, ORDERS], Output.TABLE)
    told = " ".join(capsys.readouterr().out.split())
    assert "link east-west: failback of east-west: west -> east, along west-east" in told
    assert "3 of these were replayed at west" in told
    assert "come back to east: billing, packers" in told
    _tell_plan("east", "west", [twice], Output.JSON)
    assert json.loads(capsys.readouterr().out)["links"][0]["outcome"] == Outcome.COMES_BACK


def test_a_link_that_somebody_else_brought_back_meanwhile_is_not_told_as_not_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def look(app: AppContext, link: Link, folder: Path, operation_id: str) -> tuple[FailbackPlan, None]:
        return planned(FailbackRefusal.NOT_PROMOTED), None

    monkeypatch.setattr(failback_site, "look_at_one", look)
    seen = LinkBack(LINK, tmp_path, planned(), None, None)
    assert seen.outcome is Outcome.COMES_BACK
    asked = cast(AppContext, None), seen, 1.0, "", NONE_AWAY
    came: dict[str, Any] = failback_site._come_back(*asked, yes=True)
    assert (came["outcome"], came["exit_code"]) == (Outcome.NOT_AWAY, ExitCode.DONE)
    assert "not away any more" in capsys.readouterr().err


@pytest.mark.parametrize(("was", "now"), [(0, 3), (3, 4), (3, None)])
def test_what_is_replayed_between_the_plan_and_the_yes_is_not_consented_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was: int, now: int | None
) -> None:
    """All links of a site came back with records twice of which nobody had read a word; one link by itself asked."""
    shown = replace(planned(), left_records=7, left_replayed=was)

    async def look(app: AppContext, link: Link, folder: Path, operation_id: str) -> tuple[FailbackPlan, None]:
        return replace(shown, left_replayed=now), None

    monkeypatch.setattr(failback_site, "look_at_one", look)
    seen = LinkBack(LINK, tmp_path, shown, None, None)
    came = failback_site._come_back(cast(AppContext, None), seen, 1.0, "", NONE_AWAY, yes=False)
    assert (came["outcome"], came["exit_code"]) == (Outcome.REFUSED, ExitCode.REFUSED)
    assert "the plan of east-west holds no more" in came["error"]


def test_a_group_that_would_read_more_again_than_was_shown_is_not_consented_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = replace(planned(), group_totals=(GroupTotal("a", 0, 0),))

    async def look(app: AppContext, link: Link, folder: Path, operation_id: str) -> tuple[FailbackPlan, None]:
        return replace(shown, group_totals=(GroupTotal("a", 14, 0),)), None

    monkeypatch.setattr(failback_site, "look_at_one", look)
    seen = LinkBack(LINK, tmp_path, shown, None, None)
    came = failback_site._come_back(cast(AppContext, None), seen, 1.0, "", NONE_AWAY, yes=False)
    assert (came["outcome"], came["exit_code"]) == (Outcome.REFUSED, ExitCode.REFUSED)


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

    monkeypatch.setattr(failback_site, "look_at_one", look)
    seen = [LinkBack(link, tmp_path, planned(), None, None) for link in (LINK, next_link)]
    came = failback_site._come_back_in_turn(cast(AppContext, None), seen, 1.0, "", yes=True)
    assert [(one["link"], one["outcome"], one["exit_code"], one["operation_id"]) for one in came] == [
        (LINK.name, Outcome.REFUSED, ExitCode.ERROR, ""),
        (next_link.name, Outcome.NOT_AWAY, ExitCode.DONE, ""),
    ]
    assert came[0]["error"] == "site east does not answer"
    assert "cut short" not in capsys.readouterr().err


async def test_behind_one_that_was_cut_short_and_cannot_go_on_no_other_is_planned_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan had all others come back, and each was refused in its turn; of the first it said that it was refused,
    which is of links of which nothing was changed.
    """
    monkeypatch.setattr(failback_site, "look_at", beside_one_cut_short)
    links = {one.name: one for one in (LINK, replace(LINK, name="orders-ew"))}
    app = cast(AppContext, SimpleNamespace(link=links.__getitem__))
    seen = await failback_site._look_beside(app, dict.fromkeys(links, tmp_path))
    assert [(one.link.name, one.outcome) for one in seen] == [
        (LINK.name, Outcome.CUT_SHORT),
        ("orders-ew", Outcome.REFUSED),
    ]
    refused = seen[1].refused
    assert refused is not None
    assert "failback-1 moves east-west" in refused.message


def test_one_that_was_cut_short_and_fails_before_its_next_step_is_no_refused_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failback_site, "look_at_one", beside_one_cut_short)
    links = [LinkBack(LINK, tmp_path, planned(), CUT_SHORT, None), FLIGHTS]
    came = failback_site._come_back_in_turn(cast(AppContext, None), links, 1.0, "", yes=True)
    assert [one["outcome"] for one in came] == [Outcome.CUT_SHORT, Outcome.NOT_BEGUN]


def test_who_goes_on_with_one_of_a_sites_links_is_told_how_the_others_come() -> None:
    """Its end named none of the others but in a half sentence, and no list has one that was not begun."""
    away = Away((StayingLink("orders-ew", 2), StayingLink("bills", None)), ("billing",))
    text = "orders-ew, bills: at west when this one was begun; what of it is there still comes back with all links"
    assert rest_of_site("east", "west", away) == (NextStep(text, "farshore failback --from east --to west"),)
    assert rest_of_site("east", "west", NONE_AWAY) == ()
