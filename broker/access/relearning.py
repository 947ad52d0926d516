"""Reading again what other brokers and tools changed in the metadata store, until it says what it has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Generic, TypeVar

from broker.base.clock import Clock
from broker.errors import BrokerError

K = TypeVar("K")

RELEARN_PAUSE_S: Final = 1.0

log = logging.getLogger(__name__)


class Relearning(Generic[K]):
    """`learn` reads these, or all (None), and raises BrokerError where the store does not say; then what was known
    holds, `unread` says so once, and it is asked for again: what is not known may be a denial, or a password that was
    taken back.
    """

    def __init__(self, learn: Callable[[Collection[K] | None], Awaitable[None]], clock: Clock, unread: str) -> None:
        self._learn = learn
        self._clock = clock
        self._unread = unread
        # What changed, as the store told; None: anything may have.
        self._told: set[K | None] = set()
        self._is_told = asyncio.Event()

    def tell(self, changed: K | None) -> None:
        self._told.add(changed)
        self._is_told.set()

    async def run(self) -> None:
        """All first. Of many changes all that are told while the first ones are read are read at once. Ends only by
        being cancelled.
        """
        await self._until_known(None)
        while True:
            await self._is_told.wait()
            self._is_told.clear()
            told, self._told = self._told, set()
            await self._until_known(None if None in told else {each for each in told if each is not None})

    async def _until_known(self, wanted: Collection[K] | None) -> None:
        is_told = False
        while True:
            try:
                return await self._learn(wanted)
            except BrokerError as error:
                if not is_told:
                    log.warning("%s: %s", self._unread, error)
                is_told = True
            await self._clock.sleep(RELEARN_PAUSE_S)
