"""Which links feed each other: what follows for each from the others, and what cannot run together. Pure.

It is decided over sets of names (`mirror/names.py`) and, for topics that keep their names, by following the records of
each site along the links as these will themselves decide (`judge_batches`). Where the sets cannot tell, the file is
refused: no loop passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mirror.link import Link
from mirror.names import EVERYTHING, Names, all_of, is_exact, may_have_any, none_of
from mirror.offsets.origin_entries import Way
from mirror.origins import Verdict, judge_batches, may_share_a_topic, may_write_one_topic


def connect(links: Sequence[Link]) -> tuple[Link, ...]:
    """Each link with what follows for it from the others."""
    sites = frozenset(site.name for link in links for site in (link.source, link.target))
    flows = [_Flow(group) for group in _common_topics([link for link in links if link.topic_names == "same"])]
    return tuple(_connected(link, [other for other in links if other is not link], sites, flows) for link in links)


def _connected(link: Link, others: Iterable[Link], sites: frozenset[str], flows: Iterable[_Flow]) -> Link:
    backs, sides = [], []
    rounds = {other.name: other for flow in flows for other in flow.rounds(link)}
    for other in others:
        if link.topic_names == other.topic_names == "same" and may_share_a_topic(link, other):
            if (other.source, other.target) == (link.target, link.source):
                backs.append(other)
            elif other.target == link.target and other.source != link.source:
                sides.append(other)
    return replace(
        link,
        shared_targets=bool(backs or sides or rounds),
        reverse_links=tuple(backs),
        side_links=tuple(sides),
        round_links=tuple(rounds.values()),
        known_sites=sites,
    )


def topology_problems(links: Sequence[Link]) -> list[str]:
    """Why these (connected) links cannot run together, a sentence for each reason."""
    return [*_returns(links), *_collisions(links), *_misroutings(links)]


def _returns(links: Sequence[Link]) -> Iterator[str]:
    """Topics that come back to where they were, under other names: nothing tells their records from new ones."""
    for cycle in cycles(links):
        if not _all_same(cycle) and any(_comes_back((*cycle[at:], *cycle[:at])) for at in range(len(cycle))):
            what = f"topics would come back to {_way(cycle)} under longer names"
            yield f"{_names(cycle)}: {what}; narrow the links' topics"


def _comes_back(cycle: Sequence[Link]) -> bool:
    names: Names = EVERYTHING
    for link in cycle:
        names = link.target_names(names)
    return may_have_any(names)


def _collisions(links: Sequence[Link]) -> Iterator[str]:
    """Links that would both write the same topic at one target, and are no two ways to the same set of records."""
    for index, first in enumerate(links):
        for second in links[index + 1 :]:
            both = (first, second)
            if first.target != second.target or (_all_same(both) and first.source != second.source):
                continue
            if may_write_one_topic(first, second):
                yield _collision(both)


def _collision(both: Sequence[Link]) -> str:
    return (
        f"{_names(both)}: both would write the same topics at {both[0].target.name}; "
        'narrow one link\'s topics, or use topic_names = "prefixed"'
    )


def _misroutings(links: Sequence[Link]) -> Iterator[str]:
    """Where records of topics that keep their names would go around, or come twice or not at all."""
    same = [link for link in links if link.topic_names == "same"]
    told: set[str] = set()
    for group in _common_topics(same):
        for problem in _Flow(group).problems():
            if problem not in told:
                told.add(problem)
                yield problem


def _common_topics(links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    """Every set of links that may all select a topic which the others do not select."""
    alike: dict[tuple[str, ...], list[Link]] = {}
    for link in links:
        alike.setdefault(link.topics, []).append(link)
    atoms: list[tuple[Names, tuple[Link, ...]]] = [(EVERYTHING, ())]
    for topics, those in alike.items():
        selected = those[0].selected_names()
        # What an inexact pattern may select it may also not select: sets that are too large find more to refuse.
        others = none_of(selected) if all(map(is_exact, topics)) else EVERYTHING
        split = []
        for names, chosen in atoms:
            split += [(all_of([names, selected]), (*chosen, *those)), (all_of([names, others]), chosen)]
        atoms = [atom for atom in split if may_have_any(atom[0])]
    found = {tuple(link.name for link in chosen): chosen for _, chosen in atoms if len(chosen) > 1}
    yield from found.values()


@dataclass(frozen=True)
class _Flow:
    """The records of one topic that all these links carry under its own name."""

    links: tuple[Link, ...]

    def rounds(self, link: Link) -> Iterator[Link]:
        """The links that bring records of the link's target to its source by way of other sites."""
        for other in self.links if link in self.links else ():
            is_round = other.target == link.source and other.source != link.target
            if is_round and link.target.name in self._origins(other):
                yield other

    def problems(self) -> Iterator[str]:
        """What is wrong with the way of any site's records."""
        for index, first in enumerate(self.links):
            for second in self.links[index + 1 :]:
                both = (first, second)
                if first.target == second.target and first.source != second.source and not self._agree(both):
                    yield _collision(both)

    def _agree(self, both: Sequence[Link]) -> bool:
        """Whether two links into one site bring each what the other does not, and all their sites hold the same."""
        if not self._origins(both[0]).isdisjoint(self._origins(both[1])):
            return False
        sites = {both[0].source.name, both[1].source.name, both[0].target.name}
        return all(sites <= self._held_at(name) for name in sites)

    def _held_at(self, site: str) -> frozenset[str]:
        """The sites whose records come to a site, and its own."""
        into = [self._origins(link) for link in self.links if link.target.name == site]
        return frozenset({site}).union(*into)

    def _origins(self, link: Link) -> frozenset[str]:
        return self._brought[link.name]

    @cached_property
    def _brought(self) -> dict[str, frozenset[str]]:
        """Per link the sites whose records it brings: the least that agrees with what each link decides."""
        found = {link.name: frozenset({link.source.name}) for link in self.links}
        while True:
            following = {link.name: self._brought_by(link, found) for link in self.links}
            if following == found:
                return found
            found = following

    def _brought_by(self, link: Link, found: dict[str, frozenset[str]]) -> frozenset[str]:
        sides = (side for side in self.links if side.target == link.target and side.source != link.source)
        direct = frozenset(side.source.name for side in sides)
        brought = found[link.name]
        for into in self.links:
            for origin in found[into.name] if into.target == link.source else ():
                if (
                    judge_batches(link, Way(frozenset({origin}), frozenset({into.source.name})), direct)
                    is Verdict.CARRY
                ):
                    brought |= {origin}
        return brought


def cycles(links: Sequence[Link]) -> Iterator[tuple[Link, ...]]:
    """Every way along links that comes back to its first site and visits no other site twice, once each.

    A cycle is told from its alphabetically first site on.
    """

    def extend(path: tuple[Link, ...], visited: frozenset[str]) -> Iterator[tuple[Link, ...]]:
        first = path[0].source.name
        for link in links:
            if link.source != path[-1].target:
                continue
            if link.target.name == first:
                yield (*path, link)
            elif link.target.name not in visited and link.target.name > first:
                yield from extend((*path, link), visited | {link.target.name})

    for link in links:
        if link.target.name > link.source.name:
            yield from extend((link,), frozenset({link.source.name, link.target.name}))


def _all_same(links: Sequence[Link]) -> bool:
    return all(link.topic_names == "same" for link in links)


def _names(links: Iterable[Link]) -> str:
    return ", ".join(link.name for link in links)


def _way(cycle: Sequence[Link]) -> str:
    return " -> ".join([*(link.source.name for link in cycle), cycle[0].source.name])
