"""What a start waits for is said: once for each thing, and only where it takes long enough to be asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

WAITING: Final = "waiting"
"""So begins each line in a log that says what is waited for."""
TOLD_AFTER_S: Final = 1.0


@contextmanager
def told_if_long(tell: Callable[[str], object], what: str) -> Iterator[None]:
    """`tell` is called with "waiting " and `what` where the body takes longer than a second."""
    told = asyncio.get_running_loop().call_later(TOLD_AFTER_S, tell, f"{WAITING} {what}")
    try:
        yield
    finally:
        told.cancel()
