"""What a link's state keeps of consumer groups: one entry per group, and when all of them were last looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from mirror.offsets.offset_map import Where


class GroupAction(StrEnum):
    """What happens to a group's offset in one partition."""

    COMMIT = "commit"
    UP_TO_DATE = "up_to_date"
    HOLD_NOT_MIRRORED = "hold_not_mirrored"
    """The group has read further than is mirrored; or nothing of the partition is, which may be held or deleted."""
    HOLD_BEFORE_MIRROR = "hold_before_mirror"
    """The group stands before the first record that was mirrored."""
    HOLD_OFFSETS_IN_DOUBT = "hold_offsets_in_doubt"
    """The offset may mean another record than the mirrored one (`doubt.py`): a log was recreated, cut, or is held."""
    HOLD_MORE_SITES = "hold_more_sites"
    """More than the link's two sites write the topic: which of a third one's records a group has read is not known."""
    SKIP_ACTIVE = "skip_active"
    """The group has members at the target."""
    SKIP_MOVED_ON = "skip_moved_on"
    """The target's offset is ahead, and it was not this link that put it there."""
    SKIP_SET_BACK = "skip_set_back"
    """Somebody set the target's offset back since the link wrote it, and the source's has not moved since."""
    BEFORE_LOG = "before_log"
    """The offset is carried over, but the target has no more what the group reads next, which the source has still."""


SETTLED = frozenset({GroupAction.COMMIT, GroupAction.UP_TO_DATE})


class Written(NamedTuple):
    """What the link committed at the target, or was about to: written ahead, so `replaced` may still stand there.

    `replaced` is the link's own offset of before, None where there was none. `stood` is what was seen there when this
    was written, whoever put it: NO_OFFSET for nothing, `target_offset` once that was committed. Where the target has no
    writers of its own it is said only of what somebody else had put there; None: else, or an earlier version wrote
    this. Of two links back and forth the later pair has the higher `turn`, each link counting on from what it knows of
    the other one's; 0: an earlier version wrote it, or there is no other.
    """

    source_offset: int
    target_offset: int
    replaced: int | None = None
    stood: int | None = None
    turn: int = 0

    @property
    def is_set_back(self) -> bool:
        """Whether the link carried over that the group was set back at its source."""
        return self.replaced is not None and self.target_offset < self.replaced

    def awaits_set_back(self, source_offset: int, target_offset: int) -> bool:
        """Whether that is what was written ahead, and not done: what it is to be set back from stands there still."""
        return self.is_set_back and (source_offset, target_offset) == (self.source_offset, self.replaced)

    def stands(self, target_offset: int) -> bool:
        """Whether it is the link that put this offset at the target."""
        is_committed = self.stood == self.target_offset
        return target_offset == self.target_offset or (target_offset == self.replaced and not is_committed)

    def is_set_back_to(self, target_offset: int) -> bool:
        """Whether somebody set the group back to there since. What `stood` there may be what is yet to be replaced."""
        if self.stood is None or self.stands(target_offset):
            return False
        return target_offset < self.target_offset and target_offset != self.stood


@dataclass(frozen=True, slots=True)
class GroupSync:
    """One group, written when it changes. `waiting`: the partitions whose offset is not carried over, or from
    where a consumer would not go on at the target, and why.

    `failure` says why the group could not be read or committed. `synced_at_ms` is when all was last equal, before
    `at_ms`, when this was found: while nothing waits, the group is as it was found each time the link looks.
    """

    group: str
    at_ms: int
    written: Mapping[Where, Written] = field(default_factory=dict)
    waiting: Mapping[Where, GroupAction] = field(default_factory=dict)
    failure: str = ""
    synced_at_ms: int | None = None

    @property
    def is_settled(self) -> bool:
        """Whether every offset was carried over."""
        return not self.waiting and not self.failure


@dataclass(frozen=True, slots=True)
class GroupSyncTimes:
    """When the link last looked at its groups, in ms. `synced_at_ms` is by group, of before each had its entry."""

    synced_at_ms: Mapping[str, int] = field(default_factory=dict)
    looked_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class VoidGroup:
    """Takes back a group's entry: it is gone at the source, or not selected any more."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupSyncs:
    """All groups of a link: their entries, and the times."""

    by_group: Mapping[str, GroupSync] = field(default_factory=dict)
    times: GroupSyncTimes = field(default_factory=GroupSyncTimes)

    @property
    def looked_at_ms(self) -> int | None:
        """When the link last looked at all groups; None: never, or only before each group had its entry."""
        return self.times.looked_at_ms

    @property
    def names(self) -> frozenset[str]:
        """The groups that the link carries over, or tries to."""
        return frozenset({*self.times.synced_at_ms, *self.by_group})

    @property
    def synced_at_ms(self) -> dict[str, int]:
        """Per group when its offsets were last seen to be equal; without those that never were."""
        found = {name: self.synced_at(name) for name in self.names}
        return {name: at_ms for name, at_ms in sorted(found.items()) if at_ms is not None}

    def synced_at(self, name: str) -> int | None:
        """When the group's offsets were last seen to be equal: at the last look, if nothing has changed since."""
        entry = self.by_group.get(name)
        if entry is None:
            return self.times.synced_at_ms.get(name)
        looked_at_ms = self.times.looked_at_ms
        if entry.is_settled and looked_at_ms is not None and looked_at_ms >= entry.at_ms:
            return looked_at_ms
        return entry.synced_at_ms

    def waiting(self) -> dict[str, GroupSync]:
        """The groups that are held, skipped or failed, in one partition at least."""
        return {name: entry for name, entry in sorted(self.by_group.items()) if not entry.is_settled}


GroupEntry: TypeAlias = GroupSync | GroupSyncTimes


def pack_group(entry: GroupSync) -> dict[str, Any]:
    """As fields of a JSON value: per topic flat lists of [partition, source offset, target offset, replaced, ...], and
    of [partition, stood, turn, ...] where those are said.
    """
    written: dict[str, list[int | None]] = {}
    turns: dict[str, list[int | None]] = {}
    for (topic, partition), pair in sorted(entry.written.items()):
        written.setdefault(topic, []).extend((partition, pair.source_offset, pair.target_offset, pair.replaced))
        if pair.stood is not None or pair.turn:
            turns.setdefault(topic, []).extend((partition, pair.stood, pair.turn))
    waiting: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), action in sorted(entry.waiting.items()):
        waiting.setdefault(action.value, {}).setdefault(topic, []).append(partition)
    return {
        "at_ms": entry.at_ms,
        "written": written,
        **({"turns": turns} if turns else {}),
        "waiting": waiting,
        "failure": entry.failure,
        "synced_at_ms": entry.synced_at_ms,
    }


def unpack_group(group: str, fields: dict[str, Any]) -> GroupSync:
    """Raises ValueError, KeyError or TypeError for what `pack_group` did not write."""
    written: dict[Where, Written] = {}
    turns = {
        (topic, flat[at]): flat[at + 1 : at + 3]
        for topic, flat in fields.pop("turns", {}).items()
        for at in range(0, len(flat), 3)
    }
    for topic, flat in fields.pop("written").items():
        for at in range(0, len(flat), 4):
            partition, source_offset, target_offset, replaced = flat[at : at + 4]
            where = topic, partition
            written[where] = Written(source_offset, target_offset, replaced, *turns.get(where, ()))
    waiting = {
        (topic, partition): GroupAction(action)
        for action, topics in fields.pop("waiting").items()
        for topic, partitions in topics.items()
        for partition in partitions
    }
    return GroupSync(group=group, written=written, waiting=waiting, **fields)
