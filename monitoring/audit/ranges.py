"""What may be compared: a pure function of the two logs' spans and the offset map.

A mirror is compared where both sites still have the records and the mirror has been. Everything else is stated with
its reason (`NotCompared`), so that a report can never say "equal" about what nobody looked at.

On a target that only the mirror writes to, the whole span is compared, also between the map's intervals: a record there
that the mirror did not put there is a finding. On a shared target, what lies between the intervals is the local
writers', at both sites: the other link brings it to the source, where this link passes over it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from monitoring.audit.missing_rights import HINT_TO_GIVE, in_a_line, in_words
from monitoring.audit.model import (
    ComparablePartition,
    FrozenLink,
    FrozenPartition,
    NotCompared,
    ProvedPart,
    Segment,
    Side,
    Span,
    Step,
)
from monitoring.audit.reasons import Reason
from monitoring.errors import NothingToCompare


def plan(frozen: FrozenLink) -> tuple[list[ComparablePartition], list[NotCompared]]:
    """What of the link can be compared, and what not. Raises NothingToCompare when no partition can be."""
    partitions: list[ComparablePartition] = []
    not_compared: list[NotCompared] = []
    for item in frozen.partitions:
        partition, left_out = comparable(item)
        not_compared.extend(left_out)
        if partition is not None:
            partitions.append(partition)
    if not partitions:
        why = f"link {frozen.link}: no partition can be compared: {_reasons(not_compared)}"
        if frozen.missing_rights:
            lacked = in_a_line(in_words(frozen.missing_rights, frozen.principals))
            raise NothingToCompare(f"{why}: {lacked}", HINT_TO_GIVE)
        raise NothingToCompare(why, "see what the mirror has copied so far: farshore status")
    return partitions, not_compared


def _reasons(not_compared: Sequence[NotCompared]) -> str:
    reasons = sorted({item.reason.value for item in not_compared})
    return ", ".join(reasons) if reasons else "it mirrors no topic yet"


def comparable(frozen: FrozenPartition) -> tuple[ComparablePartition | None, tuple[NotCompared, ...]]:
    """The spans that must hold the same records, and everything that is left out with its reason."""
    frozen = _nothing_yet(frozen)
    refusal = _refusal(frozen)
    if refusal is not None:
        return None, (*_nothing_of(frozen, refusal), *_open_at_source(frozen))
    frozen, behind = _stable(frozen)
    at_target = frozen.target
    assert at_target is not None
    assert frozen.mirrored_end is not None
    source_next, target_next = frozen.mirrored_end
    frozen = replace(frozen, steps=_landed(frozen.steps, source_next))
    first = frozen.steps[0]
    source_low = max(frozen.source.start, first.source_start)
    target_low = max(at_target.start, first.target_start)
    # What went at the target went from the beginning of its log; else the source's first offsets are passed over.
    kept_from = _source_at(frozen, target_low) if at_target.start > first.target_start else source_low
    source_start = min(max(source_low, kept_from), source_next)
    target_start = _target_at(frozen, source_start)
    if target_start == first.target_start and not frozen.shared_target:
        # Before the first mirrored record stand the fence's markers, which no consumer sees; a record is one too many.
        target_start = at_target.start
    source = Span(source_start, max(source_start, min(source_next, frozen.source.end)))
    # Behind the mirrored end of a target that only the mirror writes to, every record is one too many.
    target_end = min(target_next, at_target.end) if frozen.local_tail else at_target.end
    target = Span(target_start, max(target_start, target_end))
    segments = tuple(_segments(frozen, source))
    given_up = _clip(frozen.gaps, source)
    passed_over = given_up
    foreign: tuple[Span, ...] = ()
    if frozen.shared_target:
        passed_over = tuple(_between(_at_source(segments), source))
        foreign = tuple(_between(_at_target(segments), target))
    left_out = [
        *behind,
        *_around(frozen, source, target),
        *_known(frozen, Side.SOURCE, [(Reason.GAP_ACCEPTED, span) for span in given_up]),
        *_together(frozen, Side.SOURCE, Reason.WRITTEN_BY_OTHERS, tuple(_without(passed_over, given_up))),
        *_together(frozen, Side.TARGET, Reason.WRITTEN_BY_OTHERS, foreign),
    ]
    partition = ComparablePartition(
        frozen.topic,
        frozen.partition,
        frozen.target_topic,
        source,
        target,
        segments,
        frozen.timestamps_comparable,
        passed_over,
        foreign,
        compacted=frozen.compacted,
    )
    partition, unasked = _unproved(frozen, partition)
    return partition, (*left_out, *unasked)


def _unproved(
    frozen: FrozenPartition, whole: ComparablePartition
) -> tuple[ComparablePartition, tuple[NotCompared, ...]]:
    """What is still to be read: behind what is proved, and of that what is asked for. And what is neither."""
    first, last = (whole.source.start, whole.target.start), (whole.source.end, whole.target.end)
    since = first[0] if frozen.since is None else min(max(frozen.since, first[0]), last[0])
    parts = [part for part in frozen.proved if part.source.end > first[0] or part.target.end > first[1]]
    if frozen.compacted or (parts and parts[0].source.start > since):
        parts = []  # what lies before it has to be read, and is read up to the end
    low = end = first
    if parts:
        low = _later(first, (parts[0].source.start, parts[0].target.start))
        end = _later(first, (parts[-1].source.end, parts[-1].target.end))
    start = end
    if not frozen.is_asked:
        start = _later(end, last)
    elif since > end[0]:
        start = _later(end, (since, _target_at(frozen, since)))
    reason = Reason.BEFORE_SINCE if frozen.is_asked else Reason.NOT_ASKED
    asked, start = start, _from_where_it_was_read(frozen, start, last)
    left_out = [
        told
        for nth, side in enumerate(Side)
        for told in _known(
            frozen,
            side,
            [
                (reason, Span(first[nth], low[nth])),
                (reason, Span(end[nth], asked[nth])),
                (Reason.EXPIRED_WHILE_READ, Span(asked[nth], start[nth])),
            ],
        )
    ]
    source, target = (Span(start[nth], max(start[nth], last[nth])) for nth in range(len(Side)))
    return replace(
        whole,
        source=source,
        target=target,
        segments=whole.segments if source == whole.source else tuple(_segments(frozen, source)),
        left_out=_clip(whole.left_out, source),
        foreign=_clip(whole.foreign, target),
        proved=tuple(_still_there(part, whole) for part in parts),
    ), tuple(left_out)


def _from_where_it_was_read(frozen: FrozenPartition, start: tuple[int, int], last: tuple[int, int]) -> tuple[int, int]:
    if frozen.read_from is None or frozen.read_from <= start[0]:
        return start
    low = min(frozen.read_from, last[0])
    return _later(start, (low, _target_at(frozen, low)))


def _later(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])


def _still_there(part: ProvedPart, whole: ComparablePartition) -> ProvedPart:
    """Cut to what both logs have. Each offset that is gone may have been a record: so many are not counted any more."""
    source = Span(min(max(part.source.start, whole.source.start), part.source.end), part.source.end)
    target = Span(min(max(part.target.start, whole.target.start), part.target.end), part.target.end)
    return replace(
        part,
        source=source,
        target=target,
        source_records=max(0, part.source_records - (part.source.offsets - source.offsets)),
        target_records=max(0, part.target_records - (part.target.offsets - target.offsets)),
    )


def _around(frozen: FrozenPartition, source: Span, target: Span) -> list[NotCompared]:
    """What both logs have outside of the spans that are compared."""
    assert frozen.target is not None
    assert frozen.mirrored_end is not None
    at_target, first, source_next = frozen.target, frozen.steps[0], frozen.mirrored_end[0]
    source_low = max(frozen.source.start, first.source_start)
    target_low = max(at_target.start, first.target_start)
    return [
        *_known(
            frozen,
            Side.SOURCE,
            [
                (Reason.BEFORE_THE_MIRROR, Span(frozen.source.start, min(first.source_start, frozen.source.end))),
                (Reason.EXPIRED_AT_TARGET, Span(source_low, min(source.start, frozen.source.end))),
                (Reason.NOT_MIRRORED_YET, Span(max(source_next, frozen.source.start), frozen.source.end)),
                (Reason.SOURCE_TRUNCATED, Span(max(frozen.source.end, source.start), source_next)),
            ],
        ),
        *_known(
            frozen,
            Side.TARGET,
            [
                (Reason.BEFORE_THE_MIRROR, Span(at_target.start, min(first.target_start, target.start, at_target.end))),
                (Reason.EXPIRED_AT_SOURCE, Span(target_low, min(target.start, at_target.end))),
                (Reason.BEYOND_THE_MIRROR, Span(max(target.end, target.start), at_target.end)),
            ],
        ),
    ]


def _nothing_yet(frozen: FrozenPartition) -> FrozenPartition:
    """An empty source partition that the mirror has not met yet: all that the target has is somebody else's."""
    if frozen.mirrored_end is not None or frozen.source.offsets or frozen.target is None:
        return frozen
    ends = (frozen.source.end, frozen.target.start)
    return replace(frozen, mirrored_end=ends, steps=(Step(*ends),))


def _stable(frozen: FrozenPartition) -> tuple[FrozenPartition, list[NotCompared]]:
    """Cut to what consumers can read at both sites, and what lies behind an open transaction at one of them."""
    behind = _open_at_source(frozen)
    opened = frozen.open_at_target
    if opened is None:
        return frozen, behind
    assert frozen.target is not None
    assert frozen.mirrored_end is not None
    behind += _known(frozen, Side.TARGET, [(Reason.OPEN_TRANSACTION, opened)])
    source_next, target_next = frozen.mirrored_end
    log = frozen.source
    if target_next > opened.start:
        at = _source_at(frozen, opened.start)
        behind += _known(
            frozen,
            Side.SOURCE,
            [
                (Reason.OPEN_TRANSACTION, Span(max(at, log.start), min(source_next, log.end))),
                (Reason.NOT_MIRRORED_YET, Span(max(source_next, log.start), log.end)),
                (Reason.SOURCE_TRUNCATED, Span(max(log.end, at), source_next)),
            ],
        )
        source = Span(log.start, max(log.start, min(log.end, at)))
        frozen = replace(frozen, source=source, mirrored_end=(at, opened.start))
    assert frozen.target is not None
    return replace(frozen, target=Span(frozen.target.start, max(frozen.target.start, opened.start))), behind


def _open_at_source(frozen: FrozenPartition) -> list[NotCompared]:
    opened = frozen.open_at_source
    return [] if opened is None else _known(frozen, Side.SOURCE, [(Reason.OPEN_TRANSACTION, opened)])


def _refusal(frozen: FrozenPartition) -> Reason | None:
    if frozen.left_out is not None:
        return frozen.left_out
    if frozen.recreated:
        return Reason.SOURCE_RECREATED
    if frozen.target is None:
        return Reason.TARGET_MISSING
    if frozen.mirrored_end is None or not frozen.steps:
        return Reason.NEVER_MIRRORED
    return None


def _nothing_of(frozen: FrozenPartition, reason: Reason) -> tuple[NotCompared, ...]:
    """Both sites' whole logs are left out. A fault is told of an empty log, too: that may be what is wrong."""
    spans = [(Side.SOURCE, frozen.source)]
    if frozen.target is not None:
        spans.append((Side.TARGET, frozen.target))
    silent = reason in _SILENT_WHEN_EMPTY or (reason is Reason.TARGET_MISSING and frozen.mirrored_end is None)
    return tuple(
        NotCompared(frozen.topic, frozen.partition, side, span, reason, span.offsets)
        for side, span in spans
        if span.offsets or (side is Side.SOURCE and not silent)
    )


# Without a record there is nothing that could differ.
_SILENT_WHEN_EMPTY = frozenset({Reason.NEVER_MIRRORED})


def _known(frozen: FrozenPartition, side: Side, spans: list[tuple[Reason, Span]]) -> list[NotCompared]:
    return [
        NotCompared(frozen.topic, frozen.partition, side, span, reason, span.offsets)
        for reason, span in spans
        if span.offsets > 0
    ]


def _together(frozen: FrozenPartition, side: Side, reason: Reason, spans: tuple[Span, ...]) -> list[NotCompared]:
    """One line for all spans, sorted and apart: a map may have a hundred thousand intervals."""
    if not spans:
        return []
    whole = Span(spans[0].start, spans[-1].end)
    return [NotCompared(frozen.topic, frozen.partition, side, whole, reason, sum(span.offsets for span in spans))]


def _ends(frozen: FrozenPartition, index: int) -> tuple[int, int]:
    """Where the interval `index` ends: (source offset, target offset)."""
    assert frozen.mirrored_end is not None
    if index + 1 < len(frozen.steps):
        following = frozen.steps[index + 1]
        return following.source_start, following.target_start
    return frozen.mirrored_end


def _source_at(frozen: FrozenPartition, target_offset: int) -> int:
    """Source offset of the first mirrored record at or after `target_offset`."""
    index = max(0, bisect_right(frozen.steps, target_offset, key=lambda step: step.target_start) - 1)
    step = frozen.steps[index]
    return min(step.source_start + max(0, target_offset - step.target_start), _ends(frozen, index)[0])


def _target_at(frozen: FrozenPartition, source_offset: int) -> int:
    """Target offset of the first mirrored record at or after `source_offset`."""
    index = max(0, bisect_right(frozen.steps, source_offset, key=lambda step: step.source_start) - 1)
    step = frozen.steps[index]
    return min(step.target_start + max(0, source_offset - step.source_start), _ends(frozen, index)[1])


def _segments(frozen: FrozenPartition, source: Span) -> list[Segment]:
    """The map's intervals inside `source`, each cut to the shorter of its two sides.

    The longer side has offsets without a record of their own: a marker or a foreign record at the target, a
    control record, an aborted or a compacted one at the source.
    """
    segments = []
    for index, step in enumerate(frozen.steps):
        source_end, target_end = _ends(frozen, index)
        length = min(source_end - step.source_start, target_end - step.target_start)
        skipped = max(0, source.start - step.source_start)
        length = min(length - skipped, source.end - step.source_start - skipped)
        if length > 0:
            segments.append(Segment(step.target_start + skipped, step.source_start + skipped, length))
    return segments


def _landed(steps: tuple[Step, ...], source_next: int) -> tuple[Step, ...]:
    """Without the intervals that were written ahead for batches that have not landed."""
    return steps[:1] + tuple(step for step in steps[1:] if step.source_start < source_next)


def _at_source(segments: tuple[Segment, ...]) -> list[Span]:
    return [Span(item.source_start, item.source_start + item.length) for item in segments]


def _at_target(segments: tuple[Segment, ...]) -> list[Span]:
    return [Span(item.target_start, item.target_start + item.length) for item in segments]


def _between(covered: list[Span], within: Span) -> list[Span]:
    """The offsets of `within` that no span of `covered` (sorted) has."""
    spans = []
    position = within.start
    for span in covered:
        if span.start > position:
            spans.append(Span(position, span.start))
        position = span.end
    if position < within.end:
        spans.append(Span(position, within.end))
    return spans


def _without(spans: Iterable[Span], taken: tuple[Span, ...]) -> Iterator[Span]:
    """`spans` without the offsets of `taken`; both are sorted, each without overlaps."""
    for span in spans:
        yield from _between(list(_clip(taken, span)), span)


def _clip(spans: tuple[Span, ...], within: Span) -> tuple[Span, ...]:
    cut = (Span(max(span.start, within.start), min(span.end, within.end)) for span in spans)
    return tuple(span for span in cut if span.offsets > 0)
