"""A connection that is not read from for a while, because its client went beyond a quota (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.quotas.client_quotas import ClientQuota
from broker.wire.schema import Message


class Muted:
    """True while it is; `changed` is called when it begins and when it is over."""

    __slots__ = ("_changed", "_timer", "_until")

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return self._timer is not None

    def note(self, quota: ClientQuota, api_key: int, size_bytes: int, response: Message | None) -> None:
        """What was asked for by so many bytes, and is answered now."""
        if rest_ms := quota.answered(api_key, size_bytes, response):
            loop = asyncio.get_running_loop()
            self._until = max(self._until, loop.time() + rest_ms / 1000)
            if self._timer is None:
                self._timer = loop.call_at(self._until, self._look)
                self._changed()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        # Another request may have been answered meanwhile.
        self._timer = loop.call_at(self._until, self._look) if loop.time() < self._until else None
        if self._timer is None:
            self._changed()

    def end(self) -> None:
        """With the connection, of which it keeps nothing."""
        self._changed = _nothing
        if self._timer is not None:
            self._timer.cancel()


def _nothing() -> None:
    pass
