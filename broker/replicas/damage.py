"""Partitions that went offline while the broker runs: the controller is told, and has others lead (KIP-112).

Told is only that something failed here. The controller orders all that this broker has once more, and what is offline
is in the answer; so whoever becomes the controller meanwhile learns it too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from broker.base.clock import Clock
from broker.errors import BrokerError

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0


class DamageStore(Protocol):
    """`MetadataStore`, as far as it is used here."""

    async def tell_log_dir_failed(self, node_id: int) -> None: ...


class FoundDamage:
    def __init__(self, store: DamageStore, node_id: int, clock: Clock) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._found = asyncio.Event()

    def note(self) -> None:
        self._found.set()

    async def run(self) -> None:
        """Ends only by being cancelled."""
        while True:
            await self._found.wait()
            self._found.clear()
            try:
                await self._store.tell_log_dir_failed(self._node_id)
            except BrokerError as error:
                log.warning("the controller was not told that partitions are offline, tried again: %s", error)
                self._found.set()
                await self._clock.sleep(RETRY_S)
