"""Names, selection, addresses."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.base.address import Address, AddressInvalid, parse_address
from broker.client.errors import SiteInvalid
from broker.client.site import Site
from mirror.errors import LinkInvalid
from mirror.link import Link, TopicNames

EAST, WEST = Site("east", "127.0.0.1:19092"), Site("west", "127.0.0.1:29092")


def link(names: TopicNames = "same", *topics: str) -> Link:
    return Link("east-west", EAST, WEST, topics or (".*",), names, ("app-.*",))


def test_patterns_match_whole_names() -> None:
    selected = link("same", "flights", "orders-.*")
    assert selected.selects_topic("flights")
    assert selected.selects_topic("orders-eu")
    assert not selected.selects_topic("flights-old")
    assert not selected.selects_topic("my-orders-eu")
    assert selected.selects_group("app-1")
    assert not selected.selects_group("my-app-1")


def test_internal_topics_are_never_mirrored_but_the_canary_always() -> None:
    everything = link("same", ".*")
    for name in ("__consumer_offsets", "__farshore-offsets-east-west", "__farshore-producers"):
        assert not everything.selects_topic(name)
    only = link("same", "flights")
    assert only.selects_topic(only.canary_topic)
    assert not only.selects_topic("__farshore-canary-other")


def test_prefixed_names_do_not_come_back() -> None:
    there = Link("a", EAST, WEST, (".*",), "prefixed")
    back = Link("b", WEST, EAST, (".*",), "prefixed")
    mirrored = there.target_topic("flights")
    assert mirrored == "east.flights"
    assert not back.selects_topic(mirrored)
    assert there.source_topic(mirrored) == "flights"
    assert there.source_topic("flights") is None


@given(st.sampled_from(["same", "prefixed"]), st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True))
def test_target_names_translate_back(names: TopicNames, topic: str) -> None:
    one = link(names, ".*")
    expected = topic if one.selects_topic(topic) else None
    assert one.source_topic(one.target_topic(topic)) == expected


def test_a_bad_pattern_is_named() -> None:
    with pytest.raises(LinkInvalid, match="no regular expression"):
        link("same", "orders-(").selects_topic("x")


def test_addresses() -> None:
    assert parse_address("kafka:9092") == Address("kafka", 9092)
    assert str(parse_address("[::1]:9092")) == "[::1]:9092"
    for bad in ("kafka", "kafka:", ":9092", "kafka:0", "kafka:70000", "kafka:x"):
        with pytest.raises(AddressInvalid):
            parse_address(bad)


def test_the_address_map_applies_to_advertised_and_bootstrap_addresses() -> None:
    site = Site("east", "b1:9092, b2:9092", {"b1:9092": "127.0.0.1:5001"})
    assert tuple(site.bootstrap()) == (Address("127.0.0.1", 5001), Address("b2", 9092))
    assert site.dial("b1", 9092) == Address("127.0.0.1", 5001)
    with pytest.raises(SiteInvalid, match="no bootstrap_servers"):
        Site("east", " ,").bootstrap()


def test_a_canary_of_the_opposite_link_is_not_mirrored_back() -> None:
    there, back = Link("a", EAST, WEST, (".*",)), Link("b", WEST, EAST, (".*",))
    assert there.selects_topic("__farshore-canary-a")
    assert not back.selects_topic("__farshore-canary-a")
    assert there.source_topic("__farshore-canary-a") == "__farshore-canary-a"


def test_a_link_never_takes_its_own_records_for_topics() -> None:
    one = link("prefixed", ".*")
    assert one.source_topic(one.target_topic(one.state_topic)) is None
    assert one.source_topic(f"east.{one.canary_topic}") == one.canary_topic


def test_two_links_of_one_target_share_neither_state_nor_fence() -> None:
    one, two = Link("a", EAST, WEST, ()), Link("b", EAST, WEST, ())
    assert one.state_topic != two.state_topic
    assert one.transactional_id != two.transactional_id
    assert one.canary_topic != two.canary_topic


def test_without_patterns_nothing_is_selected() -> None:
    nothing = Link("a", EAST, WEST, ())
    assert not nothing.selects_topic("flights")
    assert not nothing.selects_group("app-1")
    assert nothing.selects_topic(nothing.canary_topic)


def test_with_the_same_names_only_the_patterns_decide() -> None:
    assert link("same", ".*").selects_topic("west.flights")
    assert not link("prefixed", ".*").selects_topic("west.flights")
    assert link("prefixed", ".*").selects_topic("western")


def test_each_partition_is_one_units_and_a_topics_are_dealt_in_turn() -> None:
    cut = replace(link(), units=4)
    for topic in ("flights", "orders", cut.canary_topic):
        for partition in range(20):
            carriers = [unit.unit for unit in cut.each_unit() if unit.carries(topic, partition)]
            assert carriers == [cut.unit_of(topic, partition)]
    assert Counter(cut.unit_of("flights", number) for number in range(20)) == dict.fromkeys(range(4), 5)
    assert cut.unit_of(cut.canary_topic, 3) == 0
    assert cut.carries("flights", 3), "all are the whole link's"
    # In states that stand: another rule would have units read, and write on, what is others'.
    assert [cut.unit_of("flights", number) for number in range(4)] == [2, 3, 0, 1]


def test_narrower_is_a_link_with_fewer_topics_and_nothing_else_of_it_another() -> None:
    for fewer, more in ((("flights",), (".*",)), (("flights",), ("flights", "gates")), (("a|b", "c-.+"), ("[a-c].*",))):
        assert link("same", *fewer).is_narrower(link("same", *more))
        assert not link("same", *more).is_narrower(link("same", *fewer))
    one = link("same", "flights")
    assert one.is_narrower(one)
    assert not link("same", "gates").is_narrower(one)
    assert not replace(one, groups=()).is_narrower(link())
    assert not replace(one, units=2).is_narrower(link())
    assert not one.is_narrower(link("same", "(?<!x)flights")), "what an expression is not known to match may be more"


@given(st.lists(st.sampled_from(["a", "a|b", "[ab]c?", "b.*", ".*", "c"]), min_size=2, max_size=4), st.integers(1, 3))
def test_what_a_narrower_link_selects_the_other_does_too(patterns: list[str], count: int) -> None:
    narrower, wider = link("same", *patterns[:count]), link("same", *patterns[count:])
    names = ["a", "b", "c", "ac", "bc", "bcd", "d"]
    selected = [{name for name in names if each.selects_topic(name)} for each in (narrower, wider)]
    assert narrower.is_narrower(wider) == (selected[0] <= selected[1])


def test_a_link_of_one_unit_is_called_as_ever() -> None:
    (unit,) = link().each_unit()
    assert (unit.transactional_id, unit.unit_name, unit.state_partition) == (f"farshore-{link().name}", link().name, 0)
    assert (link().transactional_id, link().unit_name) == (unit.transactional_id, unit.unit_name)
    names = [unit.transactional_id for unit in replace(link(), units=3).each_unit()]
    assert names == [f"farshore-{link().name}", f"farshore-{link().name}.1", f"farshore-{link().name}.2"]


def test_what_is_one_units_is_not_asked_of_a_whole_link() -> None:
    with pytest.raises(AssertionError):
        _ = replace(link(), units=3).transactional_id
