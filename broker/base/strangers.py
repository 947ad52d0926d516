"""Connections of which nobody knows yet who they are: how many there may be, and which goes for another one."""

from __future__ import annotations

from typing import Protocol


class Stranger(Protocol):
    """What is asked of one."""

    @property
    def host(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def is_stranger(self) -> bool: ...
    def abort(self, reason: str) -> None: ...


class Strangers:
    """Those of each host in the order in which they came. Who is known by now is forgotten when somebody looks for
    room.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._of_host: dict[str, dict[Stranger, None]] = {}
        self._count = 0

    def add(self, one: Stranger) -> Stranger | None:
        """-> who has to go for it: of the host that has most of them, the one that is a stranger for longest."""
        leaving = self._longest() if self._count >= self.most else None
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
        """Forgotten here; None: there was room, as others had become known meanwhile."""
        while self._count >= self.most:
            of_host = max(self._of_host.values(), key=len)
            one = next(iter(of_host))
            self._forget(one, of_host)
            if one.is_stranger and not one.closed:
                return one
        return None
