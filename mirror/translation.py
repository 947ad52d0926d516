"""One offset at both sites of a link, or why it has no exact translation. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.errors import OffsetDeclined, OffsetNotMirrored
from mirror.findings import resume_command
from mirror.link import Link
from mirror.offsets.doubt import in_words
from mirror.offsets.entries import Gap, GapStatus
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.runs import next_landed, next_taken
from mirror.offsets.state import LinkState
from mirror.offsets.state_entries import StateEntries


@dataclass(frozen=True, slots=True)
class Translation:
    """One offset at both sites. Topics by their names at each."""

    link: str
    source_topic: str
    target_topic: str
    partition: int
    source_offset: int
    target_offset: int


def translate_offset(
    link: Link, state: LinkState, topic: str, partition: int, offset: int, *, reverse: bool
) -> Translation:
    """Translate an offset of the source's `topic`; `reverse`: the offset is one at the target.

    An offset without a record of its own (compacted, aborted, a marker) becomes that of the next mirrored record.
    Raises OffsetNotMirrored, also of what was left at the source, or may be a link back's; OffsetDeclined while the
    partition stands where offsets are in doubt; and the ClientError that kept the partition's log at the target from
    being read.
    """
    gap = state.entries.in_doubt(asks_source=False).get((topic, partition))
    if isinstance(gap, Gap):
        text = f"{topic} partition {partition} of link {link.name}: {in_words(gap)}"
        accepted = gap.status is GapStatus.ACCEPTED
        hint = f"farshore mirror run --link {link.name}" if accepted else resume_command(link.name, gap)
        raise OffsetDeclined(f"{text}: an offset may mean another record now than the one that was mirrored", hint)
    if (topic, partition) in state.unread:
        raise state.unread[topic, partition]
    offset_map = state.map
    known = offset_map.find(topic, partition)
    first = _first_brought(known, offset, reverse) if known is not None else None
    if first != offset:
        if not reverse:
            _refuse_left(link, state.entries, topic, partition, offset)
        if known is not None:
            _refuse_others(link, known, first, topic, partition, offset, reverse)
    translate = offset_map.to_source if reverse else offset_map.to_target
    found = translate(topic, partition, offset)
    if found is None:
        raise _not_mirrored(link, offset_map, topic, partition, offset, reverse)
    source_offset, target_offset = (found, offset) if reverse else (offset, found)
    return Translation(link.name, topic, link.target_topic(topic), partition, source_offset, target_offset)


def _first_brought(known: PartitionMap, offset: int, reverse: bool) -> int | None:
    """Where the first record at or behind the offset stands that the link brought; None: it brought none of them."""
    run = next_landed(known, offset) if reverse else next_taken(known, offset)
    return None if run is None else run.target if reverse else run.source


def _refuse_left(link: Link, entries: StateEntries, topic: str, partition: int, offset: int) -> None:
    """Unlike what was never there to be mirrored, a record that was left is missed at the target."""
    for gap in entries.left_at_source():
        if (gap.topic, gap.partition) == (topic, partition) and gap.source_from <= offset < gap.source_to:
            text = f"offset {offset} of {topic} partition {partition} is not at {link.target.name}: offsets"
            left = f"{gap.source_from} to {gap.source_to - 1} were left at {link.source.name} by a person"
            hint = f"`farshore stranded list --link {link.name}` has what was left; ask for {gap.source_to}, behind it"
            raise OffsetNotMirrored(f"{text} {left}", hint)


def _refuse_others(
    link: Link, known: PartitionMap, first: int | None, topic: str, partition: int, offset: int, reverse: bool
) -> None:
    """In a topic that a link back carries, too, a record that this one did not bring may be at both sites all the same,
    and far from the `first` one behind it that it did.
    """
    backs = [back.name for back in link.reverse_links if back.selects_topic(topic)]
    if not backs or known.end is None or not known.intervals:
        return
    site, to = link.source, max(known.position, known.end.source_next)
    if reverse:
        site, to = link.target, known.end.target_next
    if offset >= to:
        return
    behind = "; and none behind that" if first is None else f"; the next that it brought is at {first}"
    other = "" if reverse else " --reverse"
    asked = (
        f"farshore offsets translate --link {backs[0]} --topic {topic} --partition {partition} --offset {offset}{other}"
    )
    raise OffsetNotMirrored(
        f"{link.name} brought no record at offset {offset} of {topic} partition {partition} at {site.name}{behind}",
        f"it may be one that came, or went, by {backs[0]}: `{asked}`",
    )


def _not_mirrored(
    link: Link, offset_map: OffsetMap, topic: str, partition: int, offset: int, reverse: bool
) -> OffsetNotMirrored:
    end = offset_map.mirrored_end(topic, partition)
    site = link.target.name if reverse else link.source.name
    if end is None:
        text = f"link {link.name} has mirrored nothing of {topic} partition {partition}"
        return OffsetNotMirrored(text, f"see what it mirrors with `farshore link describe --link {link.name}`")
    begins = offset_map.intervals(topic, partition)[0]
    first = begins.target_start if reverse else begins.source_start
    last = end.target_next if reverse else end.source_next
    mirrored = f"offsets {first} to {last - 1} are" if last > first else "no record of the partition is yet"
    text = f"offset {offset} of {topic} partition {partition} at {site} is not mirrored: {mirrored}"
    if offset < first:
        return OffsetNotMirrored(text, f"what stands before {first} was never mirrored: ask for {first} or later")
    return OffsetNotMirrored(text)
