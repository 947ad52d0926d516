"""Looking at where groups stand at both sites, twice, with a whole pass of the link between, and at what is next there.

The order within a look: offsets at the source, then at the target, then the map, which only knows more by then. A pass
that begins behind a look has seen the source's offsets of that look, or later ones (`groups.py` judges).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.groups import ListedGroup, committed_offsets_of_groups, list_groups_in_part
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import AclOperation, AclResource, TopicPartition
from mirror.api import (
    CONSUMER_PROTOCOL_TYPES,
    GroupAction,
    GroupMap,
    GroupSync,
    Link,
    LinkState,
    RunState,
    StateReader,
    carried_offset,
    complete_link,
    in_doubt_now,
    load_group_map,
    load_partial_state,
)
from monitoring import limits
from monitoring.audit.groups import (
    Carrying,
    FrozenGroups,
    GroupOffset,
    GroupReason,
    GroupVerdict,
    NextRecord,
    NextRecords,
    NextState,
    OffsetsSeen,
    compare_next,
    judge,
)
from monitoring.audit.missing_rights import refused
from monitoring.audit.model import FrozenLink, FrozenPartition, Place, Side
from monitoring.audit.next_records import NextAt, read_next

_UNMAPPED: Final = {
    GroupAction.HOLD_NOT_MIRRORED: GroupReason.NOT_MIRRORED_YET,
    GroupAction.HOLD_BEFORE_MIRROR: GroupReason.BEFORE_THE_MIRROR,
    GroupAction.HOLD_OFFSETS_IN_DOUBT: GroupReason.OFFSETS_IN_DOUBT,
    GroupAction.HOLD_MORE_SITES: GroupReason.MORE_SITES,
}
_DECLINED: Final = {
    GroupAction.SKIP_ACTIVE: GroupReason.ACTIVE_AT_TARGET,
    GroupAction.SKIP_MOVED_ON: GroupReason.MOVED_ON,
    GroupAction.SKIP_SET_BACK: GroupReason.SET_BACK,
}
Offsets = Mapping[str, Mapping[TopicPartition, CommittedOffset] | ClientError]
Cell = tuple[str, Place]
_NOTHING: Final = OffsetsSeen(None, None, None)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw. `went_back` are those that a link back moved at the source while it was under way."""

    source: Offsets
    target: Offsets
    state: LinkState
    map: GroupMap
    went_back: frozenset[Cell]
    not_selected: int
    not_listed: str


async def freeze_groups(link: Link, frozen: FrozenLink, source: Cluster, target: Cluster) -> FrozenGroups | None:
    """Where the link's groups stand, in the partitions that are frozen and asked for; None: it carries no groups.

    Waits for a pass of the link only where something differs that a pass may mend. Raises ClientError, StateDamaged.
    """
    if not link.groups:
        return None
    link = await complete_link(link, source, target)
    places = {(item.topic, item.partition): item for item in frozen.partitions if item.is_asked}
    reader = StateReader(link)
    clusters = (source, target)
    first = now = await _look(link, clusters, reader, places)
    is_pass_seen = False
    if _is_open(now, places) and _is_alive(now, target.clock.now_ms()):
        is_pass_seen = await _pass_by(reader, target, first)
        now = await _look(link, clusters, reader, places)
    found = await _judged(clusters, (first, now), places, is_pass_seen=is_pass_seen)
    return FrozenGroups(
        target.clock.now_ms(),
        now.state.entries.groups.looked_at_ms,
        is_pass_seen,
        now.not_selected,
        now.not_listed,
        tuple(found),
        tuple(
            right
            for cluster, answers in ((source, now.source), (target, now.target))
            for right in refused(cluster.site.name, AclOperation.DESCRIBE, AclResource.GROUP, answers)
        ),
    )


async def _look(
    link: Link, clusters: tuple[Cluster, Cluster], reader: StateReader, places: Mapping[Place, FrozenPartition]
) -> Look:
    source, target = clusters
    listed, failure = await list_groups_in_part(source)
    there, failure_there = await list_groups_in_part(target)
    known = {group for group in (*listed, *there) if _is_consumer(listed.get(group) or there[group])}
    names = sorted(group for group in known if link.selects_group(group))
    at_source = await committed_offsets_of_groups(source, names)
    at_target = await committed_offsets_of_groups(target, names)
    state = await load_partial_state(link, target, reader)
    gone = {place for place, item in places.items() if item.recreated}
    doubted = await in_doubt_now(link, state.entries, source, target)
    offset_map = await load_group_map(link, state.map, doubted | gone, clusters, {})
    went_back: frozenset[Cell] = frozenset()
    if link.reverse_links:
        again = await committed_offsets_of_groups(source, names)
        went_back = frozenset(
            (group, (where.topic, where.partition))
            for group in names
            for where, offset in _told(at_source[group]).items()
            if _told(again[group]).get(where) != offset
        )
    return Look(
        at_source,
        at_target,
        state,
        offset_map,
        went_back,
        sum(group in listed and not link.selects_group(group) for group in known),
        str(failure or failure_there or ""),
    )


def _is_consumer(group: ListedGroup) -> bool:
    return group.protocol_type in CONSUMER_PROTOCOL_TYPES


def _told(offsets: Mapping[TopicPartition, CommittedOffset] | ClientError) -> Mapping[TopicPartition, CommittedOffset]:
    return {} if isinstance(offsets, ClientError) else offsets


def _cells(look: Look, places: Mapping[Place, FrozenPartition]) -> list[Cell]:
    """Each partition of each group that has an offset at either site, and none of a group that a site does not tell."""
    targets = {TopicPartition(item.target_topic, item.partition): place for place, item in places.items()}
    found: set[Cell] = set()
    for group in look.source:
        here, there = _told(look.source[group]), _told(look.target[group])
        found |= {(group, (where.topic, where.partition)) for where in here if (where.topic, where.partition) in places}
        found |= {(group, targets[where]) for where in there if where in targets}
    return sorted(found)


def _seen(look: Look, expected_by: Look, cell: Cell, item: FrozenPartition) -> OffsetsSeen:
    """A cell at a look, with the offset that the map of `expected_by` gives for it."""
    group, place = cell
    here = _told(look.source.get(group, {})).get(TopicPartition(*place))
    there = _told(look.target.get(group, {})).get(TopicPartition(item.target_topic, item.partition))
    source, target = (None if at is None else at.offset for at in (here, there))
    if source is None or place in expected_by.state.unread:
        return OffsetsSeen(source, target, None)
    entry = expected_by.state.entries.groups.by_group.get(group)
    written = None if entry is None else entry.written.get(place)
    carried = carried_offset(expected_by.map, group, TopicPartition(*place), source, target, written)
    return OffsetsSeen(source, target, carried.offset)


def _is_open(look: Look, places: Mapping[Place, FrozenPartition]) -> bool:
    """Whether anything differs that the link's next pass may mend, or tell why not."""
    for cell in _cells(look, places):
        seen = _seen(look, look, cell, places[cell[1]])
        if seen.source is not None and seen.expected is not None and seen.expected != seen.target:
            return True
    return False


def _is_alive(look: Look, now_ms: int) -> bool:
    """Whether there is a pass to wait for."""
    entries = look.state.entries
    looked_at_ms = entries.groups.looked_at_ms
    is_resting = entries.run is not None and entries.run.state is not RunState.RUNNING
    return not is_resting and looked_at_ms is not None and now_ms - looked_at_ms < limits.AUDIT_GROUPS_RESTING_MS


async def _pass_by(reader: StateReader, target: Cluster, first: Look) -> bool:
    """Wait for a pass that began behind the first look: the second that ends, since one may have been under way."""
    began_s = target.clock.monotonic()
    last, ended = first.state.entries.groups.looked_at_ms, 0
    while target.clock.monotonic() - began_s < limits.AUDIT_GROUP_PASS_MS / limits.SECOND_MS:
        await target.clock.sleep(limits.AUDIT_GROUP_LOOK_MS / limits.SECOND_MS)
        looked_at_ms = (await reader.read(target, ())).groups.looked_at_ms
        ended += looked_at_ms != last
        last = looked_at_ms
        if ended == 2:
            return True
    return False


async def _judged(
    clusters: tuple[Cluster, Cluster],
    looks: tuple[Look, Look],
    places: Mapping[Place, FrozenPartition],
    *,
    is_pass_seen: bool,
) -> list[GroupOffset]:
    first, now = looks
    cells = {cell: _seen(now, now, cell, places[cell[1]]) for cell in _cells(now, places)}
    records = await _records(clusters, now, cells, places)
    found = []
    for cell, seen in cells.items():
        item = places[cell[1]]
        before = _NOTHING if cell in now.went_back else _seen(first, now, cell, item)
        carrying = _carrying(now, cell, seen, is_pass_seen=is_pass_seen)
        compared = None
        if seen.target is not None and seen.expected is not None and cell in records:
            compared = compare_next(seen.target, seen.expected, records[cell])
        verdict, reason, is_in_flight = judge(before, seen, compared, carrying)
        group, place = cell
        if isinstance(now.source[group], ClientError) or isinstance(now.target[group], ClientError):
            continue  # as a whole unknown, below
        if place in now.state.unread:
            verdict, reason, is_in_flight = GroupVerdict.UNKNOWN, GroupReason.NOT_READABLE, False
        here, there = _digests(records.get(cell))
        if verdict is GroupVerdict.UNKNOWN and _is_behind_a_transaction(records.get(cell)):
            reason, is_in_flight = GroupReason.OPEN_TRANSACTION, True
        found.append(
            GroupOffset(group, *place, item.target_topic, *_numbers(seen), verdict, reason, is_in_flight, here, there)
        )
    return [*found, *_unknown(now)]


def _numbers(seen: OffsetsSeen) -> tuple[int | None, int | None, int | None]:
    return seen.source, seen.target, seen.expected


def _digests(found: NextRecords | None) -> tuple[str | None, str | None]:
    return (None, None) if found is None else (found.at_source.digest, found.at_target.digest)


def _is_behind_a_transaction(found: NextRecords | None) -> bool:
    return found is not None and NextState.OPEN_TRANSACTION in (found.at_source.state, found.at_target.state)


def _unknown(look: Look) -> Iterable[GroupOffset]:
    """The groups of which a site did not tell the offsets: one line each, of no topic."""
    for group in look.source:
        if isinstance(look.source[group], ClientError) or isinstance(look.target[group], ClientError):
            verdict, reason = GroupVerdict.UNKNOWN, GroupReason.NOT_READABLE
            yield GroupOffset(group, "", -1, "", None, None, None, verdict, reason)


def _carrying(look: Look, cell: Cell, seen: OffsetsSeen, *, is_pass_seen: bool) -> Carrying:
    group, place = cell
    entries = look.state.entries
    entry = entries.groups.by_group.get(group) or GroupSync(group, 0)
    written = entry.written.get(place)
    is_left_so = seen.target is None or (written is not None and written.stands(seen.target))
    declined = _DECLINED.get(entry.waiting[place]) if place in entry.waiting else None
    if declined is None and entry.failure:
        declined = GroupReason.PASS_FAILED
    unmapped = None
    if seen.source is not None and seen.expected is None:
        unmapped = _UNMAPPED[look.map.why_unknown(*place, seen.source)]
    is_promoted = entries.run is not None and entries.run.state is RunState.PROMOTED
    return Carrying(is_pass_seen, is_promoted, is_left_so, unmapped, declined)


async def _records(
    clusters: tuple[Cluster, Cluster],
    look: Look,
    cells: Mapping[Cell, OffsetsSeen],
    places: Mapping[Place, FrozenPartition],
) -> dict[Cell, NextRecords]:
    """What is next at both sites, of each cell that has an offset at both and one by the map."""
    wanted: dict[Side, set[NextAt]] = {side: set() for side in Side}
    asked: dict[Cell, tuple[NextAt, NextAt, NextAt]] = {}
    for cell, seen in cells.items():
        end = look.map.own.mirrored_end(*cell[1])
        if seen.source is None or seen.target is None or seen.expected is None or end is None:
            continue
        item = places[cell[1]]
        there = TopicPartition(item.target_topic, item.partition)
        here = NextAt(TopicPartition(*cell[1]), seen.source, end.source_next)
        # What landed behind the map's end is not in it yet, at neither site.
        at_target, at_expected = (NextAt(there, at, end.target_next) for at in (seen.target, seen.expected))
        asked[cell] = (at_target, at_expected, here)
        wanted[Side.TARGET] |= set(asked[cell][:2])
        wanted[Side.SOURCE].add(here)
    untimed = [item for item in places.values() if not item.timestamps_comparable]
    source, target = clusters
    here_found = await read_next(source, wanted[Side.SOURCE], {TopicPartition(i.topic, i.partition) for i in untimed})
    there_found = await read_next(
        target, wanted[Side.TARGET], {TopicPartition(i.target_topic, i.partition) for i in untimed}
    )
    return {
        cell: _next_records(look, places[cell[1]], (there_found[a], there_found[b], here_found[c]), c)
        for cell, (a, b, c) in asked.items()
    }


def _next_records(
    look: Look, item: FrozenPartition, found: tuple[NextRecord, NextRecord, NextRecord], here_from: NextAt
) -> NextRecords:
    there, expected, here = found
    place = (item.topic, item.partition)
    mapped = None if there.offset is None else look.map.own.to_source(*place, there.offset)
    up_to = here_from.end if mapped is None else mapped
    passed_over = any(gap.start < up_to and here_from.offset < gap.end for gap in item.gaps)
    is_comparable = not (item.shared_target or item.compacted or passed_over)
    return NextRecords(there, expected, here, mapped, is_comparable)
