"""The way back of a link as steps, from what both sites show. Pure.

Each step sees to its own effect and may be repeated: a failback that was cut short is begun anew, and leaves out what
the world shows to be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.wire.vocabulary import TopicPartition
from failover.failback.foreseen import NOTHING_FORESEEN, Foreseen
from failover.failback.stranding import Stranded
from failover.failback.through import ReadsTail
from failover.failback.waves import ALL_BACK, GroupsBack
from failover.observing.snapshot import LeftRange
from failover.planning.moves import GroupTotal
from failover.planning.plan import Elsewhere
from mirror.api import LinkCondition, LinkRun, RunState, SourceParting, StrandedTail


class FailbackStep(StrEnum):
    """In this order."""

    EXPORT = "export"
    """What only the old source has is written to files."""
    LEAVE = "leave"
    """The link's state says that it stays there."""
    RESUME_BACK = "resume_back"
    """The link back may run."""
    CARRY = "carry"
    """It has brought what the other site wrote."""
    SET_GROUPS = "set_groups"
    """Groups that stand further at the old source than their place is now are set to that."""
    SWITCH_OVER = "switch_over"
    """Along the link back: freeze, drain, fence, move the groups, verify."""
    RESUME = "resume"
    """The link runs as before."""


class FailbackRefusal(StrEnum):
    """Why there is no way back now."""

    NOT_PROMOTED = "not_promoted"
    """The link's target was never promoted, or the link runs again: there is nothing to come back from."""
    NAMES_DIFFER = "names_differ"
    """With prefixed names what is written at the target is another topic."""
    NO_LINK_BACK = "no_link_back"
    """None brings back what the link mirrors."""
    SEVERAL_LINKS_BACK = "several_links_back"
    """Each of them brings back a part of it, and a failback is along one link."""
    BACK_IN_PART = "back_in_part"
    """The link back leaves out topics that the link has mirrored."""
    LINK_BACK_SILENT = "link_back_silent"
    """No worker runs it."""
    LINK_BACK_TOPIC_PAUSED = "link_back_topic_paused"
    """A person wants nothing of a topic mirrored: what is missing of it would be waited for in vain."""
    LINK_BACK_STANDS_STILL = "link_back_stands_still"
    """At a gap, or at what holds a partition, where something is missing still."""
    TRANSACTION_OPEN = "transaction_open"
    """In what only the old source has: it ends by its own time-out at the latest."""
    TAIL_NOT_SHOWN = "tail_not_shown"
    """The old source's leader has more than all its replicas in sync: what it is nobody is shown, nor can save."""
    TAIL_END_UNTOLD = "tail_end_untold"
    """The old source's leader does not say now how much it has: whether that is more than everybody is shown."""
    TAIL_UNKNOWN = "tail_unknown"
    """Where it ends: what the old source wrote since it is active again would be left behind with it."""
    ORDER_UNKNOWN = "order_unknown"
    """Both links were promoted, and nothing says which was later: so which site is the active one."""
    BACK_TAIL_UNDECIDED = "back_tail_undecided"
    """Of an earlier failover, along the link back: it would bring what only the other site has behind newer records."""
    SOURCE_LACKS = "source_lacks"
    """Records that were mirrored from it: it came back with an older log, or another one, and no link brings them."""
    SOURCE_NOT_COMPARED = "source_not_compared"
    """Whether it lacks such records cannot be told."""
    ACTIVE_ELSEWHERE = "active_elsewhere"
    """A third site took over from the other one: the way back is from there."""
    OPERATION_UNDER_WAY = "operation_under_way"
    """Of a dry run: another operation along the link, or the link back, has not ended."""
    TOPICS_GONE = "topics_gone"
    """Topics that were mirrored were deleted at the other site, and the old source has them still: nothing of them
    comes back, and there they would go on as they were.
    """
    NOTHING_TO_BRING = "nothing_to_bring"
    """The other site has no topic that the link back carries."""
    OFFSETS_IN_DOUBT = "offsets_in_doubt"
    """Of partitions of the link back: the switchover along it would be refused."""
    GROUP_NOT_MOVABLE = "group_not_movable"
    """So it would be, as it is not known where a group goes on at the old source."""
    GROUPS_IN_USE = "groups_in_use"
    """So it would be, as consumers are in groups that are to come, or that cannot be told."""


@dataclass(frozen=True, slots=True)
class StandsStill:
    """Where the link back brings nothing more, and something is missing: a person is to decide about a gap (`is_gap`),
    what holds a partition is tried again. `command`: the first thing to do about it.
    """

    topic: str
    partition: int
    why: str
    is_gap: bool
    command: str


@dataclass(frozen=True, slots=True)
class BackLink:
    """The link back by its state and its heartbeat; `is_later`: of both that are promoted it was later, None: nobody
    knows; `is_unfinished`: its promotion was cut short, or not verified. `tails`: where it was promoted, what its
    source alone has and nobody decided about. `elsewhere`: third sites that may have taken over.
    `groups`: which of them come back along it; `through`: and read through what only its target has. `paused_topics`
    and `still`: what it does not bring.
    """

    name: str
    condition: LinkCondition
    run: LinkRun | None
    is_later: bool | None = None
    is_unfinished: bool = False
    tails: tuple[StrandedTail, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    groups: GroupsBack = ALL_BACK
    through: tuple[ReadsTail, ...] = ()
    paused_topics: tuple[str, ...] = ()
    still: tuple[StandsStill, ...] = ()
    topics_gone: tuple[str, ...] = ()
    """That the link mirrored, and of the two sites the one which it comes back to alone has."""
    has_topics: bool = True
    """Whether its source has any that it carries."""
    foreseen: Foreseen = NOTHING_FORESEEN
    """What a switchover along it would refuse."""
    group_totals: tuple[GroupTotal, ...] = ()
    """What the groups that come back read again, and skip."""
    left: tuple[LeftRange, ...] = ()
    """What it does not bring, as was decided before."""

    @property
    def active_elsewhere(self) -> tuple[str, ...]:
        """The third sites that take writes of its topics."""
        return tuple(one.site for one in self.elsewhere if one.is_active)


@dataclass(frozen=True, slots=True)
class LinkStands:
    """What a link may do, and by which operation ("": nobody ever said)."""

    link: str
    state: RunState = RunState.RUNNING
    operation_id: str = ""

    @classmethod
    def of(cls, link: str, run: LinkRun | None) -> LinkStands:
        return cls(link) if run is None else cls(link, run.state, run.operation_id)

    def __str__(self) -> str:
        return f"{self.state.value} by {self.operation_id}" if self.operation_id else self.state.value


@dataclass(frozen=True, slots=True)
class FailbackPlan:
    """`source` is the site that comes back. `stranded_records`: of what only it has and nobody decided about, None: not
    known, or the link is not promoted; `left_records`: what is left there as was decided before. `tails` are those that
    are saved, `export_to` is where to, "" where there is none. `back_tails`: those of the link back.
    `groups_back` come (`reads_tail`: of those), `groups_stay` never went and stay where they are, `groups_gone` went
    and have offsets at the source alone by now; not `groups_known`: no journal tells of all operations, and all that
    are not known to stay are taken to have gone. `source_lacks`: what was mirrored from the source, which has it no
    more.
    """

    link: str
    link_back: str
    source: str
    target: str
    steps: tuple[FailbackStep, ...]
    refusals: tuple[FailbackRefusal, ...]
    stranded_records: int | None
    export_to: str
    tails: tuple[StrandedTail, ...]
    back_tails: tuple[StrandedTail, ...] = ()
    active_elsewhere: tuple[str, ...] = ()
    groups_back: tuple[str, ...] = ()
    groups_stay: tuple[str, ...] = ()
    groups_known: bool = True
    groups_gone: tuple[str, ...] = ()
    reads_tail: tuple[ReadsTail, ...] = ()
    source_lacks: tuple[SourceParting, ...] = ()
    left_records: int | None = 0
    open_tails: tuple[StrandedTail, ...] = ()
    """Those that nobody decided about, with an open transaction, or of which nobody is shown what they are."""
    untold_ends: tuple[TopicPartition, ...] = ()
    """As of `Stranded`."""
    topics_gone: tuple[str, ...] = ()
    """That were deleted at the target, and that the source has still."""
    links_back: tuple[str, ...] = ()
    """All that bring back something of what the link mirrors; `link_back` where that is one."""
    not_carried: tuple[str, ...] = ()
    """Topics of the target that the link has mirrored, and that none of those brings back."""
    seen: tuple[LinkStands, ...] = ()
    """What it was made from: how the link stood, and the link back."""
    paused_topics: tuple[str, ...] = ()
    """Of the link back."""
    stays_paused: tuple[str, ...] = ()
    """Topics of the link itself, which no step lets be mirrored again."""
    stands_still: tuple[StandsStill, ...] = ()
    under_way: str = ""
    """The operation of OPERATION_UNDER_WAY."""
    foreseen: Foreseen = NOTHING_FORESEEN
    """What the switchover among the steps would refuse."""
    left_at_target: tuple[LeftRange, ...] = ()
    """What the link back does not bring to the source, as was decided after an earlier move along it."""
    group_totals: tuple[GroupTotal, ...] = ()
    """Of those that come back, by the offsets of the old source: what each reads again there, and skips."""
    left_replayed: int | None = 0
    """Of `left_records` those that were replayed at the target, and come back as copies; None: not known."""


_NOT_SEEN_TO_RUN: Final = (LinkCondition.NEVER_RAN, LinkCondition.SILENT, LinkCondition.AWAITED)


def plan_failback(
    found: Stranded,
    run: LinkRun | None,
    backs: tuple[BackLink, ...],
    export_to: str,
    *,
    same_names: bool,
    lacks: tuple[SourceParting, ...] = (),
    not_carried: tuple[str, ...] = (),
    stays_paused: tuple[str, ...] = (),
) -> FailbackPlan:
    """`backs` are the links of the file that bring back what the link mirrors, but for what is `not_carried`."""
    refusals = [*_refusals(found, run, backs, not_carried, same_names=same_names), *_lacking(lacks)]
    tails = found.undecided
    steps: tuple[FailbackStep, ...] = ()
    back = backs[0] if len(backs) == 1 else None
    if back is not None and not refusals:
        steps = _steps(run, back, has_tail=bool(tails))
        if FailbackStep.CARRY in steps:
            refusals += [*_brings_nothing(back), *_gone(back), *_foreseen(back.foreseen)]
        if FailbackStep.SWITCH_OVER in steps and back.foreseen.in_use and not back.is_unfinished:
            refusals.append(FailbackRefusal.GROUPS_IN_USE)
        if FailbackStep.SWITCH_OVER in steps and back.active_elsewhere:
            refusals.append(FailbackRefusal.ACTIVE_ELSEWHERE)
        if FailbackStep.RESUME_BACK in steps and any(tail.target_wrote for tail in back.tails):
            refusals.append(FailbackRefusal.BACK_TAIL_UNDECIDED)
    saves = FailbackStep.EXPORT in steps
    return FailbackPlan(
        *(found.link, back.name if back else "", found.source, found.target, steps, tuple(refusals)),
        links_back=tuple(one.name for one in backs),
        not_carried=not_carried,
        stranded_records=found.undecided_records if found.is_promoted else None,
        left_records=found.left_records,
        open_tails=tuple(tail for tail in tails if tail.open_from is not None or not tail.is_shown),
        export_to=export_to if saves else "",
        tails=tails if saves else (),
        untold_ends=found.untold_ends,
        back_tails=back.tails if back else (),
        active_elsewhere=back.active_elsewhere if back else (),
        groups_back=back.groups.coming if back else (),
        groups_stay=back.groups.staying if back else (),
        groups_known=back.groups.is_known if back else True,
        groups_gone=back.groups.gone if back else (),
        reads_tail=back.through if back and not refusals else (),
        topics_gone=back.topics_gone if FailbackRefusal.TOPICS_GONE in refusals and back else (),
        source_lacks=lacks,
        paused_topics=back.paused_topics if back else (),
        stays_paused=stays_paused,
        stands_still=back.still if back else (),
        foreseen=back.foreseen if back else NOTHING_FORESEEN,
        left_at_target=back.left if back else (),
        group_totals=back.group_totals if back and FailbackStep.SWITCH_OVER in steps else (),
        seen=(LinkStands.of(found.link, run), *([LinkStands.of(back.name, back.run)] if back else [])),
    )


def _brings_nothing(back: BackLink) -> Iterable[FailbackRefusal]:
    """What is missing would be waited for in vain."""
    if back.condition in _NOT_SEEN_TO_RUN:
        yield FailbackRefusal.LINK_BACK_SILENT
    if back.paused_topics:
        yield FailbackRefusal.LINK_BACK_TOPIC_PAUSED
    if back.still:
        yield FailbackRefusal.LINK_BACK_STANDS_STILL


def _refusals(
    found: Stranded,
    run: LinkRun | None,
    backs: Sequence[BackLink],
    not_carried: Sequence[str],
    *,
    same_names: bool,
) -> Iterable[FailbackRefusal]:
    """What speaks against it whatever is to be done."""
    if run is None or run.state is not RunState.PROMOTED:
        yield FailbackRefusal.NOT_PROMOTED
    if not same_names:
        yield FailbackRefusal.NAMES_DIFFER
    else:
        yield from why_none(len(backs), not_carried)
    if run is not None and len(backs) == 1 and _are_promoted(run, backs[0]) and backs[0].is_later is None:
        yield FailbackRefusal.ORDER_UNKNOWN
    elif not all(tail.is_end_known for tail in found.undecided):
        yield FailbackRefusal.TAIL_UNKNOWN
    known = [tail for tail in found.undecided if tail.is_end_known]
    if any(tail.records is None and tail.is_shown for tail in known):
        yield FailbackRefusal.TRANSACTION_OPEN
    if not all(tail.is_shown for tail in known):
        yield FailbackRefusal.TAIL_NOT_SHOWN
    if found.untold_ends:
        yield FailbackRefusal.TAIL_END_UNTOLD


def _lacking(lacks: Iterable[SourceParting]) -> Iterable[FailbackRefusal]:
    known = {one.is_known for one in lacks}
    if True in known:
        yield FailbackRefusal.SOURCE_LACKS
    if False in known:
        yield FailbackRefusal.SOURCE_NOT_COMPARED


def _gone(back: BackLink) -> Iterable[FailbackRefusal]:
    if back.topics_gone:
        yield FailbackRefusal.TOPICS_GONE
    elif not back.has_topics:
        yield FailbackRefusal.NOTHING_TO_BRING


def _foreseen(found: Foreseen) -> Iterable[FailbackRefusal]:
    if found.in_doubt:
        yield FailbackRefusal.OFFSETS_IN_DOUBT
    if found.not_movable:
        yield FailbackRefusal.GROUP_NOT_MOVABLE


def nothing_left(
    found: Stranded, backs: Sequence[str], not_carried: tuple[str, ...] = (), stays_paused: tuple[str, ...] = ()
) -> FailbackPlan:
    """Of a failback that is taken up, and has let the link run: what is left is to look what the other site alone has,
    and to say so. `backs`: as of a plan, by name.
    """
    link_back = backs[0] if len(backs) == 1 else ""
    refusals = tuple(why_none(len(backs), not_carried))
    told, left = found.undecided_records, found.left_records
    return FailbackPlan(
        *(found.link, link_back, found.source, found.target, (), refusals, told, "", ()),
        left_records=left,
        links_back=tuple(backs),
        not_carried=not_carried,
        stays_paused=stays_paused,
    )


def why_none(links_back: int, not_carried: Sequence[str]) -> Iterable[FailbackRefusal]:
    if links_back == 0:
        yield FailbackRefusal.NO_LINK_BACK
    elif links_back > 1:
        yield FailbackRefusal.SEVERAL_LINKS_BACK
    elif not_carried:
        yield FailbackRefusal.BACK_IN_PART


def is_back(run: LinkRun | None, back: BackLink) -> bool:
    """Whether a promotion along the link back came after the link's own: the old source is the active site again."""
    return run is not None and _are_promoted(run, back) and back.is_later is True


def _are_promoted(run: LinkRun, back: BackLink) -> bool:
    return back.run is not None and run.state is back.run.state is RunState.PROMOTED


def _steps(run: LinkRun | None, back: BackLink, *, has_tail: bool) -> tuple[FailbackStep, ...]:
    saved = (FailbackStep.EXPORT, FailbackStep.LEAVE) if has_tail else ()
    if is_back(run, back):
        setting = (FailbackStep.SET_GROUPS,) if back.groups.untouched else ()
        moved = (*setting, FailbackStep.SWITCH_OVER) if back.groups.coming or back.is_unfinished else ()
        return (*saved, *moved, FailbackStep.RESUME)
    stands = back.run is not None and back.run.state is not RunState.RUNNING
    resumed = (FailbackStep.RESUME_BACK,) if stands else ()
    moved = (FailbackStep.CARRY, FailbackStep.SET_GROUPS, FailbackStep.SWITCH_OVER, FailbackStep.RESUME)
    return (*saved, *resumed, *moved)
