"""The coordinator of a fleet of one: its member runs every unit."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mirror.coordinator.model import Member, Meter, Permit, Share, Unit
from mirror.errors import LinkFenced


class EmbeddedCoordinator:
    """Lives in the worker's own process. One member at a time."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._units = frozenset(units)
        self._taken = False

    def member(self) -> AbstractAsyncContextManager[Member]:
        return self._join()

    @asynccontextmanager
    async def _join(self) -> AsyncIterator[Member]:
        if self._taken:
            raise LinkFenced("this coordinator has its one member already")
        self._taken = True
        try:
            yield _OnlyMember(self._units)
        finally:
            self._taken = False


class Unconditional:
    """The permit of who is alone."""

    is_given = True

    async def begin(self) -> None:
        return

    async def wait(self, *, is_prepared: bool) -> None:
        return

    def check(self) -> None:
        return


class _OnlyMember:
    """Nobody else can run what ends here, and nothing here says when it could run again: it has ended for good."""

    def __init__(self, units: Share) -> None:
        self._units = units
        self.worker_id = f"{socket.gethostname()}:{os.getpid()}"

    async def shares(self) -> AsyncIterator[Share]:
        yield self._units

    def permit(self, unit: Unit) -> Permit:
        return Unconditional()

    def meter(self, unit: Unit) -> Meter:
        return Meter()  # nobody asks

    async def released(self, unit: Unit) -> None:
        return

    async def goes_on_after(self, unit: Unit, error: Exception) -> bool:
        return False
