"""What is done about ACLs at a target, and what is not."""

from __future__ import annotations

from collections.abc import Iterable

from broker.client.acl_bindings import Acl
from broker.client.acls import FREEZE_MARK
from mirror.acls.carrying import AclScope, carry
from mirror.acls.plan import AclPlan, AclStep, due_acls, lines_of, plan_acls, plan_promotion
from mirror.acls.record import AclRecord
from tests.mirror.acls.acls import (
    ALL,
    ALTER_CONFIGS,
    DELETE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    allow,
    deny,
    link_of,
    prefixed,
    scope_of,
)

SCOPE = scope_of(link_of("orders"), "orders", others=("wages",))
KNOWN = AclRecord(exists=True)


def planned(
    source: Iterable[Acl],
    target: Iterable[Acl] = (),
    record: AclRecord = KNOWN,
    *,
    promoted: bool = False,
    scope: AclScope = SCOPE,
    brought: Iterable[Acl] = (),
) -> AclPlan:
    carried = carry(scope, [*source, *brought], frozenset(brought))
    return plan_acls(scope, carried, target, record, promoted=promoted)


def test_denials_are_made_first_and_go_last() -> None:
    source = [allow("a", READ, "orders"), deny("b", READ, "orders"), allow("c", READ, "orders")]
    assert planned(source).create == (deny("b", READ, "orders"), *sorted([source[0], source[2]]))
    gone = AclRecord(exists=True, made=frozenset(source))
    assert planned([], source, gone).remove == (*sorted([source[0], source[2]]), deny("b", READ, "orders"))


def test_nothing_is_given_that_a_denial_speaks_of_which_a_link_back_brought_and_the_target_lost() -> None:
    """A target that was rebuilt, and had no word of that, gave what it had once denied."""
    denial, given = deny("app", READ, "orders", host="10.0.0.7"), allow("app", READ, "orders")
    lost = planned([given], brought=[denial])
    assert (lost.create, [one.acl for one in lost.withheld]) == ((), [denial, given])
    assert "--rebuilt" in lost.withheld[0].why
    there = planned([given], [denial], brought=[denial])
    assert (there.create, there.withheld, there.remove) == ((given,), (), ())
    assert planned([given, denial], brought=[]).create == (denial, given)
    other = planned([allow("b", READ, "orders")], brought=[denial, allow("c", READ, "orders")])
    assert (other.create, [one.acl for one in other.withheld]) == ((allow("b", READ, "orders"),), [denial])


def test_writing_waits_until_the_target_took_over() -> None:
    source = [allow("a", READ, "orders"), allow("a", WRITE, "orders")]
    standby = planned(source)
    assert (standby.create, standby.hold) == ((allow("a", READ, "orders"),), (allow("a", WRITE, "orders"),))
    promoted = planned(source, promoted=True)
    assert (set(promoted.create), promoted.hold) == ({*source}, ())


def test_of_a_source_that_is_lost_the_record_says_what_was_held_back() -> None:
    held = frozenset({allow("a", WRITE, "orders"), allow("b", ALL, "orders")})
    plan = plan_promotion("east-west", [allow("b", ALL, "orders")], AclRecord(exists=True, held=held))
    assert (plan.promoted, plan.create, plan.in_place) == (True, (allow("a", WRITE, "orders"),), 1)


def test_a_source_that_came_back_empty_gives_nothing_without_its_denial() -> None:
    """Whoever was cut short had the denial written down as made before it was there."""
    denial, held = deny("app", WRITE, "orders", host="10.0.0.7"), allow("app", WRITE, "orders")
    record = AclRecord(exists=True, made=frozenset({denial}), held=frozenset({denial, held}))
    plan = planned([], record=record, promoted=True, scope=scope_of(link_of("orders")))
    assert (plan.create, plan.settled) == ((denial, held), ())


def test_nor_where_the_source_knows_another_topic_of_that_denial() -> None:
    denial, held = prefixed(deny("app", WRITE, "orders-")), allow("app", WRITE, "orders-1")
    record = AclRecord(exists=True, held=frozenset({denial, held}))
    scope = scope_of(link_of("orders-.*"), "orders-2")
    assert planned([], record=record, promoted=True, scope=scope).create == (denial, held)


def test_of_a_lost_source_denials_that_are_gone_or_a_freezes_own_are_made_before_what_waited() -> None:
    denial, mine, write = deny("a", WRITE, "orders"), deny("b", READ, "orders"), allow("a", WRITE, "orders")
    mark = deny("a", WRITE, "orders")._replace(principal=f"{FREEZE_MARK}freeze-1/User:a")
    record = AclRecord(exists=True, made=frozenset({mine}), held=frozenset({denial, write}))
    plan = plan_promotion("east-west", [denial, mark], record)
    assert (plan.create, plan.settled, plan.in_place) == ((denial, mine, write), (), 0)
    assert plan_promotion("east-west", [denial, mine], record).create == (write,)


def test_what_was_given_at_a_promotion_goes_when_the_target_stands_by_again() -> None:
    write = allow("a", WRITE, "orders")
    plan = planned([write], [write], AclRecord(exists=True, made=frozenset({write})))
    assert (plan.remove, plan.held_again, plan.open_at_target) == ((write,), (write,), ())
    assert [(line.step, line.detail) for line in lines_of(plan)] == [
        (AclStep.REMOVE, "the target stands by again: it waits for the next promotion")
    ]


def test_what_somebody_else_opened_at_the_target_is_told_and_stays() -> None:
    write = allow("a", WRITE, "orders")
    plan = planned([write], [write])
    assert (plan.remove, plan.open_at_target) == ((), (write,))


def test_only_what_the_link_made_is_removed() -> None:
    mine, others = allow("a", READ, "orders"), allow("b", READ, "orders")
    elsewhere = allow("b", READ, "wages")
    plan = planned([], [mine, others, elsewhere], AclRecord(exists=True, made=frozenset({mine})))
    assert (plan.remove, plan.keep, plan.keep_unknown) == ((mine,), (others,), ())


def test_what_the_link_made_goes_also_where_its_topic_went() -> None:
    mine = prefixed(allow("a", READ, "orders-"))
    assert planned([], [mine], AclRecord(exists=True, made=frozenset({mine}))).remove == (mine,)


def test_without_a_record_or_with_a_damaged_one_it_is_not_known_who_made_what() -> None:
    there = allow("a", READ, "orders")
    for record in (AclRecord(), AclRecord(exists=True, made=frozenset({there}), damage="the entry at offset 3")):
        plan = planned([], [there], record)
        assert (plan.remove, plan.keep, plan.keep_unknown) == ((), (), (there,))


def test_nothing_is_removed_where_the_target_took_over() -> None:
    mine = allow("a", READ, "orders")
    plan = planned([], [mine], AclRecord(exists=True, made=frozenset({mine})), promoted=True)
    assert (plan.remove, plan.keep) == ((), (mine,))


def test_a_denial_that_locks_the_mirror_out_is_withheld_with_all_that_it_denies() -> None:
    source = [
        deny("*", READ, "orders", host="10.0.0.7"),
        allow("a", READ, "orders"),
        allow("a", WRITE, "orders"),
        deny("farshore", WRITE, "orders"),
    ]
    plan = planned(source)
    assert (plan.create, plan.hold) == ((), (allow("a", WRITE, "orders"),))
    assert {one.acl for one in plan.withheld} == {source[0], source[1], source[3]}
    assert planned([deny("*", DELETE, "orders")]).create == (deny("*", DELETE, "orders"),)


def test_what_an_operation_gives_besides_is_withheld_with_the_denial_of_it() -> None:
    """Who may alter configs may see them: without its denial the target would give what the source does not."""
    source = [deny("*", DESCRIBE_CONFIGS, "orders"), allow("a", ALTER_CONFIGS, "orders")]
    for promoted in (False, True):
        plan = planned(source, promoted=promoted)
        assert (plan.create, plan.hold) == ((), ())
        assert {one.acl for one in plan.withheld} == {*source}


def test_a_denial_of_everybody_that_is_there_already_is_in_place() -> None:
    denial = deny("*", READ, "orders")
    plan = planned([denial, allow("a", READ, "orders")], [denial])
    assert (plan.create, plan.withheld, plan.in_place) == ((allow("a", READ, "orders"),), (), 1)


def test_only_what_was_shown_before_is_due() -> None:
    source = [allow("a", READ, "orders"), allow("b", READ, "orders")]
    assert due_acls(planned(source).create, {source[1]}) == (source[1],)
