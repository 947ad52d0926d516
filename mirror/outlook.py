"""What accepting a gap means: decided as the next start of the link would, on what both clusters hold now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.client.cluster import Cluster
from broker.client.fanout import split_failures
from broker.client.probe import StoredBatch, batches_at
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.adoption import Adoption
from mirror.offsets.entries import Gap, GapKind, GapStatus, Writer
from mirror.offsets.intervals import End
from mirror.offsets.recovery import landed_to
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.tail import read_tails
from mirror.worker.origins import Passage
from mirror.worker.parted import gather_now
from mirror.worker.resume import Evidence, Opening, lost_for_good, open_partition, recover_partition

_NOBODY = Writer(-1, -1)


@dataclass(frozen=True, slots=True)
class GapOutlook:
    """One gap, if it is accepted now. Source offsets; ranges are [from, to), None where there is none.

    The skipped range is never mirrored. The repeated one was mirrored before, and the source's records in it are
    mirrored (again). Timestamps, of the skipped range or around it, are None where they are not known any more.
    """

    topic: str
    partition: int
    kind: GapKind
    meaning: str
    goes_on_at: int
    skipped_from: int | None
    skipped_to: int | None
    repeated_from: int | None
    repeated_to: int | None
    oldest_timestamp_ms: int | None
    newest_timestamp_ms: int | None


async def look_ahead(
    link: Link, clusters: tuple[Cluster | None, Cluster], entries: StateEntries, gaps: Sequence[Gap]
) -> tuple[GapOutlook, ...]:
    """Per gap, in their order; as recorded when the partition stopped where a site has not got it now (or is None).

    Nothing is written, nobody is fenced. Raises ClientError.
    """
    source, target = clusters
    evidence: dict[TopicPartition, Evidence] = {}
    if source is not None:
        link, evidence = await _evidence(link, source, target, entries, gaps)
    outlooks = []
    for gap in gaps:
        found = evidence.get(TopicPartition(gap.topic, gap.partition))
        if source is None or found is None or found.checkpoint is None or gap.kind is GapKind.TARGET_NOT_EMPTY:
            outlooks.append(_recorded(gap))
        else:
            outlooks.append(await _outlook(link, (source, target), found, gap))
    return tuple(outlooks)


def outlook_on(adoption: Adoption) -> GapOutlook:
    """What adopting means, as both logs were when they were compared."""
    gap, first, end = adoption.gap, adoption.first.source_start, adoption.end.source_next
    meaning = (
        f"the target's records are the source's from offset {first} to {end - 1} ({adoption.records} copies found)"
    )
    meaning += f"; the link goes on behind them, with the map of them ({len(adoption.intervals)} intervals)"
    skipped = (gap.source_from, first) if first > gap.source_from else None
    if skipped:
        meaning += f"; source offsets {skipped[0]} to {skipped[1] - 1} are not at the target, and are never mirrored"
    return _made(gap, meaning, end, skipped, None)


async def _evidence(
    link: Link, source: Cluster, target: Cluster, entries: StateEntries, gaps: Sequence[Gap]
) -> tuple[Link, dict[TopicPartition, Evidence]]:
    """With the link as the registries complete it."""
    passage = Passage(link, source, target)
    await passage.look(target, entries.left_to())
    wanted = {TopicPartition(gap.topic, gap.partition) for gap in gaps}
    evidence, _ = await gather_now(passage, (source, target), entries, wanted, patience_ms=None)
    return passage.link, evidence  # of what cannot be asked now, the record stands


async def _outlook(link: Link, clusters: tuple[Cluster, Cluster], evidence: Evidence, gap: Gap) -> GapOutlook:
    accepted = tuple(
        replace(known, status=GapStatus.ACCEPTED) if known.kind is gap.kind else known for known in evidence.gaps
    )
    opening = open_partition(replace(evidence, gaps=accepted), _NOBODY)
    recovered = recover_partition(evidence)
    position = recovered.position
    now = next((passed for passed in opening.passed if passed.kind is gap.kind), gap)
    skipped = (position, opening.position) if opening.position > position else None
    repeated_to = position
    if gap.kind is GapKind.TARGET_TRUNCATED:
        repeated_to = max(position, await _landed_to(link, clusters[1], evidence))
    repeated = (opening.position, repeated_to) if opening.position < repeated_to else None
    if gap.kind is GapKind.RECREATED:
        skipped = repeated = None  # the offsets of two topics do not compare
    timestamps = await _timestamps(clusters[0], evidence, skipped) if skipped else (None, None)
    is_passed = any(passed.kind is gap.kind for passed in opening.passed)
    meaning = _meaning(now, opening, skipped, repeated)
    if opening.gap is None and gap.kind is GapKind.TRUNCATED_END and not is_passed:
        meaning = _as_long_again(evidence, opening)
    elif opening.gap is None and gap.kind in _WITH_OTHERS and link.reverse_links:
        meaning += (
            f"; but for what a link back brought there: {link.target.name} has that, and nothing of it is repeated"
        )
    if gap.kind is GapKind.TARGET_TRUNCATED and (lost := lost_for_good(evidence, recovered, opening.position)):
        meaning += f"; {lost}"
    return _made(gap, meaning, opening.position, skipped, repeated, timestamps)


async def _landed_to(link: Link, target: Cluster, evidence: Evidence) -> int:
    """The source offset before which the target may have records: also those that a session wrote behind the loss."""
    checkpoint, batches = evidence.checkpoint, evidence.tail.batches
    assert checkpoint is not None
    since = 0 if evidence.target_is_recreated else evidence.lost_from  # the new topic's offsets count from 0
    if since is not None:
        anew = replace(checkpoint, end=End(checkpoint.end.source_next, since), records_behind=-1)
        tails, _ = split_failures(await read_tails(target, link, {evidence.where: anew}))
        batches = tails[evidence.where].batches if evidence.where in tails else batches
    return landed_to(evidence.blocks, checkpoint, batches)


def _made(
    gap: Gap,
    meaning: str,
    goes_on_at: int,
    skipped: tuple[int, int] | None,
    repeated: tuple[int, int] | None,
    timestamps: tuple[int | None, int | None] = (None, None),
) -> GapOutlook:
    return GapOutlook(
        topic=gap.topic,
        partition=gap.partition,
        kind=gap.kind,
        meaning=meaning,
        goes_on_at=goes_on_at,
        skipped_from=skipped[0] if skipped else None,
        skipped_to=skipped[1] if skipped else None,
        repeated_from=repeated[0] if repeated else None,
        repeated_to=repeated[1] if repeated else None,
        oldest_timestamp_ms=timestamps[0],
        newest_timestamp_ms=timestamps[1],
    )


async def _timestamps(source: Cluster, evidence: Evidence, skipped: tuple[int, int]) -> tuple[int | None, int | None]:
    """Of the first and the last skipped record; for those that are gone, of the records around them."""
    where = evidence.where
    first = await _batch_at(source, where, max(skipped[0], evidence.source.start))
    last = await _batch_at(source, where, skipped[1] - 1)
    assert evidence.checkpoint is not None
    oldest = evidence.checkpoint.source_timestamp_ms
    if skipped[0] >= evidence.source.start:
        oldest = first.header.first_timestamp if first else -1
    newest = last.header.max_timestamp if last else first.header.first_timestamp if first else -1
    return (oldest if oldest >= 0 else None), (newest if newest >= 0 else None)


async def _batch_at(source: Cluster, where: TopicPartition, offset: int) -> StoredBatch | None:
    answers, _ = split_failures(await batches_at(source, {where: offset}))
    return answers.get(where)


def _recorded(gap: Gap) -> GapOutlook:
    meaning = f"as recorded when it stopped ({gap.detail}); what it is now decides when the link goes on"
    if gap.kind is GapKind.DELETED:
        meaning = f"{gap.detail}; what is at the target stays"
    if gap.kind is GapKind.TARGET_NOT_EMPTY:
        meaning = f"{gap.detail}; the source's records from offset {gap.source_to} on are mirrored behind them: those "
        meaning += "that are there already would be there twice"
    skipped = repeated = None
    if gap.kind is not GapKind.RECREATED:
        skipped = (gap.source_from, gap.source_to) if gap.source_to > gap.source_from else None
        repeated = (gap.source_to, gap.source_from) if gap.source_to < gap.source_from else None
    return _made(gap, meaning, gap.source_to, skipped, repeated)


def _meaning(gap: Gap, opening: Opening, skipped: tuple[int, int] | None, repeated: tuple[int, int] | None) -> str:
    if opening.gap is not None:
        return f"it then stands still at another gap: {opening.gap.kind.value}: {opening.gap.detail}"
    words = [_KEPT[gap.kind]] if gap.kind in _KEPT else []
    if gap.kind is GapKind.LEFT_OUT:
        words.append(f"{gap.detail}: what it did not bring of source offsets {gap.source_from} to {gap.source_to - 1}")
        words[-1] += " is never mirrored; from here on the link mirrors such records itself"
    if skipped:
        words.append(f"source offsets {skipped[0]} to {skipped[1] - 1} are never mirrored")
    if repeated and gap.kind is GapKind.TRUNCATED_END:
        words.append(f"the source's records from offset {repeated[0]} on are mirrored behind them")
    elif repeated:
        again = f"source offsets {repeated[0]} to {repeated[1] - 1} are mirrored again"
        words.append(f"{again}: those that the target still has would be there twice")
    return "; ".join(words) or "no record is skipped, and none is mirrored again"


def _as_long_again(evidence: Evidence, opening: Opening) -> str:
    if evidence.comparison.is_whole:
        return "the source has again all that was mirrored: at its next start the link goes on by itself"
    at = opening.position
    unproved = f"the source's log goes on to {evidence.source.end} now, and nothing proves that it is again the one"
    return f"{unproved} that was read: what it has before offset {at} that was not is never mirrored"


_WITH_OTHERS = (GapKind.RECREATED, GapKind.TRUNCATED_END)
"""Behind which the source has records that the link never saw: a link back may have brought some of them."""
_KEPT = {
    GapKind.TRUNCATED_END: "the target keeps the records that the source lost",
    GapKind.RECREATED: "the target keeps the old topic's records, and the new topic's are mirrored behind them",
    GapKind.FOREIGN_WRITER: "the others' records stay among the mirrored ones",
}
