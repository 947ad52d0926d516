"""Where groups stand: of each partition that is mirrored a view of what both sites say. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from failover.observing.snapshot import GroupPartitionView
from mirror.api import GroupMap, Link, LinkState, Written, carried_offset, is_set_back_there


def mirrored_partitions(state: LinkState) -> set[TopicPartition]:
    """Those that the link has brought, also where the target does not say how much of them."""
    return {TopicPartition(*at) for at in (*state.map.partitions(), *state.unread)}


@dataclass(frozen=True, slots=True)
class Places:
    """The partitions that were mirrored, by what they are at the target: the same for all groups of a look."""

    link: Link
    mirrored: frozenset[TopicPartition]
    by_target: Mapping[TopicPartition, TopicPartition]

    @staticmethod
    def of(link: Link, mirrored: AbstractSet[TopicPartition]) -> Places:
        return Places(
            link,
            frozenset(mirrored),
            {TopicPartition(link.target_topic(at.topic), at.partition): at for at in mirrored},
        )

    def of_group(
        self, at_source: Iterable[TopicPartition], at_target: Iterable[TopicPartition], waiting: set[TopicPartition]
    ) -> list[TopicPartition]:
        """Where the group has an offset at either site, or where one is waiting, in order."""
        here = {at for at in at_source if at in self.mirrored or self._selects(at.topic)}
        return sorted(here | waiting | {self.by_target[at] for at in at_target if at in self.by_target})

    def others(self, at_source: Iterable[TopicPartition]) -> tuple[str, ...]:
        """The topics of these partitions that are not the link's, in order; internal ones do not count."""
        mirrored = {at.topic for at in self.mirrored}
        topics = {at.topic for at in at_source if not at.topic.startswith("__")}
        return tuple(sorted(topic for topic in topics - mirrored if not self._selects(topic)))

    def _selects(self, topic: str) -> bool:
        return topic != self.link.canary_topic and self.link.selects_topic(topic)


def group_partitions(
    group: str,
    places: Places,
    trusted: Container[tuple[str, int]],
    offset_map: GroupMap,
    written: Mapping[tuple[str, int], Written],
    offsets: tuple[Mapping[TopicPartition, CommittedOffset], Mapping[TopicPartition, CommittedOffset]],
    waiting: Iterable[tuple[str, int]],
) -> Iterable[GroupPartitionView]:
    """Where the group has an offset at a site, and where the mirror last saw one that it could not carry over."""
    at_source, at_target = offsets
    kept_waiting = {TopicPartition(*at) for at in waiting}
    for at in places.of_group(at_source, at_target, kept_waiting):
        here = at_source.get(at)
        target_topic = places.link.target_topic(at.topic)
        there = at_target.get(TopicPartition(target_topic, at.partition))
        committed = here or there
        translated, set_back, ahead_from, turn, set_back_there = None, False, None, 0, False
        read_to: int | None = None
        read: tuple[tuple[int, int], ...] | None = ()
        pair = written.get(at) if here is None and at in trusted else None
        is_as_brought = pair is not None and there is not None and pair.stands(there.offset)
        if here is not None and at in trusted:
            stands_at = there.offset if there else None
            found = carried_offset(offset_map, group, at, here.offset, stands_at, written.get(at))
            translated, set_back = found.offset, found.is_set_back
            turn = offset_map.next_turn(group, at, found.written) if offset_map.is_shared(at.topic) else 0
            set_back_there = stands_at is not None and is_set_back_there(here.offset, stands_at, found.written)
            if stands_at is not None and not set_back:
                ahead_from = offset_map.ahead_from(group, at, here.offset, stands_at)
                if ahead_from is not None:
                    read_to = offset_map.end_of_records(*at, ahead_from, stands_at)
                if ahead_from is not None and translated is not None and stands_at < translated:
                    # Behind what nobody reads, as a marker, it would begin at the same record.
                    is_behind = offset_map.has_record(*at, stands_at, translated)
                    translated = translated if is_behind else stands_at
            read = _read_behind(offset_map, at, here.offset, (translated, ahead_from))
        yield GroupPartitionView(
            at.topic,
            at.partition,
            target_topic,
            here.offset if here else None,
            translated,
            there.offset if there else None,
            committed.metadata if committed else "",
            set_back,
            ahead_from,
            turn,
            set_back_there,
            there.offset if there is not None and is_as_brought else pair and pair.target_offset,
            read,
            read_to,
        )


def _read_behind(
    offset_map: GroupMap, at: TopicPartition, source_offset: int, places: tuple[int | None, ...]
) -> tuple[tuple[int, int], ...] | None:
    """What it has read at the source and comes to behind the first of these places at the target."""
    known = [place for place in places if place is not None]
    spans = offset_map.read_at_source(*at, source_offset, min(known)) if known else ()
    return None if spans is None else tuple((span.start, span.stop) for span in spans)
