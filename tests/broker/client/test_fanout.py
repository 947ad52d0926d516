"""Asking brokers of which one takes connections and is silent, or slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import RequestTimedOut
from broker.client.fanout import ask_each_broker
from broker.client.limits import ClientLimits
from broker.client.site import Site
from broker.wire.frames import RequestHeader
from broker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from broker.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from broker.wire.schema import Message
from tests.broker.client.peer import peer

HOUR_MS = 3_600_000
LIMITS = ClientLimits(connect_timeout_ms=HOUR_MS, request_timeout_ms=HOUR_MS, retry_timeout_ms=HOUR_MS)
SLOW, QUICK = 1, 2


@dataclass
class Pair:
    """Two brokers, of which the first one answers nothing until it is woken."""

    cluster: Cluster
    woken: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    woken, brokers = asyncio.Event(), list[MetadataResponseBroker]()

    async def answer(_: RequestHeader, message: Message) -> Message:
        if isinstance(message, DescribeAclsRequest):
            return DescribeAclsResponse()
        return MetadataResponse(brokers=brokers, cluster_id="pair", controller_id=QUICK)

    async def slowly(header: RequestHeader, message: Message) -> Message:
        await woken.wait()
        return await answer(header, message)

    async with AsyncExitStack() as stack:
        for node_id, how in ((SLOW, slowly), (QUICK, answer)):
            address = await stack.enter_async_context(peer(how))
            brokers.append(MetadataResponseBroker(node_id, address.host, address.port))
        cluster = Cluster(Site("east", str(address)), limits=LIMITS)
        stack.callback(woken.set)
        yield Pair(await stack.enter_async_context(cluster), woken)


async def describe(connection: Connection) -> bool:
    answer = await connection.request(DescribeAclsRequest(2, None, 3, None, None, 1, 1))
    return not answer.error_code


async def test_one_that_is_silent_holds_up_nobody_and_is_told() -> None:
    async with pair() as there:
        told = await ask_each_broker(there.cluster, describe, laggard_ms=1)
        assert told[QUICK] is True
        assert isinstance(told[SLOW], RequestTimedOut)
        assert str(told[SLOW]) == "broker 1: no answer within 0.001 s of the first broker of east"


async def test_one_that_is_slow_has_its_time() -> None:
    async with pair() as there:
        asking = asyncio.create_task(ask_each_broker(there.cluster, describe, laggard_ms=HOUR_MS))
        await describe(await there.cluster.connection(QUICK))
        assert not asking.done()
        there.woken.set()
        assert await asking == {SLOW: True, QUICK: True}


async def test_who_answers_is_found_beside_one_that_is_silent() -> None:
    """Those that are known were asked in turn, and the first was waited for."""
    async with pair() as there:
        await there.cluster.find_answering()
        assert await there.cluster.any_connection() is await there.cluster.connection(QUICK)
