"""Clients beyond their quotas, at Apache Kafka 3.9 and 4.3 and at our broker: as long held back, and nothing lost."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer, ThrottleEvent

from broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaAlteration,
)
from broker.wire.messages.describe_client_quotas import EntityData
from broker.wire.messages.fetch import FetchResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.produce import ProduceResponse
from broker.wire.schema import Message
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request, produce_request
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.interop.test_clients_confluent import TIMEOUT_S, consumer, read

LIMIT = 50_000
PART = 1.2
"""Of what may come in ten seconds: so that a client rests for two."""
NEAR_MS = 300
"""Of two seconds: a fetch's rest hangs on when in a second it comes."""


@dataclass(frozen=True)
class Held:
    """What a broker told its client, and how long it then did not answer."""

    told_ms: int
    next_after_ms: float


async def limit(client: WireClient, who: dict[str, str | None], **values: float) -> None:
    ops = [OpData(key, value) for key, value in values.items()]
    entity = [EntityData(kind, name) for kind, name in who.items()]
    request = AlterClientQuotasRequest([QuotaAlteration(entity, ops)])
    answer = await client.ask(request, 1, AlterClientQuotasResponse)
    assert [entry.error_code for entry in answer.entries] == [0], answer


async def asked(client: WireClient, client_id: str, request: Message, version: int) -> Message:
    await client.send(request, version, client_id)
    return (await client.receive(type(request).API_KEY, version))[1]


async def held(client: WireClient, client_id: str, answer: ProduceResponse | FetchResponse) -> Held:
    began = time.monotonic()
    assert isinstance(await asked(client, client_id, MetadataRequest([]), 12), MetadataResponse)
    return Held(answer.throttle_time_ms, (time.monotonic() - began) * 1000)


async def until_limited(address: str, topic: str, name: str, **values: float) -> None:
    """Kafka's brokers hear of a quota behind its answer: another client of the same default shows it."""
    async with connect(address) as client:
        await limit(client, {"client-id": name}, **values)
        await limit(client, {"client-id": f"{name}-probe"}, producer_byte_rate=1)
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            async with connect(address) as client:
                answer = await asked(client, f"{name}-probe", produce_request(topic, batch_of("x")), 9)
                assert isinstance(answer, ProduceResponse)
                if answer.throttle_time_ms:
                    return
            await asyncio.sleep(0.05)


async def writes(address: str, name: str) -> Held:
    async with connect(address) as client:
        await client.create_topic(name)
        await until_limited(address, name, name, producer_byte_rate=LIMIT)
        batch = batch_of("x" * int(LIMIT * 10 * PART))
        answer = await asked(client, name, produce_request(name, batch), 9)
        assert isinstance(answer, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return await held(client, name, answer)


async def reads(address: str, name: str) -> Held:
    async with connect(address) as client:
        await client.create_topic(name)
        batch = batch_of(
            "x" * int(LIMIT * 10 * PART / 2), timestamp=time.time_ns() // 1_000_000
        )  # else retention takes it
        for _ in range(2):
            assert (await client.produce(name, batch)).error_code == 0
        await until_limited(address, name, name, consumer_byte_rate=LIMIT)
        first, second = [
            await asked(client, name, fetch_request(name, offset, partition_max_bytes=len(batch)), 12)
            for offset in range(2)
        ]
        assert isinstance(first, FetchResponse)
        assert isinstance(second, FetchResponse)
        assert first.throttle_time_ms == 0
        assert second.responses == []
        return await held(client, name, second)


@pytest.mark.parametrize("way", [writes, reads], ids=["writes", "reads"])
@pytest.mark.parametrize("of", ["kafka_39", "kafka_43"])
async def test_who_is_too_fast_rests_as_long_as_at_kafka(
    request: pytest.FixtureRequest, shared_broker: FarshoreBroker, of: str, way: Callable[[str, str], Awaitable[Held]]
) -> None:
    kafka: KafkaServer = request.getfixturevalue(of)
    name = f"quota-{uuid.uuid4().hex[:8]}"
    theirs, ours = await asyncio.gather(way(kafka.bootstrap, name), way(shared_broker.bootstrap, name))
    assert abs(theirs.told_ms - ours.told_ms) < NEAR_MS, (theirs, ours)
    for one in (theirs, ours):
        assert one.told_ms > NEAR_MS
        assert one.next_after_ms > one.told_ms / 2, "it is not read from meanwhile"


async def test_librdkafka_is_slowed_and_loses_nothing(shared_broker: FarshoreBroker) -> None:
    name, told = f"quota-{uuid.uuid4().hex[:8]}", list[ThrottleEvent]()
    records = [f"{number:05}" + "x" * 1000 for number in range(int(LIMIT * 10 * PART / 1000))]
    async with connect(shared_broker.bootstrap) as client:
        await client.create_topic(name)
        await limit(client, {"client-id": name}, producer_byte_rate=LIMIT, consumer_byte_rate=LIMIT)
    settings = {"bootstrap.servers": shared_broker.bootstrap, "client.id": name}
    producer = Producer({**settings, "batch.size": 50_000, "throttle_cb": told.append})
    for record in records:
        producer.produce(name, record.encode())
    assert await asyncio.to_thread(producer.flush, TIMEOUT_S) == 0
    assert told
    assert max(event.throttle_time for event in told) > 0
    source = consumer(shared_broker.bootstrap, name, **settings)
    source.subscribe([name])
    found = await asyncio.to_thread(read, source, len(records))
    source.close()
    assert [message.value().decode() for message in found] == records
