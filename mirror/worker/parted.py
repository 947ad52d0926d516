"""Whether a link's source still has what was mirrored from it: looked at as the link's next start would, and by others.

A site that comes back from a loss may have an older disk: its log ends before what the other site has of it, or has
others in their place. A link back brings none of those records, since it leaves out what came from its own target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from broker.client.cluster import Cluster
from broker.client.fanout import both
from broker.client.topics import describe_topics, list_each_topic, list_topics
from broker.wire.vocabulary import TopicPartition
from mirror.limits import PARTED_LOOK_MS
from mirror.link import Link
from mirror.offsets.entries import GapKind, GapStatus
from mirror.offsets.fenced_logs import LogsFenced
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.promotions import promotion_of
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.topics.plan import pair_topics
from mirror.worker.evidence import gather_evidence, partition_pairs
from mirror.worker.holds import Attempts, Holds
from mirror.worker.limits import WorkerLimits
from mirror.worker.origins import Passage
from mirror.worker.registry import identify
from mirror.worker.resume import Evidence, recover_partition


class PartingKind(StrEnum):
    """How a source's log is another one than was mirrored."""

    CUT = "cut"
    """It ends before what was mirrored, or has other records there."""
    OTHER_TOPIC = "other_topic"
    """The topic was deleted and made again."""
    GONE = "gone"
    """The partition is not there any more."""
    NOT_COMPARED = "not_compared"
    """A site does not tell, or not in time: whether they part is not known."""


@dataclass(frozen=True, slots=True)
class SourceParting:
    """One partition. From source offset `from_offset` on the source's records are not those that were mirrored, up to
    `mirrored_next`. `is_missing`: the target has some of those, or may, and no link back brings them. They stand there
    among the offsets [target_from, target_next) of `target_topic`; None: from where on is not known.
    """

    topic: str
    partition: int
    kind: PartingKind
    from_offset: int
    mirrored_next: int
    detail: str
    is_missing: bool = True
    target_topic: str = ""
    target_from: int | None = None
    target_next: int = 0

    @property
    def where(self) -> TopicPartition:
        """In the source."""
        return TopicPartition(self.topic, self.partition)

    @property
    def is_known(self) -> bool:
        """Whether the logs could be compared."""
        return self.kind is not PartingKind.NOT_COMPARED

    def in_words(self, site: str) -> str:
        """Without the partition; `site`: what the source is called."""
        match self.kind:
            case PartingKind.NOT_COMPARED:
                return f"whether {site} still has what was mirrored from it is not known: {self.detail}"
            case PartingKind.GONE:
                return f"{site} has it no more, and offsets up to {self.mirrored_next} were mirrored from there"
            case PartingKind.OTHER_TOPIC:
                return f"it was deleted at {site} and made again ({self.detail})"
            case PartingKind.CUT:
                span = f"offsets {self.from_offset} to {self.mirrored_next - 1}"
                return f"{site} has lost what was mirrored from its {span}: {self.detail}"


async def source_partings(link: Link, source: Cluster, target: Cluster) -> tuple[SourceParting, ...]:
    """The partitions whose source has not what was mirrored from it, or may not. Nothing is written, nobody is fenced.

    Raises ClientError, MirrorError.
    """
    return await partings_of(link, source, target, await read_entries(link, target))


async def partings_of(link: Link, source: Cluster, target: Cluster, entries: StateEntries) -> tuple[SourceParting, ...]:
    """As `source_partings`, of who has read the link's state."""
    passage = Passage(link, source, target)
    if entries.checkpoints or promotion_of(entries) is not None:
        await passage.look(target, entries.left_to())
    return await partings_by(passage, (source, target), entries)


async def partings_by(
    passage: Passage, clusters: tuple[Cluster, Cluster], entries: StateEntries
) -> tuple[SourceParting, ...]:
    """As `partings_of`; `passage` has looked. Raises ClientError, MirrorError."""
    (source, target), link = clusters, passage.link
    wanted = [
        TopicPartition(*where)
        for where in sorted(entries.checkpoints)
        if link.selects_topic(where[0]) and where[0] != link.canary_topic
    ]
    if not wanted:
        return await _without_map(passage, clusters, entries)
    evidence, holds = await gather_now(passage, clusters, entries, wanted, PARTED_LOOK_MS, entries.fenced_logs)
    is_brought = _is_another_cluster(link, passage, source)
    there = await describe_topics(target, {link.target_topic(where.topic) for where in wanted})
    found = []
    for where in wanted:
        topic = there.get(link.target_topic(where.topic))
        if topic is None or where.partition >= len(topic.partitions):
            continue  # what was brought is at neither site
        if where not in evidence and str(topic.topic_id or "") != entries.checkpoints[where].topic_ids.target:
            continue
        told = evidence.get(where), holds.get(where)
        parting = _judge(where, entries, *told, (link.source.name, link.target.name), is_brought=is_brought)
        if parting is not None:
            found.append(replace(parting, target_topic=link.target_topic(where.topic)))
    return tuple(found)


async def _without_map(
    passage: Passage, clusters: tuple[Cluster, Cluster], entries: StateEntries
) -> tuple[SourceParting, ...]:
    """Of a link whose target was promoted although its state says of nothing that it was mirrored: that was deleted.
    Another cluster than the mirrored one gets all of it from a link back.
    """
    (source, target), link = clusters, passage.link
    if promotion_of(entries) is None or _is_another_cluster(link, passage, source):
        return ()
    detail = f"the state of link {link.name} was deleted at {target.site.name}, and the offset map with it"
    return tuple(
        SourceParting(source_topic, partition.partition, PartingKind.NOT_COMPARED, 0, 0, detail, target_topic=name)
        for name, topic in sorted((await list_topics(target)).items())
        if (source_topic := link.source_topic(name)) is not None and source_topic != link.canary_topic
        for partition in topic.partitions
    )


async def gather_now(
    passage: Passage,
    clusters: tuple[Cluster, Cluster],
    entries: StateEntries,
    wanted: Collection[TopicPartition],
    patience_ms: int | None,
    fenced_logs: LogsFenced | None = None,
) -> tuple[dict[TopicPartition, Evidence], Mapping[TopicPartition, Hold]]:
    """What decides where these source partitions go on, as both clusters are now; and why one cannot be told. Those
    that a site has not got are in neither. `passage` has looked. `fenced_logs` as in `gather_evidence`. Raises
    ClientError.
    """
    source, target = clusters
    link, topics = passage.link, {where.topic for where in wanted}
    (at_source, hidden), at_target = await both(
        list_each_topic(source, topics), describe_topics(target, map(link.target_topic, topics))
    )
    mirrored = pair_topics(link, {name: topic for name, topic in at_source.items() if name in topics}, at_target)
    pairs = {where: there for where, there in partition_pairs(link, mirrored).items() if where in wanted}
    holds = Holds(Attempts(WorkerLimits(), target.clock), target.clock)
    for where in wanted:
        if where.topic in hidden:
            holds.add_error(where, hidden[where.topic], at_source=True)
    evidence = await gather_evidence(
        link, clusters, entries, mirrored, pairs, passage, holds,
        fenced=False, patience_ms=patience_ms, fenced_logs=fenced_logs,
    )  # fmt: skip
    return evidence, {where: holds.current[where] for where in wanted if where in holds.current}


_BEGINS_ANEW: Final = (GapKind.RECREATED, GapKind.MIRRORED_ANEW)
_UNTOLD: Final = {
    HoldReason.NO_LEADER_AT_SOURCE: "it has no leader at {1}",
    HoldReason.NO_LEADER_AT_TARGET: "it has no leader at {2}",
}


def _judge(
    where: TopicPartition,
    entries: StateEntries,
    found: Evidence | None,
    hold: Hold | None,
    sites: tuple[str, str],
    *,
    is_brought: bool,
) -> SourceParting | None:
    """`sites`: the link's source and target, by name: whoever is told may ask the other way round."""
    checkpoint = entries.checkpoints[where]
    mirrored_next = max(checkpoint.position, checkpoint.end.source_next)
    if hold is not None:
        why = hold.detail or _UNTOLD.get(hold.reason, "{0}").format(hold.reason.value, *sites)
        return SourceParting(*where, PartingKind.NOT_COMPARED, 0, mirrored_next, why)
    if found is None:
        gone = SourceParting(*where, PartingKind.GONE, 0, mirrored_next, "the source has it no more", not is_brought)
        begun = _whole_copy_from(where, entries, mirrored_next)
        return replace(gone, target_from=begun, target_next=checkpoint.end.target_next)
    recovered = recover_partition(found)
    is_kept = not found.target_is_recreated and found.tail.log_start < recovered.end.target_next
    mirrored_next = max(mirrored_next, recovered.position)
    if found.source.is_recreated:
        detail = f"the source topic's id was {found.source.known_topic_id} and is {found.source.topic_id}"
        start = found.source.start
        is_missing = is_kept and not is_brought
        other = SourceParting(*where, PartingKind.OTHER_TOPIC, start, mirrored_next, detail, is_missing)
        begun = _whole_copy_from(where, entries, mirrored_next)
        return replace(other, target_from=begun, target_next=recovered.end.target_next)
    if reason := found.comparison.source_parted or (found.comparison.is_unlike and found.comparison.target_lost):
        last, agreed_to = found.comparison.last, max(found.comparison.agreed_to, found.source.start)
        start = agreed_to if last is None else min(agreed_to, last.source_offset + 1)  # others' may stand between
        if found.comparison.is_unlike and recovered.last is not None:  # epochs that were used again vouch for it
            start = min(start, recovered.last.source_offset)
        known = PartitionMap(recovered.intervals, recovered.end, recovered.position)
        target_from, target_next = known.to_target(start), recovered.end.target_next
        is_missing = is_kept and target_from != target_next  # else no more than markers
        cut = SourceParting(*where, PartingKind.CUT, start, mirrored_next, reason, is_missing)
        return replace(cut, target_from=target_from, target_next=target_next)
    return None


def _whole_copy_from(where: TopicPartition, entries: StateEntries, mirrored_next: int) -> int:
    """From where on the target has all that was mirrored once: behind the old copy of a repair, whose new one is whole.
    Amid the copying both are counted, which is too much and not too little.
    """
    gaps = (gap for gap in entries.gaps.values() if (gap.topic, gap.partition) == where)
    begun = [gap for gap in gaps if gap.kind in _BEGINS_ANEW and gap.status is GapStatus.PASSED]
    last = max(begun, key=lambda gap: gap.at_ms, default=None)
    is_whole = last is not None and last.kind is GapKind.MIRRORED_ANEW and mirrored_next >= last.source_from
    return last.target_offset if last is not None and is_whole else 0


def _is_another_cluster(link: Link, passage: Passage, source: Cluster) -> bool:
    """Whether none of the link's batches at the target was read at the cluster that is the source now, by what the link
    registered there: then a link back takes them for a third site's, and brings them.
    """
    now = identify(source)
    ours = [one for one in passage.at_target.as_written() if one.link == link.name]
    return bool(ours) and not any(one.source.is_same(now) for one in ours)


def that_are_missing(found: Iterable[SourceParting]) -> tuple[SourceParting, ...]:
    """Of what the source lacks that which the target has, and no link back brings."""
    return tuple(parting for parting in found if parting.is_missing)
