"""A group on a link, for people: where it stands at both sites, and what of it is not carried over, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.groups import committed_offsets
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from mirror.errors import GroupNotCarried
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, GroupSync, GroupSyncs
from mirror.offsets.offset_map import Where
from mirror.offsets.state import read_entries

REASONS: Mapping[GroupAction, str] = {
    GroupAction.HOLD_NOT_MIRRORED: "it has read further than is mirrored: wait for the mirror, or see farshore status",
    GroupAction.HOLD_BEFORE_MIRROR: "it stands before the first mirrored record: no offset at the target is equal",
    GroupAction.HOLD_OFFSETS_IN_DOUBT: "it may mean another record than the mirrored one: see farshore status",
    GroupAction.HOLD_MORE_SITES: "a third site writes the topic, too, and which of its records were read is not known",
    GroupAction.SKIP_ACTIVE: "it has members at the target: their own offsets hold",
    GroupAction.SKIP_MOVED_ON: "it has read further at the target than at the source",
    GroupAction.SKIP_SET_BACK: "it was set back at the target, and has not moved at the source since",
    GroupAction.BEFORE_LOG: "the target has no more what it reads next, and its source has: consumers would go on "
    "where auto.offset.reset sends them",
}


@dataclass(frozen=True, slots=True)
class CarriedPartition:
    """One partition of a group. Offsets as they are now, None where there is none or the site does not answer.

    `state` is "carried", "waiting" (see `reason`) or "not_seen" (the link has not looked yet). `written_*` are what the
    link last committed at the target, and for which source offset.
    """

    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    written_source_offset: int | None
    written_target_offset: int | None
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class CarriedGroup:
    """A group on a link. Times are the worker's, None for never; `failure` is why it was not carried over at all."""

    group: str
    link: str
    source_answers: bool
    looked_at_ms: int | None
    synced_at_ms: int | None
    failure: str
    partitions: tuple[CarriedPartition, ...]


async def describe_carried_group(link: Link, source: Cluster | None, target: Cluster, group: str) -> CarriedGroup:
    """Look at both sites (`source` None: it does not answer). Raises GroupNotCarried, ClientError, StateDamaged."""
    entries = await read_entries(link, target)
    at_source = await committed_offsets(source, group) if source is not None else {}
    if group not in entries.groups.by_group:
        if not link.selects_group(group):
            raise GroupNotCarried(f"link {link.name} does not carry group {group}: its groups do not name it")
        if not any(link.selects_topic(where.topic) for where in at_source):
            raise GroupNotCarried(f"group {group} has no offset in a topic that link {link.name} mirrors")
    return carried_group(
        link, group, entries.groups, at_source if source else None, await committed_offsets(target, group)
    )


def carried_group(
    link: Link,
    group: str,
    syncs: GroupSyncs,
    at_source: Mapping[TopicPartition, CommittedOffset] | None,
    at_target: Mapping[TopicPartition, CommittedOffset],
) -> CarriedGroup:
    """Put together what was seen. Pure."""
    entry = syncs.by_group.get(group) or GroupSync(group, 0)
    here = {(w.topic, w.partition): c.offset for w, c in (at_source or {}).items() if link.selects_topic(w.topic)}
    places = sorted({*entry.written, *entry.waiting, *here})
    return CarriedGroup(
        group=group,
        link=link.name,
        source_answers=at_source is not None,
        looked_at_ms=syncs.looked_at_ms,
        synced_at_ms=syncs.synced_at(group),
        failure=entry.failure,
        partitions=tuple(_partition(link, where, entry, here.get(where), at_target) for where in places),
    )


def _partition(
    link: Link,
    where: Where,
    entry: GroupSync,
    source_offset: int | None,
    at_target: Mapping[TopicPartition, CommittedOffset],
) -> CarriedPartition:
    there = at_target.get(TopicPartition(link.target_topic(where[0]), where[1]))
    written, waits = entry.written.get(where), entry.waiting.get(where)
    state = "waiting" if waits is not None else "carried" if written is not None else "not_seen"
    return CarriedPartition(
        topic=where[0],
        partition=where[1],
        source_offset=source_offset,
        target_offset=there.offset if there is not None else None,
        written_source_offset=written.source_offset if written is not None else None,
        written_target_offset=written.target_offset if written is not None else None,
        state=state,
        reason=f"{waits.value}: {REASONS[waits]}" if waits is not None else "",
    )
