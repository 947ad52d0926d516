"""Who reads on at the target: since its groups were verified there applications may start, and a group for which
nothing is committed may have had consumers there all the time.

The journal says that they are verified before anybody is told, so that whoever takes the operation up knows that
applications may have started. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from failover.errors import JournalDamaged
from failover.journal.values import Event, OperationLog
from failover.observing.snapshot import Snapshot
from failover.planning.moves import GroupMove

GroupAt: TypeAlias = tuple[str, str, int]
"""A group, and the source's topic and partition."""


@dataclass(frozen=True, slots=True)
class ReadOn:
    """A group stood at `verified_offset` of the target when an earlier run verified it, or at the fence and nothing was
    committed for it; and at `found_offset` when it was looked at again.
    """

    group: str
    topic: str
    partition: int
    verified_offset: int
    found_offset: int


def verified_document(moves: Iterable[GroupMove]) -> list[list[Any]]:
    """For the journal: where groups stood as they were to; `verified_offsets` reads it."""
    return [
        [move.group, move.topic, move.partition, move.target_offset] for move in moves if move.target_offset is not None
    ]


def verified_offsets(log: OperationLog) -> dict[str, dict[GroupAt, int]]:
    """Per link where its groups were verified, as the last run that came so far with it says; none where none did.
    Raises JournalDamaged.
    """
    found: dict[str, dict[GroupAt, int]] = {}
    for entry in log.entries:
        if entry.event == Event.GROUPS_VERIFIED:
            try:
                found |= {
                    link: {(group, topic, partition): offset for group, topic, partition, offset in rows}
                    for link, rows in entry.detail["offsets"].items()
                }
            except (TypeError, ValueError) as error:
                said = f"entry {entry.sequence} has offsets that are none"
                raise JournalDamaged(f"the journal of {log.operation_id} is damaged: {said}") from error
    return found


def offsets_at_target(snapshot: Snapshot) -> dict[GroupAt, int | None]:
    return {
        (group.group, at.topic, at.partition): at.target_offset for group in snapshot.groups for at in group.partitions
    }


def who_read_on(
    after: Snapshot, moves: Iterable[GroupMove], verified: Mapping[GroupAt, int]
) -> tuple[tuple[ReadOn, ...], tuple[GroupMove, ...]]:
    """Those of the moves whose group was verified, or stays as it stood, and is further on by now, as who read on; and
    the others.
    """
    found = offsets_at_target(after)
    read_on: list[ReadOn] = []
    others: list[GroupMove] = []
    for move in moves:
        at = (move.group, move.topic, move.partition)
        stood, stands = verified.get(at, None if move.commits else move.target_offset), found.get(at)
        if stood is not None and stands is not None and stood == move.target_offset and stands > stood:
            read_on.append(ReadOn(*at, stood, stands))
        else:
            others.append(move)
    return tuple(read_on), tuple(others)
