"""The table of a plan for a site: each link with what becomes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deploy.cli.site_tables import print_plan, print_results, refuse, show_plan
from deploy.cli.terminal import Output
from failover.errors import GateRefused
from failover.observing.contact import SiteFinding
from failover.planning.plan import plan_failover
from failover.planning.site_plan import plan_site
from failover.running.steps import Operation
from tests.deploy.cli.test_told_plans import as_result
from tests.failover.planning.test_plan import source_gone
from tests.failover.planning.test_site_plan import INTENT, LINKS, NAMES, OF_FLIGHTS, OF_ORDERS, moves, planned


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_link_that_a_filter_leaves_out_is_not_asked_for_and_not_refused(
    capsys: pytest.CaptureFixture[str], is_refused: bool
) -> None:
    """Beside one that was refused it was refused, too, in the table."""
    orders = replace(OF_ORDERS, link_state="paused") if is_refused else OF_ORDERS
    intent = replace(INTENT, topics=("orders", "invoices"))
    show_plan(plan_site(intent, planned(OF_FLIGHTS, orders), {}, LINKS, NAMES), to_stderr=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["flights", "not", "asked", "for"] in [row[:4] for row in rows]
    assert ["orders", "refused" if is_refused else "goes"] in [row[:2] for row in rows]


@pytest.mark.parametrize("given", [False, True])
def test_of_a_source_that_is_partly_there_for_one_link_all_that_is_needed_is_said(
    capsys: pytest.CaptureFixture[str], given: bool
) -> None:
    """Two refusals named no link, and an option each; with that of the first both links were refused still, and the
    one text left had the site answer, below the line that it is partly there.
    """
    in_part = replace(OF_FLIGHTS, source_finding=SiteFinding.PARTLY_THERE)
    plans = [
        plan_failover(one, allow_data_loss=True, even_if_source_answers=False, even_if_source_partly_there=given)
        for one in (in_part, OF_ORDERS)
    ]
    plan = plan_site(replace(INTENT, operation=Operation.FAILOVER), moves(*plans), {}, LINKS, NAMES)
    print_plan(plan, Output.TABLE)
    told = " ".join(capsys.readouterr().err.split())
    whole = "orders: the source site east is there in part, and answers all that was asked for this"
    assert [part.partition(" hint: ")[0] for part in told.split("refused: ")[1:]] == [
        *(
            ()
            if given
            else ("flights: the source site east is there in part: it answers, but not everything that was asked",)
        ),
        f"{whole}: nothing of it needs to be lost",
    ]
    assert told.count("hint: ") == told.count("with --even-if-source-answers --even-if-source-partly-there")
    with pytest.raises(GateRefused, match=whole) as refused:
        refuse(plan, Output.TABLE)
    assert "with --even-if-source-answers --even-if-source-partly-there" in str(refused.value.hint)
    assert "`farshore switchover --from east --to west`" in str(refused.value.hint)


def test_a_pause_is_told_of_each_link_whose_source_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """It was told where the first link was paused."""
    gone = [
        replace(source_gone(one), link_state=state) for one, state in ((OF_FLIGHTS, "running"), (OF_ORDERS, "paused"))
    ]
    plans = [plan_failover(one, allow_data_loss=True, even_if_source_answers=False) for one in gone]
    show_plan(plan_site(replace(INTENT, operation=Operation.FAILOVER), moves(*plans), {}, LINKS, NAMES))
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("orders is paused: since then nothing was mirrored") == told.count("is paused") == 1
    results = [
        replace(as_result(one), was_paused=one.snapshot.is_behind_pause, link=one.snapshot.link) for one in plans
    ]
    print_results(INTENT, results, (), (), Output.TABLE)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("orders was paused: since then nothing was mirrored") == told.count("was paused") == 1
    print_results(INTENT, results, (), (), Output.JSON)
    documents = json.loads(capsys.readouterr().out)["links"]
    assert [(one["was_paused"], "was paused" in one["summary"]) for one in documents] == [(False, False), (True, True)]
