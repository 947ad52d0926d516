"""A link as both its sites complete it, and whether a file declares it as its worker ran it.

Each worker says at the target what it brings, and from which cluster. A file on another machine may name other topics,
or another cluster under the source's name; and where a site was built anew at its old address, another cluster answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from mirror.errors import MirrorError
from mirror.link import Link
from mirror.offsets.state import StateReader
from mirror.offsets.state_entries import StateEntries
from mirror.origins import Registration, SiteIdentity
from mirror.worker.origins import Passage
from mirror.worker.registry import OriginRegistry, identify


class DeclaredPart(StrEnum):
    """What of a link is not as its worker said it."""

    SOURCE = "source"
    """The cluster that answers is another one than the records came from."""
    TOPICS = "topics"
    TOPIC_NAMES = "topic_names"


@dataclass(frozen=True, slots=True)
class DeclaredOtherwise:
    """One part: as it is `here`, and as the link's worker ran it, `there`. Of topics: those of the file, and those that
    were mirrored and are not among them; more than the worker's are no harm.
    """

    part: DeclaredPart
    here: str
    there: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The link with what both clusters say of others; `otherwise`: as far as its worker said itself."""

    link: Link
    otherwise: tuple[DeclaredOtherwise, ...] = ()

    @property
    def is_another_source(self) -> bool:
        return any(one.part is DeclaredPart.SOURCE for one in self.otherwise)


async def complete_link(link: Link, source: Cluster, target: Cluster, reader: StateReader | None = None) -> Link:
    """The link with what both clusters say of others now; `reader`: of its state, of who asks again and again. Raises
    ClientError, StateDamaged.
    """
    return (await complete_and_compare(link, source, target, reader)).link


async def complete_and_compare(
    link: Link, source: Cluster, target: Cluster, reader: StateReader | None = None
) -> Completed:
    """As `complete_link`. Where another cluster answers, what it says of others is not of this link."""
    passage = Passage(link, source, target)
    entries, _ = await both((reader or StateReader(link)).read(target), passage.read_registries())
    otherwise = declared_otherwise(link, entries, passage.at_target.as_written(), identify(source))
    found = Completed(link, otherwise)
    if found.is_another_source:
        return found
    await passage.complete(target, entries.left_to())
    return Completed(passage.link, otherwise)


async def compare_at_target(link: Link, target: Cluster, reader: StateReader) -> tuple[DeclaredOtherwise, ...]:
    """Without the source. What the target does not tell is not compared."""
    registry = OriginRegistry(target)
    with suppress(ClientError, MirrorError):
        entries, _ = await both(reader.read(target), registry.refresh())
        return declared_otherwise(link, entries, registry.as_written(), None)
    return ()


def declared_otherwise(
    link: Link, entries: StateEntries, registered: Iterable[Registration], source: SiteIdentity | None
) -> tuple[DeclaredOtherwise, ...]:
    """By what each of the link's units said last; `source`: what the cluster that answers says of itself. Pure."""
    owners = {owner.writer.producer_id for owner in entries.owners().values() if owner is not None}
    mirrored = {topic for topic, _ in entries.checkpoints if topic != link.canary_topic}
    left_out = sorted(topic for topic in mirrored if not link.selects_topic(topic))
    found = dict[DeclaredPart, DeclaredOtherwise]()
    for one in registered:
        if one.link != link.name or one.producer_id not in owners:
            continue
        if source is not None and not one.source.is_same(source):
            there = one.source.cluster_id or ", ".join(sorted(one.source.addresses))
            found[DeclaredPart.SOURCE] = DeclaredOtherwise(DeclaredPart.SOURCE, source.cluster_id, there)
        if left_out and one.topics is not None and set(one.topics) != set(link.topics):
            told = ", ".join(link.topics), ", ".join(left_out)
            found[DeclaredPart.TOPICS] = DeclaredOtherwise(DeclaredPart.TOPICS, *told)
        if one.topics is not None and one.topic_names != link.topic_names:
            names = link.topic_names, one.topic_names
            found[DeclaredPart.TOPIC_NAMES] = DeclaredOtherwise(DeclaredPart.TOPIC_NAMES, *names)
    return tuple(found[part] for part in DeclaredPart if part in found)
