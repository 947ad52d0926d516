"""What keeps clients from writing, in the lines of a plan. Pure."""

from __future__ import annotations

from dataclasses import replace

from broker.wire.site_role import SiteRole, SiteStanding
from deploy.cli.freezing_lines import freezing_lines
from failover.freezing.choice import Freezing
from failover.planning.plan import plan_failover
from tests.failover.planning.test_plan import SNAPSHOT, source_gone


def test_what_stays_closed_at_the_target_is_not_said_to_have_gone_anywhere() -> None:
    """Its links were not moved: their other site is the one that is lost, and nobody could ask it."""
    freezing = Freezing(target=SiteStanding(SiteRole.STANDBY), target_topics=("flights",), target_kept=("orders",))
    plan = plan_failover(source_gone(SNAPSHOT), allow_data_loss=True, even_if_source_answers=False)
    (line,) = freezing_lines(replace(plan, freezing=freezing, refusals=()))
    assert line == "west stays closed to orders, which another site has, or may have"
