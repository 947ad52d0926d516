"""What a switchover or a failover would do, and why it may not: decisions as functions of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

from broker.wire.site_role import EVERY_TOPIC
from failover.freezing.choice import UNFROZEN, Freezing, first_steps, moving_steps
from failover.losses.lacked_of import state_losses
from failover.losses.statements import LossTotal, PartitionLoss, state_loss, total_loss
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import GroupView, Snapshot
from failover.planning.gates import GateRefusal, RefusalReason, refusal_for
from failover.planning.moves import GroupMove, GroupTotal, MoveKind, group_totals, plan_moves
from failover.planning.staying import Stay
from failover.planning.undecided import Undecided
from failover.running.steps import Operation, OperationStep
from mirror.api import DeclaredPart, SourceParting

_ANSWERED = {
    SiteFinding.ALIVE: RefusalReason.SOURCE_ANSWERS,
    SiteFinding.REPLACED: RefusalReason.SOURCE_REPLACED,
}
"""Why a failover is refused at first of a source where somebody answers everything."""
_THERE_IN_PART = {
    SiteFinding.PARTLY_THERE: RefusalReason.SOURCE_PARTLY_THERE,
    SiteFinding.UNREACHABLE: RefusalReason.SOURCE_SEEN_BY_WORKER,
}
"""And of one that lives, and does not answer here, or not everything."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A site that may have taken over topics of the move, along `link`, or have them still, and bring them to the
    source. `is_active`: clients are there, and it takes their writes; None: it cannot be asked, or, of the move's own
    source, whether an operation is about to bring them there along `link`. `operation_id`: one that is about to take
    them there, or back to the source; "": none is.
    """

    link: str
    site: str
    is_active: bool | None
    operation_id: str = ""


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """Everything an operator should see before saying yes. What is unknown of `left_groups` may stay behind, and
    `set_back_groups` go back where they are ahead at the target. `left_partitions` ("topic:partition", as the source
    calls them) are left as they are, with what groups have there, while they do not answer at the target.
    """

    operation: Operation
    snapshot: Snapshot
    steps: tuple[OperationStep, ...]
    losses: tuple[PartitionLoss, ...]
    moves: tuple[GroupMove, ...]
    refusals: tuple[GateRefusal, ...]
    by_offset_map: bool = True
    left_groups: tuple[str, ...] = ()
    left_partitions: tuple[str, ...] = ()
    set_back_groups: tuple[str, ...] = ()
    freezing: Freezing = UNFROZEN
    elsewhere: tuple[Elsewhere, ...] = ()
    allows_data_loss: bool = False
    not_named: tuple[str, ...] = ()
    """The groups that it leaves, as others were asked for by name."""
    stays: tuple[Stay, ...] = ()
    """What else of groups stays at the source, or that this is not known."""
    lacks: tuple[SourceParting, ...] = ()
    """What links back had mirrored from the target, which has it no more: a failover goes on without it."""
    undecided: tuple[Undecided, ...] | None = None
    """What the target alone has since it was lost, of links the other way; None: nobody was to be told."""
    group_totals: tuple[GroupTotal, ...] = field(init=False)
    loss: LossTotal = field(init=False)

    def __post_init__(self) -> None:
        seen = self.snapshot
        loss = total_loss(
            self.losses,
            seen.taken_at_ms,
            seen.last_look,
            is_source_there=seen.is_source_there,
            found_dead_at_ms=seen.found_dead_at_ms,
        )
        object.__setattr__(self, "loss", loss)
        object.__setattr__(self, "group_totals", group_totals(self.moves))


def plan_switchover(
    snapshot: Snapshot,
    *,
    left_groups: Iterable[str] = (),
    set_back_groups: Iterable[str] = (),
    freezing: Freezing = UNFROZEN,
    elsewhere: tuple[Elsewhere, ...] = (),
    lacks: tuple[SourceParting, ...] = (),
) -> OperationPlan:
    """The source is alive and nothing may be lost: freeze what can be, drain, fence, move the groups, verify.

    What the mirror still has to bring is waited for, so that only after the drain all moves can be judged. It never
    brings what the target `lacks`, since that came from there.
    """
    left, back = tuple(left_groups), tuple(set_back_groups)
    moves = tuple(plan_moves(snapshot, back))
    refusals = [*_link_refusals(snapshot)]
    if snapshot.link_state == "paused":  # what is missing would be waited for in vain
        refusals.append(GateRefusal(RefusalReason.LINK_PAUSED, snapshot.link))
    if not snapshot.is_promoted:
        refusals += [GateRefusal(RefusalReason.TOPIC_PAUSED, topic) for topic in snapshot.paused_topics]
    why_not = {**_ANSWERED, **_THERE_IN_PART}
    if not snapshot.source_answers:
        said = why_not.get(snapshot.source_finding, RefusalReason.SOURCE_UNREACHABLE)
        refusals.append(GateRefusal(said, snapshot.source, _seen_from(snapshot)))
    refusals += [
        GateRefusal(RefusalReason.OFFSETS_IN_DOUBT, f"{view.topic}-{view.partition}")
        for view in snapshot.partitions
        if not view.trusted
    ]
    refusals += _lacking(snapshot, lacks)
    refusals += active_at_source(snapshot.groups, left)
    if freezing.frozen_for_others:
        refusals.append(refusal_for(RefusalReason.FROZEN_FOR_OTHERS, snapshot.source, freezing.frozen_for_others))
    return OperationPlan(
        Operation.SWITCHOVER,
        snapshot,
        (
            *first_steps(freezing),
            *([OperationStep.FREEZE] if freezing.is_enforced or freezing.hooks.freeze else []),
            OperationStep.DRAIN,
            *moving_steps(freezing),
        ),
        tuple(state_loss(view, snapshot.taken_at_ms) for view in snapshot.partitions),
        moves,
        (
            *refusals,
            *_closed_at_target(snapshot, freezing),
            *_second_active(snapshot, freezing, elsewhere),
            *_active_at_target(snapshot.groups),
            *_missing(snapshot, (*left, *back)),
            *_unknown(refusals, not_movable((move for move in moves if not is_coming(move, snapshot)), left)),
        ),
        left_groups=left,
        set_back_groups=back,
        freezing=freezing,
        elsewhere=elsewhere,
        lacks=lacks,
    )


def _seen_from(snapshot: Snapshot) -> str:
    """Of a source that is there in part which brokers gave no answer; of one that others see, whose workers do."""
    is_in_part = snapshot.source_finding is SiteFinding.PARTLY_THERE
    return ", ".join(snapshot.silent_brokers if is_in_part else snapshot.seen_by)


def _lacking(snapshot: Snapshot, lacks: Iterable[SourceParting]) -> Iterable[GateRefusal]:
    for one in lacks:
        reason = RefusalReason.TARGET_LACKS if one.is_known else RefusalReason.TARGET_NOT_COMPARED
        yield GateRefusal(reason, str(one.where), one.in_words(snapshot.target))


def plan_failover(
    snapshot: Snapshot,
    *,
    allow_data_loss: bool,
    even_if_source_answers: bool,
    even_if_source_partly_there: bool = False,
    moves: Iterable[GroupMove] | None = None,
    left_groups: Iterable[str] = (),
    left_partitions: Iterable[str] = (),
    set_back_groups: Iterable[str] = (),
    freezing: Freezing = UNFROZEN,
    elsewhere: tuple[Elsewhere, ...] = (),
    lacks: tuple[SourceParting, ...] = (),
) -> OperationPlan:
    """The source is gone: fence, move the groups to what is there, verify, and say what is lost.

    What does not answer at the target is no reason to leave the rest where it is: it stays as it is, by consent.
    `moves` replaces the moves by offset map (a failover to a datetime).
    """
    losses = state_losses(snapshot)
    left, back, left_places = tuple(left_groups), tuple(set_back_groups), tuple(left_partitions)
    planned = tuple(plan_moves(snapshot, back) if moves is None else moves)
    refusals = [*_link_refusals(snapshot, target_closed=_closed_target(snapshot, freezing))]
    unknown = not_movable(_told(planned, snapshot), left)
    if allow_data_loss and not unknown:  # all that nobody can know was consented to
        refusals = [refusal for refusal in refusals if refusal.reason is not RefusalReason.MAP_LOST]
    if said := None if even_if_source_answers else _ANSWERED.get(snapshot.source_finding):
        refusals.append(GateRefusal(said, snapshot.source))
    if said := None if even_if_source_partly_there else _THERE_IN_PART.get(snapshot.source_finding):
        refusals.append(GateRefusal(said, snapshot.source, _seen_from(snapshot)))
    if not allow_data_loss:
        refusals += losing(snapshot, losses)
    if not allow_data_loss:
        refusals += _lacking(snapshot, lacks)
    return OperationPlan(
        Operation.FAILOVER,
        snapshot,
        (*first_steps(freezing), *moving_steps(freezing)),
        losses,
        planned,
        (
            *refusals,
            *_closed_at_target(snapshot, freezing),
            *_second_active(snapshot, freezing, elsewhere),
            *_in_the_way(snapshot, planned),
            *_missing(snapshot, (*left, *back)),
            *_missing_partitions(snapshot, left_places),
            *_unanswered(snapshot, left, left_places),
            *_unknown(refusals, unknown),
        ),
        by_offset_map=moves is None,
        left_groups=left,
        left_partitions=left_places,
        set_back_groups=back,
        freezing=freezing,
        elsewhere=elsewhere,
        allows_data_loss=allow_data_loss,
        lacks=lacks,
    )


def losing(snapshot: Snapshot, losses: Iterable[PartitionLoss]) -> Iterable[GateRefusal]:
    """Why a failover does not begin that nobody let lose anything."""
    if not all(loss.is_none for loss in losses):
        yield GateRefusal(RefusalReason.DATA_LOSS_NOT_ALLOWED, snapshot.source)


def _closed_at_target(snapshot: Snapshot, freezing: Freezing) -> Iterable[GateRefusal]:
    """Where clients could not write although they were moved: the target's role is said in other expressions."""
    if freezing.target is None:
        return
    then = freezing.begun(freezing.target)
    if by := then.refusing({view.target_topic for view in snapshot.partitions}):
        yield refusal_for(RefusalReason.CLOSED_AT_TARGET, snapshot.target, by)


def _second_active(snapshot: Snapshot, freezing: Freezing, elsewhere: Iterable[Elsewhere]) -> Iterable[GateRefusal]:
    """Where the move would open a second site. One that cannot be asked is taken for the active one where the source
    was left for somewhere, and the target was not what it was left for.
    """
    for one in elsewhere:
        if one.operation_id:
            yield GateRefusal(RefusalReason.MOVING_ELSEWHERE, one.operation_id, one.site)
        elif one.is_active:
            yield GateRefusal(RefusalReason.ACTIVE_ELSEWHERE, one.link, one.site)
        elif freezing.was_left and may_be_second(one, snapshot, freezing):
            yield GateRefusal(RefusalReason.MAYBE_ELSEWHERE, one.link, one.site)


def may_be_second(one: Elsewhere, snapshot: Snapshot, freezing: Freezing) -> bool:
    """Whether this site, which does not say it, may be the one that the source was left for, where it was."""
    target = freezing.target
    is_open = target is not None and target.epoch > 0
    is_open = is_open and not any(target.refuses(view.target_topic) for view in snapshot.partitions if target)
    is_other = one.is_active is None and one.site != snapshot.source
    return is_other and not (snapshot.is_promoted or is_open)


def not_movable(moves: Iterable[GroupMove], left_groups: Container[str]) -> tuple[GateRefusal, ...]:
    """One refusal per group that has an unknown move, but for those that may be left behind."""
    unknown = {move.group for move in moves if move.kind is MoveKind.UNKNOWN and move.group not in left_groups}
    return tuple(GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, group) for group in sorted(unknown))


def _unknown(refusals: Iterable[GateRefusal], unknown: tuple[GateRefusal, ...]) -> tuple[GateRefusal, ...]:
    """Those of groups; not of a link that has to run first: where they go on is what it brings then."""
    return () if any(one.reason is RefusalReason.MOVED_BACK for one in refusals) else unknown


def _told(moves: Iterable[GroupMove], snapshot: Snapshot) -> Iterable[GroupMove]:
    """But those of what does not answer at the target: that is refused as such."""
    unanswered = snapshot.unanswered
    return (move for move in moves if not {("group", move.group), ("partition", move.place)} & unanswered)


def _unanswered(
    snapshot: Snapshot, left_groups: Container[str], left_partitions: Container[str]
) -> Iterable[GateRefusal]:
    """What does not answer at the target, but for what may be left, and partitions that no selected group reads."""
    read = snapshot.read_topics
    for view in snapshot.partitions:
        if view.unanswered and view.topic in read and view.name not in left_partitions:
            yield GateRefusal(RefusalReason.PARTITION_UNANSWERED, view.name, view.unanswered)
    for group in snapshot.groups:
        if group.unanswered and group.group not in left_groups:
            yield GateRefusal(RefusalReason.GROUP_UNANSWERED, group.group, group.unanswered)


def _missing(snapshot: Snapshot, named: Iterable[str]) -> tuple[GateRefusal, ...]:
    """Groups that were asked for, or `named` in a consent, and that nobody knows: a name that was mistyped."""
    there = {group.group for group in snapshot.groups}
    missing = [*snapshot.missing_groups, *(name for name in named if name not in there)]
    return tuple(GateRefusal(RefusalReason.GROUP_NOT_FOUND, group) for group in dict.fromkeys(missing))


def _missing_partitions(snapshot: Snapshot, named: Iterable[str]) -> Iterable[GateRefusal]:
    """As `_missing`: a consent to leave what is not there may have been meant for what is."""
    there = {view.name for view in snapshot.partitions}
    return (GateRefusal(RefusalReason.PARTITION_NOT_FOUND, name) for name in dict.fromkeys(named) if name not in there)


def is_coming(move: GroupMove, snapshot: Snapshot) -> bool:
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


def _link_refusals(snapshot: Snapshot, *, target_closed: tuple[str, ...] = ()) -> Iterable[GateRefusal]:
    """A link that was moved may be followed by groups that stayed behind: those are asked for by name."""
    for one in snapshot.declared_otherwise:
        if one.part is not DeclaredPart.SOURCE:
            yield GateRefusal(RefusalReason.DECLARED_OTHERWISE, snapshot.link, f"{one.part.value}: {one.there}")
    if snapshot.is_promoted and not snapshot.interrupted and not snapshot.asked_groups:
        yield _moved_before(snapshot, target_closed)
    if snapshot.is_map_lost:
        yield GateRefusal(RefusalReason.MAP_LOST, snapshot.link, snapshot.target)
    elif not any(view.mirrored_source_next is not None for view in snapshot.partitions):
        yield GateRefusal(RefusalReason.NOTHING_MIRRORED, snapshot.link)


def _moved_before(snapshot: Snapshot, target_closed: Collection[str]) -> GateRefusal:
    """Of a promoted link, what became of its clients since. Where its target takes no writes somebody came back from
    it, and with the source lost anew there is another way on than where it is the active site, whoever came back how.
    """
    is_untold = snapshot.is_untold and not snapshot.moved_back_by
    if target_closed and not is_untold:
        return refusal_for(RefusalReason.TARGET_WAS_LEFT, snapshot.link, target_closed)
    if snapshot.moved_back_by:
        return GateRefusal(RefusalReason.MOVED_BACK, snapshot.link, ", ".join(snapshot.moved_back_by))
    reason = RefusalReason.MOVE_UNTOLD if is_untold else RefusalReason.LINK_NOT_RUNNING
    return GateRefusal(reason, snapshot.link, snapshot.operation_id)


def _closed_target(snapshot: Snapshot, freezing: Freezing) -> tuple[str, ...]:
    """By which expressions the target refuses writes to the link's topics."""
    standing, denied = freezing.target, freezing.target_denials
    if standing is not None and (by := standing.refusing({view.target_topic for view in snapshot.partitions})):
        return by
    is_denied = denied is not None and denied.marks(freezing.target_topics)
    return (freezing.target_topics or (EVERY_TOPIC,)) if is_denied else ()


def active_at_source(groups: Iterable[GroupView], left_groups: Container[str] = ()) -> tuple[GateRefusal, ...]:
    """The groups that read at the source, or of which that cannot be told, but for those of `left_groups` of which
    nothing is to be moved.
    """
    seen = [group for group in groups if not (group.may_be_let_be and group.group in left_groups)]
    members = {group.group: group.source_members for group in seen if not group.other_type}
    other = [
        GateRefusal(RefusalReason.GROUP_OF_OTHER_TYPE, one.group, one.other_type) for one in seen if one.other_type
    ]
    return (*_active(members, RefusalReason.GROUP_ACTIVE_AT_SOURCE, RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE), *other)


def in_use(groups: Iterable[GroupView]) -> tuple[GateRefusal, ...]:
    """What a switchover of these groups is refused for as long as consumers are in them, at either site."""
    seen = tuple(groups)
    return (*active_at_source(seen), *_active_at_target(seen))


def _active_at_target(groups: Iterable[GroupView]) -> tuple[GateRefusal, ...]:
    """A group with members at the target cannot be moved: Kafka refuses commits from outside the group."""
    members = {group.group: group.target_members for group in groups if not group.may_be_let_be}
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
    settled = snapshot.source_finding.is_gone
    return _active_at_target(
        group for group in snapshot.groups if not group.unanswered and (group.group in moving or not settled)
    )
