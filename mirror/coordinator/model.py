"""The coordinator's contract: who of a fleet runs what.

Assignment spreads the work, and moves it away from a worker that is gone. What keeps two workers from writing one unit
is the fence on the target, never this; so a worker that is cut off from the others may go on with what it runs, and
must not open anything, because that would fence whoever has taken it over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mirror.errors import MirrorError


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """What is assigned to one worker and fenced as a whole: a link."""

    link: str

    def __str__(self) -> str:
        return self.link


Share: TypeAlias = frozenset[Unit]
"""What one worker is to run now."""


@dataclass(slots=True)
class Meter:
    """What a unit's sessions count of it, for who shares the units out. The counts only grow."""

    acknowledged_bytes: int = 0
    acknowledged_records: int = 0
    lag_offsets: int | None = None
    """Between what is proved at the target and the source's log ends, as far as these were heard of; None: not yet."""


class UnitNotHeld(MirrorError):
    """A unit was about to be opened by a worker that does not hold it, or does not know whether it still does."""

    retriable = True


class Permit(Protocol):
    """Whether a unit may be opened: fenced at its target, with which any other worker's session of it ends."""

    async def wait(self) -> None:
        """Until it may."""
        ...

    def check(self) -> None:
        """Raises UnitNotHeld where it may not now."""
        ...


class Member(Protocol):
    """One worker's place in the fleet."""

    @property
    def worker_id(self) -> str: ...

    def shares(self) -> AsyncIterator[Share]:
        """This worker's share, now and whenever it changes; ends where it never will."""
        ...

    def permit(self, unit: Unit) -> Permit: ...

    def meter(self, unit: Unit) -> Meter:
        """Always the same one for as long as the unit runs here."""
        ...

    async def released(self, unit: Unit) -> None:
        """Is told when nothing of the unit runs here any more: only then another worker opens it."""
        ...

    async def goes_on_after(self, unit: Unit, error: Exception) -> bool:
        """Whether a unit that ended by an error is to be begun anew; returns when that is due."""
        ...


class Coordinator(Protocol):
    """Assigns every unit to exactly one live member."""

    def member(self) -> AbstractAsyncContextManager[Member]:
        """Join the fleet while the context is open. Leaving it gives the units to others. Raises MirrorError."""
        ...
