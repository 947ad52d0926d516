"""Asking brokers of which one takes connections and is silent, or slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import KafkaError, RequestTimedOut
from broker.client.fanout import ask_each_broker, both, side_by_side
from broker.client.limits import ClientLimits
from broker.client.site import Site
from broker.wire.errors import ErrorCode
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


async def test_who_is_stopped_in_the_moment_in_which_a_question_fails_stops() -> None:
    """A pass over groups that was stopped so went on, and waited for ever for who writes the state, who had stopped."""
    fails = asyncio.Event()

    async def failing() -> None:
        await fails.wait()
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a test")

    async def two_questions() -> None:
        await both(failing(), asyncio.sleep(60))

    async def several_questions() -> None:
        await side_by_side([failing(), asyncio.sleep(60)])

    for ask in (two_questions, several_questions):
        fails.clear()
        asking = asyncio.create_task(ask())
        for _ in range(2):  # until all are asked
            await asyncio.sleep(0)
        fails.set()
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()


async def test_who_has_heard_of_a_failure_hears_of_the_next_one() -> None:
    """The first one has counted as a stop of the task, in Python 3.11, and goes on counting."""

    async def failing() -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a test")

    for _ in range(3):
        with pytest.raises(KafkaError):
            await both(failing(), asyncio.sleep(60))
        with pytest.raises(KafkaError):
            await side_by_side([failing(), asyncio.sleep(60)])
