"""What one worker may believe of itself, and what follows: what it runs, what it may open, what it takes. Pure.

Three things can be wrong about a worker's knowledge: the lease may be over at the store, the view of the keys may be
old, and both without the worker's knowing why. So everything here is said for a moment on the worker's own clock.
"""

from __future__ import annotations

from typing import Final

from mirror.coordinator.model import Share, Unit
from mirror.fleet.store import Lease
from mirror.fleet.view import FleetView

NEVER: Final = float("inf")


class Belief:
    """Seconds are those of the clock's `boottime`: a machine that was suspended knows that time went by."""

    def __init__(self, name: str, without_etcd_seconds: float, prepare_seconds: float) -> None:
        self.name = name
        self._without_etcd_s, self._prepare_s = without_etcd_seconds, prepare_seconds
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
        self._coming: frozenset[Unit] = frozenset()
        """Of the share what another worker holds: it is prepared here, and not opened."""
        self._kept_until: dict[Unit, float] = {}
        """Of the share what is planned for another worker, which prepares it: so long at most it is run here still."""
        self._looks_again_at = NEVER
        """By time alone the share changes then."""
        self._prepared: set[Unit] = set()
        """What waits here for nothing but to be opened."""

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

    def may_prepare(self, unit: Unit, now: float) -> bool:
        """Whether a session of it may begin: it is opened here, or will be when who runs it lets it go."""
        return self.is_alive(now) and unit in self._share and unit not in self._releasing

    def note_prepared(self, unit: Unit, *, is_prepared: bool) -> None:
        (self._prepared.add if is_prepared else self._prepared.discard)(unit)

    def share(self, now: float) -> Share:
        """What this worker is to run now, or to prepare: of that, another lets go when it hears that it is.

        While it does not know whether its lease lives it goes on with what it had, for as long as it is told to. When
        it knows the store's keys again it goes on with what is planned for it still, and nobody else has taken.
        """
        if self.is_alive(now) and self.view is not None and self.view.revision >= self.joined:
            assert self.lease is not None
            self._trusted_until = self.lease.alive_until
            follows_from = self.view, self.view.revision, self.joined
            if follows_from == self._shared and now < self._looks_again_at:
                return self._share  # asked for ten times a second, of ten thousand units
            self._shared = follows_from
            self._share = self._to_run(self.view) | self._still_here(self.view, now)
        elif now >= self._trusted_until + self._without_etcd_s:
            self._share, self._shared = frozenset(), None
            self._coming = frozenset()
        return self._share

    def _to_run(self, view: FleetView) -> Share:
        """What is planned for this worker, but for what has to end here first."""
        mine = {unit for unit, worker in view.planned.items() if worker == self.name and unit not in self._releasing}
        theirs = {unit for unit in mine if unit in view.held and not self.holds(unit)}
        # What ran here when another took it is no more than a session that this one's fence has ended, or will.
        self._coming = frozenset(theirs & self._coming | theirs - self._given_out)
        return self._coming | {unit for unit in mine - theirs if self.holds(unit) or unit in self._share}

    def _still_here(self, view: FleetView, now: float) -> Share:
        """What runs here, is planned for another, and is being prepared there."""
        kept: dict[Unit, float] = {}
        for unit in self._share - self._releasing:
            heir = view.workers.get(view.planned.get(unit, ""))
            if heir is None or heir.name == self.name or not heir.record.prepares or not self.holds(unit):
                continue
            until = self._kept_until.get(unit, now + self._prepare_s)
            if now < until and not view.is_ready(unit, heir):
                kept[unit] = until
        self._looks_again_at = min(kept.values(), default=NEVER)
        self._kept_until = kept
        return frozenset(kept)

    def is_awaited(self, now: float) -> bool:
        """Whether another worker may be about to take what this one holds."""
        view = self.view
        if view is None or not self.is_alive(now):
            return False
        return (bool(self._releasing) or any(map(self.holds, view.held))) and bool(
            view.workers.keys() - view.unusable - {self.name}
        )

    def give_out(self, share: Share) -> None:
        """Who runs units sees this share now: all of it runs here until each is released."""
        self._given_out |= share

    def release(self, unit: Unit) -> None:
        """Nothing of it runs here any more."""
        self._given_out.discard(unit)
        self._coming -= {unit}
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
        held = {unit for unit in self._releasing if self.holds(unit)}
        if held != self._releasing:
            self._releasing, self._shared = held, None
        return {unit: self.view.held[unit].epoch for unit in sorted(self._releasing)}

    def to_say(self) -> list[Unit]:
        """What is prepared here, and who runs it does not know that."""
        view = self.view
        me = view.workers.get(self.name) if view is not None else None
        if view is None or me is None or me.joined != self.joined:
            return []
        return sorted(unit for unit in self._prepared & self._coming if not view.is_ready(unit, me))

    def to_take_back(self) -> list[Unit]:
        """Of what this worker said that it is prepared, and is not any more."""
        if self.view is None or not self.joined:
            return []
        ready, me = self.view.ready.items(), (self.name, self.joined)
        return sorted(unit for unit, said in ready if (said.worker, said.joined) == me and unit not in self._prepared)
