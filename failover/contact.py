"""Whether a site lives: which of its brokers answered, and when. Slow is not dead, and neither is a part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.base.address import Address
from broker.client.cluster import Cluster
from broker.client.connection import connect
from broker.client.errors import ClientError, ConnectionLost
from broker.client.limits import ClientLimits
from broker.client.site import Site
from failover.limits import RECONNECT_PAUSE_S, REFUSED_MS, SOURCE_ANSWER_MS, SOURCE_PROBE_MS

CLIENT_ID = "farshore-failover"
SOURCE_LIMITS = ClientLimits(
    connect_timeout_ms=SOURCE_ANSWER_MS,
    request_timeout_ms=SOURCE_ANSWER_MS,
    delivery_timeout_ms=SOURCE_ANSWER_MS,
    retry_timeout_ms=SOURCE_ANSWER_MS,
)


class SiteFinding(StrEnum):
    """What was found of a site."""

    ALIVE = "alive"
    PARTLY_THERE = "partly_there"
    """Something of it answered, and something that was asked of it did not."""
    DEAD = "dead"
    """No broker of it answered anything within SOURCE_PROBE_MS."""


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """What came of calling a broker at `asked_at_ms` (Unix time); `error` is "" where it answered within `seconds`."""

    address: str
    asked_at_ms: int
    seconds: float
    error: str = ""

    @property
    def answered(self) -> bool:
        return not self.error


async def call_brokers(addresses: Iterable[Address], now_ms: Callable[[], int]) -> tuple[BrokerAnswer, ...]:
    """Call each of these, all at the same time -> what came of it, in the order of their addresses."""
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(_call(address, now_ms)) for address in sorted(set(addresses))]
    return tuple(call.result() for call in calls)


async def _call(address: Address, now_ms: Callable[[], int]) -> BrokerAnswer:
    """A refused connection is tried again for a while, for a broker that is being started; silence is waited for."""
    loop = asyncio.get_running_loop()
    asked_at_ms, started_s = now_ms(), loop.time()
    error = ""
    try:
        async with asyncio.timeout(SOURCE_PROBE_MS / 1000):
            while True:
                try:
                    connection = await connect(address, client_id=CLIENT_ID, limits=SOURCE_LIMITS)
                    await connection.close()
                    break
                except ConnectionLost as lost:
                    if loop.time() - started_s >= REFUSED_MS / 1000:
                        raise
                    error = str(lost)
                await asyncio.sleep(RECONNECT_PAUSE_S)
            error = ""
    except ClientError as failure:
        error = str(failure)
    except TimeoutError:
        error = error or f"no answer within {SOURCE_PROBE_MS / 1000:g} s"
    return BrokerAnswer(str(address), asked_at_ms, loop.time() - started_s, error)


async def reach(
    stack: AsyncExitStack, site: Site, now_ms: Callable[[], int]
) -> tuple[Cluster | None, tuple[BrokerAnswer, ...]]:
    """The site's cluster, entered by a bootstrap server that answers, and what each said; None where none does."""
    answers = await call_brokers(site.bootstrap_addresses(), now_ms)
    living = [answer.address for answer in answers if answer.answered]
    if not living:
        return None, answers
    reached = replace(site, bootstrap_servers=",".join(living))
    try:
        return await stack.enter_async_context(Cluster(reached, client_id=CLIENT_ID, limits=SOURCE_LIMITS)), answers
    except ClientError:
        return None, answers


async def call_site(cluster: Cluster, now_ms: Callable[[], int]) -> tuple[BrokerAnswer, ...]:
    """Call every broker that is known of the site."""
    site = cluster.site
    nodes = {site.dial(node.host, node.port) for node in cluster.nodes.values()}
    return await call_brokers({*site.bootstrap_addresses(), *nodes}, now_ms)
