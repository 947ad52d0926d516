"""Mirrored partitions that the source has no more: they go into the gap ledger, and a person closes the entry.

Nothing is done at the target: what was mirrored is then all that is left. A topic that was hidden for a moment and is
back as it was needs no decision, and one of the same name that is new stands still as a recreated one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from broker.client.cluster import Cluster
from broker.client.fanout import split_failures
from broker.client.topics import describe_each_topic
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Gap, GapKind, GapStatus, VoidBlock, VoidEntry
from mirror.offsets.offset_map import Where
from mirror.offsets.origin_entries import VoidOrigins
from mirror.offsets.pages import VoidPage
from mirror.offsets.recovery import Recovered, recover
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import Change
from mirror.offsets.tail import read_tails
from mirror.offsets.topic_entries import TopicIdentity
from mirror.topics.seen import TopicsSeen


@dataclass(frozen=True, slots=True)
class Deletions:
    """What deleted partitions change in the ledger: `stopped` wait for a decision, `passed` were just decided.

    `changes` are the entries to write: those that are not in the state as they are here. Where the target has the topic
    no more either, they take back what the state knows of the partition, but for its lines in the ledger: while there
    is a copy, the state says what of the source that copy is, should the source only have been hidden.
    """

    stopped: tuple[Gap, ...] = ()
    passed: tuple[Gap, ...] = ()
    changes: tuple[Change, ...] = ()


async def review_deletions(
    link: Link, clusters: tuple[Cluster, Cluster], entries: StateEntries, seen: TopicsSeen
) -> Deletions:
    """Compare what was mirrored with what is at the source. Final only after the fence. Raises ClientError.

    `seen` may be older than the entries: a worker that ran until the fence can have mirrored what was born in between.
    So the source is asked again before anything is called deleted.
    A partition whose log at the target cannot be read now is left for the next start.
    """
    source, target = clusters
    gone = deleted_partitions(link, entries.checkpoints, seen)
    if gone:
        topics, unclear = await describe_each_topic(source, {topic for topic, _ in gone})
        gone = deleted_partitions(link, gone, replace(seen, source=topics, source_failures=unclear))
    if not gone:
        return Deletions()
    known = {where: _gaps_of(entries, where) for where in gone}
    closed = {where: gaps for where in gone if (gaps := closed_deletions(known[where]))}
    judged = dict(closed)
    open_ = {where: checkpoint for where, checkpoint in gone.items() if where not in closed}
    tails, unread = split_failures(await read_tails(target, link, open_, fenced=entries.fenced_logs))
    for where, checkpoint in open_.items():
        if where in unread:
            continue
        batches = tails[where].batches if where in tails else []
        found = recover(entries.intervals(*where), entries.blocks_of(*where), checkpoint, batches)
        judged[where] = judge_deletion(link, checkpoint, found, known[where], target.clock.now_ms())
    stopped: list[Gap] = []
    passed: list[Gap] = []
    changes: list[Change] = list(await _taken_back(link, target, entries, closed))
    for where, written in sorted(judged.items()):
        changes += [gap for gap in written if gap not in known[where]]
        stopped += [gap for gap in written if gap.status is GapStatus.STOPPED]
        passed += [gap for gap in written if gap.status is GapStatus.PASSED and gap not in known[where]]
    return Deletions(tuple(stopped), tuple(passed), tuple(changes))


def _gaps_of(entries: StateEntries, where: Where) -> list[Gap]:
    """Without those that tell an earlier deletion of the partition."""
    return [gap for key, gap in entries.gaps.items() if key[:2] == where and key not in entries.outlived]


async def _taken_back(
    link: Link, target: Cluster, entries: StateEntries, closed: Iterable[Where]
) -> list[VoidBlock | VoidPage | VoidOrigins | VoidEntry]:
    """Tombstones for partitions whose deletion a person closed, and that are at neither site any more."""
    wanted = set(closed)
    topics, unclear = await describe_each_topic(target, {link.target_topic(topic) for topic, _ in wanted})
    voids: list[VoidBlock | VoidPage | VoidOrigins | VoidEntry] = []
    gone = {w for w in wanted if link.target_topic(w[0]) not in topics and link.target_topic(w[0]) not in unclear}
    for where in sorted(gone):
        voids += [VoidBlock(*where, block.key_source) for block in entries.blocks_of(*where)]
        voids += [VoidPage(*where, page.key_source) for page in reversed(entries.pages_of(*where))]
        voids += map(VoidOrigins, entries.origins.get(where, ()))
        voids.append(VoidEntry(entries.checkpoints[where]))
    kept = {topic for topic, _ in entries.checkpoints.keys() - gone}
    for topic in sorted({topic for topic, _ in gone} - kept):
        if topic in entries.topic_ids:
            voids.append(VoidEntry(TopicIdentity(topic, entries.topic_ids[topic])))
    return voids


def deleted_partitions(
    link: Link, checkpoints: Mapping[Where, Checkpoint], seen: TopicsSeen
) -> dict[Where, Checkpoint]:
    """Those that were mirrored, should be, and are not at the source. One that it does not describe may be there."""
    numbers = {name: {partition.partition for partition in topic.partitions} for name, topic in seen.source.items()}
    return {
        (topic, partition): checkpoint
        for (topic, partition), checkpoint in checkpoints.items()
        if partition not in numbers.get(topic, ()) and topic not in seen.source_failures and link.selects_topic(topic)
    }


def _deletions(known: Iterable[Gap]) -> list[Gap]:
    return [gap for gap in known if gap.kind is GapKind.DELETED]


def closed_deletions(known: Iterable[Gap]) -> tuple[Gap, ...]:
    """The entries that a person closed, as passed; they stay closed until the partition was mirrored again. Pure."""
    decided = (GapStatus.ACCEPTED, GapStatus.PASSED)
    return tuple(replace(gap, status=GapStatus.PASSED) for gap in _deletions(known) if gap.status in decided)


def judge_deletion(
    link: Link, checkpoint: Checkpoint, found: Recovered, known: list[Gap], now_ms: int
) -> tuple[Gap, ...]:
    """The ledger's entries of a deleted partition, as they should be now; `known`: as they are. Pure."""
    if closed := closed_deletions(known):
        return closed
    mine = _deletions(known)
    last = max(found.position, checkpoint.source_end_offset)
    missed = f"up to {last - found.position} of its records were not mirrored" if last > found.position else ""
    text = f"{link.source.name} has no such partition any more"
    since = (gap.at_ms for gap in mine if gap.status is GapStatus.STOPPED)
    gap = Gap(
        topic=checkpoint.topic,
        partition=checkpoint.partition,
        kind=GapKind.DELETED,
        source_from=found.position,
        source_to=last,
        target_offset=found.end.target_next,
        status=GapStatus.STOPPED,
        at_ms=next(since, now_ms),
        detail=f"{text}; {missed}" if missed else f"{text}; all that was seen of it was mirrored",
    )
    others = (other for other in known if other.status in (GapStatus.STOPPED, GapStatus.ACCEPTED))
    ours = (gap.kind, gap.source_from)
    return gap, *(replace(o, status=GapStatus.GONE) for o in others if (o.kind, o.source_from) != ours)
