"""Which links feed each other: what is refused, and that nothing which passes loops, whatever the names."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.site import Site
from deploy.topology import connect, cycles
from deploy.topology import topology_problems as problems_of
from mirror.link import Link
from mirror.offsets.origin_entries import Way
from mirror.origins import Verdict, direct_sites, judge_batches

SITES = {name: Site(name, f"{name}:9092") for name in "abcde"}


def link(way: str, topics: str = ".*", **rest: Any) -> Link:
    """`link("ab")`: from site a to site b."""
    source, target = SITES[way[0]], SITES[way[1]]
    return Link(name=rest.pop("name", way), source=source, target=target, topics=tuple(topics.split()), **rest)


def topology_problems(links: Sequence[Link]) -> list[str]:
    return problems_of(connect(links))


def shared_targets(links: Sequence[Link]) -> set[str]:
    return {link.name for link in connect(links) if link.shared_targets}


def test_a_link_back_with_the_same_names_makes_targets_shared() -> None:
    assert shared_targets([link("ab"), link("ba")]) == {"ab", "ba"}
    assert shared_targets([link("ab"), link("bc")]) == set()


def test_a_link_back_for_other_topics_does_not() -> None:
    assert shared_targets([link("ab", "flights"), link("ba", "orders")]) == set()
    assert shared_targets([link("ab", "flights"), link("ba", "orders-.*")]) == set()
    assert shared_targets([link("ab", "flights"), link("ba", "f.*")]) == {"ab", "ba"}


def test_prefixed_links_share_nothing() -> None:
    both = [link("ab", topic_names="prefixed"), link("ba", topic_names="prefixed")]
    assert shared_targets(both) == set()
    assert topology_problems(both) == []


def test_good_topologies() -> None:
    hub = [link("ab"), link("ba"), link("bc"), link("cb")]
    assert topology_problems(hub[:2]) == []
    assert topology_problems([link("ab"), link("ac"), link("ad")]) == []
    # A hub gathers from several sites under the sites' names.
    assert topology_problems([link("ad", topic_names="prefixed"), link("bd", topic_names="prefixed")]) == []


@pytest.mark.parametrize("ways", ["ab bc ca", "ab bc cd da", "ab ba bc ca", "ab bc cb ba"])
def test_rings_and_meshes_with_a_link_missing_pass(ways: str) -> None:
    """Each link carries on what others brought, and leaves out what its own target wrote or gets directly."""
    links = connect([link(way) for way in ways.split()])
    assert problems_of(links) == []
    assert all(link.shared_targets for link in links)


def test_a_ring_in_both_directions_is_refused() -> None:
    """What a wrote would come to c by b and by d."""
    problems = topology_problems([link(way) for way in ("ab", "ba", "bc", "cb", "cd", "dc", "da", "ad")])
    assert any("ab, cb: both would write the same topics at b" in problem for problem in problems)


def test_who_brings_the_target_s_own_records_round_is_known() -> None:
    rounds = {
        link.name: [other.name for other in link.round_links] for link in connect([link("ab"), link("bc"), link("ca")])
    }
    assert rounds == {"ab": ["ca"], "bc": ["ab"], "ca": ["bc"]}
    for ways in ("ab ba bc cb", "ab ba bc cb ac ca"):
        assert not any(link.round_links for link in connect([link(way) for way in ways.split()]))


def test_a_circle_that_no_topic_can_go_is_none() -> None:
    assert topology_problems([link("ab", "flights"), link("bc", "orders"), link("ca", "flights")]) == []


def test_prefixed_names_around_a_ring_do_not_grow() -> None:
    """Each name says where it has been, so a topic ends where it would come back to."""
    three = connect([link(way, topic_names="prefixed") for way in ("ab", "bc", "ca")])
    assert problems_of(three) == []
    assert not any(link.selects_topic("c.b.a.flights") for link in three)
    assert three[2].selects_topic("b.flights")
    assert not three[2].selects_topic("b.a.flights")


def test_a_mixed_pair_is_refused() -> None:
    (problem,) = topology_problems([link("ab"), link("ba", topic_names="prefixed")])
    assert "longer names" in problem


def test_two_writers_of_one_topic_are_refused() -> None:
    (problem,) = topology_problems([link("ab", r"a\.x"), link("ab", "x", name="also", topic_names="prefixed")])
    assert problem.startswith("ab, also")
    (problem,) = topology_problems([link("ab"), link("bc"), link("ac")])
    assert "both would write the same topics at c" in problem, "a and b do not hold what c does"
    (problem,) = topology_problems([link("ac"), link("bc")])
    assert "both would write the same topics at c" in problem
    assert topology_problems([link("ac", "flights"), link("bc", "orders")]) == []
    (problem,) = topology_problems([link("ab", "x"), link("ab", "x y", name="again")])
    assert problem.startswith("ab, again")


def test_each_circle_is_found_once() -> None:
    links = [link(first + second) for first in "abc" for second in "abc" if first != second]
    found = ["".join(step.source.name for step in cycle) for cycle in cycles(links)]
    assert sorted(found) == ["ab", "abc", "ac", "acb", "bc"]


@pytest.mark.parametrize("pattern", ["[a-z.]+", r"(?:.+\.)?orders", "(?i)ORDERS|.*ers", r"(?!a\.).*", r"^.{1,249}$"])
def test_patterns_that_defeated_samples(pattern: str) -> None:
    (problem,) = topology_problems([link("ab", pattern), link("ba", pattern, topic_names="prefixed")])
    assert "longer names" in problem


@pytest.mark.parametrize("pattern", [r"(?!.*\.).+", "[^.]+", "orders", r"a(?!.*\.).*|x"])
def test_a_pattern_that_does_not_take_what_came_back_passes(pattern: str) -> None:
    there = link("ab", "orders", topic_names="prefixed")
    assert topology_problems([there, link("bc", "orders"), link("cb", pattern)]) == []


@pytest.mark.parametrize("sites", ["abc", "abcd"])
def test_a_full_mesh_and_a_hub_pass(sites: str) -> None:
    mesh = [link(a + b) for a, b in itertools.permutations(sites, 2)]
    assert topology_problems(mesh) == []
    found = topology_problems(mesh[1:])
    assert bool(found) == (len(sites) > 3), "one way is missing: with four, two links would bring what went that way"
    hub = [link(way) for site in sites[1:] for way in (f"a{site}", f"{site}a")]
    assert topology_problems(hub) == []


PATTERNS = ["f", "o", "f|o", ".*", "[a-z.]+", r"(?:.+\.)?o", r"a\..*", r"b\.a\..*", r"(?!a\.).*", r"[^.]*\.?f"]
WAYS = ["".join(way) for way in itertools.permutations("abcd", 2)]
SHAPES = {
    "mesh": WAYS,
    "ring": ["ab", "bc", "cd", "da"],
    "chain": ["ab", "ba", "bc", "cb", "cd", "dc"],
    "star": ["ab", "ba", "ac", "ca", "ad", "da"],
    "triangle": ["ab", "ba", "bc", "cb", "ca", "ac"],
    "triangle with a way missing": ["ab", "ba", "bc", "cb", "ac"],
    "ring with a way back": ["ab", "bc", "cd", "da", "ba"],
}


@st.composite
def topologies(draw: st.DrawFn) -> list[Link]:
    """Whole shapes with one set of names, and parts of them with names of all kinds."""
    ways = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    if draw(st.booleans()):
        names, pattern = draw(st.sampled_from(["same", "prefixed"])), draw(st.sampled_from(PATTERNS))
        return [link(way, pattern, topic_names=names) for way in ways]
    chosen = draw(st.lists(st.sampled_from(ways), min_size=1, max_size=5))
    return [
        link(
            way,
            draw(st.sampled_from(PATTERNS)),
            topic_names=draw(st.sampled_from(["same", "same", "prefixed"])),
            name=f"{way}-{at}",
        )
        for at, way in enumerate(chosen)
    ]


Copy = tuple[str, str]
"""(site, topic)"""


class World:
    """Batches at sites: what was written once in each of some topics at each site, carried on as the links decide.

    Each with the link that brought it, and the way that this says it came.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self.links = links
        self.logs: dict[Copy, list[tuple[str, Link | None, Way]]] = {
            (site, topic): [(f"{topic} of {site}", None, Way(frozenset(site), frozenset(site)))]
            for site in "abcd"
            for topic in ("f", "o", "b.f", "a.b.o")
        }

    def run(self) -> None:
        """Until nothing moves. Who carries more than it said says so first; 40 rounds are more than any way has."""
        read: dict[tuple[str, Copy], int] = Counter()
        for _ in range(40):
            moved = False
            for link, ((site, topic), log) in itertools.product(self.links, list(self.logs.items())):
                if site != link.source.name or not link.selects_topic(topic):
                    continue
                start = read[link.name, (site, topic)]
                read[link.name, (site, topic)] = len(log)
                for value, writer, way in log[start:]:
                    if self.carries(link, topic, writer, way):
                        told = way if link.topic_names == "same" else Way(frozenset(site), frozenset(site))
                        there = self.logs.setdefault((link.target.name, link.target_topic(topic)), [])
                        there.append((value, link, told._replace(been=told.been | {site})))
                moved = moved or len(log) > start
            if not moved:
                return
        raise AssertionError("records go round for ever")

    def carries(self, link: Link, topic: str, writer: Link | None, way: Way) -> bool:
        if writer is None:
            return True
        return judge_batches(link, way, direct_sites(link, topic)) is Verdict.CARRY


@given(topologies())
def test_what_passes_the_check_ends_and_brings_nothing_twice(links: list[Link]) -> None:
    connected = connect(links)
    if problems_of(connected):
        return
    world = World(connected)
    world.run()
    for (site, topic), log in world.logs.items():
        twice = [value for value, count in Counter(value for value, *_ in log).items() if count > 1]
        assert not twice, f"{twice} at {site} in {topic}"


@given(topologies())
def test_what_the_check_never_saw_does_not_go_round_for_ever(links: list[Link]) -> None:
    """Each link from a file of its own: then the names and the registries alone decide."""
    names = frozenset("abcd")  # as the registries tell them
    world = World(
        [Link(link.name, link.source, link.target, link.topics, link.topic_names, known_sites=names) for link in links]
    )
    world.run()


@given(st.sampled_from(sorted(SHAPES)), st.sampled_from([".*", "f", "[a-z.]+"]))
def test_each_shape_brings_every_record_everywhere(shape: str, pattern: str) -> None:
    connected = connect([link(way, pattern) for way in SHAPES[shape]])
    assert problems_of(connected) == []
    world = World(connected)
    world.run()
    sites = {site for way in SHAPES[shape] for site in way}
    for site in sites:
        assert sorted(value for value, *_ in world.logs[site, "f"]) == sorted(f"f of {one}" for one in sites)
