"""Time limits on what is awaited: `asyncio.timeout` and `asyncio.timeout_at`, as they are since Python 3.11.3."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType


class _MendedTimeout(asyncio.Timeout):  # type: ignore[misc]  # final: all that is added here is what 3.11.3 has
    """Before 3.11.3 (Debian 12 has 3.11.2) a limit that passed is told from a stop by `cancelling()` being 0 again. But
    it stays raised in a task for ever where a task group failed, and while a task that was stopped cleans up: there the
    limit ended the work by a CancelledError, as if somebody had stopped it, instead of by a TimeoutError.
    """

    async def __aenter__(self) -> _MendedTimeout:
        self._stops_before = _stops()
        await super().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        if self.expired() and kind is asyncio.CancelledError and _stops() <= self._stops_before:
            raise TimeoutError from error


_Timeout: type[asyncio.Timeout] = asyncio.Timeout if sys.version_info >= (3, 11, 3) else _MendedTimeout


def timeout(delay_s: float | None) -> asyncio.Timeout:
    """TimeoutError where the body takes longer; None: no limit."""
    return _Timeout(None if delay_s is None else asyncio.get_running_loop().time() + delay_s)


def timeout_at(when_s: float | None) -> asyncio.Timeout:
    """As `timeout`, by the clock of the running loop."""
    return _Timeout(when_s)


def _stops() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
