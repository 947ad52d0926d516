"""What happens to a group's offset at the target, partition by partition. Pure.

An offset is only ever committed where the map gives the exact one. It goes forward, and back where the source's went
back since the link wrote the target's and the target's is still the one that it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.client.model import CommittedOffset
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, Written
from mirror.offsets.offset_map import Where


class Translator(Protocol):
    """What the decisions need of the offset map."""

    def to_target(self, topic: str, partition: int, source_offset: int, read_to: int = 0) -> int | None: ...

    def why_unknown(self, topic: str, partition: int, source_offset: int) -> GroupAction: ...

    def is_shared(self, topic: str) -> bool: ...

    def last_written(
        self, group: str, where: Where, source_offset: int, target_offset: int | None, ours: Written | None
    ) -> Written | None: ...


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """One partition of one group. `target_offset` is the translated offset, None while there is none.

    `written` is what the link's state keeps from here on, None for nothing.
    """

    group: str
    source: TopicPartition
    target: TopicPartition
    action: GroupAction
    source_offset: int
    target_offset: int | None
    metadata: str
    written: Written | None


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
        before = offset_map.last_written(group, source, committed.offset, stands_at, written.get(source))
        read_to = read_at_target(committed.offset, stands_at, before)
        offset = offset_map.to_target(*source, committed.offset, read_to)
        if offset is None:
            action = offset_map.why_unknown(*source, committed.offset)
        else:
            exact = CommittedOffset(offset, committed.metadata)
            action = _decide(
                committed, exact, there, before, shared=offset_map.is_shared(source.topic), empty=target_group_empty
            )
        keeps = _keeps(action, committed.offset, offset, there, before)
        decisions.append(
            GroupDecision(group, source, target, action, committed.offset, offset, committed.metadata, keeps)
        )
    return decisions


def read_at_target(source_offset: int, target_offset: int | None, written: Written | None) -> int:
    """Up to where a group that stands at these offsets has read at the target: nothing counts once it was set back."""
    if target_offset is None or (written is not None and is_rewound(source_offset, target_offset, written)):
        return 0
    return target_offset


def is_rewound(source_offset: int, target_offset: int, written: Written) -> bool:
    """Whether the group was set back at the source since the link wrote what stands at the target."""
    return source_offset < written.source_offset and written.stands(target_offset)


def _decide(
    source: CommittedOffset,
    exact: CommittedOffset,
    target: CommittedOffset | None,
    written: Written | None,
    *,
    shared: bool,
    empty: bool,
) -> GroupAction:
    if target is not None and target.offset == exact.offset and (shared or target.metadata == exact.metadata):
        return GroupAction.UP_TO_DATE
    if not empty:
        return GroupAction.SKIP_ACTIVE
    if target is None:
        return GroupAction.COMMIT
    if exact.offset < target.offset:
        rewound = written is not None and is_rewound(source.offset, target.offset, written)
        return GroupAction.COMMIT if rewound else GroupAction.SKIP_MOVED_ON
    if written is not None and source.offset == written.source_offset and target.offset < written.target_offset:
        return GroupAction.COMMIT if written.stands(target.offset) else GroupAction.SKIP_SET_BACK
    return GroupAction.COMMIT


def _keeps(
    action: GroupAction, source_offset: int, offset: int | None, target: CommittedOffset | None, before: Written | None
) -> Written | None:
    """What the link's state is to say before anything is committed."""
    if offset is None or action not in (GroupAction.COMMIT, GroupAction.UP_TO_DATE):
        return before
    if before is not None and (before.source_offset, before.target_offset) == (source_offset, offset):
        return before
    if action is GroupAction.UP_TO_DATE:
        return Written(source_offset, offset)
    ours = before is not None and target is not None and before.stands(target.offset)
    return Written(source_offset, offset, target.offset if ours and target is not None else None)
