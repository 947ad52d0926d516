"""The plan of a whole site: which links go, which stay for what, and the sum of what is lost. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.base.documents import to_document
from broker.client.site import Site
from deploy.cli.loss_lines import headline
from deploy.cli.next_steps import for_source_alone
from failover.errors import FailoverError
from failover.losses.statements import Certainty, LossTotal, sum_losses
from failover.observing.sites import Sites
from failover.observing.snapshot import LeftRange, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.plan import OperationPlan, plan_failover, plan_switchover
from failover.planning.site_plan import SitePlan, SourceNames, plan_site
from failover.planning.staying import Stay, StayKind, StayReason, share_groups
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from mirror.link import Link
from tests.failover.planning.test_plan import GROUP, GROUP_AT, MIRRORED, NOW_MS, SNAPSHOT, source_gone

INTENT = Intent(Operation.SWITCHOVER, (), "east", "west", is_site=True)
EAST, WEST, NORTH = Site("east", "e:1"), Site("west", "w:1"), Site("north", "n:1")
FLIGHTS = Link("flights", EAST, WEST, ("flights",), groups=(".*",))
ORDERS = Link("orders", EAST, WEST, ("orders", "invoices"), groups=("bill.*",))
BACK = Link("back", WEST, EAST, (".*",), topic_names="prefixed")
AWAY = Link("away", EAST, NORTH, ("weather",))
LINKS = (FLIGHTS, ORDERS, BACK, AWAY)
NAMES = SourceNames(
    frozenset({"flights", "orders", "invoices", "notes", "west.sales", "__consumer_offsets"}),
    frozenset({"analysts", "billing", "bill-2"}),
)

OF_FLIGHTS = replace(SNAPSHOT, link="flights", partitions=(MIRRORED,))
ORDER = replace(MIRRORED, topic="orders", target_topic="orders")
BILLING = replace(GROUP, group="billing", partitions=(replace(GROUP_AT, topic="orders", target_topic="orders"),))
OF_ORDERS = replace(SNAPSHOT, link="orders", partitions=(ORDER, replace(ORDER, topic="invoices")), groups=(BILLING,))
BESIDE = [
    Stay(StayKind.LINK, "away", StayReason.OTHER_SITES, "east to north"),
    Stay(StayKind.TOPIC, "notes", StayReason.NOT_CARRIED),
]


def moves(*plans: OperationPlan) -> list[LinkMove]:
    links = {link.name: link for link in LINKS}
    return [LinkMove(plan, Sites(links[plan.snapshot.link], None, None, (), lambda: 0)) for plan in plans]  # type: ignore[arg-type]


def planned(*snapshots: Snapshot) -> list[LinkMove]:
    return moves(*map(plan_switchover, snapshots))


def test_all_links_go_and_the_rest_of_the_source_is_said() -> None:
    plan = plan_site(INTENT, planned(OF_FLIGHTS, OF_ORDERS), {}, LINKS, NAMES)
    assert (plan.moving, plan.refused, plan.refusals) == (("flights", "orders"), (), ())
    assert list(plan.stays) == [*BESIDE, Stay(StayKind.GROUP, "bill-2", StayReason.NO_OFFSETS)]
    unknown = plan_site(INTENT, planned(OF_FLIGHTS, OF_ORDERS), {}, LINKS, SourceNames())
    assert {(stay.kind, stay.subject) for stay in unknown.stays if stay.reason is StayReason.NOT_KNOWN} == {
        (StayKind.TOPIC, ""),
        (StayKind.GROUP, ""),
    }


def test_a_share_group_is_named_as_not_known_whatever_links_select_it() -> None:
    """It has read, and the plan had only that it has no committed offset in what goes."""
    names = replace(NAMES, shared=frozenset({"queue", "bill-shared"}))
    for looked_at in (planned(OF_FLIGHTS, OF_ORDERS), planned(replace(OF_FLIGHTS, link_state="paused"))):
        stays = plan_site(INTENT, looked_at, {}, LINKS, names).stays
        assert [stay for stay in stays if stay.subject in names.shared] == list(share_groups(names.shared))


def test_a_group_that_reads_along_a_refused_link_too_goes_in_part() -> None:
    at = replace(GROUP_AT, topic="orders", target_topic="orders")
    both = replace(OF_ORDERS, link_state="paused", groups=(BILLING, replace(GROUP, partitions=(at,))))
    plan = plan_site(INTENT, planned(OF_FLIGHTS, both), {}, LINKS, NAMES)
    assert (plan.moving, plan.refused, plan.refusals) == (("flights",), ("orders",), ())
    assert [stay for stay in plan.stays if stay.detail == "orders"] == [
        Stay(StayKind.GROUP, "analysts", StayReason.IN_PART, "orders"),
        Stay(StayKind.GROUP, "billing", StayReason.LINK_STAYS, "orders"),
    ]
    assert Stay(StayKind.LINK, "orders", StayReason.REFUSED, "link_paused orders") in plan.stays


def test_a_group_that_does_not_answer_at_the_target_stays_by_consent_and_else_its_link_does() -> None:
    silent = replace(OF_ORDERS, groups=(replace(BILLING, unanswered="no coordinator"),))

    def planned_with(*left: str) -> list[LinkMove]:
        return moves(
            *(
                plan_failover(one, allow_data_loss=True, even_if_source_answers=True, left_groups=left)
                for one in (OF_FLIGHTS, silent)
            )
        )

    intent = replace(INTENT, operation=Operation.FAILOVER)
    plan = plan_site(intent, planned_with(), {}, LINKS, NAMES)
    assert (plan.moving, plan.refused, plan.refusals) == (("flights",), ("orders",), ())
    assert Stay(StayKind.LINK, "orders", StayReason.REFUSED, "group_unanswered billing") in plan.stays
    left = planned_with("billing")
    left[0] = moves(plan_failover(OF_FLIGHTS, allow_data_loss=True, even_if_source_answers=True))[0]
    plan = plan_site(replace(intent, left_groups=("billing",)), left, {}, LINKS, NAMES)
    assert plan.moving == ("flights", "orders")
    assert Stay(StayKind.GROUP, "billing", StayReason.LEFT, "orders") in plan.stays


def test_a_link_that_cannot_be_looked_at_stays_and_is_refused() -> None:
    plan = plan_site(INTENT, planned(OF_FLIGHTS), {"orders": FailoverError("damaged")}, LINKS, NAMES)
    assert (plan.moving, plan.refused) == (("flights",), ("orders",))
    assert Stay(StayKind.LINK, "orders", StayReason.NOT_KNOWN, "damaged") in plan.stays


def test_of_a_whole_site_all_links_go_or_none() -> None:
    """The source was closed to what stays as well, for good, and the target opened to it beside its mirror."""
    whole = replace(INTENT, whole_site=True)
    assert plan_site(whole, planned(OF_FLIGHTS, OF_ORDERS), {}, LINKS, NAMES).moving == ("flights", "orders")
    paused = planned(OF_FLIGHTS, replace(OF_ORDERS, link_state="paused"))
    unseen = (planned(OF_FLIGHTS), {"orders": FailoverError("damaged")})
    for plan in (plan_site(whole, paused, {}, LINKS, NAMES), plan_site(whole, *unseen, LINKS, NAMES)):
        assert (plan.moving, plan.refused) == ((), ("orders",))
        assert plan.refusals == (GateRefusal(RefusalReason.WHOLE_SITE_CUT, "orders"),)
    both = planned(*(replace(one, link_state="paused") for one in (OF_FLIGHTS, OF_ORDERS)))
    told = {one.reason for one in plan_site(whole, both, {}, LINKS, NAMES).refusals}
    assert told == {RefusalReason.LINK_PAUSED}, "without --whole-site none would go either"


def test_a_whole_site_is_not_closed_over_a_link_that_a_filter_leaves_out() -> None:
    """It stayed, and its topics were closed at the source with the rest."""
    for only in ({"topics": ("flights",)}, {"groups": ("analysts",)}):
        whole = replace(INTENT, whole_site=True, **only)  # type: ignore[arg-type]
        gone = replace(OF_ORDERS, groups=(), asked_groups=())
        plan = plan_site(whole, planned(OF_FLIGHTS, gone), {}, LINKS, NAMES)
        assert plan.refusals == (GateRefusal(RefusalReason.WHOLE_SITE_CUT, "orders"),), only
        assert plan.moving == ()
        before = planned(OF_FLIGHTS, replace(gone, link_state="promoted", operation_id="earlier"))
        assert plan_site(whole, before, {}, LINKS, NAMES).moving == ("flights",), "it was moved before"


def test_no_loss_of_a_site_is_exact_without_a_link_that_could_not_be_asked() -> None:
    """It said `0 records`, exactly, beside a link of which nothing is known."""
    intent = replace(INTENT, operation=Operation.FAILOVER)
    going = moves(plan_failover(OF_FLIGHTS, allow_data_loss=True, even_if_source_answers=True))
    whole = plan_site(intent, going, {}, LINKS, NAMES).loss
    plan = plan_site(intent, going, {"orders": FailoverError("damaged")}, LINKS, NAMES)
    assert plan.moving == ("flights",)
    assert (whole.certainty, plan.loss.certainty) == (Certainty.EXACT, Certainty.AT_LEAST)
    assert (plan.loss.offsets, plan.loss.records, plan.loss.unasked_links) == (whole.offsets, None, 1)
    said = headline(plan.loss, "east")
    assert said == "lost: how much cannot be known; of 1 link nothing could be asked"


def test_what_says_no_to_the_site_says_no_to_every_link() -> None:
    told = [
        plan_failover(one, allow_data_loss=True, even_if_source_answers=False)
        for one in (OF_FLIGHTS, source_gone(OF_ORDERS))
    ]
    plan = plan_site(replace(INTENT, operation=Operation.FAILOVER), moves(*told), {}, LINKS, NAMES)
    assert (plan.moving, plan.refusals) == ((), (GateRefusal(RefusalReason.SOURCE_ANSWERS, "east"),))


def test_a_topic_filter_that_cuts_through_a_link_is_refused_with_the_topics_that_it_leaves() -> None:
    asked = replace(INTENT, topics=("flights", "ord.*"))
    plan = plan_site(asked, planned(OF_FLIGHTS, OF_ORDERS), {}, LINKS, NAMES)
    assert (plan.moving, plan.refusals) == ((), (GateRefusal(RefusalReason.TOPICS_CUT, "orders (invoices)"),))
    whole = plan_site(replace(asked, topics=("ord.*", "invoices")), planned(OF_FLIGHTS, OF_ORDERS), {}, LINKS, NAMES)
    assert (whole.moving, whole.refusals) == (("orders",), ())


def test_a_group_that_is_missing_everywhere_refuses_and_one_that_a_link_knows_does_not() -> None:
    of_flights = replace(OF_FLIGHTS, asked_groups=("billing",), groups=())
    of_orders = replace(OF_ORDERS, asked_groups=("billing",))
    asked = replace(INTENT, groups=("billing",))
    plan = plan_site(asked, planned(of_flights, of_orders), {}, LINKS, NAMES)
    assert (plan.moving, plan.refusals) == (("orders",), ())
    assert Stay(StayKind.GROUP, "analysts", StayReason.NOT_NAMED) in plan.stays
    nobody = planned(*(replace(one, asked_groups=("nope",), groups=()) for one in (OF_FLIGHTS, OF_ORDERS)))
    plan = plan_site(replace(asked, groups=("nope",)), nobody, {}, LINKS, NAMES)
    assert (plan.moving, plan.refusals) == ((), (GateRefusal(RefusalReason.GROUP_NOT_FOUND, "nope"),))


def test_of_a_second_wave_that_is_refused_no_group_that_has_offsets_is_said_to_have_none() -> None:
    """The first wave's, named again, was told beside the one that reads nothing which is mirrored."""
    asked = ("analysts", "bill-2")
    moved = replace(OF_FLIGHTS, link_state="promoted", operation_id="one", asked_groups=asked)
    others = replace(OF_ORDERS, groups=(), asked_groups=asked)
    plan = plan_site(replace(INTENT, groups=asked), planned(moved, others), {}, LINKS, NAMES)
    assert plan.refusals == (GateRefusal(RefusalReason.GROUP_NOT_FOUND, "bill-2"),)
    assert [stay for stay in plan.stays if stay.kind is StayKind.GROUP and stay.subject in asked] == [
        Stay(StayKind.GROUP, "analysts", StayReason.LINK_STAYS, "flights"),
        Stay(StayKind.GROUP, "bill-2", StayReason.NO_OFFSETS),
    ]


def test_a_partition_that_is_missing_everywhere_refuses_and_one_that_a_link_has_does_not() -> None:
    def planned_with(*names: str) -> SitePlan:
        told = [
            plan_failover(one, allow_data_loss=True, even_if_source_answers=True, left_partitions=names)
            for one in (OF_FLIGHTS, OF_ORDERS)
        ]
        return plan_site(replace(INTENT, operation=Operation.FAILOVER), moves(*told), {}, LINKS, NAMES)

    plan = planned_with("flights:0")
    assert (plan.moving, plan.refusals) == (("flights", "orders"), ())
    plan = planned_with("flights:9")
    assert (plan.moving, plan.refusals) == ((), (GateRefusal(RefusalReason.PARTITION_NOT_FOUND, "flights:9"),))


def test_links_that_were_moved_before_are_no_refusal_unless_no_other_is_left() -> None:
    moved = replace(OF_FLIGHTS, link_state="promoted", operation_id="earlier")
    plan = plan_site(INTENT, planned(moved, OF_ORDERS), {}, LINKS, NAMES)
    assert (plan.moving, plan.refused, plan.refusals) == (("orders",), (), ())
    assert Stay(StayKind.LINK, "flights", StayReason.ALREADY_MOVED, "earlier") in plan.stays
    assert all(stay.reason is not StayReason.SOURCE_ALONE for stay in plan.stays)
    alone = plan_site(INTENT, planned(moved), {}, LINKS, NAMES)
    assert alone.refusals == (GateRefusal(RefusalReason.LINK_NOT_RUNNING, "flights", "earlier"),)


def test_what_came_to_the_source_of_a_link_that_was_moved_before_is_said_to_be_there_alone() -> None:
    """Its 25 records stood in a table of the plan; the end said `only at the source: 0 records`, of what went."""
    behind = replace(MIRRORED, mirrored_source_next=75)
    moved = replace(OF_FLIGHTS, partitions=(behind,), link_state="promoted", operation_id="earlier")
    told = moves(plan_switchover(moved))
    losses = tuple(replace(loss, records=25) for loss in told[0].plan.losses)
    read = [replace(told[0], plan=replace(told[0].plan, losses=losses))]
    for found, said in ((told, "up to 25 offsets"), (read, "25 of them")):
        plan = plan_site(INTENT, [*found, *planned(OF_ORDERS)], {}, LINKS, NAMES)
        assert Stay(StayKind.LINK, "flights", StayReason.SOURCE_ALONE, said) in plan.stays
        (step,) = for_source_alone(to_document(plan.stays), "east")
        assert step.command == "farshore stranded list --link flights"
    decided = replace(moved, left_at_source=(LeftRange("flights", 0, 75, 100, None, NOW_MS, ""),))
    plan = plan_site(INTENT, planned(decided, OF_ORDERS), {}, LINKS, NAMES)
    assert all(stay.reason is not StayReason.SOURCE_ALONE for stay in plan.stays)


def test_a_link_whose_clients_went_back_since_it_was_moved_is_refused_with_the_groups_that_stay() -> None:
    moved = replace(OF_FLIGHTS, link_state="promoted", operation_id="earlier", moved_back_by=("back",))
    plan = plan_site(INTENT, planned(moved, OF_ORDERS), {}, LINKS, NAMES)
    assert (plan.moving, plan.refused, plan.refusals) == (("orders",), ("flights",), ())
    assert Stay(StayKind.LINK, "flights", StayReason.REFUSED, "moved_back flights") in plan.stays
    reasons = {stay.reason for stay in plan.stays if (stay.kind, stay.detail) == (StayKind.GROUP, "flights")}
    assert reasons
    assert reasons <= {StayReason.IN_PART, StayReason.LINK_STAYS}
    alone = plan_site(INTENT, planned(moved), {}, LINKS, NAMES)
    assert alone.refusals == (GateRefusal(RefusalReason.MOVED_BACK, "flights", "back"),)


def test_a_group_that_the_drain_waits_for_is_not_said_to_stay() -> None:
    """It was told as that, and a line below as `not moved: it has no committed offset in a topic that goes`."""
    pending = replace(BILLING, group="bill-2", partitions=(), is_pending=True)
    waits = replace(OF_ORDERS, groups=(BILLING, pending))
    plan = plan_site(INTENT, planned(OF_FLIGHTS, waits), {}, LINKS, NAMES)
    assert (plan.moving, list(plan.stays)) == (("flights", "orders"), BESIDE)
    told = [plan_failover(one, allow_data_loss=True, even_if_source_answers=True) for one in (OF_FLIGHTS, waits)]
    lost = plan_site(replace(INTENT, operation=Operation.FAILOVER), moves(*told), {}, LINKS, NAMES)
    assert Stay(StayKind.GROUP, "bill-2", StayReason.NO_OFFSETS) in lost.stays, "a failover waits for nothing"


def test_where_every_link_is_refused_the_loss_is_that_of_all_that_were_asked_for() -> None:
    """It was the sum of no link at all, and `0 records` for sure."""
    silent = [
        replace(one, groups=tuple(replace(group, unanswered="no coordinator") for group in one.groups))
        for one in (source_gone(OF_FLIGHTS), source_gone(OF_ORDERS))
    ]
    told = [plan_failover(one, allow_data_loss=True, even_if_source_answers=True) for one in silent]
    intent = replace(INTENT, operation=Operation.FAILOVER)
    plan = plan_site(intent, moves(*told), {}, LINKS, NAMES)
    assert (plan.moving, plan.refused) == ((), ("flights", "orders"))
    assert plan.loss == sum_losses([one.loss for one in told])
    assert plan.loss.certainty is not Certainty.EXACT
    unseen = plan_site(intent, [], {"flights": FailoverError("damaged")}, LINKS, NAMES)
    assert unseen.loss.is_nothing_known


def test_the_loss_of_a_site_is_the_sum_and_never_surer_than_its_parts() -> None:
    exact = LossTotal(5, 4, 1, Certainty.EXACT, stated_at_ms=NOW_MS)
    first = LossTotal(10, None, 2, Certainty.AT_LEAST, NOW_MS - 9, 1, NOW_MS, 30, 2.0, NOW_MS - 3, 100.0)
    other = replace(first, seen_at_ms=NOW_MS - 4, likely_offsets=11, seen_seconds=1.0, unanswered_at_ms=NOW_MS - 2)
    assert sum_losses([exact, exact]) == LossTotal(10, 8, 2, Certainty.EXACT, stated_at_ms=NOW_MS)
    assert sum_losses([exact, first, other]) == LossTotal(
        25, None, 5, Certainty.AT_LEAST, NOW_MS - 9, 2, NOW_MS, 46, 2.0, NOW_MS - 3, 200.0
    )


@pytest.mark.parametrize("field", ["seen_at_ms", "likely_offsets", "unanswered_at_ms", "fastest_per_s"])
def test_what_is_not_known_of_one_link_is_not_known_of_the_site(field: str) -> None:
    known = LossTotal(10, None, 2, Certainty.AT_LEAST, NOW_MS - 9, 1, NOW_MS, 30, 2.0, NOW_MS - 3, 100.0)
    unknown = replace(known, **{field: None})  # type: ignore[arg-type]
    assert getattr(sum_losses([known, unknown]), field) is None


def test_what_the_links_say_of_groups_is_said_where_the_site_does_not() -> None:
    """A group that one link selects, and another one along which it also reads does not, stays there."""
    of_flights = planned(replace(OF_FLIGHTS, groups=(replace(GROUP, other_topics=("notes", "orders")),)))[0]
    stays = (
        Stay(StayKind.GROUP, "temp", StayReason.GROUP_NOT_SELECTED, "flights"),
        Stay(StayKind.GROUP, "billing", StayReason.GROUP_NOT_SELECTED, "flights"),
        Stay(StayKind.GROUP, "analysts", StayReason.OTHER_TOPICS, "notes, orders"),
    )
    link = replace(FLIGHTS, groups=("analysts",))
    told = LinkMove(replace(of_flights.plan, stays=stays), replace(of_flights.sites, link=link))
    names = replace(NAMES, groups=frozenset({"analysts", "billing", "temp"}))
    plan = plan_site(INTENT, [told, *planned(OF_ORDERS)], {}, (link, *LINKS[1:]), names)
    assert list(plan.stays) == [
        *BESIDE,
        Stay(StayKind.GROUP, "temp", StayReason.NOT_CARRIED),
        stays[1],
        Stay(StayKind.GROUP, "analysts", StayReason.OTHER_TOPICS, "notes"),
    ]
