"""Whose turn it is where anybody may ask for any number of them: who asks for many holds up himself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """One at a time. Of those who wait each source has a turn, and then the next source, and so round."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """Those of each source in the order in which they came; the source whose turn is next stands first."""

    @asynccontextmanager
    async def of(self, source: str) -> AsyncIterator[None]:
        await self._take(source)
        try:
            yield
        finally:
            self._give_on()

    async def _take(self, source: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(source, {})[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(source, turn)
            else:
                self._give_on()  # it had just been given
            raise

    def _forget(self, source: str, turn: asyncio.Future[None]) -> None:
        of_source = self._waiting.get(source, {})
        if turn in of_source:
            del of_source[turn]
            if not of_source:
                del self._waiting[source]

    def _give_on(self) -> None:
        while self._waiting:
            source = next(iter(self._waiting))
            turn = next(iter(self._waiting[source]))
            others = self._waiting.pop(source)
            del others[turn]
            if others:
                self._waiting[source] = others
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
