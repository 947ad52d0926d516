"""What stays at a link's source alone since somebody decided that, as the gap ledger has it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from failover.observing.snapshot import LeftRange, PartitionView
from mirror.api import Gap


def left_ranges(left: Iterable[Gap], views: Iterable[PartitionView]) -> tuple[LeftRange, ...]:
    """Of each partition by offset, and each offset once; not what the source has no more, by retention say, or as its
    topic is another one.
    """
    by_place = {(view.topic, view.partition): view for view in views}
    behind: dict[tuple[str, int], int] = {}
    found = []
    for gap in sorted(left, key=lambda one: (one.topic, one.partition, one.source_from, one.source_to)):
        at = gap.topic, gap.partition
        view = by_place.get(at)
        if view is not None and (view.is_gone_at_source or view.is_source_recreated):
            continue
        log_start = view.source_start if view is not None else None
        first = max(gap.source_from, behind.get(at, 0), log_start or 0)
        if first < gap.source_to:
            found.append(LeftRange(*at, first, gap.source_to, None, gap.at_ms, gap.detail))
            behind[at] = gap.source_to
    return tuple(found)
