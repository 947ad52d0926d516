"""A value that may be replaced while others go by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Current(Generic[T]):
    """All on one event loop."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._replaced = asyncio.Event()

    def replace(self, value: T) -> None:
        self.value = value
        self._replaced.set()
        self._replaced = asyncio.Event()

    async def until(self, is_so: Callable[[T], bool]) -> None:
        """Until the value is such a one; one that was replaced at once may not be seen."""
        while not is_so(self.value):
            await self._replaced.wait()
