"""Running a member's share: what joins it is begun, what leaves it is ended and let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mirror.coordinator.model import Member, Share, Unit


async def serve_shares(member: Member, run: Callable[[Unit], Coroutine[Any, Any, None]]) -> None:
    """Run each unit for as long as it is in the member's share; `run` is cancelled when it leaves it.

    Returns when the share can change no more and every run has ended. A unit that comes back while its run still ends
    is begun when that is done: no unit runs twice. An error of `run` ends everything.
    """
    serving = _Serving(member, run)
    async with asyncio.TaskGroup() as tasks:
        async for share in member.shares():
            serving.follow(share, tasks)


class _Serving:
    def __init__(self, member: Member, run: Callable[[Unit], Coroutine[Any, Any, None]]) -> None:
        self._member = member
        self._run = run
        self._share: Share = frozenset()
        self._kept: set[Unit] = set()
        self._runs: dict[Unit, asyncio.Task[None]] = {}
        self._ended: set[Unit] = set()

    def follow(self, share: Share, tasks: asyncio.TaskGroup) -> None:
        self._share = share
        for unit, run in self._runs.items():
            if unit not in share:
                run.cancel()
        for unit in sorted(share - self._kept - self._ended):
            self._kept.add(unit)
            tasks.create_task(self._keep(unit))

    async def _keep(self, unit: Unit) -> None:
        """Until the unit is not in the share, or its run ended by itself."""
        if unit not in self._share:  # it left before this began
            await self._member.released(unit)
        while unit in self._share - self._ended:
            try:
                async with asyncio.TaskGroup() as tasks:  # what is cancelled in it alone does not cancel this task
                    self._runs[unit] = tasks.create_task(self._run(unit))
            finally:
                run = self._runs.pop(unit)
                await self._member.released(unit)
            if not run.cancelled():
                self._ended.add(unit)
        self._kept.discard(unit)
