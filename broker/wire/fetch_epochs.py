"""How far a fetch session is, as each of its requests says (KIP-227)."""

from __future__ import annotations

from typing import Final

NO_SESSION: Final = 0
"""In place of a session's id."""
FULL_EPOCH: Final = 0
"""Of a request that names all partitions, and begins a session."""
FINAL_EPOCH: Final = -1
"""Of one that names all, is of no session, and ends that of its id."""
EPOCH_MAX: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """Of the request behind one of this epoch. Pure."""
    return epoch % EPOCH_MAX + 1
