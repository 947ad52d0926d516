"""The coordinator of a fleet of one: its member runs every link."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mirror.coordinator.model import Membership
from mirror.errors import LinkFenced


class EmbeddedCoordinator:
    """Lives in the worker's own process. One member at a time; each joining is a new epoch."""

    def __init__(self, links: Sequence[str]) -> None:
        self._links = tuple(links)
        self._epoch = 0
        self._taken = False

    def member(self) -> AbstractAsyncContextManager[Membership]:
        return self._join()

    @asynccontextmanager
    async def _join(self) -> AsyncIterator[Membership]:
        if self._taken:
            raise LinkFenced("this coordinator has its one member already")
        self._taken = True
        self._epoch += 1
        try:
            yield Membership(f"{socket.gethostname()}:{os.getpid()}", self._epoch, self._links)
        finally:
            self._taken = False
