"""Which ACLs a freeze made, told from those that were there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.client.acls import WriteDenial
from broker.client.site import Site
from deploy.cli.site_roles import row_by_denials
from failover.denials import SiteDenials, is_named, leaving_mark_of, mark_of, read_denials
from failover.freezing import Freezing

SHOP = WriteDenial("flights", "User:shop")
ALL = WriteDenial("flights", "User:*")
DN = WriteDenial("flights", "User:CN=a/b,OU=x:y")


def test_only_what_has_a_mark_is_a_freezes() -> None:
    found = read_denials({SHOP, ALL, mark_of(ALL, "switchover-1"), DN, mark_of(DN, "switchover-2")})
    assert found.there == {SHOP, ALL, DN}, "a mark is no denial"
    assert found.marks == {ALL: {"switchover-1"}, DN: {"switchover-2"}}
    assert [set(found.of(one)) for one in ("switchover-1", "switchover-2", "switchover")] == [{ALL}, {DN}, set()]
    assert found.topics == ("flights",)


def test_one_mark_without_its_denial_and_two_of_several_operations() -> None:
    """Cut short between the two; and two links of one topic to two sites."""
    found = read_denials({mark_of(ALL, "a"), mark_of(ALL, "b")})
    assert found.there == frozenset()
    assert found.marks == {ALL: {"a", "b"}}
    assert found.missing(["flights"], ["User:*"]) == {ALL}
    assert read_denials({ALL}).missing(["flights"], ["User:*", "User:shop"]) == {SHOP}


def test_whose_topics_are_meant() -> None:
    assert is_named("flights", ())
    assert not is_named("__consumer_offsets", ())
    assert not is_named("__consumer_offsets", (".*",))
    assert (is_named("flights-2", ("flights",)), is_named("flights-2", ("flights.*",))) == (False, True)
    denials = SiteDenials(("User:*",), ("flights",))
    assert (denials.marks(()), denials.marks(("flights",)), denials.marks(("orders",))) == (True, True, False)


def test_what_another_operation_made_is_held_by_both_and_what_nobody_marked_by_none() -> None:
    found = read_denials({SHOP, ALL, mark_of(ALL, "a"), mark_of(DN, "b")})
    assert found.made(["flights"], ["User:*", "User:shop", DN.principal]) == {ALL, DN}
    assert found.made(["orders"], ["User:*"]) == frozenset()


def test_who_says_that_it_goes_holds_no_denial_any_more_and_is_known_as_long_as_something_of_it_is_there() -> None:
    marks = {mark_of(ALL, "a"), mark_of(ALL, "b")}
    one, all_of_them = read_denials({ALL, *marks, leaving_mark_of(ALL, "a")}), {leaving_mark_of(ALL, by) for by in "ab"}
    assert one.there == {ALL}
    assert one.marks == {ALL: {"a", "b"}}
    assert one.leaving == {ALL: {"a"}}
    assert one.is_held(ALL)
    assert not read_denials({ALL, *marks, *all_of_them}).is_held(ALL)
    assert not read_denials({ALL}).is_held(ALL)
    assert one.left_by([ALL, SHOP]) == {ALL: {"a"}}
    last = read_denials({leaving_mark_of(ALL, "a")})
    assert last.of("a") == {ALL}
    assert last.marked == ("flights",), "a thaw finds it"


@pytest.mark.parametrize("marks", [{mark_of(ALL, "a")}, {leaving_mark_of(ALL, "a")}], ids=["mark", "leaving"])
def test_a_mark_without_its_denial_closes_nothing(marks: set[WriteDenial]) -> None:
    """Cut short amid a close, or a thaw: the site was told as standby, and took writes."""
    east = Site("east", "east:9092")
    left, closed = read_denials(marks), read_denials({ALL, mark_of(ALL, "b"), *marks})
    assert (left.topics, left.marked, left.takes_writes({"flights"})) == ((), ("flights",), True)
    assert (closed.topics, closed.marked, closed.takes_writes({"flights"})) == (("flights",), ("flights",), False)
    assert closed.takes_writes({"flights", "trips"}) is None
    row = row_by_denials(east, left)
    assert (row.role, row.takes_writes, row.topics) == ("active", True, ())
    assert row.reason == "no ACL of a freeze, but marks of a, which deny nobody"
    row = row_by_denials(east, closed)
    assert (row.role, row.takes_writes, row.topics) == ("standby", False, ("flights",))
    assert row.reason == "ACLs of a, b"
    for found, was_left in ((left, False), (closed, True)):
        freezing = Freezing(source_denials=SiteDenials(("User:*",), found.marked, closed=found.topics))
        assert freezing.was_left is was_left
        assert replace(freezing, target_denials=freezing.source_denials).hands_over, "what is left there is taken back"
