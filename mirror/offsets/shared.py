"""Translating a group's offset where the target topic has writers of its own.

The two sites hold the same records in different orders: an offset of the source has no equal at the target, and what a
group has read there is no prefix here. What is exact is the first target offset that it has not read. The two maps say
of every target offset which range of origin it stands in:

- in a run of this link's map: a record of the source's own. Read if its source offset lies before the group's.
- in a run of the reverse link's map (its source is this target): a record of the target's own, and where it went. Read
  if that lies before the group's offset.
- in neither, where both maps are complete: a marker, or an aborted batch. Nothing to read.
- in neither, where a map is not complete yet: unread, until it is known better. Fences leave markers there, also while
  the reverse link does not run, and a link that brings nothing stays where it began while the target's own writers go
  on with transactions; so `examine` looks at what is stored.

What the group has read at the target itself counts as read, too: that is what makes east-west-east end where it began,
and what keeps two links from driving a group to and fro. Why so: docs/adr/0008-groups-by-ranges-of-origin.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import FetchLimits, fetch_once, records_of
from broker.client.offsets import log_start_offsets
from broker.wire.errors import CorruptBatch
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import PartitionData
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, Written
from mirror.offsets.limits import EXAMINED_MAX_BYTES, EXAMINED_PARTITION_MAX_BYTES, READ_RUNS_MAX
from mirror.offsets.offset_map import OffsetMap, PartitionMap, Where
from mirror.offsets.runs import joined, landed_before, next_landed, next_taken, taken_before

_NOTHING = PartitionMap()


@dataclass(slots=True)
class Examined:
    """What was seen in a target log: where it starts, and the offsets that hold no records. It never becomes untrue."""

    log_start: int = 0
    without_records: set[int] = field(default_factory=set)


_UNSEEN = Examined()


class Unexplained(NamedTuple):
    """A target offset of which no map tells what it holds, and up to where the reverse link has looked at that log."""

    offset: int
    looked_to: int


@dataclass(frozen=True, slots=True)
class GroupMap:
    """An offset map for groups. `reverse_links`: the links back that write the same topics, each with its map.

    `other_links` bring records of other sites to the target, or the target's own to the source by way of other sites:
    which of those a group has read neither map tells, so of their topics no offset is translated.

    `in_doubt` are the source partitions where an offset may mean another record than the maps speak of. `examined` is
    by target partition. `written_back` is what the reverse links' states say of groups, read after the offsets.
    """

    own: OffsetMap
    reverse_links: tuple[tuple[Link, OffsetMap], ...] = ()
    in_doubt: frozenset[Where] = frozenset()
    examined: Mapping[TopicPartition, Examined] = field(default_factory=dict)
    other_links: tuple[Link, ...] = ()
    written_back: Mapping[str, Mapping[Where, Written]] = field(default_factory=dict)
    left_at_target: Mapping[TopicPartition, tuple[range, ...]] = field(default_factory=dict)
    """Of the target's own records those that stay there alone, as a person decided: no group is to read them again."""
    _unknown: dict[Where, int] = field(default_factory=dict, repr=False)

    def to_target(self, topic: str, partition: int, source_offset: int, read_to: int = 0) -> int | None:
        """The first target offset at or after `read_to` that a group at `source_offset` has not read; None: not known.

        `read_to` is the target offset up to which the group has read there. It counts only in a shared topic.
        """
        if (topic, partition) in self.in_doubt or self._has_more_sites(topic):
            return None
        plain = self._plain(topic, partition, source_offset)
        back = self._back(topic, partition)
        own = self.own.find(topic, partition)
        if back is None or plain is None or own is None:
            return plain
        known = _known_unread(own, back, (plain, source_offset), read_to)
        return min([self._first_unknown(topic, partition, own, back, read_to), *known])

    def ahead_from(self, group: str, where: Where, source_offset: int, target_offset: int) -> int | None:
        """The first target offset before `target_offset`, where the group stands, whose record it has read there and
        nowhere else; None where it is not known to be ahead.

        What the reverse link carried to the source, where the group went on from there, it has read at both.
        """
        back = self.written_back.get(group, {}).get(where)
        if back is not None and back.source_offset == target_offset and source_offset >= back.target_offset:
            return None
        first = self._first_unread(*where, source_offset)
        return first if first is not None and first < target_offset else None

    def has_record(self, topic: str, partition: int, start: int, stop: int) -> bool:
        """Whether the maps know of a record in this range of the target's offsets, or of one that is to stay there."""
        own, back = self.own.find(topic, partition), self._back(topic, partition)
        landed = next_landed(own, start) if own is not None else None
        taken = next_taken(back, start) if back is not None else None
        left = self.left_at_target.get(TopicPartition(topic, partition), ())
        return (
            (landed is not None and landed.target < stop)
            or (taken is not None and taken.source < stop)
            or any(stays.start < stop and start < stays.stop for stays in left)
        )

    def end_of_records(self, topic: str, partition: int, start: int, stop: int) -> int:
        """Behind the last record between these target offsets, or what may be one: from there to `stop` there are but
        markers and what was aborted. `stop` where only the source has writers.
        """
        own, back = self.own.find(topic, partition), self._back(topic, partition)
        if own is None or back is None:
            return stop
        first, last = start, stop
        while first < last:  # what holds nothing from somewhere on does so from anywhere behind that on
            middle = (first + last) // 2
            is_unknown = self._first_unknown(topic, partition, own, back, middle) < stop
            if is_unknown or self.has_record(topic, partition, middle, stop):
                first = middle + 1
            else:
                last = middle
        return last

    def read_at_source(self, topic: str, partition: int, source_offset: int, start: int) -> tuple[range, ...] | None:
        """The target offsets from `start` on whose records a group at `source_offset` has read at the source: where the
        logs differ in order they stand behind others that it has not read. None: not known.
        """
        own, back = self.own.find(topic, partition), self._back(topic, partition)
        if (topic, partition) in self.in_doubt or self._has_more_sites(topic):
            return None
        if own is None or back is None:
            return ()  # in the source's order what was read lies before what was not
        landed = islice(landed_before(own, start, source_offset), READ_RUNS_MAX + 1)
        taken = islice(taken_before(back, start, source_offset), READ_RUNS_MAX + 1)
        spans = sorted([*landed, *taken], key=lambda span: span.start)
        return tuple(joined(spans)) if len(spans) <= READ_RUNS_MAX else None

    def _first_unread(self, topic: str, partition: int, source_offset: int) -> int | None:
        """The first target offset whose record a group at `source_offset` is known not to have read at the source."""
        if (topic, partition) in self.in_doubt or self._has_more_sites(topic):
            return None
        plain = self._plain(topic, partition, source_offset)
        back = self._back(topic, partition)
        own = self.own.find(topic, partition)
        if back is None or plain is None or own is None:
            return plain
        return min(_known_unread(own, back, (plain, source_offset), 0), default=None)

    def _plain(self, topic: str, partition: int, source_offset: int) -> int | None:
        """By the link's own map, also where nothing but the mirrored end is known (an empty partition, offset 0)."""
        translated = self.own.to_target(topic, partition, source_offset)
        if translated is None:
            end = self.own.mirrored_end(topic, partition)
            if end is not None and end.source_next == source_offset:
                return end.target_next
        return translated

    def why_unknown(self, topic: str, partition: int, source_offset: int) -> GroupAction:
        """Why `to_target` has no answer."""
        if (topic, partition) in self.in_doubt:
            return GroupAction.HOLD_OFFSETS_IN_DOUBT
        if self._has_more_sites(topic):
            return GroupAction.HOLD_MORE_SITES
        own = self.own.find(topic, partition)
        if own is not None and own.intervals and source_offset < own.intervals[0].source_start:
            return GroupAction.HOLD_BEFORE_MIRROR
        return GroupAction.HOLD_NOT_MIRRORED

    def last_written(
        self, group: str, where: Where, source_offset: int, target_offset: int | None, ours: Written | None
    ) -> Written | None:
        """The pair of offsets that a link made last: `ours`, or the reverse link's that stands at the source.

        What the reverse link put there is no news of the group. Taken for its own it would be carried back: a place
        forward, over a set-back at the target that the reverse link has yet to see; a set-back once more, and further
        back at each turn.
        """
        back = self.written_back.get(group, {}).get(where) if self.is_shared(where[0]) else None
        if back is None or (ours is not None and _is_newer(ours, back, source_offset, target_offset)):
            return ours
        if not back.stands(source_offset):
            is_set_back = target_offset == back.source_offset and back.is_set_back_to(source_offset)
            # It may have read on to the very place of `ours`, which says nothing of the target's any more.
            has_read_on = source_offset > back.target_offset and source_offset != back.stood
            return (
                Written(back.target_offset, back.source_offset, turn=back.turn) if is_set_back or has_read_on else ours
            )
        if source_offset == back.target_offset or not back.is_set_back:
            return Written(source_offset, back.source_offset, turn=back.turn)
        # It is about to set the source back from here: what this place is at the target was left there.
        left = self.to_target(*where, source_offset, target_offset or 0)
        return ours if left is None else Written(source_offset, left, turn=back.turn)

    def next_turn(self, group: str, where: Where, ours: Written | None) -> int:
        """Of a pair that comes after `ours`, and after what the reverse link wrote."""
        back = self.written_back.get(group, {}).get(where)
        return max(ours.turn if ours is not None else 0, back.turn if back is not None else 0) + 1

    def _has_more_sites(self, topic: str) -> bool:
        return any(link.selects_topic(topic) for link in self.other_links)

    def is_shared(self, topic: str) -> bool:
        """Whether the target's topic has writers of its own."""
        return any(link.selects_topic(topic) for link, _ in self.reverse_links)

    def unexplained(self) -> dict[Where, Unexplained]:
        """Per shared partition the first target offset that looks unread only because no map tells what it holds."""
        found = {}
        for where in self.own.partitions():
            own, back = self.own.find(*where), self._back(*where)
            if own is None or own.end is None or back is None:
                continue
            first = self._first_unknown(*where, own, back, 0)
            if first < max(own.complete_to, back.position):
                found[where] = Unexplained(first, back.position)
        return found

    def _back(self, topic: str, partition: int) -> PartitionMap | None:
        """The reverse link's map, an empty one where it has brought nothing; None where the topic is not shared."""
        for link, found in self.reverse_links:
            if link.selects_topic(topic):
                return found.find(topic, partition) or _NOTHING
        return None

    def _first_unknown(self, topic: str, partition: int, own: PartitionMap, back: PartitionMap, start: int) -> int:
        """The first target offset at or after `start` of which neither map tells what it holds."""
        seen = self.examined.get(TopicPartition(topic, partition), _UNSEEN)
        left = self.left_at_target.get(TopicPartition(topic, partition), ())
        first = self._unknown.get((topic, partition))
        if first is None:
            complete = min(back.position, own.complete_to)
            first = self._unknown[topic, partition] = _skip_known(own, back, seen, left, max(complete, seen.log_start))
        return first if start <= first else _skip_known(own, back, seen, left, start)


def _is_newer(ours: Written, back: Written, source_offset: int, target_offset: int | None) -> bool:
    """Whether `ours` was written after `back`, the reverse link's pair: as far as what stands at both sites tells,
    where neither knew of the other, or an earlier version wrote one.
    """
    if ours.turn and back.turn and ours.turn != back.turn:
        return ours.turn > back.turn
    if ours.source_offset == source_offset and ours.target_offset >= back.source_offset:
        return True
    if target_offset is None or not ours.stands(target_offset):
        return False
    is_next = back.source_offset == target_offset or back.replaced == ours.source_offset
    is_back = source_offset < ours.source_offset and not (back.is_set_back and source_offset == back.target_offset)
    return is_back or not is_next


def _known_unread(own: PartitionMap, back: PartitionMap, stands_at: tuple[int, int], read_to: int) -> Iterable[int]:
    """Of each link's records the first target offset at or after `read_to` that a group has not read which stands at
    `stands_at`: at the target by the link's own map, and at the source.
    """
    landed = next_landed(own, max(stands_at[0], read_to))
    if landed is not None:
        yield landed.target
    brought = next_landed(back, stands_at[1])
    taken = next_taken(back, max(brought.source, read_to)) if brought is not None else None
    if taken is not None:
        yield taken.source


def _skip_known(own: PartitionMap, back: PartitionMap, seen: Examined, left: Iterable[range], offset: int) -> int:
    """The first target offset from `offset` on that stands in no range whose origin is known."""
    while True:
        landed = next_landed(own, offset)
        taken = next_taken(back, offset)
        if landed is not None and landed.target == offset:
            offset += landed.length
        elif taken is not None and taken.source == offset:
            offset += taken.length
        elif offset in seen.without_records:
            offset += 1
        elif there := next((stays for stays in left if offset in stays), None):
            brought = [run for run in (landed.target if landed else None, taken.source if taken else None) if run]
            offset = min([there.stop, *brought])
        else:
            return offset


async def examine(
    target: Cluster, unexplained: Mapping[Where, Unexplained], examined: dict[TopicPartition, Examined]
) -> bool:
    """Look at what the target has at these offsets -> whether any of them turned out to hold no records.

    Only heads of batches are asked for: what does not fit is data. A site that does not answer leaves it unknown.
    """
    wanted = {TopicPartition(*where): at for where, at in unexplained.items()}
    limits = FetchLimits(EXAMINED_MAX_BYTES, EXAMINED_PARTITION_MAX_BYTES)
    progress = False
    try:
        starts = await log_start_offsets(target, wanted)
        for where, log_start in starts.items():
            seen = examined.setdefault(where, Examined())
            progress |= log_start > max(seen.log_start, wanted[where].offset)
            seen.log_start = log_start
        there = {where: at.offset for where, at in wanted.items() if at.offset >= starts[where]}
        fetched = await fetch_once(target, there, limits) if there else {}
    except ClientError:
        return progress  # nothing more is known: an early offset, which costs repeats and no record
    for where, data in fetched.items():
        nothing = _leading_nothing(data, wanted[where])
        examined[where].without_records.update(nothing)
        progress |= bool(nothing)
    return progress


def _leading_nothing(data: PartitionData, at: Unexplained) -> set[int]:
    """The offsets from `at` on that hold nothing to read, up to the first batch that may hold something: what control
    batches and aborted ones fill.

    No link writes transactional batches, and the reverse link took the committed ones that it has passed, so what is
    left of those was aborted.
    """
    found: set[int] = set()
    try:
        for header, _batch in iter_fetched(records_of(data)):
            if header.next_offset > at.offset:
                if not header.is_control and not (header.is_transactional and header.next_offset <= at.looked_to):
                    break
                found.update(range(header.base_offset, header.next_offset))
    except CorruptBatch:
        return found  # what is damaged counts as data: it is not passed over
    return found
