"""A source that was found dead is called on until it is failed over from: whoever answers before that lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

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


@dataclass(eq=False, slots=True)
class HeldSilence:
    """Of the source of this name, for all links that leave it. `watching`: the task that asks their workers."""

    source: str
    calls: SourceCalls
    sight: WorkersSight
    watching: asyncio.Task[None]
    _deciding: asyncio.Task[tuple[BrokerAnswer, ...]] | None = field(default=None, init=False)

    async def hold(self) -> tuple[BrokerAnswer, ...]:
        """Wait until it has lasted for SOURCE_SILENT_MS (REFUSED_MS where hosts refuse), and no worker is about to say
        more -> what came of the calls. Raises SourceHeard. The first who asks decides for all: a site is
        left by all links or by none.
        """
        if self._deciding is None:
            self._deciding = asyncio.create_task(self._decide())
        return await asyncio.shield(self._deciding)  # who is cancelled here would take it from the others

    async def _decide(self) -> tuple[BrokerAnswer, ...]:
        heard = [answer.address for answer in await self.calls.heard_since()]
        if not heard:
            await self.sight.settle(self.calls.last_call_ends_s)
        if self.watching.done():
            self.watching.result()
        self.watching.cancel()  # nobody asks for more
        if heard or self.sight.links:
            raise SourceHeard(self.source, heard, self.sight.links)
        return self.calls.so_far

    async def aclose(self) -> None:
        """Ask nobody any more."""
        tasks = [task for task in (self.watching, self._deciding) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def held_silence(source: str, calls: SourceCalls, sight: WorkersSight) -> AsyncIterator[HeldSilence]:
    """While the context is open. What goes wrong with the calls is told where the silence is held, and stops nothing
    behind that.
    """
    async with aclosing(HeldSilence(source, calls, sight, asyncio.create_task(sight.watch()))) as silence:
        yield silence
