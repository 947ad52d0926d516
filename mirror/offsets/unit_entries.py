"""What a link's state keeps of the units that the link is cut into."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkUnits:
    """Into how many units the link is cut, in each unit's part of the state. Versions that know none refuse it."""

    units: int
