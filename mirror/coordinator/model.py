"""The coordinator's contract: membership of a fleet, and the links assigned to each member.

Assignment only spreads work. What keeps two workers from writing one link is the fence on the target, never this.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Membership:
    """One worker's share: `epoch` grows with every assignment; a worker with an older one must stop its links."""

    worker_id: str
    epoch: int
    assigned_links: tuple[str, ...]


class Coordinator(Protocol):
    """Assigns every link to exactly one live member."""

    def member(self) -> AbstractAsyncContextManager[Membership]:
        """Join the fleet while the context is open. Leaving it gives the links to others."""
        ...
