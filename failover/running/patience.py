"""Asking again what may be repeated, while other brokers take over from one that died in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.client.errors import ClientError
from failover.limits import DRAIN_POLL_S, TAKEN_OVER_S

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Asked again while brokers take over from one that went: what may be repeated. Raises ClientError."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TAKEN_OVER_S
    while True:
        try:
            return await ask()
        except ClientError as error:
            if not error.retriable or loop.time() > deadline:
                raise
        await asyncio.sleep(DRAIN_POLL_S)


async def uncounted(limit: asyncio.Timeout, work: Callable[[], Awaitable[None]]) -> None:
    """What is waited for at another site than the one that has the time of `limit`, amid what that does."""
    loop, when_s = asyncio.get_running_loop(), limit.when()
    began_s = loop.time()
    limit.reschedule(None)
    await work()
    limit.reschedule(None if when_s is None else when_s + loop.time() - began_s)
