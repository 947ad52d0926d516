"""Where a mirror's batches come from, and which of them a link carries on. Pure.

What a link says of itself at its target stands in its registration there: the site that it reads (`source`), and the
sites whose records may be among its batches (`origins`: its source, and those whose records come through there). Of a
link that carries on what others brought, its state at the target says for each batch where that was first written
(`mirror/offsets/origin_entries.py`), from the epoch `named_from` on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from broker.client.site import Site
from mirror.link import Link, TopicNames
from mirror.names import all_of, any_of, is_exact, matching, may_have_any, none_of
from mirror.offsets.origin_entries import Way

REGISTRY_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class SiteIdentity:
    """A cluster, as its name in one file, and as what it says of itself: two files may call it differently, and two
    clusters alike.

    Clusters that were set up from one recipe may share an id; they do not share an advertised address. Under one name
    an id alone tells them apart, since addresses change. Earlier versions told no id of some sites: "".
    """

    name: str
    cluster_id: str = ""
    addresses: frozenset[str] = frozenset()

    def is_same(self, other: SiteIdentity) -> bool:
        if self.name == other.name:
            return not (self.cluster_id and other.cluster_id) or self.cluster_id == other.cluster_id
        return self.cluster_id == other.cluster_id and not self.addresses.isdisjoint(other.addresses)


def call_sites(identities: Iterable[SiteIdentity]) -> tuple[SiteIdentity, ...]:
    """What a reader calls the clusters that it knows of, one name for each; the first that is told of one counts.

    A name that is given already names no second cluster.
    """
    known: list[SiteIdentity] = []
    for identity in identities:
        if identity.addresses and not any(one.is_same(identity) or one.name == identity.name for one in known):
            known.append(identity)
    return tuple(known)


def _name_for(site: SiteIdentity, known: Iterable[SiteIdentity]) -> str:
    """A reader's name of a site: also of one that others call as it calls another."""
    names = [one.name for one in known if one.is_same(site)]
    if not names and any(one.name == site.name for one in known):
        return f"{site.name} ({site.cluster_id})"
    return names[0] if names else site.name


@dataclass(frozen=True, slots=True)
class Registration:
    """A producer id of a link's unit at its target. `topics` None: written by a version that did not say.

    `named_from`: the first epoch of which each batch's origin stands in the link's state, None where none does; of the
    batches before it only `unnamed` is known. `sites` are those of the origins that are known by more than their name.
    """

    producer_id: int
    link: str
    source: SiteIdentity
    origins: frozenset[str]
    topics: tuple[str, ...] | None = None
    topic_names: TopicNames = "same"
    named_from: int | None = None
    unnamed: frozenset[str] = frozenset()
    sites: frozenset[SiteIdentity] = frozenset()
    unit: int = 0
    renamed: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """What the link calls a site, and what its reader calls it."""

    def as_seen_by(self, sites: Sequence[SiteIdentity]) -> Registration:
        """The same, with the sites called as a reader calls them."""
        theirs = (self.source, *self.sites)
        renamed = {own.name: name for own in theirs if (name := _name_for(own, sites)) != own.name}
        if not renamed:
            return self
        seen = replace(self, renamed=tuple(sorted(renamed.items())))
        return replace(
            seen,
            source=replace(self.source, name=seen.called(self.source.name)),
            origins=frozenset(map(seen.called, self.origins)),
            unnamed=frozenset(map(seen.called, self.unnamed)),
            sites=frozenset(replace(own, name=seen.called(own.name)) for own in self.sites),
        )

    def called(self, name: str) -> str:
        """What the reader calls a site that the link calls `name`."""
        return dict(self.renamed).get(name, name)

    def names_origins(self, epoch: int) -> bool:
        """Whether the link's state says where each batch of this epoch came from."""
        return self.named_from is not None and epoch >= self.named_from

    def kinds(self) -> Iterator[frozenset[str]]:
        """The sets of sites that one of its batches may come from: one by one where its state tells them apart."""
        if self.named_from is None:
            yield self.origins
            return
        yield self.unnamed
        yield from (frozenset({name}) for name in self.origins)


class Verdict(Enum):
    """What becomes of a mirror's batches when a link meets them at its source."""

    CARRY = auto()
    LEAVE_OUT = auto()
    """The target has them: they were read there, or a link brings them there directly."""
    UNCLEAR = auto()
    """It may hold records that the target has, and others; nothing says which."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a batch, and the way that it came to the link's source.

    `untold`: the link whose state should say that way, and does not; "" where nothing is missing. `left_to`: the sites
    whose direct links are to bring what is left out; none where it has been at the target.
    """

    verdict: Verdict
    way: Way
    untold: str = ""
    left_to: frozenset[str] = frozenset()


def judge_batches(link: Link, way: Way, direct: frozenset[str]) -> Verdict:
    """Judge batches that another link brought to this one's source.

    `direct` are the sites whose own records other links bring to the same topic of the target. With prefixed names the
    name of a topic says where it has been, and a topic that has been at the target is not selected.
    """
    if link.target.name in way.been:
        return Verdict.LEAVE_OUT
    if link.topic_names == "prefixed":
        return Verdict.CARRY
    there = direct | {link.target.name}
    if not way.wrote:
        return Verdict.UNCLEAR  # nothing was said of it: that is not to say that nobody wrote it
    if way.wrote <= there:
        return Verdict.LEAVE_OUT
    return Verdict.UNCLEAR if way.wrote & there else Verdict.CARRY


def left_to(link: Link, way: Way) -> frozenset[str]:
    """Of batches that are left out: the sites whose direct links are to bring them."""
    return frozenset() if link.target.name in way.been else way.wrote - {link.target.name}


def direct_sites(link: Link, topic: str) -> frozenset[str]:
    """The sites whose own records of the topic other links bring to the target."""
    return frozenset(side.source.name for side in link.side_links if side.selects_topic(topic))


def may_share_a_topic(link: Link, other: Link) -> bool:
    """Whether a topic of the same name may be selected by both."""
    return may_have_any(all_of([link.selected_names(), other.selected_names()]))


def may_select(link: Link, expressions: Iterable[str], but: Iterable[str] = ()) -> bool:
    """Whether the link may select a topic that one of these expressions has in full, and none of `but`."""
    left = none_of(any_of(map(matching, filter(is_exact, but))))  # of another one is known what it may have at most
    return may_have_any(all_of([link.selected_names(), any_of(map(matching, expressions)), left]))


def may_carry_on(link: Link, other: Link) -> bool:
    """Whether a topic of the same name may be written by the link at its target and selected by the other one there."""
    return may_have_any(all_of([link.target_names(), other.selected_names()]))


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
                been = frozenset({registered.source.name})
                for kind in registered.kinds():
                    if judge_batches(link, Way(kind, been), direct) is Verdict.CARRY:
                        found |= kind
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
    its `side_links`, one that brings the target's own records to the source from elsewhere one of its `round_links`,
    and the sites they come from are known ones.
    """
    theirs, others = list(at_source), list(at_target)
    sites = {name for registered in (*theirs, *others) for name in (registered.source.name, *registered.origins)}
    link = replace(link, known_sites=link.known_sites | sites)
    backs = [*link.reverse_links, *_new_backs(link, theirs)]
    sides = [*link.side_links, *_new_sides(link, others)]
    rounds = [*link.round_links, *_new_rounds(link, theirs)]
    return replace(
        link,
        shared_targets=link.shared_targets or bool(backs or sides or rounds),
        reverse_links=tuple(backs),
        side_links=tuple(sides),
        round_links=tuple(rounds),
    )


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


def _new_rounds(link: Link, at_source: Iterable[Registration]) -> Iterator[Link]:
    known = {other.name for other in link.round_links}
    for registered in at_source:
        is_new = registered.topics is not None and registered.link not in known
        is_round = link.target.name in registered.origins and registered.source.name != link.target.name
        if is_new and is_round and registered.topic_names == link.topic_names == "same":
            other = writer_of(registered, link.source)
            if may_share_a_topic(link, other):
                known.add(other.name)
                yield other


def encode_registration(registered: Registration) -> tuple[bytes, bytes]:
    """Key and value of the registry's record. `origin` is what earlier versions read."""
    fields: dict[str, object] = {
        "v": REGISTRY_VERSION,
        "link": registered.link,
        "origin": registered.source.name,
        "origins": sorted(registered.origins),
        "topics": registered.topics,
        "topic_names": registered.topic_names,
        "cluster_id": registered.source.cluster_id,
        "addresses": sorted(registered.source.addresses),
    }
    if registered.named_from is not None:
        fields |= {"named_from": registered.named_from, "unnamed": sorted(registered.unnamed)}
    if registered.sites:
        known = sorted(registered.sites, key=lambda site: site.name)
        fields["sites"] = [[site.name, site.cluster_id, sorted(site.addresses)] for site in known]
    if registered.unit:
        fields["unit"] = registered.unit
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
        named_from=fields.get("named_from"),
        unnamed=frozenset(fields.get("unnamed", ())),
        sites=frozenset(SiteIdentity(name, known, frozenset(at)) for name, known, at in fields.get("sites", ())),
        unit=int(fields.get("unit", 0)),
    )
