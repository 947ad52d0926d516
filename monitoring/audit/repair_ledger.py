"""What a link's state says of a partition's repair, and of what only its target has: pure.

Gaps that were passed tell more than the map: it begins anew behind some of them, and says nothing of what lies before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from broker.wire.vocabulary import TopicPartition
from mirror.api import NEVER_ASKED, Gap, GapKind, GapStatus, LinkState, anew_asked_at_ms
from monitoring.audit.model import Span

_BEGUN_ANEW: Final = frozenset({GapKind.RECREATED, GapKind.MIRRORED_ANEW})
"""The map begins behind these; before them the target has what was mirrored until then."""
_OF_OTHERS: Final = frozenset({GapKind.TARGET_NOT_EMPTY, GapKind.FOREIGN_WRITER})
"""Somebody else's records stand before or behind the target offset of these."""


def find_asked(state: LinkState, where: TopicPartition, since_ms: int) -> Gap | None:
    """The repair, only if it is of after the run, and of this log: where the map reaches before it the target topic was
    made anew since, and what is there is no old copy.
    """
    asked = [
        gap
        for gap in _gaps_of(state, where)
        if gap.kind is GapKind.MIRRORED_ANEW
        and gap.at_ms > since_ms
        and (gap.status is GapStatus.ACCEPTED or _begins_behind(state, where, gap))
    ]
    return max(asked, key=lambda gap: gap.at_ms, default=None)


def of_state(state: LinkState, where: TopicPartition, asked: Gap | None) -> dict[str, Any]:
    """What the link's state says of a partition, `asked` to be mirrored anew: fields of `PartitionSeen`."""
    entries = state.entries
    checkpoint = entries.checkpoints.get(where)
    is_begun = asked is not None and asked.status is GapStatus.PASSED
    return {
        "position": checkpoint.position if checkpoint is not None else None,
        "stands_still": where in entries.open_gaps(),
        "is_held": not entries.holds.keys().isdisjoint({tuple(where), (where.topic, None)})
        or where.topic in entries.paused,
        "is_asked": asked is not None,
        "restarted_at": asked.target_offset if asked is not None and is_begun else None,
        "asked_at_ms": anew_asked_at_ms(_gaps_of(state, where)).get(where, NEVER_ASKED),
    }


def only_at_target(
    state: LinkState, where: TopicPartition, asked: Gap | None, source: Span | None, target: Span | None
) -> int | None:
    """So many source offsets at most that the target still has and the source has no more; None: that is not known.

    Once the new copy has begun: those of the old one that the source lost since it was `asked` for, and that are not
    in the new one. What is lost later the new one has.
    """
    first = next(iter(state.map.intervals(*where)), None)
    if source is None or target is None or where in state.unread:
        return None
    if first is None:
        return 0
    begun = asked if asked is not None and asked.status is GapStatus.PASSED else None
    passed = [
        gap
        for gap in _gaps_of(state, where)
        if gap.status is GapStatus.PASSED and gap != begun and (begun is None or gap.at_ms >= begun.at_ms)
    ]
    if any(_has_others(state, where, gap, target) for gap in passed):
        return None
    if begun is not None:
        missed = (gap for gap in passed if gap.kind is GapKind.TRUNCATED_START)
        lost = sum(gap.source_to - gap.source_from for gap in missed if gap.source_from >= first.source_start)
        return max(0, first.source_start - begun.source_to) + lost
    kept_from = state.map.to_source(*where, target.start) if target.start > first.target_start else None
    return max(0, source.start - (first.source_start if kept_from is None else kept_from))


def _has_others(state: LinkState, where: TopicPartition, gap: Gap, target: Span) -> bool:
    """Whether the target still has records at such a gap that the source may not have."""
    if gap.kind in _BEGUN_ANEW:
        return target.start < gap.target_offset and _begins_behind(state, where, gap)
    if gap.kind is GapKind.TRUNCATED_END:
        return target.start < gap.target_offset
    return gap.kind in _OF_OTHERS and target.start <= gap.target_offset


def _begins_behind(state: LinkState, where: TopicPartition, gap: Gap) -> bool:
    """Whether it was passed, and the map is still the one that began there or later."""
    first = next(iter(state.map.intervals(*where)), None)
    return gap.status is GapStatus.PASSED and first is not None and first.target_start >= gap.target_offset


def _gaps_of(state: LinkState, where: TopicPartition) -> Iterator[Gap]:
    return (gap for gap in state.entries.gaps.values() if (gap.topic, gap.partition) == where)
