"""What cutting a link anew means, by what is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from mirror.link import Link, Pin
from mirror.offsets.recutting import is_of_cut
from mirror.offsets.state_entries import StateEntries
from mirror.status import LinkCondition, condition_of


class CutBlocker(StrEnum):
    """Why nothing would be changed."""

    NEVER_RAN = "never_ran"
    PROMOTED = "promoted"
    CUT_SO_ALREADY = "cut_so_already"


@dataclass(frozen=True, slots=True)
class CutPlan:
    """`units` and `pins` as farshore.toml is to say them, and as the link is cut now. `partitions` are those that were
    mirrored, by the units that they would be in; `moved` so many of them change their unit.

    `stays_paused`: a person paused the link, and it is not to run behind the cut either. `is_unfinished`: an earlier
    one was cut short.
    """

    link: str
    condition: LinkCondition
    units_now: int
    pins_now: tuple[str, ...]
    units: int
    pins: tuple[str, ...]
    partitions: tuple[int, ...]
    moved: int
    stays_paused: bool
    is_unfinished: bool


def plan_cut(entries: StateEntries, units: int, pins: Sequence[Pin]) -> CutPlan | CutBlocker:
    """What cutting the link into so many units, and one for each pin, would change. Pure."""
    condition = condition_of(entries)
    if entries.owner is None:
        return CutBlocker.NEVER_RAN
    if condition is LinkCondition.PROMOTED:
        return CutBlocker.PROMOTED
    now = entries.link
    new = replace(now, units=units, pins=tuple(sorted(set(pins))))
    is_unfinished = condition is LinkCondition.PAUSED and entries.run is not None and is_of_cut(entries.run)
    if new == now and not is_unfinished:
        return CutBlocker.CUT_SO_ALREADY
    by_unit = Counter(new.unit_of(*where) for where in entries.checkpoints)
    return CutPlan(
        link=now.name,
        condition=condition,
        units_now=now.units,
        pins_now=pin_names(now),
        units=new.units,
        pins=pin_names(new),
        partitions=tuple(by_unit[unit] for unit in range(new.unit_count)),
        moved=sum(now.unit_of(*where) != new.unit_of(*where) for where in entries.checkpoints),
        stays_paused=condition is LinkCondition.PAUSED and not is_unfinished,
        is_unfinished=is_unfinished,
    )


def pin_names(link: Link) -> tuple[str, ...]:
    """As farshore.toml has them."""
    return tuple(f"{topic}:{partition}" for topic, partition in link.pins)
