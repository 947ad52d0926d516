"""What a switchover or a failover would do, and why it may not: decisions as functions of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from failover.contact import SiteFinding
from failover.freezing import UNFROZEN, Freezing
from failover.losses import LossTotal, PartitionLoss, state_loss, total_loss
from failover.snapshot import GroupPartitionView, GroupView, PartitionView, Snapshot
from failover.steps import Operation, OperationStep


class RefusalReason(StrEnum):
    """Why a safety gate says no."""

    SOURCE_UNREACHABLE = "source_unreachable"
    SOURCE_ANSWERS = "source_answers"
    SOURCE_PARTLY_THERE = "source_partly_there"
    LINK_NOT_RUNNING = "link_not_running"
    LINK_PAUSED = "link_paused"
    TOPIC_PAUSED = "topic_paused"
    NOTHING_MIRRORED = "nothing_mirrored"
    GROUP_ACTIVE_AT_SOURCE = "group_active_at_source"
    GROUP_ACTIVE_AT_TARGET = "group_active_at_target"
    OFFSETS_IN_DOUBT = "offsets_in_doubt"
    DATA_LOSS_NOT_ALLOWED = "data_loss_not_allowed"
    MEMBERS_UNKNOWN_AT_SOURCE = "members_unknown_at_source"
    MEMBERS_UNKNOWN_AT_TARGET = "members_unknown_at_target"
    GROUP_NOT_FOUND = "group_not_found"
    NOT_DRAINED = "not_drained"
    NO_CONSENT = "no_consent"
    GROUP_NOT_MOVABLE = "group_not_movable"
    HOOK_FAILED = "hook_failed"
    FROZEN_FOR_OTHERS = "frozen_for_others"
    CLOSED_AT_TARGET = "closed_at_target"
    TOPICS_CUT = "topics_cut"
    NOTHING_SELECTED = "nothing_selected"
    WORLD_CHANGED = "world_changed"


@dataclass(frozen=True, slots=True)
class GateRefusal:
    """One gate that said no; `subject` is the site or group it is about."""

    reason: RefusalReason
    subject: str


class MoveKind(StrEnum):
    """Where a group's offset at the target comes from."""

    TRANSLATED = "translated"
    AT_END = "at_end"
    ALREADY_THERE = "already_there"
    AHEAD = "ahead"
    BY_TIMESTAMP = "by_timestamp"
    KEPT = "kept"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupMove:
    """One group's offset on one partition: `target_offset` will be committed, or already is (None: cannot be known).

    AT_END: the group had read further at the source than was mirrored, so it goes on at the end of what is there.
    KEPT: the source cannot be asked; the offset that the mirror last synced stays. What the group read at the
    source after `synced_at_ms` it reads again; None: no sync was recorded.
    AHEAD: the group stands further on at the target than at the source, and was not set back there: it stays.
    UNKNOWN: no offset of the target is known to mean the same record; what stands there is left as it is.
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

    @property
    def commits(self) -> bool:
        return self.kind in (MoveKind.TRANSLATED, MoveKind.AT_END, MoveKind.BY_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """What a group's moves make it read again, and skip, in all its partitions; None where one of them is unknown."""

    group: str
    read_again_records: int | None
    skipped_records: int | None


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """Everything an operator should see before saying yes. What is unknown of `left_groups` may stay behind, and
    `set_back_groups` go back where they are ahead at the target.
    """

    operation: Operation
    snapshot: Snapshot
    steps: tuple[OperationStep, ...]
    losses: tuple[PartitionLoss, ...]
    moves: tuple[GroupMove, ...]
    refusals: tuple[GateRefusal, ...]
    by_offset_map: bool = True
    left_groups: tuple[str, ...] = ()
    set_back_groups: tuple[str, ...] = ()
    freezing: Freezing = UNFROZEN
    group_totals: tuple[GroupTotal, ...] = field(init=False)
    loss: LossTotal = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", total_loss(self.losses, self.snapshot.taken_at_ms, self.snapshot.last_look))
        object.__setattr__(self, "group_totals", group_totals(self.moves))


def plan_switchover(
    snapshot: Snapshot,
    *,
    left_groups: Iterable[str] = (),
    set_back_groups: Iterable[str] = (),
    freezing: Freezing = UNFROZEN,
) -> OperationPlan:
    """The source is alive and nothing may be lost: freeze what can be, drain, fence, move the groups, verify.

    What the mirror still has to bring is waited for, so that only after the drain all moves can be judged.
    """
    left, back = tuple(left_groups), tuple(set_back_groups)
    moves = tuple(plan_moves(snapshot, back))
    refusals = [*_link_refusals(snapshot)]
    if snapshot.link_state == "paused":  # what is missing would be waited for in vain
        refusals.append(GateRefusal(RefusalReason.LINK_PAUSED, snapshot.link))
    if not snapshot.is_promoted:
        refusals += [GateRefusal(RefusalReason.TOPIC_PAUSED, topic) for topic in snapshot.paused_topics]
    if not snapshot.source_answers:
        refusals.append(GateRefusal(RefusalReason.SOURCE_UNREACHABLE, snapshot.source))
    refusals += [
        GateRefusal(RefusalReason.OFFSETS_IN_DOUBT, f"{view.topic}-{view.partition}")
        for view in snapshot.partitions
        if not view.trusted
    ]
    refusals += active_at_source(snapshot.groups)
    if freezing.is_in_the_way:
        refusals.append(GateRefusal(RefusalReason.FROZEN_FOR_OTHERS, snapshot.source))
    return OperationPlan(
        Operation.SWITCHOVER,
        snapshot,
        (
            *_first(freezing),
            *([OperationStep.FREEZE] if freezing.is_enforced or freezing.hooks.freeze else []),
            OperationStep.DRAIN,
            *_moving(freezing),
        ),
        tuple(state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions),
        moves,
        (
            *refusals,
            *_closed_at_target(snapshot, freezing),
            *_active_at_target(snapshot.groups),
            *_missing(snapshot, (*left, *back)),
            *not_movable((move for move in moves if not _is_coming(move, snapshot)), left),
        ),
        left_groups=left,
        set_back_groups=back,
        freezing=freezing,
    )


def _first(freezing: Freezing) -> list[OperationStep]:
    return [OperationStep.BEFORE_HOOK] if freezing.hooks.before else []


def _moving(freezing: Freezing) -> tuple[OperationStep, ...]:
    """From the fence on, as both verbs do it."""
    hand_over = [OperationStep.HAND_OVER] if freezing.hands_over else []
    after = [OperationStep.AFTER_HOOK] if freezing.hooks.after else []
    return (OperationStep.FENCE, OperationStep.MOVE_GROUPS, *hand_over, OperationStep.VERIFY, *after)


def plan_failover(
    snapshot: Snapshot,
    *,
    allow_data_loss: bool,
    even_if_source_answers: bool,
    even_if_source_partly_there: bool = False,
    moves: Iterable[GroupMove] | None = None,
    left_groups: Iterable[str] = (),
    set_back_groups: Iterable[str] = (),
    freezing: Freezing = UNFROZEN,
) -> OperationPlan:
    """The source is gone: fence, move the groups to what is there, verify, and say what is lost.

    `moves` replaces the moves by offset map (a failover to a datetime).
    """
    losses = tuple(state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions)
    left, back = tuple(left_groups), tuple(set_back_groups)
    planned = tuple(plan_moves(snapshot, back) if moves is None else moves)
    refusals = [*_link_refusals(snapshot)]
    if snapshot.source_answers and not even_if_source_answers:
        refusals.append(GateRefusal(RefusalReason.SOURCE_ANSWERS, snapshot.source))
    if snapshot.source_finding is SiteFinding.PARTLY_THERE and not even_if_source_partly_there:
        refusals.append(GateRefusal(RefusalReason.SOURCE_PARTLY_THERE, snapshot.source))
    if not allow_data_loss and not all(loss.is_none for loss in losses):
        refusals.append(GateRefusal(RefusalReason.DATA_LOSS_NOT_ALLOWED, snapshot.source))
    return OperationPlan(
        Operation.FAILOVER,
        snapshot,
        (*_first(freezing), *_moving(freezing)),
        losses,
        planned,
        (
            *refusals,
            *_closed_at_target(snapshot, freezing),
            *_in_the_way(snapshot, planned),
            *_missing(snapshot, (*left, *back)),
            *not_movable(planned, left),
        ),
        by_offset_map=moves is None,
        left_groups=left,
        set_back_groups=back,
        freezing=freezing,
    )


def _closed_at_target(snapshot: Snapshot, freezing: Freezing) -> Iterable[GateRefusal]:
    """Where clients could not write although they were moved: the target's role is said in other expressions."""
    if freezing.target is None:
        return
    then = freezing.begun(freezing.target)
    if any(then.refuses(view.target_topic) for view in snapshot.partitions):
        yield GateRefusal(RefusalReason.CLOSED_AT_TARGET, snapshot.target)


def not_movable(moves: Iterable[GroupMove], left_groups: Container[str]) -> tuple[GateRefusal, ...]:
    """One refusal per group that has an unknown move, but for those that may be left behind."""
    unknown = {move.group for move in moves if move.kind is MoveKind.UNKNOWN and move.group not in left_groups}
    return tuple(GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, group) for group in sorted(unknown))


def _missing(snapshot: Snapshot, named: Iterable[str]) -> tuple[GateRefusal, ...]:
    """Groups that were asked for, or `named` in a consent, and that nobody knows: a name that was mistyped."""
    there = {group.group for group in snapshot.groups}
    missing = [*snapshot.missing_groups, *(name for name in named if name not in there)]
    return tuple(GateRefusal(RefusalReason.GROUP_NOT_FOUND, group) for group in dict.fromkeys(missing))


def _is_coming(move: GroupMove, snapshot: Snapshot) -> bool:
    """Whether the group stands where the mirror has yet to come to, so that the drain can make its move known."""
    if snapshot.is_promoted:
        return False
    for view in snapshot.partitions:
        if (view.topic, view.partition) == (move.topic, move.partition):
            end, mirrored = view.source_end, view.mirrored_source_next
            stands_at = move.source_offset
            if stands_at is None or end is None or stands_at > end:
                return False
            return view.trusted and end > (mirrored or 0) and stands_at >= (mirrored or 0)
    return False


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
            move = _move(group, at, ends.get((at.topic, at.partition)))
            yield _counted(move, at, may_go_back=at.set_back or group.group in set_back_groups)


def _counted(move: GroupMove, at: GroupPartitionView, *, may_go_back: bool) -> GroupMove:
    """The move, which becomes to stay where it would go back unasked, with what is read again and skipped by it."""
    stands_at, goes_to = at.target_offset, move.target_offset
    if move.kind in (MoveKind.KEPT, MoveKind.UNKNOWN):
        return replace(move, read_again_records=None, skipped_records=0 if move.kind is MoveKind.KEPT else None)
    if not move.commits or stands_at is None or goes_to is None or stands_at <= goes_to:
        return move
    if may_go_back:
        return replace(move, read_again_records=0 if at.set_back else stands_at - goes_to)
    return replace(move, kind=MoveKind.AHEAD, target_offset=stands_at, skipped_records=stands_at - goes_to)


def _move(group: GroupView, at: GroupPartitionView, view: PartitionView | None) -> GroupMove:
    target_offset: int | None = at.translated_offset
    if at.source_offset is None:
        kind, target_offset = (MoveKind.KEPT, at.target_offset) if _stands(at, view) else (MoveKind.UNKNOWN, None)
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
    )


def _stands(at: GroupPartitionView, view: PartitionView | None) -> bool:
    """Whether the target's offset is within its log, and that log still the one that it was committed for."""
    if at.target_offset is None or view is None or not view.trusted:
        return False
    return view.target_end is not None and at.target_offset <= view.target_end


def _has_read_all(source_offset: int, view: PartitionView) -> bool:
    """Whether the group has read all that the mirror brought, or the source ever had. Beyond its end nobody can be."""
    if view.source_end is not None and source_offset > view.source_end:
        return False
    if view.mirrored_source_next is None:
        return view.source_end is not None and source_offset == view.source_end == (view.source_start or 0)
    return source_offset >= view.mirrored_source_next


def _link_refusals(snapshot: Snapshot) -> Iterable[GateRefusal]:
    """A link that was moved may be followed by groups that stayed behind: those are asked for by name."""
    if snapshot.is_promoted and not snapshot.interrupted and not snapshot.asked_groups:
        yield GateRefusal(RefusalReason.LINK_NOT_RUNNING, snapshot.link)
    if not any(view.mirrored_source_next is not None for view in snapshot.partitions):
        yield GateRefusal(RefusalReason.NOTHING_MIRRORED, snapshot.link)


def active_at_source(groups: Iterable[GroupView]) -> tuple[GateRefusal, ...]:
    """The groups that read at the source, or of which that cannot be told."""
    members = {group.group: group.source_members for group in groups}
    return _active(members, RefusalReason.GROUP_ACTIVE_AT_SOURCE, RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE)


def _active_at_target(groups: Iterable[GroupView]) -> tuple[GateRefusal, ...]:
    """A group with members at the target cannot be moved: Kafka refuses commits from outside the group."""
    members = {group.group: group.target_members for group in groups}
    return _active(members, RefusalReason.GROUP_ACTIVE_AT_TARGET, RefusalReason.MEMBERS_UNKNOWN_AT_TARGET)


def _active(
    members: Mapping[str, int | None], active: RefusalReason, unknown: RefusalReason
) -> tuple[GateRefusal, ...]:
    return tuple(
        GateRefusal(unknown if count is None else active, group) for group, count in members.items() if count != 0
    )


def _in_the_way(snapshot: Snapshot, moves: Iterable[GroupMove]) -> tuple[GateRefusal, ...]:
    """As `_active_at_target`, but those for which nothing is to be committed, and nothing more can come to be."""
    moving = {move.group for move in moves if move.commits}
    settled = snapshot.source_finding is SiteFinding.DEAD
    return _active_at_target(group for group in snapshot.groups if group.group in moving or not settled)
