"""Which groups went along a link, and which of them have come back: groups move in waves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from failover.errors import JournalDamaged, NewerVersion
from failover.journal.standing import NO_INTENT, done_moves, intent_of, is_verified
from failover.journal.values import Event, OperationLog
from failover.planning.moves import MoveKind
from failover.running.steps import OperationStep
from mirror.api import LinkRun, RunState


@dataclass(frozen=True, slots=True)
class MovedGroups:
    """Along one link, since it ran last. `is_all`: all that it selects. Not `is_known`: no journal tells of each
    operation, and it is taken to be all.
    """

    names: frozenset[str] = frozenset()
    is_all: bool = False
    is_known: bool = True

    def has(self, group: str) -> bool:
        return self.is_all or group in self.names


NONE_MOVED = MovedGroups()


def moved_along(
    link: str, run: LinkRun | None, operations: Mapping[str, OperationLog], *, only_verified: bool = False
) -> MovedGroups:
    """From the operation that the link's state names, back to the one that found it running. `only_verified`: what one
    that was cut short, or not verified, moved, does not count.
    """
    names = set[str]()
    seen = set[str]()
    if run is None or run.state is not RunState.PROMOTED:
        return NONE_MOVED
    operation_id = run.operation_id
    while operation_id not in seen:
        seen.add(operation_id)
        log = operations.get(operation_id)
        told = None if log is None else _told(link, log)
        if log is None or told is None:
            return MovedGroups(is_all=True, is_known=False)
        groups, before = told
        if is_verified(log) or not only_verified:
            if groups is None:
                return MovedGroups(is_all=True)
            names |= groups
        if not before:
            break
        operation_id = before
    return MovedGroups(frozenset(names))


def _told(link: str, log: OperationLog) -> tuple[frozenset[str] | None, str] | None:
    """The groups that were begun to be moved (None: all), and the operation that had promoted the link before; "": none
    had.
    """
    with suppress(JournalDamaged, NewerVersion, *NO_INTENT):
        intent = intent_of(log)
        step = OperationStep.MOVE_GROUPS
        begun = done_moves(log, step, Event.STARTED) or done_moves(log, step)  # earlier versions wrote them at its end
        groups: frozenset[str] | None = frozenset()
        is_of_some = intent.groups or intent.left_groups or intent.left_partitions or intent.no_groups
        if begun and is_of_some:
            groups = frozenset(move.group for move in begun.get(link, ()) if move.kind is not MoveKind.UNKNOWN)
        elif begun:
            groups = None
        seen = next(plan["snapshot"] for plan in log.entries[0].detail["plans"] if plan["snapshot"]["link"] == link)
        is_promoted = seen["link_state"] == RunState.PROMOTED.value
        return groups, str(seen["operation_id"]) if is_promoted else ""
    return None


@dataclass(frozen=True, slots=True)
class GroupsBack:
    """`coming`: those that are to come back, and of them `untouched` those that nobody has begun to bring; `staying`:
    those that never went; `gone`: those that went, or may have, and have offsets at the old source alone by now, which
    stay as they are. Not `is_known`: as in `MovedGroups`. `is_all`: nobody stays, and none is back already, so
    that none needs to be named; `is_none`: nobody comes, and somebody stays, or is back, whom no name would bring.
    """

    coming: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    staying: tuple[str, ...] = ()
    is_all: bool = True
    is_known: bool = True
    gone: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """As a switchover wants them: none named is all, but where `is_none`."""
        return () if self.is_all else self.coming

    @property
    def is_none(self) -> bool:
        return not (self.is_all or self.coming)


ALL_BACK = GroupsBack()


def groups_back(
    there: Iterable[str],
    known: Iterable[str],
    went: MovedGroups,
    came: MovedGroups,
    begun: MovedGroups,
    here: Iterable[str] = (),
) -> GroupsBack:
    """`there`: the groups with an offset at the site that is left. `known`: those that the link had seen before it was
    moved; one that it had not was born at that site, and comes like those that went. `came`: they are back, as was
    verified; `begun`: that was begun. `here`: the groups with an offset at the old source.
    """
    seen = set(known)
    at_target = sorted(set(there))
    away = [group for group in at_target if went.has(group) or group not in seen]
    coming = tuple(group for group in away if not came.has(group))
    staying = tuple(group for group in at_target if group not in away)
    is_all = coming == tuple(at_target) and went.is_all
    untouched = tuple(group for group in coming if not begun.has(group))
    away_before = (group for group in sorted(seen & set(here) - set(there)) if went.has(group))
    gone = tuple(group for group in away_before if not came.has(group))
    return GroupsBack(coming, untouched, staying, is_all, went.is_known and came.is_known, gone)
