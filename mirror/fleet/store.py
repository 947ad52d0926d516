"""What a fleet needs of the store that its workers agree through: etcd's model, and no more of it than is used.

One revision counts every change of the store. A commit is carried out whole or not at all, on the revisions that it
names. A watch tells every change in the order of revisions. A lease is a promise to be heard of: keys that are put
under it go when it ends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

ABSENT: Final = 0
"""The creation's revision of a key that is not there."""
COMMIT_KEYS_MAX: Final = 128
"""etcd's default of --max-txn-ops."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key's value, and the revision at which the key was made: another key of this name has another."""

    value: str
    created: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys below a prefix, as they were at one revision."""

    revision: int
    items: Mapping[str, Item]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a key; None: it was deleted."""

    key: str
    item: Item | None


@dataclass(frozen=True, slots=True)
class Changes:
    """All that changed up to a revision, behind what was told before."""

    revision: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """A value, under a lease where one is named."""

    value: str
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Carried out only where every key of `created` was made at that revision (ABSENT: is not there).

    None as what is put: the key is deleted. At most COMMIT_KEYS_MAX of each.
    """

    created: Mapping[str, int]
    puts: Mapping[str, Put | None] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    """Keys that must have these values."""


class Lease(Protocol):
    """Kept alive by a thread of its own, for as long as its context is open."""

    @property
    def lease_id(self) -> int: ...

    @property
    def alive_until(self) -> float:
        """Seconds on the clock's `boottime`: until then the store has not ended the lease, whatever happens."""
        ...

    @property
    def granted_s(self) -> int:
        """Seconds that it has from each renewal: not fewer than were asked for."""
        ...

    @property
    def is_over(self) -> bool:
        """The store said that there is no such lease any more, or nobody renews it."""
        ...


class FleetStore(Protocol):
    """Each call raises StoreUnreachable where no server answers in time."""

    async def read(self, prefix: str) -> Snapshot:
        """Everything below the prefix, as the whole cluster has it, not as one server remembers it."""
        ...

    async def commit(self, commit: Commit) -> int | None:
        """The revision at which it was carried out; None where it was refused. StoreUnreachable: nobody knows."""
        ...

    def watch(self, prefix: str, after: int) -> AsyncGenerator[Changes, None]:
        """What changes after the revision, until it is closed. Raises HistoryCompacted, StoreUnreachable."""
        ...

    def lease(self, lease_seconds: int) -> AbstractAsyncContextManager[Lease]:
        """A new lease; leaving the context ends it."""
        ...


def in_commits(created: Mapping[str, int], puts: Mapping[str, Put | None]) -> Sequence[Commit]:
    """Puts that stand each for itself, in as few commits as etcd allows; each holds all of `created`."""
    keys = list(puts)
    return [
        Commit(created, {key: puts[key] for key in keys[at : at + COMMIT_KEYS_MAX]})
        for at in range(0, len(keys), COMMIT_KEYS_MAX)
    ]
