"""Where units could not be run: what a leader holds against which worker, and for how long. Pure.

A worker may live at etcd and not reach a site. Its units move nothing there, so it looks idle, and would be given more.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from mirror.coordinator.model import Unit
from mirror.fleet.view import FleetView

AVOIDED_S: Final = 600.0
"""A worker is given nothing for balance, and not this unit, for so long after it last failed with it,"""
AVOIDED_MAX_S: Final = 6 * 3600.0
"""and each time that it is tried again and fails again for twice as long, up to this."""
TRIES: Final = 3
"""Where it failed at so many workers, or at all that could run it, it is nobody's fault: then it stays where it is."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """What is held against a worker that `joined` so. It is forgotten when it was not repeated for as long again."""

    joined: int
    until: float
    for_s: float

    def again(self, joined: int, now: float) -> _Failed:
        if joined != self.joined:
            return _Failed(joined, now + AVOIDED_S, AVOIDED_S)
        for_s = self.for_s if now < self.until else min(2 * self.for_s, AVOIDED_MAX_S)
        return _Failed(joined, now + for_s, for_s)


_NEVER: Final = _Failed(joined=0, until=0.0, for_s=0.0)


class Failures:
    """Of one leader. Seconds are those of the steady clock. A worker that joined anew has failed with nothing."""

    def __init__(self) -> None:
        self._failed: defaultdict[Unit, dict[str, _Failed]] = defaultdict(dict)
        """By unit and worker."""
        self.version = 0
        """Another one where `avoided` has changed."""
        self.avoided: dict[Unit, frozenset[str]] = {}
        """Of units the workers that are not to run them, if another one could."""

    @property
    def workers(self) -> frozenset[str]:
        """Those that are given nothing for balance."""
        return frozenset().union(*self.avoided.values())

    def look(self, view: FleetView, now: float) -> None:
        """What workers say now, and what is long enough ago."""
        for name, record in view.measured.items():
            worker = view.workers.get(name)
            for unit in map(Unit.named, record.failing if worker is not None else ()):
                holder = view.held.get(unit)
                if worker is not None and holder is not None and holder.worker == name:
                    before = self._failed[unit].get(name, _NEVER)
                    self._failed[unit][name] = before.again(worker.joined, now)
        avoided: dict[Unit, frozenset[str]] = {}
        for unit, failed_at in list(self._failed.items()):
            for name, failed in list(failed_at.items()):
                worker = view.workers.get(name)
                if worker is None or worker.joined != failed.joined or now >= failed.until + failed.for_s:
                    del failed_at[name]
            if not failed_at:
                del self._failed[unit]
                continue
            avoiding = frozenset(name for name, failed in failed_at.items() if now < failed.until)
            if avoiding and len(avoiding) < TRIES and _others_could(view, unit, avoiding):
                avoided[unit] = avoiding
        if avoided != self.avoided:
            self.avoided, self.version = avoided, self.version + 1


def _others_could(view: FleetView, unit: Unit, failed_at: frozenset[str]) -> bool:
    unusable = view.unusable
    return any(
        unit.link in worker.record.links and name not in unusable
        for name, worker in view.workers.items()
        if name not in failed_at
    )
