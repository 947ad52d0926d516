"""When a leader plans, and how much it may move then. Pure: the time is passed in.

A fleet that changed is left alone until it was the same for a while, and is then shared out once. Behind that only
loads change: they move one unit at a time, and only where they were apart for long enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from mirror.coordinator.model import Unit
from mirror.fleet.failures import Failures
from mirror.fleet.planner import EVEN, SHARE, Balance
from mirror.fleet.settings import FleetSettings
from mirror.fleet.view import FleetView

Fleet: TypeAlias = tuple[frozenset[tuple[int, str]], frozenset[str]]
EASE_LOOK_S: Final = 10.0
SETTLES_MAX: Final = 12
"""So many times the time to settle a fleet is left alone whose workers come and go."""


class Pacing:
    """Of one leader. Seconds are those of the steady clock."""

    def __init__(self, now: float, settings: FleetSettings) -> None:
        self._settings = settings
        self._leads = False
        self._settled_at = now + settings.settle_seconds
        self._unsettled_since: float | None = None
        self._seen_at: dict[int, float] = {}
        """When a worker was seen first, by the revision at which it joined."""
        self._fleet: Fleet | None = None
        self._is_shared = False
        """Whether everything was shared out since the fleet is what it is."""
        self._planned: tuple[int, bool, int] | None = None
        self.failures = Failures()
        self._written_at = 0
        """The revision of what this leader wrote last, which the view must show."""
        self._eased: tuple[int, int] | None = None
        """The revision of the loads that were last seen to want no move, and what was held against workers then."""
        self._look_at = self._move_at = now
        self._wanted_since: float | None = None
        self._rests_until: dict[Unit, float] = {}

    def begins(self) -> bool:
        """Whether it leads since now."""
        begins, self._leads = not self._leads, True
        return begins

    def ends(self) -> None:
        self.forget_plan()
        self._leads, self.failures = False, Failures()

    def forget_plan(self) -> None:
        """Nobody knows what of it was written. What workers failed with is known all the same."""
        self._planned, self._fleet = None, None
        self._eased, self._wanted_since = None, None

    def settled_in_s(self, view: FleetView, now: float) -> float:
        """Until the fleet's workers were the same for long enough; 0 or less: they were."""
        workers = frozenset((worker.joined, worker.said) for worker in view.workers.values())
        fleet = workers, frozenset(view.drained)
        if fleet != self._fleet:
            if self._unsettled_since is None or self._is_shared:
                self._unsettled_since = now
            self._fleet, self._is_shared = fleet, False
            self._seen_at = {joined: self._seen_at.get(joined, now) for joined, _ in workers}
            settle_s = self._settings.settle_seconds
            self._settled_at = min(now + settle_s, self._unsettled_since + SETTLES_MAX * settle_s)
        return self._settled_at - now

    def unproven(self, view: FleetView, balance: Balance | None, now: float) -> frozenset[str]:
        """Workers that may be gone as soon as they were given something: nothing is shared out to them."""
        if balance is not SHARE:
            return frozenset()
        settle_s = self._settings.settle_seconds
        return frozenset(
            name for name, worker in view.workers.items() if self._seen_at.get(worker.joined, now) + settle_s > now
        )

    def is_due(self, view: FleetView, now: float) -> bool:
        """Whether a new plan could say anything else than the last one, leaving loads alone."""
        if view.revision < self._written_at:
            return False
        self.failures.look(view, now)
        due = (view.inputs_revision, self.settled_in_s(view, now) <= 0, self.failures.version)
        is_due, self._planned = due != self._planned, due
        return is_due

    def balance(self, view: FleetView, now: float) -> Balance | None:
        """How much may move with a plan that `is_due`."""
        if view.rebalance is not None:
            return EVEN
        return SHARE if self.settled_in_s(view, now) <= 0 and not self._is_shared else None

    def planned(self, balance: Balance | None, written_at: int, now: float, unproven: Collection[str] = ()) -> None:
        """A plan was made, and all of it was written; where some were `unproven`, another one follows."""
        self._written_at = max(self._written_at, written_at)
        if unproven:
            self._unsettled_since, self._settled_at = now, now + self._settings.settle_seconds
        elif balance is SHARE or balance is EVEN:
            self._is_shared = True

    def may_ease(self, view: FleetView, now: float) -> bool:
        """Whether it is to be seen if loads want a move."""
        if view.revision < self._written_at or not self._is_shared or now < self._look_at:
            return False
        self._look_at = now + EASE_LOOK_S
        return self._wanted_since is not None or self._seen(view) != self._eased

    def _seen(self, view: FleetView) -> tuple[int, int]:
        return view.loads_revision, self.failures.version

    def resting(self, now: float) -> Collection[Unit]:
        """What was moved for its load a short while ago."""
        self._rests_until = {unit: until for unit, until in self._rests_until.items() if now < until}
        return self._rests_until.keys()

    def eases(self, view: FleetView, moves: Iterable[Unit], now: float) -> bool:
        """Loads want these moves: whether they have for long enough, and others are long enough ago."""
        wanted = list(moves)
        if not wanted:
            self._eased, self._wanted_since = self._seen(view), None
            return False
        if self._wanted_since is None:
            self._wanted_since = now
        if now < max(self._move_at, self._wanted_since + self._settings.ease_after_seconds):
            return False
        self._move_at = now + self._settings.ease_every_seconds
        self._rests_until |= dict.fromkeys(wanted, now + self._settings.ease_rest_seconds)
        return True
