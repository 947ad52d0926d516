"""Which topics a move closes and opens, and when the roles of the sites forbid it. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.wire.site_role import SiteRole, SiteStanding
from failover.freezing.choice import Freezing
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.plan import plan_failover, plan_switchover
from failover.running.steps import OperationStep
from tests.failover.losses.test_statements import SNAPSHOT

ACTIVE = SiteStanding()
FLIGHTS = ("flights",)
MOVE = Freezing(ACTIVE, ACTIVE, freezes=True, topics=FLIGHTS, target_topics=("east\\.(?:flights)",))


def standing(role: SiteRole, *topics: str) -> SiteStanding:
    return SiteStanding(role, 3, "somebody", topics)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ACTIVE, False),
        (standing(SiteRole.FROZEN), False),
        (standing(SiteRole.FROZEN, "flights"), False),
        (standing(SiteRole.FROZEN, "flights", "orders"), False),
        (standing(SiteRole.STANDBY, "orders"), False),
        (standing(SiteRole.FROZEN, "orders"), True),
        (SiteStanding(SiteRole.FROZEN, 3, "somebody", ("orders", "hotels"), ("hotels",)), True),
    ],
)
def test_a_switchover_is_refused_where_another_froze_other_topics(source: SiteStanding, expected: bool) -> None:
    plan = plan_switchover(SNAPSHOT, freezing=replace(MOVE, source=source))
    assert (GateRefusal(RefusalReason.FROZEN_FOR_OTHERS, "east", "orders") in plan.refusals) is expected
    lost = plan_failover(
        SNAPSHOT, allow_data_loss=True, even_if_source_answers=True, freezing=replace(MOVE, source=source)
    )
    assert lost.refusals == (), "a failover waits for nobody"


@pytest.mark.parametrize(
    ("target", "by"),
    [
        (ACTIVE, None),
        (standing(SiteRole.STANDBY), None),
        (standing(SiteRole.STANDBY, "flights"), None),
        (standing(SiteRole.STANDBY, "east\\.(?:flights)"), None),
        (standing(SiteRole.STANDBY, "east\\.(?:flights)", "orders"), None),
        (standing(SiteRole.STANDBY, "east.*", "orders"), "east.*"),
        (standing(SiteRole.FROZEN, "east.flights", "east.*"), "east.*, east.flights"),
    ],
)
def test_a_move_is_refused_where_its_topics_would_stay_closed_at_the_target(
    target: SiteStanding, by: str | None
) -> None:
    freezing = replace(MOVE, target=target)
    for plan in (
        plan_switchover(SNAPSHOT, freezing=freezing),
        plan_failover(SNAPSHOT, allow_data_loss=True, even_if_source_answers=True, freezing=freezing),
    ):
        closed = [one for one in plan.refusals if one.reason is RefusalReason.CLOSED_AT_TARGET]
        assert closed == ([] if by is None else [GateRefusal(RefusalReason.CLOSED_AT_TARGET, "west", by)])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (ACTIVE, ACTIVE, True),
        (standing(SiteRole.FROZEN, "flights"), ACTIVE, True),
        (standing(SiteRole.STANDBY, "orders"), ACTIVE, True),
        (standing(SiteRole.STANDBY, "flights"), ACTIVE, False),
        (standing(SiteRole.STANDBY), standing(SiteRole.STANDBY, "orders"), False),
        (standing(SiteRole.STANDBY), standing(SiteRole.STANDBY), True),
        (None, None, False),
    ],
)
def test_roles_are_handed_over_where_one_changes_by_it(
    source: SiteStanding | None, target: SiteStanding | None, expected: bool
) -> None:
    plan = plan_switchover(SNAPSHOT, freezing=replace(MOVE, source=source, target=target))
    assert (OperationStep.HAND_OVER in plan.steps) is expected
