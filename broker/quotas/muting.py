"""A connection that is not read from for a while, because its client went beyond a quota (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.quotas.client_quotas import ClientQuota
from broker.wire.schema import Message


class Muted:
    """True while it is; `changed` is called when it begins and when it is over."""

    __slots__ = ("_changed", "_count")

    def __init__(self, changed: Callable[[], None]) -> None:
        self._count, self._changed = 0, changed

    def __bool__(self) -> bool:
        return self._count > 0

    def note(self, quota: ClientQuota, api_key: int, size_bytes: int, response: Message | None) -> None:
        """What was asked for by so many bytes, and is answered now."""
        if rest_ms := quota.answered(api_key, size_bytes, response):
            self._count += 1
            asyncio.get_running_loop().call_later(rest_ms / 1000, self._end)
            self._changed()

    def _end(self) -> None:
        self._count -= 1
        self._changed()
