"""Where units could not be run: what a leader holds against which worker, and for how long. Pure.

A worker may live at etcd and not reach a site. Its units move nothing there, so it looks idle, and would be given more.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from mirror.coordinator.model import Unit
from mirror.fleet.view import FleetView

AVOIDED_S: Final = 600.0
"""A worker is given nothing for balance, and not this unit, for so long after it last failed with it."""
TRIES: Final = 3
"""Where it failed at so many workers it is nobody's fault: then it stays where it is."""


class Failures:
    """Of one leader. Seconds are those of the steady clock. A worker that joined anew has failed with nothing."""

    def __init__(self) -> None:
        self._until: defaultdict[Unit, dict[str, tuple[int, float]]] = defaultdict(dict)
        """By unit and worker: how that had joined, and until when it is held against it."""
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
                    self._until[unit][name] = worker.joined, now + AVOIDED_S
        avoided: dict[Unit, frozenset[str]] = {}
        for unit, failed_at in list(self._until.items()):
            for name, (joined, until) in list(failed_at.items()):
                worker = view.workers.get(name)
                if worker is None or worker.joined != joined or now >= until:
                    del failed_at[name]
            if not failed_at:
                del self._until[unit]
            elif len(failed_at) < TRIES:
                avoided[unit] = frozenset(failed_at)
        if avoided != self.avoided:
            self.avoided, self.version = avoided, self.version + 1
