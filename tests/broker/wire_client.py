"""A client as bare as can be: frames out, frames in, in the order of the wire."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from broker.wire.batch import iter_batches
from broker.wire.frames import RequestHeader, decode_response, encode_request
from broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.schema import Message

DEADLINE_SECONDS = 60.0
M = TypeVar("M", bound=Message)


class WireClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._sent = 0

    async def send(self, request: Message, version: int, client_id: str = "test") -> int:
        """-> the correlation id."""
        self._sent += 1
        header = RequestHeader(type(request).API_KEY, version, self._sent, client_id)
        self.writer.write(b"".join(encode_request(header, request)))
        await self.writer.drain()
        return self._sent

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive_frame(self) -> bytes:
        """Raises IncompleteReadError when the broker closes the connection."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            (size_bytes,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size_bytes)

    async def receive(self, key: int, version: int) -> tuple[int, Message]:
        return decode_response(key, version, await self.receive_frame())

    async def ask(self, request: Message, version: int, answer: type[M]) -> M:
        sent = await self.send(request, version)
        correlation_id, response = await self.receive(type(request).API_KEY, version)
        assert correlation_id == sent
        assert isinstance(response, answer)
        return response

    async def is_closed(self) -> bool:
        """Waits for the broker to close the connection; False when it sends something instead."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return not await self.reader.read(1)
        except ConnectionError:
            return True

    # -- what nearly every test does ---------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        assert await self.try_create_topic(name, partitions, **configs) == 0

    async def try_create_topic(self, name: str, partitions: int = 1, **configs: str) -> int:
        """The error code of the answer."""
        given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=given)])
        return (await self.ask(request, 7, CreateTopicsResponse)).topics[0].error_code

    async def produce(
        self,
        topic: str,
        batch: bytes | bytearray,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, batch, partition=partition, acks=acks, transactional_id=transactional_id)
        return (await self.ask(request, version, ProduceResponse)).responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, *, version: int = 12, **fields: int) -> PartitionData:
        request = fetch_request(topic, offset, **fields)
        return (await self.ask(request, version, FetchResponse)).responses[0].partitions[0]


def batch_of(*values: str, key: bytes | None = None, timestamp: int = 1_600_000_000_000, **fields: Any) -> bytearray:
    records = [Record(0, timestamp + i, key, value.encode()) for i, value in enumerate(values)]
    return encode_batch(records, **fields)


def produce_request(
    topic: str,
    batch: bytes | bytearray,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = TopicProduceData(topic, [PartitionProduceData(partition, memoryview(batch))])
    return ProduceRequest(transactional_id, acks, 30_000, [data])


def fetch_request(topic: str, offset: int, **fields: Any) -> FetchRequest:
    """`fields` of the request or of its one partition, by their names."""
    of_partition = {name: fields.pop(name) for name in list(fields) if name in FetchPartition.__dataclass_fields__}
    asked = FetchPartition(fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **of_partition})
    return FetchRequest(topics=[FetchTopic(topic, [asked])], **{"max_wait_ms": 0, "min_bytes": 1, **fields})


def values_in(data: PartitionData) -> list[str]:
    """The values of all records, prefix of the first batch included."""
    found = []
    assert data.records is not None
    assert isinstance(data.records, memoryview)
    for header, batch in iter_batches(data.records):
        if not header.is_control:
            found += [(record.value or b"").decode() for record in decode_records(batch)]
    return found


@asynccontextmanager
async def connect(address: str, from_host: str | None = None) -> AsyncIterator[WireClient]:
    host, port = address.rsplit(":", 1)
    local = None if from_host is None else (from_host, 0)
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=local)
    try:
        yield WireClient(reader, writer)
    finally:
        writer.close()
        # The broker may have closed it first: that is what some tests are about.
        with suppress(ConnectionError):
            await writer.wait_closed()
