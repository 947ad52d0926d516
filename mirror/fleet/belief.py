"""What one worker may believe of itself, and what follows: what it runs, what it may open, what it takes. Pure.

Three things can be wrong about a worker's knowledge: the lease may be over at the store, the view of the keys may be
old, and both without the worker's knowing why. So everything here is said for a moment on the worker's own clock.
"""

from __future__ import annotations

from mirror.coordinator.model import Share, Unit
from mirror.fleet.store import Lease
from mirror.fleet.view import FleetView


class Belief:
    """Seconds are those of the clock's `boottime`: a machine that was suspended knows that time went by."""

    def __init__(self, name: str, without_etcd_seconds: float) -> None:
        self.name = name
        self._without_etcd_s = without_etcd_seconds
        self.lease: Lease | None = None
        self.joined = 0
        """The revision at which this worker's key was made; 0: it has none now."""
        self.view: FleetView | None = None
        self._releasing: set[Unit] = set()
        """Nothing of them runs here any more, and the others are still to be told."""
        self._given_out: set[Unit] = set()
        """Shares that had them were seen by who runs them, and since then nothing was said of their end."""
        self._share: Share = frozenset()
        self._shared: tuple[FleetView, int, int] | None = None
        """What the share follows from: the view and its revision, and the revision at which this worker joined."""
        self._trusted_until = float("-inf")

    def is_alive(self, now: float) -> bool:
        """Whether the store still holds this worker's lease, for certain."""
        return self.joined > 0 and self.lease is not None and not self.lease.is_over and now < self.lease.alive_until

    def leads(self, now: float) -> bool:
        leader = self.view.leader if self.view else None
        return self.is_alive(now) and leader is not None and leader.joined == self.joined

    def holds(self, unit: Unit) -> bool:
        holder = self.view.held.get(unit) if self.view else None
        return holder is not None and self.joined > 0 and (holder.worker, holder.joined) == (self.name, self.joined)

    def may_open(self, unit: Unit, now: float) -> bool:
        """A unit is opened by who holds it for certain; the key goes with the lease, so nobody else holds it then."""
        return self.is_alive(now) and self.holds(unit) and unit in self._share and unit not in self._releasing

    def share(self, now: float) -> Share:
        """What this worker is to run now.

        While it does not know whether its lease lives it goes on with what it had, for as long as it is told to. When
        it knows the store's keys again it goes on with what is planned for it still, and nobody else has taken.
        """
        if self.is_alive(now) and self.view is not None and self.view.revision >= self.joined:
            assert self.lease is not None
            self._trusted_until = self.lease.alive_until
            follows_from = self.view, self.view.revision, self.joined
            if follows_from == self._shared:
                return self._share  # asked for ten times a second, of ten thousand units
            self._shared = follows_from
            mine = (unit for unit, worker in self.view.planned.items() if worker == self.name)
            self._share = frozenset(
                unit
                for unit in mine
                if unit not in self._releasing
                and (self.holds(unit) or (unit in self._share and unit not in self.view.held))
            )
        elif now >= self._trusted_until + self._without_etcd_s:
            self._share, self._shared = frozenset(), None
        return self._share

    def give_out(self, share: Share) -> None:
        """Who runs units sees this share now: all of it runs here until each is released."""
        self._given_out |= share

    def release(self, unit: Unit) -> None:
        """Nothing of it runs here any more."""
        self._given_out.discard(unit)
        self._releasing.add(unit)
        self._shared = None

    def to_take(self) -> list[Unit]:
        """What is planned for this worker and free, those of the highest priority first."""
        if self.view is None or not self.joined:
            return []
        me = self.view.workers.get(self.name)
        offered = me.record.links if me is not None else {}
        free = (
            unit
            for unit, worker in self.view.planned.items()
            if worker == self.name and unit not in self.view.held and unit not in self._releasing
        )
        return sorted(free, key=lambda unit: (-offered[unit.link].priority if unit.link in offered else 0, unit))

    def to_let_go(self) -> dict[Unit, int]:
        """What nothing runs of here any more, or ever did -> the epoch at which it was taken.

        A unit may be planned away before its holder's view shows that it was taken: then it was in no share, and no end
        of a run will release it.
        """
        if self.view is None:
            return {}
        self._releasing |= {
            unit
            for unit, holder in self.view.held.items()
            if holder.worker == self.name
            and self.view.planned.get(unit) != self.name
            and unit not in self._given_out
            and self.holds(unit)
        }
        self._releasing = {unit for unit in self._releasing if self.holds(unit)}
        return {unit: self.view.held[unit].epoch for unit in sorted(self._releasing)}
