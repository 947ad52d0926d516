"""The table of a plan for a site: each link with what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.cli.site_tables import show_plan
from failover.planning.site_plan import plan_site
from tests.failover.planning.test_site_plan import INTENT, LINKS, NAMES, OF_FLIGHTS, OF_ORDERS, planned


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
