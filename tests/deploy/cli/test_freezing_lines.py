"""What keeps clients from writing, in the lines of a plan. Pure."""

from __future__ import annotations

from dataclasses import replace

from broker.wire.site_role import SiteRole, SiteStanding
from deploy.cli.freezing_lines import freezing_lines
from failover.freezing.choice import Freezing
from failover.planning.plan import plan_failover, plan_switchover
from tests.failover.planning.test_plan import SNAPSHOT, source_gone


def test_what_stays_closed_at_the_target_is_not_said_to_have_gone_anywhere() -> None:
    """Its links were not moved: their other site is the one that is lost, and nobody could ask it."""
    freezing = Freezing(target=SiteStanding(SiteRole.STANDBY), target_topics=("flights",), target_kept=("orders",))
    plan = plan_failover(source_gone(SNAPSHOT), allow_data_loss=True, even_if_source_answers=False)
    (line,) = freezing_lines(replace(plan, freezing=freezing, refusals=()))
    assert line == "west stays closed to orders, which another site has, or may have"


def test_what_both_sites_refuse_is_not_said_to_be_anywhere() -> None:
    kept = Freezing(target_kept=("flights", "orders"), closed_at_both=("orders",))
    freezing = replace(kept, target=SiteStanding(SiteRole.STANDBY), target_topics=("cars",))
    plan = plan_failover(source_gone(SNAPSHOT), allow_data_loss=True, even_if_source_answers=False)
    both, kept_line = freezing_lines(replace(plan, freezing=freezing, refusals=()))
    assert both == "west stays closed to orders, and so is east: no client writes there at either"
    assert kept_line == "west stays closed to flights, which another site has, or may have"


def test_a_whole_site_that_is_closed_along_one_link_names_the_others_that_carry_its_topics() -> None:
    """It said that the source alone has what another link mirrors."""
    freezing = Freezing(source=SiteStanding(), target=SiteStanding(), freezes=True, others=("orders", "x"))
    plan = replace(plan_switchover(SNAPSHOT), refusals=())
    *_, alone = freezing_lines(replace(plan, freezing=freezing))
    assert alone == "among them 2 topics that east-west does not carry, and that east alone has: orders, x"
    *_, among, beside = freezing_lines(replace(plan, freezing=replace(freezing, beside=("orders-link",))))
    assert among == "among them 2 topics that east-west does not carry: orders, x"
    said = "other links carry some of them (orders-link): of one that does not go, nobody writes what it carries then"
    assert beside == said
