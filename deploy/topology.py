"""Which links feed each other: shared targets, and loops that nothing would cut. Pure functions of links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mirror.link import Link

# Two times around shows whether a name that came back is taken again.
ROUNDS = 2
_LITERAL = re.compile(r"[a-zA-Z0-9_-]+")


def shared_targets(links: Sequence[Link]) -> frozenset[str]:
    """Names of the links whose target topics have local writers: a link back, with the same topic names, exists."""
    return frozenset(link.name for link in links if reverse_links(link, links))


def reverse_links(link: Link, links: Sequence[Link]) -> tuple[Link, ...]:
    """The links back that may write topics of this link's source by the same names."""
    return tuple(
        back
        for back in links
        if _is_reverse(link, back) and _all_same((link, back)) and _same_name_may_go_round((link, back))
    )


def topology_problems(links: Sequence[Link]) -> list[str]:
    """Why these links cannot run together: one sentence for each loop and each pair of links that write one topic."""
    return [*_collisions(links), *_loops(links)]


def _loops(links: Sequence[Link]) -> Iterator[str]:
    for cycle in cycles(links):
        way = " -> ".join([*(link.source.name for link in cycle), cycle[0].source.name])
        names = ", ".join(link.name for link in cycle)
        if _all_same(cycle):
            if len(cycle) > 2 and _same_name_may_go_round(cycle):
                yield (
                    f"{names}: records would go around {way} for ever, because a link knows the site it got a record "
                    'from and not the first one; use topic_names = "prefixed", or leave out one link'
                )
        elif not (len(cycle) == 2 and all(link.topic_names == "prefixed" for link in cycle)) and _goes_round(cycle):
            yield f"{names}: topics would come back to {way} under ever longer names; narrow the links' topics"


def _collisions(links: Sequence[Link]) -> Iterator[str]:
    """Links that would both write the same topic at one target: neither could predict the other's offsets."""
    for index, first in enumerate(links):
        for second in links[index + 1 :]:
            if first.target != second.target:
                continue
            both = (first, second)
            if first.source == second.source and first.topic_names == second.topic_names:
                clash = _same_name_may_go_round(both)
            else:
                clash = _all_same(both) and _same_name_may_go_round(both)
            if clash:
                yield (
                    f"{first.name}, {second.name}: both would write the same topics at {first.target.name}; "
                    'narrow one link\'s topics, or use topic_names = "prefixed"'
                )


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


def _is_reverse(link: Link, other: Link) -> bool:
    return link.source == other.target and link.target == other.source


def _all_same(links: Sequence[Link]) -> bool:
    return all(link.topic_names == "same" for link in links)


def _same_name_may_go_round(links: Sequence[Link]) -> bool:
    """Whether one topic name may be selected by all links.

    Whether two regular expressions have a common word is not computed: they are taken to have one, unless a link
    selects by plain names only and none of those suits the others.
    """
    for link in links:
        if all(_LITERAL.fullmatch(topic) for topic in link.topics):
            return any(all(other.selects_topic(name) for other in links) for name in link.topics)
    return True


def _goes_round(cycle: Sequence[Link]) -> bool:
    """Whether a topic comes back to where it began and is taken again; tried with names the patterns suggest."""
    for start in range(len(cycle)):
        ways = (*cycle[start:], *cycle[:start]) * ROUNDS
        if any(_survives(ways, sample) for pattern in ways[0].topics for sample in _samples(pattern)):
            return True
    return False


def _survives(ways: Sequence[Link], name: str) -> bool:
    for link in ways:
        if not link.selects_topic(name):
            return False
        name = link.target_topic(name)
    return True


def _samples(pattern: str) -> list[str]:
    """Names that a pattern matches, found by putting a letter for its wildcards."""
    candidate = re.sub(r"\.[*+]\??", "x", pattern).replace("\\", "")
    return [candidate] if re.fullmatch(pattern, candidate) else []
