"""The controllership of a broker that is its whole cluster."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.cluster.metadata import ChangeKind, Controller
from broker.cluster.metadata_store import MetadataStore
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

EARLIER_LIFE_S: Final = 60.0
"""For so long the session of a broker that was killed may still hold the controllership."""


class NotAlone(BrokerError):
    """Another broker is the controller of this cluster."""

    error_code = ErrorCode.NOT_CONTROLLER
    hint = "give this broker a cluster of its own: another chroot in zookeeper, or no cluster table"


class SoleController:
    """Elected when it is first needed, and again by `renew` when the store's session was a new one."""

    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id
        self._controller: Controller | None = None
        self._electing = asyncio.Lock()

    async def current(self) -> Controller:
        """Raises NotAlone."""
        async with self._electing:
            if self._controller is None:
                self._controller = await self._elected()
            return self._controller

    async def renew(self) -> None:
        """Raises NotAlone."""
        async with self._electing:
            self._controller = await self._elected()

    async def _elected(self) -> Controller:
        try:
            async with asyncio.timeout(EARLIER_LIFE_S), self._store.watch(ChangeKind.CONTROLLER) as changes:
                while (controller := await self._store.elect_controller(self._node_id)) is None:
                    holder = await self._store.controller()
                    if holder not in (None, self._node_id):
                        raise NotAlone(f"broker {holder} is the controller of this cluster, not {self._node_id}")
                    if holder is not None:
                        await anext(changes)
                return controller
        except TimeoutError:
            raise NotAlone(f"another process holds the controllership of broker {self._node_id}") from None
