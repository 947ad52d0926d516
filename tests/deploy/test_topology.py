"""Which links feed each other."""

from __future__ import annotations

from typing import Any

from broker.client.site import Site
from deploy.topology import cycles, shared_targets, topology_problems
from mirror.link import Link

SITES = {name: Site(name, f"{name}:9092") for name in "abcd"}


def link(way: str, topics: str = ".*", **rest: Any) -> Link:
    """`link("ab")`: from site a to site b."""
    source, target = SITES[way[0]], SITES[way[1]]
    return Link(name=rest.pop("name", way), source=source, target=target, topics=tuple(topics.split()), **rest)


def test_a_link_back_with_the_same_names_makes_targets_shared() -> None:
    assert shared_targets([link("ab"), link("ba")]) == {"ab", "ba"}
    assert shared_targets([link("ab"), link("bc")]) == frozenset()


def test_a_link_back_for_other_topics_does_not() -> None:
    assert shared_targets([link("ab", "flights"), link("ba", "orders")]) == frozenset()
    assert shared_targets([link("ab", "flights"), link("ba", "orders-.*")]) == frozenset()
    assert shared_targets([link("ab", "flights"), link("ba", "f.*")]) == {"ab", "ba"}


def test_prefixed_links_share_nothing() -> None:
    both = [link("ab", topic_names="prefixed"), link("ba", topic_names="prefixed")]
    assert shared_targets(both) == frozenset()
    assert topology_problems(both) == []


def test_good_topologies() -> None:
    hub = [link("ab"), link("ba"), link("bc"), link("cb")]
    assert topology_problems(hub[:2]) == []
    assert topology_problems([link("ab"), link("ac"), link("ad")]) == []
    # A hub gathers from several sites under the sites' names.
    assert topology_problems([link("ad", topic_names="prefixed"), link("bd", topic_names="prefixed")]) == []


def test_a_circle_of_three_is_refused_with_its_way() -> None:
    (problem,) = topology_problems([link("ab"), link("bc"), link("ca")])
    assert "a -> b -> c -> a" in problem
    assert "ab, bc, ca" in problem


def test_a_circle_that_no_topic_can_go_is_none() -> None:
    assert topology_problems([link("ab", "flights"), link("bc", "orders"), link("ca", "flights")]) == []


def test_prefixes_that_grow_for_ever_are_refused() -> None:
    three = [link(way, topic_names="prefixed") for way in ("ab", "bc", "ca")]
    (problem,) = topology_problems(three)
    assert "longer names" in problem
    plain = [link(way, "flights", topic_names="prefixed") for way in ("ab", "bc", "ca")]
    assert topology_problems(plain) == []


def test_a_mixed_pair_is_refused() -> None:
    (problem,) = topology_problems([link("ab"), link("ba", topic_names="prefixed")])
    assert "longer names" in problem


def test_two_writers_of_one_topic_are_refused() -> None:
    (problem,) = topology_problems([link("ac"), link("bc")])
    assert "both would write the same topics at c" in problem
    assert topology_problems([link("ac", "flights"), link("bc", "orders")]) == []
    (problem,) = topology_problems([link("ab", "x"), link("ab", "x y", name="again")])
    assert problem.startswith("ab, again")


def test_each_circle_is_found_once() -> None:
    links = [link(first + second) for first in "abc" for second in "abc" if first != second]
    found = ["".join(step.source.name for step in cycle) for cycle in cycles(links)]
    assert sorted(found) == ["ab", "abc", "ac", "acb", "bc"]
