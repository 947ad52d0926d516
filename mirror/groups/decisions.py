"""What happens to a group's offset at the target, partition by partition. Pure.

An offset is only ever committed where the map gives the exact one. It goes forward, and back where the source's went
back since the link wrote the target's and the target's is still the one that it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from broker.client.model import CommittedOffset
from broker.wire.vocabulary import NO_OFFSET, TopicPartition
from mirror.link import Link
from mirror.offsets.group_entries import SETTLED, GroupAction, Written
from mirror.offsets.offset_map import Where


class Translator(Protocol):
    """What the decisions need of the offset map."""

    def to_target(self, topic: str, partition: int, source_offset: int, read_to: int = 0) -> int | None: ...

    def why_unknown(self, topic: str, partition: int, source_offset: int) -> GroupAction: ...

    def is_shared(self, topic: str) -> bool: ...

    def has_record(self, topic: str, partition: int, start: int, stop: int) -> bool: ...

    def next_turn(self, group: str, where: Where, ours: Written | None) -> int: ...

    def last_written(
        self, group: str, where: Where, source_offset: int, target_offset: int | None, ours: Written | None
    ) -> Written | None: ...


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """One partition of one group. `target_offset` is the translated offset, None while there is none.

    `written` is what the link's state keeps from here on, None for nothing. `is_before_log`: the target has no
    more what the group reads next there.
    """

    group: str
    source: TopicPartition
    target: TopicPartition
    action: GroupAction
    source_offset: int
    target_offset: int | None
    metadata: str
    written: Written | None
    is_before_log: bool = False

    @property
    def waits(self) -> GroupAction | None:
        """Why the group would not go on at the target as at the source, None where it would."""
        if self.action not in SETTLED:
            return self.action
        return GroupAction.BEFORE_LOG if self.is_before_log else None


def plan_group_sync(
    link: Link,
    group: str,
    offset_map: Translator,
    source_committed: Mapping[TopicPartition, CommittedOffset],
    target_committed: Mapping[TopicPartition, CommittedOffset],
    written: Mapping[Where, Written],
    *,
    target_group_empty: bool,
) -> list[GroupDecision]:
    """Decide per partition. `written` is by source partition, `target_committed` by target's."""
    decisions = []
    for source, committed in sorted(source_committed.items()):
        target = TopicPartition(link.target_topic(source.topic), source.partition)
        there = target_committed.get(target)
        stands_at = there.offset if there is not None else None
        shared = offset_map.is_shared(source.topic)
        found = carried_offset(offset_map, group, source, committed.offset, stands_at, written.get(source))
        offset = found.offset
        if offset is None:
            action = offset_map.why_unknown(*source, committed.offset)
        else:
            exact = CommittedOffset(offset, committed.metadata)
            action = _decide(committed, exact, there, found, shared=shared, empty=target_group_empty)
        turn = offset_map.next_turn(group, source, found.written) if shared else None
        keeps = _keeps(action, committed.offset, offset, there, found.written, turn)
        decisions.append(
            GroupDecision(group, source, target, action, committed.offset, offset, committed.metadata, keeps)
        )
    return decisions


class CarriedOffset(NamedTuple):
    """What a group's offset of the source is at the target, None where no exact one is known.

    `written` is what the link last wrote there of the group, as far as that still tells. `is_set_back`: the group was
    set back at the source since the link wrote what stands at the target, so nothing that it read there counts.
    """

    offset: int | None
    written: Written | None
    is_set_back: bool


def carried_offset(
    offset_map: Translator,
    group: str,
    where: TopicPartition,
    source_offset: int,
    target_offset: int | None,
    ours: Written | None,
) -> CarriedOffset:
    """Where a group goes on that stands at these offsets at the two sites.

    `where` is the source's partition, `ours` what the link's state says that it wrote last.
    """
    written = offset_map.last_written(group, where, source_offset, target_offset, ours)
    is_set_back = (
        target_offset is not None
        and written is not None
        and (source_offset < written.source_offset or written.awaits_set_back(source_offset, target_offset))
        and written.stands(target_offset)
    )
    read_to = 0 if is_set_back else target_offset or 0
    offset = offset_map.to_target(*where, source_offset, read_to)
    if (
        offset is None
        and written is not None
        and written.source_offset == source_offset
        and offset_map.why_unknown(*where, source_offset) is GroupAction.HOLD_NOT_MIRRORED
    ):
        # A worker's map is ahead of what it has written of it: behind the last record there may be a marker.
        offset = max(written.target_offset, read_to)
    return CarriedOffset(offset, written, is_set_back)


def _decide(
    source: CommittedOffset,
    exact: CommittedOffset,
    target: CommittedOffset | None,
    found: CarriedOffset,
    *,
    shared: bool,
    empty: bool,
) -> GroupAction:
    went_back = target is not None and is_set_back_there(source.offset, target.offset, found.written)
    is_same = not went_back if shared else target is not None and target.metadata == exact.metadata
    if target is not None and target.offset == exact.offset and is_same:
        return GroupAction.UP_TO_DATE
    if not empty:
        return GroupAction.SKIP_ACTIVE
    if target is None:
        return GroupAction.COMMIT
    if exact.offset < target.offset:
        return GroupAction.COMMIT if found.is_set_back else GroupAction.SKIP_MOVED_ON
    return GroupAction.SKIP_SET_BACK if went_back else GroupAction.COMMIT


def is_set_back_there(source_offset: int, target_offset: int, written: Written | None) -> bool:
    """Whether somebody set the target's back since the link wrote it for what still stands at the source. Where what
    stood there before does so still, the link's own commit was refused, or never came.
    """
    if written is None or source_offset != written.source_offset or written.stands(target_offset):
        return False
    return target_offset < written.target_offset and target_offset != written.stood


def _keeps(
    action: GroupAction,
    source_offset: int,
    offset: int | None,
    target: CommittedOffset | None,
    before: Written | None,
    turn: int | None,
) -> Written | None:
    """What the link's state is to say before anything is committed. `turn`: of a new pair, None in no shared topic."""
    if offset is None or action not in (GroupAction.COMMIT, GroupAction.UP_TO_DATE):
        return before
    same = (
        before
        if before is not None and (before.source_offset, before.target_offset) == (source_offset, offset)
        else None
    )
    if turn is None:
        if action is GroupAction.UP_TO_DATE:
            # What was replaced stands there no more: from now on it is somebody else who puts it there.
            return Written(source_offset, offset)
        return same or _ahead(source_offset, offset, before, target)
    if same is not None and same.turn + 1 >= turn:
        return same._replace(stood=offset) if action is GroupAction.UP_TO_DATE else same
    stands_at = NO_OFFSET if target is None else target.offset
    return Written(source_offset, offset, _replaced(before, target), stands_at, turn)


def _ahead(source_offset: int, offset: int, before: Written | None, target: CommittedOffset | None) -> Written:
    """In a topic that is not shared; `stood` is of use there only where somebody else had put it."""
    replaced = _replaced(before, target)
    is_others = replaced is None and target is not None and target.offset != offset
    return Written(source_offset, offset, replaced, target.offset if is_others and target is not None else None)


def _replaced(before: Written | None, target: CommittedOffset | None) -> int | None:
    return target.offset if before is not None and target is not None and before.stands(target.offset) else None
