"""What a plan was made from, as far as it counts, and what of it is not so any more. Pure.

While a source lives its logs grow, the mirror brings what they got, and groups read on: that is expected. What goes
back, comes, goes away, or means something else than the plan said is a change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from broker.wire.site_role import SiteStanding
from failover.losses.statements import Certainty
from failover.planning.moves import GroupMove, MoveKind
from failover.planning.plan import OperationPlan
from failover.planning.unplanned import Stood, brought_by
from failover.running.steps import Operation
from mirror.api import Link


class ChangeKind(StrEnum):
    """What is not as the plan had it."""

    LINK_DECLARED = "link_declared"
    """The file says something else of the link, or of its sites."""
    LINK_STATE = "link_state"
    SOURCE_FINDING = "source_finding"
    SOURCE_ROLE = "source_role"
    TARGET_ROLE = "target_role"
    STEPS = "steps"
    PARTITIONS = "partitions"
    """One came or went, or its offsets cannot be trusted any more."""
    LOG_WENT_BACK = "log_went_back"
    LOSS = "loss"
    """More would be lost than the plan says, or it is less certain."""
    GROUPS = "groups"
    """One came or went."""
    GROUP_MEMBERS = "group_members"
    GROUP_WENT_BACK = "group_went_back"
    GROUP_MOVE = "group_move"
    """It would stay, go back, or not be known, where the plan said otherwise."""
    READ_AGAIN = "read_again"
    """More records than the plan says, or nobody knows how many any more."""
    SKIPPED = "skipped"
    UNANSWERED = "unanswered"
    """A partition or a group that does not answer at the target any more."""


@dataclass(frozen=True, slots=True)
class Change:
    """One of them; `before` and `now` are what the plan was made from, and what was found."""

    kind: ChangeKind
    subject: str
    before: str
    now: str


SETTLED = frozenset({MoveKind.TRANSLATED, MoveKind.AT_END, MoveKind.AT_START, MoveKind.ALREADY_THERE})
"""As the mirror and the group go on, and logs lose their beginning, a move may become another one of these."""


@dataclass(frozen=True, slots=True)
class World:
    """Of one link. Offsets by "topic-partition", and of groups by "group topic-partition"; None: there is none."""

    link: str
    declared: str
    state: str
    finding: str
    source_role: str
    target_role: str
    steps: tuple[str, ...]
    source_ends: Mapping[str, int | None]
    target_ends: Mapping[str, int | None]
    in_doubt: tuple[str, ...]
    loss_offsets: int
    is_loss_exact: bool
    is_loss_told: bool
    """Whether it is the loss that was consented to, and not what is still on its way."""
    members: Mapping[str, bool | None]
    source_offsets: Mapping[str, int | None]
    target_offsets: Mapping[str, int | None]
    moves: Mapping[str, str]
    unclear_loss_offsets: int = 0
    """So many more were seen that may be lost, or that the target has."""
    read_again_records: Mapping[str, int | None] = field(default_factory=dict)
    skipped_records: Mapping[str, int | None] = field(default_factory=dict)
    """Of each move, as it was consented to; None: nobody knows how many."""
    goes_to: Mapping[str, int | None] = field(default_factory=dict)
    """Where each move has its group at the target; empty: an older version did not say."""
    unanswered: tuple[str, ...] = ()
    """At the target: partitions by name, groups as "group NAME"."""

    def document(self) -> dict[str, Any]:
        """As JSON has it; `read_world` reads it."""
        return dataclasses.asdict(self)


def read_world(document: Mapping[str, Any]) -> World:
    """Raises TypeError where it is none."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
    }
    return World(**values)


def world_of(plan: OperationPlan, link: Link) -> World:
    """What the plan was made from."""
    snapshot, freezing = plan.snapshot, plan.freezing
    at = [(f"{view.topic}-{view.partition}", view) for view in snapshot.partitions]
    offsets = [
        (f"{group.group} {one.topic}-{one.partition}", one) for group in snapshot.groups for one in group.partitions
    ]
    sites = (link.source, link.target)
    return World(
        link=snapshot.link,
        declared=repr([(s.name, s.bootstrap_servers) for s in sites] + [link.topics, link.topic_names, link.groups]),
        state=f"{snapshot.link_state} {snapshot.operation_id}".strip(),
        finding=snapshot.source_finding.value,
        source_role=_role(freezing.source),
        target_role=_role(freezing.target),
        steps=tuple(step.value for step in plan.steps),
        source_ends={name: view.source_end for name, view in at if not view.is_gone_at_source},
        target_ends={name: view.target_end for name, view in at},
        in_doubt=tuple(name for name, view in at if not view.trusted),
        loss_offsets=plan.loss.offsets + plan.loss.open_offsets,  # told apart where they were counted alone
        is_loss_exact=plan.loss.certainty is Certainty.EXACT,
        is_loss_told=plan.operation is Operation.FAILOVER,
        members={
            f"{group.group} at {site}": None if count is None else count > 0
            for group in snapshot.groups
            for site, count in ((snapshot.source, group.source_members), (snapshot.target, group.target_members))
        },
        source_offsets={name: one.source_offset for name, one in offsets},
        target_offsets={name: one.target_offset for name, one in offsets},
        moves={_name(move): move.kind.value for move in plan.moves},
        read_again_records={_name(move): move.read_again_records for move in plan.moves},
        skipped_records={_name(move): _skipped(move, plan.left_groups) for move in plan.moves},
        goes_to={_name(move): move.target_offset for move in plan.moves},
        unclear_loss_offsets=plan.loss.unclear_offsets,
        unanswered=(
            *(name for name, view in at if view.unanswered),
            *(f"group {group.group}" for group in snapshot.groups if group.unanswered),
        ),
    )


def _skipped(move: GroupMove, left_groups: Container[str]) -> int | None:
    """Of a place that the mirror is still to come to nothing is said, and that was consented to."""
    is_to_come = move.kind is MoveKind.UNKNOWN and move.group not in left_groups
    return 0 if is_to_come else move.skipped_records


def _name(move: GroupMove) -> str:
    return f"{move.group} {move.topic}-{move.partition}"


def _role(standing: SiteStanding | None) -> str:
    return "none" if standing is None else f"{standing.role} since change {standing.epoch}"


def changes(before: World, now: World) -> tuple[Change, ...]:
    """What is not as it was, but for what goes on by itself; empty: the plan holds."""
    return (
        *_different(before, now),
        *_come_and_gone(ChangeKind.PARTITIONS, before.source_ends, now.source_ends),
        *(
            Change(ChangeKind.PARTITIONS, name, "trusted", "in doubt")
            for name in now.in_doubt
            if name not in before.in_doubt and name in before.source_ends
        ),
        *_gone_back(ChangeKind.LOG_WENT_BACK, "source", _still(before.source_ends, now.source_ends), now.source_ends),
        *_gone_back(ChangeKind.LOG_WENT_BACK, "target", _told_ends(before, now), now.target_ends),
        *(
            Change(ChangeKind.UNANSWERED, name, "answered", "does not answer")
            for name in now.unanswered
            if name not in before.unanswered
        ),
        *_loss(before, now),
        *_come_and_gone(ChangeKind.GROUPS, before.members, now.members),
        *(
            Change(ChangeKind.GROUP_MEMBERS, name, _told(was), _told(now.members[name]))
            for name, was in before.members.items()
            if name in now.members and now.members[name] != was
        ),
        *_gone_back(ChangeKind.GROUP_WENT_BACK, "source", _of_groups(before.source_offsets, now), now.source_offsets),
        *_gone_back(ChangeKind.GROUP_WENT_BACK, "target", _of_groups(before.target_offsets, now), now.target_offsets),
        *(moved := tuple(_moves(before, now))),
        *_grown(before, now, {one.subject for one in moved}),
    )


def _different(before: World, now: World) -> Iterable[Change]:
    pairs = {
        ChangeKind.LINK_DECLARED: (before.declared, now.declared),
        ChangeKind.LINK_STATE: (before.state, now.state),
        ChangeKind.SOURCE_FINDING: (before.finding, now.finding),
        ChangeKind.SOURCE_ROLE: (before.source_role, now.source_role),
        ChangeKind.TARGET_ROLE: (before.target_role, now.target_role),
        ChangeKind.STEPS: (", ".join(before.steps), ", ".join(now.steps)),
    }
    return (Change(kind, before.link, was, found) for kind, (was, found) in pairs.items() if was != found)


def _come_and_gone(kind: ChangeKind, before: Mapping[str, object], now: Mapping[str, object]) -> Iterable[Change]:
    yield from (Change(kind, name, "there", "gone") for name in sorted(before.keys() - now.keys()))
    yield from (Change(kind, name, "not there", "there") for name in sorted(now.keys() - before.keys()))


def _still(before: Mapping[str, int | None], now: Mapping[str, int | None]) -> dict[str, int | None]:
    """Of partitions that are there still: one that went is a change of its own."""
    return {name: was for name, was in before.items() if name in now}


def _told_ends(before: World, now: World) -> dict[str, int | None]:
    """At the target, of partitions that are there still and answer."""
    found = _still(before.target_ends, now.target_ends)
    return {name: was for name, was in found.items() if name not in now.unanswered}


def _of_groups(before: Mapping[str, int | None], now: World) -> dict[str, int | None]:
    """Of groups that are there still, also where such a group has none any more."""
    groups = {name.rsplit(" at ", 1)[0] for name in now.members}
    groups -= {name.removeprefix("group ") for name in now.unanswered}
    return {name: was for name, was in before.items() if name.rsplit(" ", 1)[0] in groups}


def _gone_back(
    kind: ChangeKind, site: str, before: Mapping[str, int | None], now: Mapping[str, int | None]
) -> Iterable[Change]:
    """Forward is expected; nothing where something was is not."""
    for name, was in before.items():
        found = now.get(name)
        if was is not None and (found is None or found < was):
            yield Change(kind, f"{name} at the {site}", str(was), "none" if found is None else str(found))


def _loss(before: World, now: World) -> Iterable[Change]:
    if not before.is_loss_told:
        return
    is_less_certain = before.is_loss_exact and not now.is_loss_exact
    seen = [world.loss_offsets + world.unclear_loss_offsets for world in (before, now)]
    if seen[1] > seen[0] or is_less_certain:
        yield Change(ChangeKind.LOSS, before.link, _told_loss(before), _told_loss(now))


def _told_loss(world: World) -> str:
    unclear = f", and {world.unclear_loss_offsets} unclear" if world.unclear_loss_offsets else ""
    return f"{world.loss_offsets} offsets, {'exact' if world.is_loss_exact else 'at least'}{unclear}"


def _moves(before: World, now: World) -> Iterable[Change]:
    settled = {kind.value for kind in SETTLED}
    for name, found in now.moves.items():
        was = before.moves.get(name)
        is_new = was is None and found not in settled
        is_other = was is not None and was != found and not {was, found} <= settled and was != MoveKind.UNKNOWN.value
        is_other = is_other and not _is_brought(name, before, now)
        if is_new or is_other:
            yield Change(ChangeKind.GROUP_MOVE, name, was or "none", found)


def _is_brought(name: str, before: World, now: World) -> bool:
    """Whether the group stands by now where the plan had it be brought."""
    was, found = before.moves.get(name), now.moves.get(name)
    is_there = now.target_offsets.get(name) == now.goes_to.get(name) and _brought(name, before, now) is not None
    return is_there and found == MoveKind.AHEAD.value and was in {kind.value for kind in SETTLED}


def _brought(name: str, before: World, now: World) -> int | None:
    was, found = (
        Stood(one.source_offsets.get(name), one.target_offsets.get(name), one.goes_to.get(name))
        for one in (before, now)
    )
    return brought_by(was, found)


def _grown(before: World, now: World, moved: Container[str]) -> Iterable[Change]:
    """Of moves that are of the same kind still. Fewer are no harm; what nobody could count was consented to as such."""
    for kind, told, found in (
        (ChangeKind.READ_AGAIN, before.read_again_records, now.read_again_records),
        (ChangeKind.SKIPPED, before.skipped_records, now.skipped_records),
    ):
        for name, count in found.items():
            brought = (_brought(name, before, now) or 0) if kind is ChangeKind.SKIPPED else 0
            was = told.get(name, 0)
            if name not in moved and was is not None and (count is None or count > was + brought):
                yield Change(kind, name, f"{was} records", "unknown" if count is None else f"{count} records")


def _told(has_members: bool | None) -> str:
    return "unknown" if has_members is None else "members" if has_members else "no members"


def told_changes(found: Iterable[Change]) -> str:
    """In one sentence."""
    return "; ".join(f"{one.kind.value} {one.subject}: {one.before} -> {one.now}" for one in found)
