"""Whether a link's worker sees the source that this machine calls in vain: then it is not dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from broker.base.errors import first_of
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from failover.limits import DRAIN_POLL_S, WORKER_LOOK_POLL_S
from mirror.api import LastLooks, Link


class WorkersSight:
    """What the workers of these links say of their source at the target, while it is called from here."""

    def __init__(self, links: Iterable[Link], target: Cluster) -> None:
        self._looks = {link.name: LastLooks(link, target) for link in links}

    @property
    def links(self) -> tuple[str, ...]:
        """Those whose source answered their worker since `watch` began."""
        return tuple(name for name, looks in self._looks.items() if looks.sees_source)

    async def settle(self, until_s: float) -> None:
        """While it is watched: wait for the next word of a worker of which one came that may be old, until that time of
        the event loop. A worker whose source is slow says little.
        """
        while any(looks.is_unsure for looks in self._looks.values()) and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(DRAIN_POLL_S)

    async def watch(self) -> None:
        """Until cancelled. What the target does not tell is asked again."""
        async with asyncio.TaskGroup() as tasks:
            for looks in self._looks.values():
                tasks.create_task(_follow(looks))


@asynccontextmanager
async def watching(sight: WorkersSight) -> AsyncIterator[None]:
    """It is watched while the context is open."""
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(sight.watch())
            try:
                yield
            finally:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None


async def _follow(looks: LastLooks) -> None:
    while True:
        with suppress(ClientError):
            await looks.read()
        await asyncio.sleep(WORKER_LOOK_POLL_S)
