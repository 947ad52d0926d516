"""Moves beside those that were consented to: what a group skips, or reads again, that the plan did not say. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from failover.planning.moves import AS_BROUGHT, GroupMove, MoveKind


@dataclass(frozen=True, slots=True)
class UnplannedSkip:
    """A group skips so many records in all (None: nobody knows), which is more than the plan said: since then it went
    on at the target, or that lost them.
    """

    group: str
    topic: str
    partition: int
    skipped_records: int | None


@dataclass(frozen=True, slots=True)
class UnplannedReadAgain:
    """A group reads so many records again of which the plan said nothing: since then the source has lost its offset,
    and it stays where it stood at the target.
    """

    group: str
    topic: str
    partition: int
    read_again_records: int


def unplanned_skips(
    planned: Iterable[GroupMove], made: Iterable[GroupMove], left_groups: Container[str] = ()
) -> Iterable[UnplannedSkip]:
    """What is skipped beyond what the plan had the group skip there, and what it had counted and nobody can count by
    now; and where a group stays ahead that the plan had go elsewhere, if that was to a time, or nobody can count what
    it skips. Of a place that the mirror was still to come to nothing was said; of `left_groups` it was consented to
    that nobody knew.
    """
    told = {(one.group, one.place): one for one in planned}
    for move in made:
        was = told.get((move.group, move.place))
        is_to_come = was is not None and was.kind is MoveKind.UNKNOWN and move.group not in left_groups
        said = 0 if was is None or was.kind in AS_BROUGHT or is_to_come else was.skipped_records
        brought = 0 if was is None else brought_by(_stood(was), _stood(move)) or 0
        is_more = said is not None and (move.skipped_records or 0) > said + brought
        is_uncounted = was is not None and was.skipped_records is not None and _is_uncounted(move)
        stays_ahead = move.kind is MoveKind.AHEAD and (was is None or was.kind is not MoveKind.AHEAD)
        is_not_made = was is not None and was.kind is MoveKind.BY_TIMESTAMP
        if is_more or is_uncounted or (stays_ahead and (is_not_made or move.skipped_records is None)):
            yield UnplannedSkip(move.group, move.topic, move.partition, move.skipped_records)


def _is_uncounted(move: GroupMove) -> bool:
    """Where it goes on is known, and not what it skips by that. By the link's state alone nobody ever knows it; and who
    goes to a time goes there as was asked, whoever is left to count.
    """
    as_said = move.kind in (MoveKind.UNKNOWN, MoveKind.BY_TIMESTAMP) or move.kind in AS_BROUGHT
    return move.skipped_records is None and not as_said


class Stood(NamedTuple):
    """Where a group stood at either site when its move was decided, and where that has it go."""

    source_offset: int | None
    stands_at: int | None
    goes_to: int | None


def _stood(move: GroupMove) -> Stood:
    return Stood(move.source_offset, move.stood_at, move.target_offset)


def brought_by(was: Stood, now: Stood) -> int | None:
    """How far a group was brought at the target towards where it was to go: by so much more it skips, which is counted
    from where it stands. None where it goes elsewhere by now, stands beyond that, or is not known at the source.
    """
    is_same = was.source_offset == now.source_offset is not None and was.goes_to == now.goes_to is not None
    if not is_same or now.stands_at is None or now.stands_at > (now.goes_to or 0):
        return None
    return max(0, now.stands_at - (was.stands_at or 0))


def unplanned_read_again(planned: Iterable[GroupMove], made: Iterable[GroupMove]) -> Iterable[UnplannedReadAgain]:
    """Where the source said at the plan where a group is, and does not any more. One that a person set back there still
    has an offset.
    """
    told = {(move.group, move.place): move.target_offset for move in planned if move.source_offset is not None}
    for move in made:
        goes_to = told.get((move.group, move.place))
        if move.source_offset is None and move.target_offset is not None and (goes_to or 0) > move.target_offset:
            records = (goes_to or 0) - move.target_offset
            yield UnplannedReadAgain(move.group, move.topic, move.partition, records)


def with_gone(planned: Iterable[GroupMove], made: Iterable[GroupMove]) -> tuple[GroupMove, ...]:
    """With those that were planned of groups that stand at neither site by now, as unknown ones."""
    found = tuple(made)
    there = {(move.group, move.place) for move in found}
    nothing: dict[str, Any] = dict.fromkeys(("source_offset", "target_offset", "stood_at", "brought_offset"))
    uncounted: dict[str, Any] = dict.fromkeys(("read_again_records", "skipped_records"))
    gone = [move for move in planned if (move.group, move.place) not in there]
    return (*found, *(replace(move, kind=MoveKind.UNKNOWN, turn=0, **nothing, **uncounted) for move in gone))
