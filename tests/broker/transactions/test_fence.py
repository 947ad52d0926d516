"""The takeover fence over the wire, request by request, in the versions that Kafka 3.9 to 4.3 also understands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader, decode_response, encode_request
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.records import Record, encode_batch
from tests.broker.conftest import running_broker

TRANSACTIONAL_ID = "farshore-east-west"
DEADLINE_SECONDS = 60


class Client:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, request: Any, version: int) -> Any:
        header = RequestHeader(request.API_KEY, version, 1, "test")
        self._writer.writelines(encode_request(header, request))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return decode_response(request.API_KEY, version, await self._reader.readexactly(size))[1]

    async def init(self) -> tuple[int, int]:
        made = await self.ask(InitProducerIdRequest(TRANSACTIONAL_ID, 60_000), 1)
        assert made.error_code == ErrorCode.NONE
        return made.producer_id, made.producer_epoch

    async def fence(self, producer: tuple[int, int], partitions: list[int]) -> None:
        topics = [AddPartitionsToTxnTopic("flights", partitions)]
        added = await self.ask(AddPartitionsToTxnRequest(TRANSACTIONAL_ID, *producer, topics), 0)
        results = added.results_by_topic_v3_and_below[0].results_by_partition
        assert [r.partition_error_code for r in results] == [ErrorCode.NONE] * len(partitions)
        ended = await self.ask(EndTxnRequest(TRANSACTIONAL_ID, *producer, False), 0)
        assert ended.error_code == ErrorCode.NONE

    async def produce(self, producer: tuple[int, int], partition: int, sequence: int) -> tuple[ErrorCode, int]:
        """One plain idempotent batch -> (error code, base offset)."""
        batch = encode_batch(
            [Record(0, 1_357_000_000_000, b"UA", b"flight")],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        data = [TopicProduceData("flights", [PartitionProduceData(partition, batch)])]
        done = await self.ask(ProduceRequest(None, -1, 30_000, data), 7)
        answer = done.responses[0].partition_responses[0]
        return ErrorCode.of(answer.error_code), answer.base_offset


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_after_the_marker_the_old_owner_is_refused_everywhere(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with running_broker(tmp_path) as address, connected(address) as client:
            await client.ask(CreateTopicsRequest([CreatableTopic("flights", 2, 1)]), 2)
            old = await client.init()
            assert await client.produce(old, 0, 0) == (ErrorCode.NONE, 0)
            new = await client.init()
            assert new == (old[0], old[1] + 1)
            assert await client.produce(old, 0, 1) == (ErrorCode.NONE, 1), "before the marker it still lands"
            await client.fence(new, [0, 1])
            assert (await client.produce(old, 0, 2))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await client.produce(old, 1, 0))[0] is ErrorCode.INVALID_PRODUCER_EPOCH, "it never wrote here"
            owner = await client.init()
            assert owner == (old[0], old[1] + 2)
            assert (await client.produce(owner, 0, 3))[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert await client.produce(owner, 0, 0) == (ErrorCode.NONE, 3), "the marker took offset 2"
            assert await client.produce(owner, 1, 0) == (ErrorCode.NONE, 1)
            assert await client.produce(owner, 0, 0) == (ErrorCode.NONE, 3), "a repeat is answered, not written"
        async with running_broker(tmp_path) as address, connected(address) as client:
            assert (await client.produce(old, 1, 0))[0] is ErrorCode.INVALID_PRODUCER_EPOCH, "also after a restart"
            assert (await client.produce(new, 1, 0))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
            assert await client.produce(owner, 0, 1) == (ErrorCode.NONE, 4)
            assert await client.init() == (old[0], old[1] + 3)
