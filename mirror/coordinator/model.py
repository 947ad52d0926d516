"""The coordinator's contract: who of a fleet runs what.

Assignment spreads the work, and moves it away from a worker that is gone. What keeps two workers from writing one unit
is the fence on the target, never this; so a worker that is cut off from the others may go on with what it runs, and
must not open anything, because that would fence whoever has taken it over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from mirror.errors import MirrorError
from mirror.link import Link

WHOLE: Final = -1
"""The number of the only unit of a link that is not cut."""


class Unit(NamedTuple):
    """What is assigned to one worker and fenced as a whole: a link, or one of the units that it is cut into.

    A tuple, since a plan looks each of a hundred thousand up ten times.
    """

    link: str
    number: int = WHOLE

    @classmethod
    def named(cls, name: str) -> Unit:
        """The unit that is called so; no link's name has a slash."""
        link, slash, number = name.rpartition("/")
        return cls(link, int(number)) if slash and number.isdecimal() else cls(name)

    def __str__(self) -> str:
        return self.link if self.number == WHOLE else f"{self.link}/{self.number}"

    def of(self, link: Link | None) -> Link | None:
        """The link as this unit has it; None where the link is not (any more) cut so."""
        if link is None or self not in units_of(link):
            return None
        return link if self.number == WHOLE else link.of_unit(self.number)


def units_of(link: Link) -> list[Unit]:
    """The units of a link as it is declared."""
    count = link.unit_count
    return [Unit(link.name)] if count == 1 else [Unit(link.name, number) for number in range(count)]


Share: TypeAlias = frozenset[Unit]
"""What one worker is to run now, or to prepare: only its permit says that no other worker runs it still."""


@dataclass(slots=True)
class Meter:
    """What a unit's sessions count of it, for who shares the units out. What was acknowledged only grows."""

    acknowledged_bytes: int = 0
    acknowledged_records: int = 0
    lag_offsets: int | None = None
    """Between what is proved at the target and the source's log ends, as far as these were heard of; None: not yet."""
    failed_sessions: int = 0
    """That ended by an error since the last one that was opened: a site may be out of this worker's reach."""
    short_sessions: int = 0
    """That were opened, and ended by an error before they had lasted, since the last one that did."""
    is_young: bool = False
    """A session is open, and has not lasted yet."""

    def opened(self) -> None:
        """A session may write."""
        self.failed_sessions, self.is_young = 0, True

    def lasted(self) -> None:
        """The session that is open is well."""
        self.short_sessions, self.is_young = 0, False

    def ended(self, *, failed: bool) -> None:
        """The session, opened or not, by an error or for a reason that is none."""
        if failed:
            self.failed_sessions += 1
            self.short_sessions += self.is_young
        self.is_young = False


class UnitNotHeld(MirrorError):
    """A unit was about to be opened by a worker that does not hold it, or does not know whether it still does."""

    retriable = True


class Permit(Protocol):
    """Whether a unit may be opened: fenced at its target, with which any other worker's session of it ends."""

    async def begin(self) -> None:
        """Until a session may begin: what only reads may be done while another worker runs the unit still."""
        ...

    @property
    def is_given(self) -> bool:
        """Whether it may be opened now."""
        ...

    async def wait(self, *, is_prepared: bool) -> None:
        """Until it may be opened. Where this is all that a session waits for, who runs the unit still is told that it
        `is_prepared`, and lets go."""
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
