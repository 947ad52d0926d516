"""Where a mirror's batches come from, and which of them a link carries on. Pure.

What a link says of itself at its target stands in its registration there: the site that it reads (`source`), and the
sites whose records may be among its batches (`origins`: its source, and those whose records come through there).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from broker.client.site import Site
from mirror.link import Link, TopicNames
from mirror.names import all_of, may_have_any

REGISTRY_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class SiteIdentity:
    """A cluster, as its name in one file, and as what it says of itself: two files may call it differently.

    Clusters that were set up from one recipe may share an id; they do not share an advertised address.
    """

    name: str
    cluster_id: str = ""
    addresses: frozenset[str] = frozenset()

    def is_same(self, other: SiteIdentity) -> bool:
        is_one_cluster = self.cluster_id == other.cluster_id and not self.addresses.isdisjoint(other.addresses)
        return self.name == other.name or is_one_cluster


@dataclass(frozen=True, slots=True)
class Registration:
    """A producer id of a link at its target. `topics` None: written by a version that did not say."""

    producer_id: int
    link: str
    source: SiteIdentity
    origins: frozenset[str]
    topics: tuple[str, ...] | None = None
    topic_names: TopicNames = "same"

    def as_seen_by(self, site: SiteIdentity) -> Registration:
        """The same, with the site called as the reader calls it."""
        if self.source.name == site.name or not self.source.is_same(site):
            return self
        source = replace(self.source, name=site.name)
        return replace(self, source=source, origins=self.origins - {self.source.name} | {site.name})


class Verdict(Enum):
    """What becomes of a mirror's batches when a link meets them at its source."""

    CARRY = auto()
    LEAVE_OUT = auto()
    """The target has them: they were read there, or a link brings them there directly."""
    UNCLEAR = auto()
    """Records that the target has and records that it has not, under one producer id."""


def judge_batches(link: Link, read_at: str, origins: frozenset[str], direct: frozenset[str]) -> Verdict:
    """Judge the batches that another link brought to this one's source, from the site `read_at`.

    `direct` are the sites whose own records other links bring to the same topic of the target. With prefixed names the
    name of a topic says where it has been, and a topic that has been at the target is not selected.
    """
    if read_at == link.target.name:
        return Verdict.LEAVE_OUT
    if link.topic_names == "prefixed":
        return Verdict.CARRY
    if origins <= direct:
        return Verdict.LEAVE_OUT
    if link.target.name in origins or origins & direct:
        return Verdict.UNCLEAR
    return Verdict.CARRY


def direct_sites(link: Link, topic: str) -> frozenset[str]:
    """The sites whose own records of the topic other links bring to the target."""
    return frozenset(side.source.name for side in link.side_links if side.selects_topic(topic))


def may_share_a_topic(link: Link, other: Link) -> bool:
    """Whether a topic of the same name may be selected by both."""
    return may_have_any(all_of([link.selected_names(), other.selected_names()]))


def may_write_one_topic(link: Link, other: Link) -> bool:
    """Whether both may write a topic of one name at their targets."""
    return may_have_any(all_of([link.target_names(), other.target_names()]))


def origins_of(link: Link, at_source: Iterable[Registration], topics: Iterable[str]) -> frozenset[str]:
    """The sites whose records this link may bring with these topics, by what is registered where it reads."""
    found = frozenset({link.source.name})
    theirs = list(at_source)
    for topic in topics if link.topic_names == "same" else ():
        direct = direct_sites(link, topic)
        for registered in theirs:
            if not registered.origins <= found and _writes(registered, link, topic):
                verdict = judge_batches(link, registered.source.name, registered.origins, direct)
                found |= registered.origins if verdict is Verdict.CARRY else frozenset()
    return found


def _writes(registered: Registration, link: Link, topic: str) -> bool:
    """Whether the registered link may write this topic of the link's source; if it did not say what it writes: yes."""
    return registered.topics is None or writer_of(registered, link.source).source_topic(topic) is not None


def writer_of(registered: Registration, at: Site) -> Link:
    """The link that registered itself at a site, as it said. How to reach its source is not known."""
    source = Site(registered.source.name, "")
    return Link(registered.link, source, at, registered.topics or (), registered.topic_names)


def with_registered(link: Link, at_source: Iterable[Registration], at_target: Iterable[Registration] = ()) -> Link:
    """The link with what the registries at both its sites say of others, which its own file may not know.

    A link back with the same names is one of its `reverse_links`, one that writes the same topics at the target one of
    its `side_links`, and the sites they come from are known ones.
    """
    theirs, others = list(at_source), list(at_target)
    sites = {name for registered in (*theirs, *others) for name in (registered.source.name, *registered.origins)}
    link = replace(link, known_sites=link.known_sites | sites)
    backs = [*link.reverse_links, *_new_backs(link, theirs)]
    sides = [*link.side_links, *_new_sides(link, others)]
    shared = link.shared_targets or bool(backs) or bool(sides)
    return replace(link, shared_targets=shared, reverse_links=tuple(backs), side_links=tuple(sides))


def _new_backs(link: Link, at_source: Iterable[Registration]) -> Iterator[Link]:
    known = {back.name for back in link.reverse_links}
    for registered in at_source:
        named = registered.topics is not None and registered.link not in known
        if (
            named
            and registered.source.name == link.target.name
            and registered.topic_names == link.topic_names == "same"
        ):
            back = replace(writer_of(registered, link.source), source=link.target)
            if may_share_a_topic(link, back):
                known.add(back.name)
                yield back


def _new_sides(link: Link, at_target: Iterable[Registration]) -> Iterator[Link]:
    known = {link.name, *(side.name for side in link.side_links)}
    for registered in at_target:
        is_new = registered.topics is not None and registered.link not in known
        if is_new and registered.topic_names == link.topic_names == "same":
            side = writer_of(registered, link.target)
            if registered.source.name != link.source.name and may_share_a_topic(link, side):
                known.add(side.name)
                yield side


def encode_registration(registered: Registration) -> tuple[bytes, bytes]:
    """Key and value of the registry's record. `origin` is what earlier versions read."""
    fields = {
        "v": REGISTRY_VERSION,
        "link": registered.link,
        "origin": registered.source.name,
        "origins": sorted(registered.origins),
        "topics": registered.topics,
        "topic_names": registered.topic_names,
        "cluster_id": registered.source.cluster_id,
        "addresses": sorted(registered.source.addresses),
    }
    return json.dumps(["producer", registered.producer_id]).encode(), json.dumps(fields).encode()


def decode_producer_id(key: bytes) -> int:
    """Raises ValueError, TypeError, IndexError."""
    return int(json.loads(key)[1])


def decode_registration(producer_id: int, value: bytes) -> Registration:
    """Raises ValueError, KeyError, TypeError."""
    fields = json.loads(value)
    if fields["v"] != REGISTRY_VERSION:
        raise ValueError("written by a newer version")
    origin = str(fields["origin"])
    topics = fields.get("topics")
    return Registration(
        producer_id=producer_id,
        link=str(fields["link"]),
        source=SiteIdentity(origin, fields.get("cluster_id", ""), frozenset(fields.get("addresses", ()))),
        origins=frozenset(fields.get("origins", (origin,))),
        topics=None if topics is None else tuple(topics),
        topic_names="prefixed" if fields.get("topic_names") == "prefixed" else "same",
    )
