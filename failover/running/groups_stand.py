"""What an operation says before it has ended: applications may start at the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from failover.planning.staying import StayingLink


@dataclass(frozen=True, slots=True)
class GroupsStand:
    """The groups that were moved stand at `target`, read back and verified, and it takes writes: applications may start
    there, but for those of `left_groups`, of which something was left as it is there, or which were not asked for, and
    for what reads along `staying_links`, which stay at `source`. What is left is to look whether something came late
    there, where the source `is_watched`.
    """

    operation_id: str
    source: str
    target: str
    is_watched: bool
    left_groups: tuple[str, ...] = ()
    staying_links: tuple[StayingLink, ...] = ()


Tell: TypeAlias = Callable[[GroupsStand], None]


def tell_nobody(_stand: GroupsStand) -> None:
    """Whoever waits for the end."""
