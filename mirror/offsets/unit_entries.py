"""What a link's state keeps of the units that the link is cut into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from mirror.link import Pin


@dataclass(frozen=True, slots=True)
class LinkUnits:
    """Into how many units the link was cut at its beginning, in each unit's part of the state; each of the `pins` has
    one more. Versions that know none refuse it.
    """

    units: int
    pins: tuple[Pin, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkDeal:
    """As `LinkUnits`, of a link that was to be cut anew, where it counts in its place: what unit 0's part says of it.

    `epoch` grows with each cut. Versions that know none refuse it.
    """

    units: int
    pins: tuple[Pin, ...] = ()
    epoch: int = 0


CutEntry: TypeAlias = LinkUnits | LinkDeal


def cut_key(entry: CutEntry) -> list[Any]:
    return ["units"] if isinstance(entry, LinkUnits) else ["deal"]


def unpack_cut(key: list[Any], fields: dict[str, Any]) -> CutEntry:
    """Raises TypeError, ValueError for what cannot be read."""
    pins = tuple((str(topic), int(partition)) for topic, partition in fields.pop("pins", ()))
    return LinkUnits(pins=pins, **fields) if key == ["units"] else LinkDeal(pins=pins, **fields)
