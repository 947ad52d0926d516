"""Which links bring back what a link mirrors: by their topics, whatever else goes between the two sites."""

from __future__ import annotations

from dataclasses import replace

from broker.client.site import Site
from mirror.carried_back import CarriedBack, carried_back
from mirror.link import Link

FLIGHTS = Link("east-west", Site("east", "e:1"), Site("west", "w:1"), ("flights",))
ORDERS = replace(FLIGHTS, name="orders-ew", topics=("orders-.*",))
BACK = replace(FLIGHTS, name="west-east", source=FLIGHTS.target, target=FLIGHTS.source)
ORDERS_BACK = replace(BACK, name="orders-we", topics=("orders-.*",))
ALL = (FLIGHTS, BACK, ORDERS, ORDERS_BACK)
BOTH = replace(FLIGHTS, topics=("flights", "orders-.*"))


def test_of_two_pairs_each_has_its_own() -> None:
    for link, back in ((FLIGHTS, BACK), (ORDERS, ORDERS_BACK), (BACK, FLIGHTS), (ORDERS_BACK, ORDERS)):
        for mirrored in ((), ("flights", "orders-a")):
            topics = [topic for topic in mirrored if link.selects_topic(topic)]
            assert carried_back(link, ALL, topics).link is back


def test_to_a_third_site_or_under_other_names_is_no_way_back() -> None:
    north = replace(BACK, target=Site("north", "n:1"))
    prefixed = replace(BACK, topic_names="prefixed")
    assert carried_back(FLIGHTS, [north, prefixed, ORDERS_BACK]) == CarriedBack()
    assert carried_back(replace(FLIGHTS, topic_names="prefixed"), [BACK, prefixed]) == CarriedBack()


def test_what_was_mirrored_decides_where_patterns_are_wider() -> None:
    assert carried_back(BOTH, ALL) == CarriedBack((BACK, ORDERS_BACK))
    assert carried_back(BOTH, ALL, ["flights", BOTH.canary_topic]).link is BACK
    parts = carried_back(BOTH, ALL, ["flights", "orders-a"])
    assert (parts.links, parts.not_carried, parts.link) == ((BACK, ORDERS_BACK), (), None)


def test_one_that_carries_a_part_is_told_with_what_it_leaves_out() -> None:
    part = carried_back(BOTH, [BACK], ["flights", "orders-b", "orders-a"])
    assert part == CarriedBack((BACK,), ("orders-a", "orders-b"))
    assert part.link is None
    assert carried_back(BOTH, [BACK], ["orders-a"]) == CarriedBack((BACK,), ("orders-a",))
