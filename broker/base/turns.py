"""Work on many things in one event loop, with turns for all others in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(things: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """The things as they come; after `at_once` of them, and each time again, whoever else is ready runs."""
    for number, thing in enumerate(things, 1):
        yield thing
        if number % at_once == 0:
            await asyncio.sleep(0)
