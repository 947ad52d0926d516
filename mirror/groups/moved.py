"""What an operation that moves groups writes of them into the link's state, as a pass over groups does. Pure.

An offset that an operation committed is the link's own: else whoever looks later takes it for what a consumer has read
there, and a group that is set back then is not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from broker.wire.vocabulary import NO_OFFSET
from mirror.offsets.group_entries import GroupSync, GroupSyncs, Written
from mirror.offsets.offset_map import Where


class MovedPair(NamedTuple):
    """A group that stands at `source_offset` is moved to `target_offset`, from `stood_at` there (None: from nowhere).

    `turn` as in `Written`: 0 where the target has no writers of its own.
    """

    source_offset: int
    target_offset: int
    stood_at: int | None
    turn: int


def moved_groups(
    known: GroupSyncs, moved: Mapping[str, Mapping[Where, MovedPair]], now_ms: int, *, is_done: bool
) -> list[GroupSync]:
    """The entries of the groups of which these pairs say anything new: before they are committed, and when they are."""
    entries = []
    for group, pairs in sorted(moved.items()):
        before = known.by_group.get(group) or GroupSync(group, now_ms)
        written = {where: _written(before.written.get(where), pair, is_done=is_done) for where, pair in pairs.items()}
        left = {where: why for where, why in before.waiting.items() if where not in pairs}
        waiting = left if is_done else before.waiting  # who is refused waits on
        entry = replace(
            before, written={**before.written, **written}, waiting=waiting, synced_at_ms=known.synced_at(group)
        )
        if group not in known.by_group or (entry.written, entry.waiting) != (before.written, before.waiting):
            entries.append(replace(entry, at_ms=now_ms))
    return entries


def with_entries(known: GroupSyncs, entries: Iterable[GroupSync]) -> GroupSyncs:
    """What is known when these are written."""
    return replace(known, by_group={**known.by_group, **{entry.group: entry for entry in entries}})


def _written(before: Written | None, pair: MovedPair, *, is_done: bool) -> Written:
    source_offset, target_offset, stood_at, turn = pair
    is_there = is_done or stood_at == target_offset
    if before is not None and (before.source_offset, before.target_offset) == (source_offset, target_offset):
        if not is_there and not turn:
            return before
        if turn and before.turn + 1 >= turn:
            return before._replace(stood=target_offset) if is_there else before
    if is_there and not turn:
        return Written(source_offset, target_offset)
    is_own = before is not None and stood_at is not None and before.stands(stood_at)
    replaced = stood_at if is_own and stood_at != target_offset else None
    if not turn:
        return Written(source_offset, target_offset, replaced, stood_at if replaced is None else None)
    stood = target_offset if is_there else NO_OFFSET if stood_at is None else stood_at
    return Written(source_offset, target_offset, replaced, stood, turn)
