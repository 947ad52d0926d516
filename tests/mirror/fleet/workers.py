"""What tests say of workers."""

from __future__ import annotations

from collections.abc import Sequence

from mirror.fleet.events import FleetEvent
from mirror.fleet.keys import OfferedLink, WorkerRecord


def offer_of(links: Sequence[str], weight: float = 1.0, near: Sequence[str] = (), units: int = 0) -> WorkerRecord:
    """Of a worker whose file has these links, each to the site "west"; cut into so many units, if not 0."""
    offered = {link: OfferedLink(target="west", declared=link, units=units) for link in links}
    return WorkerRecord(links=offered, weight=weight, near=tuple(near), prepares=True)


def untold(_event: FleetEvent, /, **_fields: object) -> None:
    """A sink for what a test does not ask for."""
