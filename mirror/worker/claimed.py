"""The heartbeat of who has claimed a link and has not opened it yet: a fence may wait, and logs that are many or far
take their time to be compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from broker.base.clock import Clock
from broker.base.errors import first_of
from broker.client.errors import ClientError
from mirror.errors import LinkFenced
from mirror.offsets.entries import Owner
from mirror.offsets.state_writer import StateLog


@asynccontextmanager
async def beating(log: StateLog, owner: Owner, clock: Clock, interval_ms: int) -> AsyncIterator[None]:
    """While the context is open the owner says in the link's state that it lives; nobody else may write to `log`
    meanwhile. Where one cannot be written there are no more, and `log.settle` comes before the next append: what keeps
    it from being written is told by what the opening itself does.
    """
    turn = asyncio.Lock()
    try:
        async with asyncio.TaskGroup() as tasks:
            beats = tasks.create_task(_beat(log, owner, clock, interval_ms, turn))
            yield
            async with turn:  # of one that is cut off nobody would know whether it is there
                beats.cancel()
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None


async def _beat(log: StateLog, owner: Owner, clock: Clock, interval_ms: int, turn: asyncio.Lock) -> None:
    with suppress(ClientError, LinkFenced):
        while True:
            await clock.sleep(interval_ms / 1000)
            async with turn:
                await log.append([replace(owner, at_ms=clock.now_ms())])
