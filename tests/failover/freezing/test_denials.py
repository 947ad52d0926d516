"""Which ACLs a freeze made, told from those that were there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from broker.client.acls import KnownDenials, WriteDenial
from broker.client.errors import RequestTimedOut
from broker.client.site import Site
from deploy.cli.site_rows import row_by_denials
from failover.freezing.choice import Freezing
from failover.freezing.denials import Denials, SiteDenials, is_named, leaving_mark_of, mark_of, read_denials

SHOP = WriteDenial("flights", "User:shop")
ALL = WriteDenial("flights", "User:*")
DN = WriteDenial("flights", "User:CN=a/b,OU=x:y")


def denied(*brokers: Collection[WriteDenial]) -> Denials:
    """As each of these brokers, from 1, has it."""
    return read_denials(KnownDenials({node: frozenset(found) for node, found in enumerate(brokers, 1)}))


def test_only_what_has_a_mark_is_a_freezes() -> None:
    found = denied({SHOP, ALL, mark_of(ALL, "switchover-1"), DN, mark_of(DN, "switchover-2")})
    assert found.there == {SHOP, ALL, DN}, "a mark is no denial"
    assert found.marks == {ALL: {"switchover-1"}, DN: {"switchover-2"}}
    assert [set(found.of(one)) for one in ("switchover-1", "switchover-2", "switchover")] == [{ALL}, {DN}, set()]
    assert found.topics == ("flights",)


def test_one_mark_without_its_denial_and_two_of_several_operations() -> None:
    """Cut short between the two; and two links of one topic to two sites."""
    found = denied({mark_of(ALL, "a"), mark_of(ALL, "b")})
    assert found.there == frozenset()
    assert found.marks == {ALL: {"a", "b"}}
    assert found.to_hold(["flights"], ["User:*"]) == {ALL}
    assert denied({ALL}).to_hold(["flights"], ["User:*", "User:shop"]) == {SHOP}


def test_whose_topics_are_meant() -> None:
    assert is_named("flights", ())
    assert not is_named("__consumer_offsets", ())
    assert not is_named("__consumer_offsets", (".*",))
    assert (is_named("flights-2", ("flights",)), is_named("flights-2", ("flights.*",))) == (False, True)
    denials = SiteDenials(("User:*",), ("flights",))
    assert (denials.marks(()), denials.marks(("flights",)), denials.marks(("orders",))) == (True, True, False)


def test_what_another_operation_made_is_held_by_both_and_what_nobody_marked_by_none() -> None:
    found = denied({SHOP, ALL, mark_of(ALL, "a"), mark_of(DN, "b")})
    assert found.to_hold(["flights"], ["User:*", "User:shop", DN.principal]) == {ALL, DN}
    assert found.to_hold(["orders"], ["User:*"]) == {WriteDenial("orders", "User:*")}


def test_who_says_that_it_goes_holds_no_denial_any_more_and_is_known_as_long_as_something_of_it_is_there() -> None:
    marks = {mark_of(ALL, "a"), mark_of(ALL, "b")}
    one, all_of_them = denied({ALL, *marks, leaving_mark_of(ALL, "a")}), {leaving_mark_of(ALL, by) for by in "ab"}
    assert one.there == {ALL}
    assert one.marks == {ALL: {"a", "b"}}
    assert one.leaving == {ALL: {"a"}}
    assert one.is_held(ALL)
    assert not denied({ALL, *marks, *all_of_them}).is_held(ALL)
    assert not denied({ALL}).is_held(ALL)
    assert one.left_by([ALL, SHOP]) == {ALL: {"a"}}
    last = denied({leaving_mark_of(ALL, "a")})
    assert last.of("a") == {ALL}
    assert last.marked == ("flights",), "a thaw finds it"


@pytest.mark.parametrize("marks", [{mark_of(ALL, "a")}, {leaving_mark_of(ALL, "a")}], ids=["mark", "leaving"])
def test_a_mark_without_its_denial_closes_nothing(marks: set[WriteDenial]) -> None:
    """Cut short amid a close, or a thaw: the site was told as standby, and took writes."""
    east = Site("east", "east:9092", freeze_principals=("User:*",))
    left, closed = denied(marks), denied({ALL, mark_of(ALL, "b"), *marks})
    assert (left.topics, left.marked, left.takes_writes({"flights"}, ["User:*"])) == ((), ("flights",), True)
    assert (closed.topics, closed.marked, closed.takes_writes({"flights"}, ["User:*"])) == (
        ("flights",),
        ("flights",),
        False,
    )
    assert closed.takes_writes({"flights", "trips"}, ["User:*"]) is None
    row = row_by_denials(east, left)
    assert (row.role, row.takes_writes, row.topics) == ("active", True, ())
    assert row.reason.startswith("no ACL of a freeze, but marks of a, which deny nobody")
    row = row_by_denials(east, closed)
    assert (row.role, row.takes_writes, row.topics) == ("standby", False, ("flights",))
    assert row.reason.startswith("ACLs of a, b")
    for found, was_left in ((left, False), (closed, True)):
        freezing = Freezing(source_denials=SiteDenials(("User:*",), found.marked, closed=found.topics))
        assert freezing.was_left is was_left
        assert replace(freezing, target_denials=freezing.source_denials).hands_over, "what is left there is taken back"


def test_a_topic_that_is_closed_for_some_only_is_told_as_closed_in_part() -> None:
    east = Site("east", "east:9092", freeze_principals=("User:shop", "User:intern"))
    orders = [WriteDenial("orders", one) for one in east.freeze_principals]
    found = denied({SHOP, mark_of(SHOP, "a"), *orders, mark_of(orders[0], "a")})
    assert found.in_part(east.freeze_principals) == {"flights": ("User:intern",)}
    assert found.takes_writes({"flights"}, east.freeze_principals) is None
    told = [found.closes([one], east.freeze_principals) for one in ("flights", "orders", "trips")]
    assert told == [None, True, False]
    assert found.takes_writes({"orders"}, east.freeze_principals) is False, "somebody else denied the intern"
    row = row_by_denials(east, found)
    assert (row.role, row.takes_writes, row.topics, row.in_part) == ("standby", False, ("orders",), ("flights",))
    assert row.reason == "ACLs of a; flights is closed in part: User:intern can still write"
    row = row_by_denials(east, denied({SHOP, mark_of(SHOP, "a")}))
    assert (row.role, row.takes_writes, row.topics, row.in_part) == ("closed in part", None, (), ("flights",))
    everybody = replace(east, freeze_principals=("User:*",))
    assert "flights is closed in part: everybody else can still write" in row_by_denials(everybody, found).reason
    by_everybody = denied({ALL, mark_of(ALL, "a")})
    assert by_everybody.in_part(east.freeze_principals) == {}
    assert row_by_denials(replace(east, freeze_principals=()), by_everybody).topics == ("flights",)


def test_what_one_broker_alone_denies_is_not_closed_and_what_it_may_be_behind_with_is_made_again() -> None:
    east, mine = Site("east", "east:9092", freeze_principals=("User:*",)), {ALL, mark_of(ALL, "a")}
    found = denied(mine, ())
    assert (set(found.there), found.differing) == ({ALL}, (2,))
    assert not found.everywhere
    assert found.marked == ("flights",), "a thaw takes back what any broker knows"
    assert found.takes_writes({"flights"}, ["User:*"]) is None
    assert found.to_hold(["flights"], ["User:*"]) == {ALL}
    assert denied({ALL}, ()).to_hold(["flights"], ["User:*"]) == {ALL}, "whose it is that broker may tell too late"
    row = row_by_denials(east, found)
    assert (row.role, row.takes_writes, row.differing) == ("standby", None, (2,))
    silent = read_denials(KnownDenials({1: frozenset(mine), 2: RequestTimedOut("broker 2")}))
    assert silent.takes_writes({"flights"}, ["User:*"]) is False, "as far as they say"
    assert row_by_denials(east, silent).differing == (2,)
    assert silent.closes(["flights"], ["User:*"]) is None
    assert denied((), ()).differing == ()


def test_a_site_is_closed_only_where_all_of_the_topics_are() -> None:
    """One of two was enough, and an abort told the site as closed that took writes to the other one."""
    principals, orders = ["User:*"], WriteDenial("orders", "User:*")
    one = denied({ALL, mark_of(ALL, "a")})
    told = [one.closes(topics, principals) for topics in (["flights", "orders"], ["flights"], ["orders"], [])]
    assert told == [None, True, False, False]
    assert one.open_of(["orders", "flights", "trips"], principals) == ("orders", "trips")
    both = denied({ALL, mark_of(ALL, "a"), orders, mark_of(orders, "a")})
    assert (both.closes(["flights", "orders"], principals), both.open_of(["flights", "orders"], principals)) == (
        True,
        (),
    )
    lagging = denied({ALL, mark_of(ALL, "a")}, ())
    assert (lagging.closes(["flights"], principals), lagging.open_of(["flights"], principals)) == (None, ("flights",))
    in_part = denied({SHOP, mark_of(SHOP, "a")})
    assert in_part.closes(["flights"], ["User:shop", "User:intern"]) is None
    assert in_part.open_of(["flights"], ["User:shop", "User:intern"]) == ("flights",)
