"""A source that was found dead is called on until it is failed over from: whoever answers before that lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from failover.errors import WorldChanged
from failover.observing.contact import BrokerAnswer, SourceCalls
from failover.observing.seen_by_worker import WorkersSight


class SourceHeard(WorldChanged):
    """A source that was found dead answered before the fence; nothing was changed."""

    def __init__(self, source: str, brokers: Sequence[str], links: Sequence[str]) -> None:
        """`brokers`: those that answered; `links`: whose workers see it."""
        workers = [f"the worker of {link}" for link in links]
        who = " and ".join([*brokers, *workers])
        super().__init__(
            f"{source} was found dead, and is not: by now it answers ({who}); nothing was changed",
            hint="look again with --dry-run: it may be slow, or be coming back",
        )


@dataclass(frozen=True, slots=True)
class HeldSilence:
    """Of the source of this name. `watching`: the task by which the links' workers are asked."""

    source: str
    calls: SourceCalls
    sight: WorkersSight
    watching: asyncio.Task[None]

    async def hold(self) -> tuple[BrokerAnswer, ...]:
        """Wait until it has lasted for SOURCE_SILENT_MS, but where connections are refused, and no worker is about to
        say more -> what came of the calls. Raises SourceHeard.
        """
        heard = [answer.address for answer in await self.calls.heard_since()]
        if not heard:
            await self.sight.settle(self.calls.last_call_ends_s)
        if self.watching.done():
            self.watching.result()
        if heard or self.sight.links:
            raise SourceHeard(self.source, heard, self.sight.links)
        return self.calls.so_far


@asynccontextmanager
async def held_silence(source: str, calls: SourceCalls, sight: WorkersSight) -> AsyncIterator[HeldSilence]:
    """While the context is open. What goes wrong with the calls is told where the silence is held, and stops nothing
    behind that.
    """
    task = asyncio.create_task(sight.watch())
    try:
        yield HeldSilence(source, calls, sight, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
