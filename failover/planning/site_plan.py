"""The move of a site: which of its links go, which stay, and what else stays there. Pure.

A link is fenced as a whole. So what is selected is links: those that carry a group that was named, or nothing but
topics that were named. What else such a link carries stays at the source, and is mirrored no more; that is said.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from broker.base.errors import FarshoreError
from failover.losses.statements import LossTotal, sum_losses, total_loss, with_unasked
from failover.planning.gates import NOT_FOUND, GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.moves import MoveKind
from failover.planning.plan import OperationPlan
from failover.planning.staying import Stay, StayingLink, StayKind, StayReason, share_groups, topics_detail
from failover.planning.undecided import Undecided
from failover.running.link_run import LinkMove
from failover.running.steps import Operation
from mirror.api import Link

SITE_WIDE: Final = frozenset(
    {
        RefusalReason.SOURCE_UNREACHABLE,
        RefusalReason.SOURCE_ANSWERS,
        RefusalReason.SOURCE_PARTLY_THERE,
        RefusalReason.SOURCE_SEEN_BY_WORKER,
        RefusalReason.DATA_LOSS_NOT_ALLOWED,
        RefusalReason.FROZEN_FOR_OTHERS,
    }
)
"""What says no to the move of any link."""


@dataclass(frozen=True, slots=True)
class SourceNames:
    """What a source has beside its links: None where it does not tell. `shared`: share groups, which are none of
    `groups`.
    """

    topics: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    shared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SitePlan:
    """`links`: the plan of each that was looked at, with its own refusals; `moving` and `refused` name them. `refusals`
    are those of the whole move. `loss`: of what goes, or where nothing goes, of all that was asked for; and, as not
    known, of each link that could not be looked at.
    """

    operation: Operation
    source: str
    target: str
    links: tuple[OperationPlan, ...]
    moving: tuple[str, ...]
    refused: tuple[str, ...]
    stays: tuple[Stay, ...]
    refusals: tuple[GateRefusal, ...]
    loss: LossTotal
    undecided: tuple[Undecided, ...] | None = None
    """As of an `OperationPlan`, for all links."""

    @property
    def going(self) -> tuple[OperationPlan, ...]:
        return tuple(plan for plan in self.links if plan.snapshot.link in self.moving)

    @property
    def staying(self) -> tuple[StayingLink, ...]:
        """Of those that are refused; nothing is known of one that could not be looked at."""
        groups = {plan.snapshot.link: len(plan.snapshot.groups) for plan in self.links}
        return tuple(StayingLink(link, groups.get(link)) for link in self.refused)


def found_together(moves: Sequence[LinkMove]) -> list[LinkMove]:
    """A group or partition that one of the links knows is not missing where it has nothing along another one."""
    snapshots = [move.plan.snapshot for move in moves]
    known = {(RefusalReason.GROUP_NOT_FOUND, group.group) for seen in snapshots for group in seen.groups}
    known |= {(RefusalReason.PARTITION_NOT_FOUND, view.name) for seen in snapshots for view in seen.partitions}
    return [replace(move, plan=_without_missing(move.plan, known)) for move in moves]


def _without_missing(plan: OperationPlan, known: Container[tuple[RefusalReason, str]]) -> OperationPlan:
    refusals = tuple(refusal for refusal in plan.refusals if (refusal.reason, refusal.subject) not in known)
    return replace(plan, refusals=refusals)


@dataclass(slots=True)
class _Sorted:
    """The links as they are judged, by name. `asked`: all that no filter leaves out; `left_out`: those that one does,
    and whose topics are the source's still.
    """

    asked: list[LinkMove] = field(default_factory=list)
    moving: list[LinkMove] = field(default_factory=list)
    refused: dict[str, tuple[GateRefusal, ...]] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)
    moved_before: list[GateRefusal] = field(default_factory=list)
    site_wide: list[GateRefusal] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def plan_site(
    intent: Intent,
    moves: Sequence[LinkMove],
    failed: Mapping[str, FarshoreError],
    links: Sequence[Link],
    names: SourceNames,
) -> SitePlan:
    """`failed`: links of the two sites that could not be looked at, and why. `links`: all of the file."""
    moves = found_together(moves)
    judged = _Sorted()
    for move in moves:
        _sort(judged, intent, move)
    for link, why in failed.items():
        judged.stays.append(Stay(StayKind.LINK, link, StayReason.NOT_KNOWN, str(why)))
    refusals = list(dict.fromkeys(judged.site_wide))
    if not judged.moving and not refusals:
        refusals = _of_nothing(intent, judged)
    refused = (*judged.refused, *failed)
    would_stay = (*refused, *judged.left_out)
    if intent.whole_site and would_stay and not refusals:  # what stays would be closed as well
        refusals = [GateRefusal(RefusalReason.WHOLE_SITE_CUT, ", ".join(would_stay))]
    going = judged.moving if not refusals else []
    stays = [*judged.stays, *beside((intent.source, intent.target), [move.sites.link for move in moves], links, names)]
    return SitePlan(
        operation=intent.operation,
        source=intent.source,
        target=intent.target,
        links=tuple(move.plan for move in moves),
        moving=tuple(move.sites.link.name for move in going),
        refused=refused,
        stays=(*stays, *_groups(intent, going, moves, names), *_of_links(going, moves, stays)),
        refusals=tuple(refusals),
        loss=_loss(judged.moving or judged.asked, len(failed)),
    )


def _loss(moves: Sequence[LinkMove], unasked: int) -> LossTotal:
    """Of these, and of so many links that could not be looked at: what stays of them is as unknown as what goes."""
    total = sum_losses([move.plan.loss for move in moves]) if moves or not unasked else total_loss([])
    return with_unasked(total, unasked)


def _sort(judged: _Sorted, intent: Intent, move: LinkMove) -> None:
    plan, link = move.plan, move.sites.link.name
    reasons = {refusal.reason for refusal in plan.refusals}
    if left_out := _left_out(intent, plan):
        judged.stays.append(Stay(StayKind.LINK, link, StayReason.NOT_SELECTED, left_out))
        judged.left_out += [] if plan.snapshot.is_promoted else [link]
        return
    judged.asked.append(move)
    if cut := _cut(intent, plan):
        judged.site_wide.append(GateRefusal(RefusalReason.TOPICS_CUT, f"{link} ({', '.join(cut)})"))
    elif RefusalReason.LINK_NOT_RUNNING in reasons:
        judged.moved_before += [one for one in plan.refusals if one.reason is RefusalReason.LINK_NOT_RUNNING]
        judged.stays.append(Stay(StayKind.LINK, link, StayReason.ALREADY_MOVED, plan.snapshot.operation_id))
        judged.stays += _left_alone(plan)
    else:
        wide = SITE_WIDE | NOT_FOUND
        if intent.operation is Operation.SWITCHOVER:  # of the other links all is told that they need
            wide -= {RefusalReason.SOURCE_PARTLY_THERE}
        judged.site_wide += [one for one in plan.refusals if one.reason in wide]
        own = tuple(one for one in plan.refusals if one.reason not in wide)
        if own:
            judged.refused[link] = own
            said = ", ".join(dict.fromkeys(f"{one.reason.value} {one.subject}" for one in own))
            judged.stays.append(Stay(StayKind.LINK, link, StayReason.REFUSED, said))
        else:
            judged.moving.append(move)


def _left_alone(plan: OperationPlan) -> Iterable[Stay]:
    """Of a link that was moved before, whose source tells of records behind what came to the target."""
    decided = {(left.topic, left.partition): left.end_offset for left in plan.snapshot.left_at_source}
    loss = total_loss(
        [one for one in plan.losses if (one.end_offset or 0) > decided.get((one.topic, one.partition), 0)]
    )
    if plan.snapshot.source_answers and loss.offsets and loss.records != 0:
        count = f"up to {loss.offsets:,} offsets" if loss.records is None else f"{loss.records:,} of them"
        yield Stay(StayKind.LINK, plan.snapshot.link, StayReason.SOURCE_ALONE, count)


def _left_out(intent: Intent, plan: OperationPlan) -> str:
    """Why a filter leaves the link out; "" where none does."""
    there = {group.group for group in plan.snapshot.groups}
    missing = {one.subject for one in plan.refusals if one.reason is RefusalReason.GROUP_NOT_FOUND}
    if intent.groups and not there and not missing:
        return "no group that was named has an offset in its topics"
    topics = {view.topic for view in plan.snapshot.partitions}
    if intent.topics and topics and not any(_is_named(intent, topic) for topic in topics):
        return "none of its topics was named"
    return ""


def _cut(intent: Intent, plan: OperationPlan) -> list[str]:
    """The topics that would be fenced with those that were named."""
    topics = {view.topic for view in plan.snapshot.partitions} if intent.topics else set()
    return sorted(topic for topic in topics if not _is_named(intent, topic))


def _is_named(intent: Intent, topic: str) -> bool:
    return any(re.fullmatch(pattern, topic) for pattern in intent.topics)


def _of_nothing(intent: Intent, judged: _Sorted) -> list[GateRefusal]:
    """Why no link is left to be moved."""
    if judged.refused:
        return list(dict.fromkeys(one for refusals in judged.refused.values() for one in refusals))
    if judged.moved_before:
        return judged.moved_before
    return [GateRefusal(RefusalReason.NOTHING_SELECTED, intent.source)]


def beside(sites: tuple[str, str], going: Sequence[Link], links: Sequence[Link], names: SourceNames) -> Iterable[Stay]:
    """What of the source (the first of the sites) is not between the two. `going`: the links that are."""
    source, target = sites
    for link in links:
        ends = (link.source.name, link.target.name)
        if source in ends and target not in ends:
            yield Stay(StayKind.LINK, link.name, StayReason.OTHER_SITES, f"{ends[0]} to {ends[1]}")
    back = [link for link in links if (link.source.name, link.target.name) == (target, source)]
    if names.topics is None:
        yield Stay(StayKind.TOPIC, "", StayReason.NOT_KNOWN, f"{source} does not tell which topics it has")
    for name in sorted(names.topics or ()):
        is_copy = any(link.topic_names != "same" and link.source_topic(name) is not None for link in back)
        if not name.startswith("__") and not is_copy and not any(link.selects_topic(name) for link in going):
            yield Stay(StayKind.TOPIC, name, StayReason.NOT_CARRIED)
    if names.groups is None:
        yield Stay(StayKind.GROUP, "", StayReason.NOT_KNOWN, f"{source} does not tell which groups it has")
    for name in sorted(names.groups or ()):
        if not any(link.selects_group(name) for link in going):
            yield Stay(StayKind.GROUP, name, StayReason.NOT_CARRIED)
    yield from share_groups(names.shared)


def _of_links(going: Sequence[LinkMove], moves: Sequence[LinkMove], stays: Iterable[Stay]) -> Iterable[Stay]:
    links = [move.sites.link for move in moves]
    return with_links_stays([one for move in going for one in move.plan.stays], links, stays)


def with_links_stays(own: Iterable[Stay], links: Sequence[Link], stays: Iterable[Stay]) -> Iterable[Stay]:
    """What the links' `own` stays say beside those of the site: `links` are all that were looked at between the two."""
    said = {(stay.kind, stay.subject) for stay in stays}
    topics: dict[str, set[str]] = {}
    for stay in own:
        is_unselected = stay.reason in (StayReason.GROUP_NOT_SELECTED, StayReason.GROUP_NOT_SELECTED_NOW)
        if is_unselected and (stay.kind, stay.subject) not in said:
            yield stay
        if stay.reason is StayReason.OTHER_TOPICS:
            topics.setdefault(stay.subject, set()).update(stay.topics)
    for group, named in sorted(topics.items()):
        if rest := sorted(name for name in named if not any(link.selects_topic(name) for link in links)):
            yield Stay(StayKind.GROUP, group, StayReason.OTHER_TOPICS, topics_detail(rest))


def _groups(intent: Intent, going: Sequence[LinkMove], moves: Sequence[LinkMove], names: SourceNames) -> Iterable[Stay]:
    """Those of which nothing, or not all, is moved."""
    moved = {one.group for move in going for one in move.plan.moves}
    said = set[str]()
    for move in moves:
        link, plan = move.sites.link.name, move.plan
        if move in going:
            unanswered = {group.group for group in plan.snapshot.groups if group.unanswered}
            for group in sorted({one.group for one in plan.moves if one.kind is MoveKind.UNKNOWN} | unanswered):
                yield Stay(StayKind.GROUP, group, StayReason.LEFT, link)
        elif intent.groups or not plan.snapshot.is_promoted or plan.snapshot.is_untold or plan.snapshot.moved_back_by:
            for group in sorted(one.group for one in plan.snapshot.groups):
                said.add(group)
                yield Stay(StayKind.GROUP, group, StayReason.IN_PART if group in moved else StayReason.LINK_STAYS, link)
    selected = {group for group in names.groups or () if any(move.sites.link.selects_group(group) for move in moves)}
    if intent.operation is Operation.SWITCHOVER:  # its drain waits until they end, and they go by what they have then
        said.update(group for move in going for group in move.plan.snapshot.pending_groups)
    for group in sorted(selected - moved - said):
        is_named = not intent.groups or group in intent.groups
        yield Stay(StayKind.GROUP, group, StayReason.NO_OFFSETS if is_named else StayReason.NOT_NAMED)
