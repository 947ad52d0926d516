"""Where each group goes on at the target: what is committed for it, read again and skipped. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from failover.observing.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot


class MoveKind(StrEnum):
    """Where a group's offset at the target comes from."""

    TRANSLATED = "translated"
    AT_END = "at_end"
    AT_START = "at_start"
    ALREADY_THERE = "already_there"
    AHEAD = "ahead"
    SET_BACK_THERE = "set_back_there"
    BY_TIMESTAMP = "by_timestamp"
    KEPT = "kept"
    RESTORED = "restored"
    UNKNOWN = "unknown"


COMMITTING: Final = frozenset(
    {MoveKind.TRANSLATED, MoveKind.AT_END, MoveKind.AT_START, MoveKind.RESTORED, MoveKind.BY_TIMESTAMP}
)
AS_BROUGHT: Final = frozenset({MoveKind.KEPT, MoveKind.RESTORED})
"""Nobody knows what the group read at the source, or was set back to there, since the mirror last saw it."""


@dataclass(frozen=True, slots=True)
class GroupMove:
    """One group's offset on one partition: `target_offset` will be committed, or already is (None: cannot be known).

    AT_END: the group had read further at the source than was mirrored, so it goes on at the end of what is there.
    AT_START: what the group would read next the target has no more (retention took it, say), so it goes on at the first
    record that is there; left where it was, a consumer would begin at the log's end, or wherever it is set to.
    KEPT: the source cannot be asked; the offset that the mirror last synced stays. What the group read at the
    source after `synced_at_ms` (None: no sync was recorded) it reads again, and what it was set back by, it skips; so
    it does what it had read at the target alone, where both sites write: the mirror had brought it behind that.
    RESTORED: the source cannot be asked, and the target has lost the offset, or the group is to be set back: it goes on
    where the link's state says that the mirror last brought it (`brought_offset`; None: it does not say). As for KEPT.
    AHEAD: the group stands further on at the target than at the source, and was not set back there: it stays. Where the
    source cannot be asked: further on than where the mirror last brought it, from where is counted what it skips.
    SET_BACK_THERE: behind an earlier move the group was set back at the target, by hand or to a time: it stays.
    UNKNOWN: no offset of the target is known to mean the same record, or nothing can be asked or set of the group
    there; what stands there is left as it is.
    `stood_at` is where the group stood at the target when this was decided, None for nowhere. `turn`: of the pair of
    offsets that the link's state is to say then; 0: only the source has writers.
    """

    group: str
    topic: str
    partition: int
    target_topic: str
    kind: MoveKind
    source_offset: int | None
    target_offset: int | None
    metadata: str
    synced_at_ms: int | None = None
    read_again_records: int | None = 0
    skipped_records: int | None = 0
    """As counts of the target's offsets, markers among them; None where it cannot be known."""
    stood_at: int | None = None
    turn: int = 0
    brought_offset: int | None = None

    def document(self) -> dict[str, Any]:
        """Its fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def place(self) -> str:
        """The source's partition, as options name it."""
        return f"{self.topic}:{self.partition}"

    @property
    def commits(self) -> bool:
        return self.kind in COMMITTING

    def of_one_at(self, stands_at: int | None) -> GroupMove:
        """As it is to be made of a group that stands there by now: it goes back over nothing that it has read since."""
        there = self.target_offset
        if not self.commits or there is None or stands_at is None or stands_at <= there or stands_at == self.stood_at:
            return self
        # What it skips by the plan already it still does; RESTORED: where it was brought is `there`.
        planned = 0 if self.kind is MoveKind.RESTORED else self.skipped_records
        skipped = None if planned is None else planned + stands_at - there
        # Behind where it stands now the logs may differ in order, too, where both sites write.
        again = None if self.turn and self.read_again_records != 0 else 0
        return replace(
            self,
            kind=MoveKind.AHEAD,
            target_offset=stands_at,
            skipped_records=skipped,
            read_again_records=again,
        )


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """What a group's moves make it read again, and skip, in all its partitions; None where one of them is unknown."""

    group: str
    read_again_records: int | None
    skipped_records: int | None


def group_totals(moves: Iterable[GroupMove]) -> tuple[GroupTotal, ...]:
    """Per group what it reads again and skips."""
    by_group: dict[str, list[GroupMove]] = {}
    for move in moves:
        by_group.setdefault(move.group, []).append(move)
    return tuple(
        GroupTotal(
            group,
            _sum(move.read_again_records for move in of_group),
            _sum(move.skipped_records for move in of_group),
        )
        for group, of_group in sorted(by_group.items())
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def plan_moves(snapshot: Snapshot, set_back_groups: Container[str] = ()) -> Iterable[GroupMove]:
    """Where each group goes on at the target, by the offset map; back only where that was asked for."""
    ends = {(view.topic, view.partition): view for view in snapshot.partitions}
    for group in snapshot.groups:
        for at in group.partitions:
            view = ends.get((at.topic, at.partition))
            move = _left(group, at) if group.unanswered else _move(group, at, view)
            counted = _counted(move, at, may_go_back=group.group in set_back_groups)
            placed = _left_back(counted, at) if snapshot.is_promoted and at.is_set_back_there else counted
            yield with_lacked_skips(_within_log(placed, view, at), snapshot)


def with_lacked_skips(move: GroupMove, snapshot: Snapshot) -> GroupMove:
    """With what the group has yet to read at the source, and the target lost of its own: it comes to it nowhere."""
    if move.source_offset is None or move.kind is MoveKind.UNKNOWN:
        return move
    for one in snapshot.lacked:
        if (one.topic, one.partition) == (move.topic, move.partition):
            lost = one.behind(move.source_offset)
            skipped = None if lost is None or move.skipped_records is None else move.skipped_records + lost
            return replace(move, skipped_records=skipped)
    return move


def _counted(move: GroupMove, at: GroupPartitionView, *, may_go_back: bool) -> GroupMove:
    """The move, which becomes to stay where it would go back unasked, with what is read again and skipped by it.

    A group that has read further in both directions goes on, and is told what only the target saw it read.
    """
    stands_at, goes_to = at.target_offset, move.target_offset
    if move.kind in AS_BROUGHT or move.kind is MoveKind.UNKNOWN:
        return replace(move, read_again_records=None, skipped_records=None)
    if move.source_offset is None and stands_at is not None and at.brought_offset is not None:
        if may_go_back:
            back, to = MoveKind.RESTORED, at.brought_offset
            return replace(move, kind=back, target_offset=to, read_again_records=None, skipped_records=None)
        return replace(move, read_again_records=None, skipped_records=stands_at - at.brought_offset)
    if goes_to is None:
        return move
    move = replace(move, read_again_records=read_again(at, goes_to))
    ahead_from = goes_to if at.ahead_from is None else at.ahead_from
    if stands_at is None or at.set_back or stands_at <= ahead_from:
        return move
    if may_go_back:
        back = MoveKind.TRANSLATED if move.kind is MoveKind.ALREADY_THERE else move.kind
        again = read_again(at, ahead_from, max(stands_at, goes_to))
        return replace(move, kind=back, target_offset=ahead_from, read_again_records=again)
    kind, there = MoveKind.AHEAD if goes_to <= stands_at else move.kind, max(stands_at, goes_to)
    again, skipped = read_again(at, there), (stands_at if at.read_to is None else at.read_to) - ahead_from
    return replace(move, kind=kind, target_offset=there, read_again_records=again, skipped_records=skipped)


def read_again(at: GroupPartitionView, goes_to: int, read_to: int = 0) -> int | None:
    """What it comes to from `goes_to` on and has read: all up to `read_to`, and behind that what it has read at the
    source, where the logs differ in order. None where that is not known.
    """
    if at.read_at_source is None:
        return None
    behind = max(goes_to, read_to)
    return behind - goes_to + sum(max(0, end - max(start, behind)) for start, end in at.read_at_source)


def _left_back(move: GroupMove, at: GroupPartitionView) -> GroupMove:
    """Forward it would skip what somebody wants read again, at the site where the applications are."""
    stands_at, goes_to = at.target_offset, move.target_offset
    if not move.commits or stands_at is None or goes_to is None or goes_to <= stands_at:
        return move
    again = read_again(at, stands_at, goes_to)
    return replace(
        move, kind=MoveKind.SET_BACK_THERE, target_offset=stands_at, read_again_records=again, skipped_records=0
    )


def _within_log(move: GroupMove, view: PartitionView | None, at: GroupPartitionView) -> GroupMove:
    """Forward to where the target's log begins, if that lies behind the place; what is in between is skipped, but for
    what the mirror's markers take behind its last record.
    """
    goes_to, start = move.target_offset, view.target_start if view is not None else None
    if view is None or goes_to is None or start is None or goes_to >= start:
        return move
    end = view.mirrored_target_next
    lost = max(0, (start if end is None or view.has_local_writers else min(start, end)) - goes_to)
    again, skipped = move.read_again_records, move.skipped_records
    return replace(
        move,
        kind=MoveKind.AT_START,
        target_offset=start,
        read_again_records=None if again is None else read_again(at, start, _read_to(move, at)),
        skipped_records=(skipped or 0) + lost if lost else skipped,
    )


def _read_to(move: GroupMove, at: GroupPartitionView) -> int:
    """Up to where all was read that the group comes to on its way back, 0 where it goes none."""
    if move.kind is MoveKind.SET_BACK_THERE:
        return at.translated_offset or 0
    goes_back = not at.set_back and (move.target_offset or 0) < (at.target_offset or 0)
    return max(at.target_offset or 0, at.translated_offset or 0) if goes_back else 0


def _move(group: GroupView, at: GroupPartitionView, view: PartitionView | None) -> GroupMove:
    target_offset: int | None = at.translated_offset
    if at.source_offset is None:
        kind, target_offset = _without_source(at, view)
    elif at.translated_offset is not None:
        same = at.translated_offset == at.target_offset
        kind = MoveKind.ALREADY_THERE if same else MoveKind.TRANSLATED
    elif (
        view is not None
        and view.trusted
        and not view.has_local_writers
        and view.target_end is not None
        and _has_read_all(at.source_offset, view)
    ):
        end = view.mirrored_target_next
        kind, target_offset = MoveKind.AT_END, view.target_end if end is None else end
    else:
        kind = MoveKind.UNKNOWN
    return GroupMove(
        group.group,
        at.topic,
        at.partition,
        at.target_topic,
        kind,
        at.source_offset,
        target_offset,
        at.metadata,
        group.synced_at_ms,
        stood_at=at.target_offset,
        turn=at.turn,
        brought_offset=at.brought_offset,
    )


def _without_source(at: GroupPartitionView, view: PartitionView | None) -> tuple[MoveKind, int | None]:
    """Where both sites write, the link's state may be older than what a link back did with the group since."""
    stands_at, brought = at.target_offset, at.brought_offset
    is_last_word = brought is not None and view is not None and not view.has_local_writers
    if stands_at is None and is_last_word and _is_within(brought, view):
        return MoveKind.RESTORED, brought
    if not _is_within(stands_at, view):
        return MoveKind.UNKNOWN, None
    is_ahead = is_last_word and stands_at is not None and brought is not None and stands_at > brought
    return MoveKind.AHEAD if is_ahead else MoveKind.KEPT, stands_at


def _left(group: GroupView, at: GroupPartitionView) -> GroupMove:
    """Of one of which nothing can be asked at the target, and nothing set."""
    return GroupMove(
        group.group,
        at.topic,
        at.partition,
        at.target_topic,
        MoveKind.UNKNOWN,
        at.source_offset,
        None,
        at.metadata,
        group.synced_at_ms,
    )


def _is_within(target_offset: int | None, view: PartitionView | None) -> bool:
    """Whether the target's log has come to the offset, and is still the one that it was committed for."""
    if target_offset is None or view is None or not view.trusted:
        return False
    return view.target_end is not None and target_offset <= view.target_end


def _has_read_all(source_offset: int, view: PartitionView) -> bool:
    """Whether the group has read all that the mirror brought, or the source ever had. Beyond its end nobody can be."""
    if view.source_end is not None and source_offset > view.source_end:
        return False
    if view.mirrored_source_next is None:
        return view.source_end is not None and source_offset == view.source_end == (view.source_start or 0)
    return source_offset >= view.mirrored_source_next
