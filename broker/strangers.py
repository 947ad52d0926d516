"""Connections that have to log in and have not: how many there are, and what they may hold together."""

from __future__ import annotations

from typing import Protocol

from broker.limits import STRANGERS_BYTES_MAX, STRANGERS_MAX
from broker.memory import RequestMemory


class Stranger(Protocol):
    """What is asked of a connection."""

    host: str

    @property
    def closed(self) -> bool: ...
    @property
    def is_stranger(self) -> bool: ...


class Strangers:
    """Those of each host in the order in which they came. Who logs in is forgotten when somebody looks for room."""

    def __init__(self) -> None:
        self.memory = RequestMemory(STRANGERS_BYTES_MAX)
        """For requests of theirs that are larger than a read: users wait for none of it."""
        self._of_host: dict[str, dict[Stranger, None]] = {}
        self._count = 0

    def add(self, one: Stranger) -> Stranger | None:
        """-> who has to go for it: of the host that has most of them, the one that is a stranger for longest."""
        leaving = self._longest() if self._count >= STRANGERS_MAX else None
        self._of_host.setdefault(one.host, {})[one] = None
        self._count += 1
        return leaving

    def discard(self, one: Stranger) -> None:
        of_host = self._of_host.get(one.host, {})
        if one in of_host:
            self._forget(one, of_host)

    def _forget(self, one: Stranger, of_host: dict[Stranger, None]) -> None:
        del of_host[one]
        self._count -= 1
        if not of_host:
            del self._of_host[one.host]

    def _longest(self) -> Stranger | None:
        """Forgotten here; None: there was room, as others had logged in meanwhile."""
        while self._count >= STRANGERS_MAX:
            of_host = max(self._of_host.values(), key=len)
            one = next(iter(of_host))
            self._forget(one, of_host)
            if one.is_stranger and not one.closed:
                return one
        return None
