"""A link: what is mirrored from one site to another, and under which names."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from broker.client.site import Site
from broker.wire.vocabulary import INTERNAL_PREFIX
from mirror.errors import LinkInvalid
from mirror.names import (
    EVERYTHING,
    Names,
    all_of,
    any_of,
    containing,
    is_exact,
    joined,
    literal,
    matching,
    may_have_any,
    none_of,
    starting_with,
)

TopicNames = Literal["same", "prefixed"]
"""How a topic is called at the target: as at the source, or "east.flights"."""

Priority = Literal["low", "normal", "high"]
"""Which links run where a fleet's workers may not run all of them, and which are begun first."""

UNITS_MAX: Final = 64
"""Each has a producer and connections of its own."""

Pin: TypeAlias = tuple[str, int]
"""A source topic and one of its partitions, which has a unit of its own."""

_ONE_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-])+")
CHAOS_PREFIX: Final = "__farshore-chaos-"
"""Before a run's id: the topic of a chaos run, which the run's own mirror copies."""
PRODUCERS_TOPIC: Final = "__farshore-producers"
"""On each target cluster: the producer ids of all links that write there, with their origin."""


STATE_PREFIX: Final = "__farshore-offsets-"
"""Before a link's name: its state topic, on its target."""
ENDS_PREFIX: Final = "__farshore-ends-"
"""Before a link's name: the topic on its target that says where the source's logs were last seen to end."""
ACLS_PREFIX: Final = "__farshore-acls-"
"""Before a link's name: the topic on its target that says which ACLs there are the link's, and which wait."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of mirroring. `topics` and `groups` are full-match regular expressions.

    `shared_targets`: the target topics also have other writers, because a link in the other direction with the same
    topic names exists. `reverse_links` are those links, which group offsets cannot be translated without. `side_links`
    bring the same topics to the target from other sites: what those bring of their own, this link leaves out.
    `round_links` bring the target's own records to the source by way of other sites, as in a ring.
    `known_sites`: names that, at the beginning of a topic's name, say where the topic came from. `target_rack`: where
    at the target a fleet's worker should be near; "" is anywhere.

    `sync_acls`: its worker carries the source's ACLs over, as `acl_principals` (sorted) name the principals of the
    source at the target; who is not in them keeps his name.

    A link is cut into `units`, sets of partitions that are fenced, moved and run each for itself; behind them each of
    the `pins` (sorted) has one of its own. Where `unit` is one of their numbers this is the link as that unit has it,
    else all of it.
    """

    name: str
    source: Site
    target: Site
    topics: tuple[str, ...]
    topic_names: TopicNames = "same"
    groups: tuple[str, ...] = ()
    shared_targets: bool = False
    reverse_links: tuple[Link, ...] = ()
    side_links: tuple[Link, ...] = ()
    round_links: tuple[Link, ...] = ()
    known_sites: frozenset[str] = frozenset()
    priority: Priority = "normal"
    target_rack: str = ""
    sync_acls: bool = False
    acl_principals: tuple[tuple[str, str], ...] = ()
    units: int = 1
    pins: tuple[Pin, ...] = ()
    unit: int | None = None

    def of_unit(self, unit: int) -> Link:
        """The link as one of its units has it."""
        assert 0 <= unit < self.unit_count, "a link has no more units than it is cut into"
        return replace(self, unit=unit)

    def each_unit(self) -> list[Link]:
        return [self.of_unit(unit) for unit in range(self.unit_count)]

    @property
    def unit_count(self) -> int:
        """With those of the pins."""
        return self.units + len(self.pins)

    def unit_of(self, topic: str, partition: int) -> int:
        """The unit that a source partition belongs to: those of a topic are dealt in turn, the canary is unit 0's."""
        if topic == self.canary_topic:
            return 0
        if (topic, partition) in self.pins:
            return self.units + self.pins.index((topic, partition))
        return (zlib.crc32(topic.encode()) + partition) % self.units

    def carries(self, topic: str, partition: int) -> bool:
        """Whether a source partition is this unit's; all are the whole link's."""
        return self.unit is None or self.unit_of(topic, partition) == self.unit

    @property
    def is_lead_unit(self) -> bool:
        """Unit 0 also does what concerns the whole link: its groups, configs, and the ends of the source's logs."""
        return not self.unit

    @property
    def unit_name(self) -> str:
        """What this is called where units are told apart: no link's name has a slash."""
        return self.name if self.unit is None or self.unit_count == 1 else f"{self.name}/{self.unit}"

    @property
    def state_partition(self) -> int:
        """Of the state topic: each unit has its own, and nobody else writes there."""
        assert self.unit is not None or self.unit_count == 1, "a fence, a claim and a writer are one unit's"
        return self.unit or 0

    @property
    def canary_topic(self) -> str:
        """The canary's topic at the source; always mirrored."""
        return canary_topic(self.name)

    @property
    def state_topic(self) -> str:
        """On the target: the offset map, the gap ledger and the link's state."""
        return f"{STATE_PREFIX}{self.name}"

    @property
    def ends_topic(self) -> str:
        """On the target: where the source's logs were last seen to end."""
        return f"{ENDS_PREFIX}{self.name}"

    @property
    def acls_topic(self) -> str:
        """On the target: the record of the ACLs that the link made there, and of those that wait for a promotion."""
        return f"{ACLS_PREFIX}{self.name}"

    @property
    def transactional_id(self) -> str:
        """The fence of this unit's worker. No link's name has a dot, so it is no other link's."""
        unit = self.state_partition
        return f"farshore-{self.name}.{unit}" if unit else f"farshore-{self.name}"

    @property
    def groups_transactional_id(self) -> str:
        """The fence of what commits groups' offsets. No link's name has a dot, so it is no other link's fence."""
        return f"farshore-{self.name}.groups"

    def selects_topic(self, name: str) -> bool:
        """Whether the source's topic `name` is mirrored.

        Never an internal topic ("__...") but the canary's, and never, with prefixed names, a topic that came from the
        target site, or that is a copy of the source's own: that would be a loop. A chaos run's topic, or a copy of it,
        only where it is declared by its name.
        """
        declared = name == self.canary_topic or CHAOS_PREFIX in name
        return self._may_select(name) and (declared or _matches(self.topics, name))

    @property
    def named_topics(self) -> frozenset[str]:
        """Those that it names one by one: of such a cluster says so where it hides them."""
        return frozenset(filter(self._may_select, named_literally(self.topics)))

    def _may_select(self, name: str) -> bool:
        """Whether its name lets a topic be selected, be it declared by an expression or not."""
        if name == self.canary_topic:
            return True
        if CHAOS_PREFIX in name:
            return name in self.topics
        return not name.startswith(INTERNAL_PREFIX) and not self._comes_round(name)

    def is_narrower(self, than: Link) -> bool:
        """Whether it is that link with fewer topics, and with nothing else of it another."""
        if replace(self, topics=than.topics) != than or not all(map(is_exact, than.topics)):
            return False
        return not may_have_any(all_of([self.selected_names(), none_of(than.selected_names())]))

    def _comes_round(self, name: str) -> bool:
        """Whether the prefixes of a name say that a link with prefixed names must not take it.

        A name that begins with a site's name is taken to be a mirrored one, and then any part of it but the last may be
        a site it came through. So no topic goes around for ever, whoever declared the links.
        """
        if self.topic_names == "same":
            return False
        first, *through = name.split(".")[:-1] or [""]
        ends = {self.source.name, self.target.name}
        return first == self.target.name or (first in self.known_sites | ends and not ends.isdisjoint(through))

    def selected_names(self) -> Names:
        """All names that `selects_topic` says yes to, or more; without the canary's, which no other link selects."""
        chosen = any_of(map(matching, self.topics))
        declared = [literal(name) for name in self.topics if CHAOS_PREFIX in name]
        left_out = [starting_with(INTERNAL_PREFIX), containing(CHAOS_PREFIX)]
        if self.topic_names == "prefixed":
            ends = any_of(literal(f"{site.name}.") for site in (self.source, self.target))
            known = any_of(literal(f"{site}.") for site in {*self.known_sites, self.source.name})
            between = any_of([literal(""), joined([EVERYTHING, literal(".")])])
            left_out += [starting_with(f"{self.target.name}."), joined([known, between, ends, EVERYTHING])]
        return any_of([all_of([chosen, none_of(any_of(left_out))]), *declared])

    def target_names(self, names: Names = EVERYTHING) -> Names:
        """The target's names of those of the source's topics that are selected."""
        prefix = "" if self.topic_names == "same" else f"{self.source.name}."
        return joined([literal(prefix), all_of([names, self.selected_names()])])

    def selects_group(self, name: str) -> bool:
        """Whether the group's offsets are carried over."""
        return _matches(self.groups, name)

    def target_topic(self, name: str) -> str:
        """The target's name of the source's topic `name`."""
        return name if self.topic_names == "same" else f"{self.source.name}.{name}"

    def source_topic(self, name: str) -> str | None:
        """The source's name of the target's topic `name`; None when no selected topic is called that at the target."""
        prefix = "" if self.topic_names == "same" else f"{self.source.name}."
        source = name.removeprefix(prefix)
        return source if name.startswith(prefix) and self.selects_topic(source) else None


def canary_topic(link: str) -> str:
    """That of the link with this name, at its source."""
    return f"__farshore-canary-{link}"


def named_literally(patterns: Iterable[str]) -> frozenset[str]:
    """The names that these regular expressions have without any choice: `orders`, and `orders.v1` as `orders\\.v1`."""
    return frozenset(one.replace("\\", "") for one in patterns if _ONE_NAME.fullmatch(one))


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise LinkInvalid(f"{pattern!r} is no regular expression: {error}") from error
