"""While one client's batches are looked at, the others wait for a few milliseconds at a time: counted in lines of
Python between two turns of the event loop, because the clock of a busy machine says little.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.controller.requests import NewTopic
from broker.limits import REQUEST_ITEMS_MAX
from broker.log.validation import AppendOrigin
from broker.wire.compression import Compression
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.bombs import NOW_MS, SHAPES, TURN_LINES_MAX, bomb, counted_turns
from tests.broker.running import TIMEOUT_MS, running_server
from tests.broker.wire_client import WireClient, batch_of, connect

MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP = 10, 87, 32


async def ask_times(client: WireClient, topic: str) -> list[int]:
    found = []
    for time in (-3, NOW_MS, NOW_MS + 1):
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, time)])
        answer = await client.ask(ListOffsetsRequest(-1, 0, [asked]), 7, ListOffsetsResponse)
        found.append(answer.topics[0].partitions[0].error_code)
    return found


@pytest.mark.parametrize("shape", ["many records", "more records than it says"])
@pytest.mark.parametrize("raw", [False, True])
async def test_a_bomb_is_refused_and_nobody_waits_for_it(tmp_path: Path, shape: str, raw: bool) -> None:
    records, count = SHAPES[shape]()
    codec = Compression.SNAPPY if raw else Compression.ZSTD
    hostile = bomb(codec, records, count, raw=raw)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("compacted", cleanup_policy="compact")
        await client.create_topic("gzip", compression_type="gzip")
        await client.create_topic("young", message_timestamp_before_max_ms="1")
        async with counted_turns() as turns:
            codes = [(await client.produce(topic, hostile)).error_code for topic in ("compacted", "gzip", "young")]
        assert turns.longest < TURN_LINES_MAX
        assert set(codes) <= {MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, 2}
        if shape != "more records than it says":
            assert codes[0] == MESSAGE_TOO_LARGE, "what Kafka's producer splits and sends again"
        assert (await client.produce("compacted", batch_of("good", key=b"k"))).base_offset == 0


async def test_a_batch_that_takes_long_and_is_whole_is_taken(tmp_path: Path) -> None:
    good = batch_of(*["v"] * 20_000, key=b"k", compression=Compression.LZ4)
    async with running_server(tmp_path, record_validation="full") as server, connect(server.address) as client:
        await client.create_topic("compacted", cleanup_policy="compact", compression_type="zstd")
        async with counted_turns() as turns:
            answer = await client.produce("compacted", good)
            assert await ask_times(client, "compacted") == [0, 0, 0]
        assert answer.error_code == 0
        assert turns.longest < TURN_LINES_MAX
        assert server.broker.require_partition("compacted", 0).log.log_end_offset == 20_000


async def test_the_times_of_a_log_with_a_bomb_in_it_hold_nobody_up(tmp_path: Path) -> None:
    """Where nothing has to be opened it is taken in, as by Kafka without a look at its records."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        records, count = SHAPES["many records"]()
        assert (await client.produce("t", bomb(Compression.ZSTD, records, count))).error_code == 0
        log = server.broker.require_partition("t", 0).log
        log.append(bomb(Compression.ZSTD, records, 1), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        async with counted_turns() as turns:
            assert await ask_times(client, "t") == [0, 0, 0]
        assert turns.longest < TURN_LINES_MAX
        await client.produce("t", batch_of("after", timestamp=NOW_MS + 7))
        asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, NOW_MS + 1)])
        answer = await client.ask(ListOffsetsRequest(-1, 0, [asked]), 7, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].offset == count + 1


async def test_a_topic_deleted_while_its_batch_is_looked_at_takes_nothing(tmp_path: Path) -> None:
    good = batch_of(*["v"] * 20_000, key=b"k")
    async with running_server(tmp_path) as server, connect(server.address) as one, connect(server.address) as other:
        await one.create_topic("t", cleanup_policy="compact")
        opening = asyncio.Event()

        async def held() -> None:
            async with server.broker.openings._turn:
                opening.set()
                while not any(connection.busy for connection in server.connections):
                    await asyncio.sleep(0)
                await server.broker.controller.delete_topic("t", TIMEOUT_MS)
                await server.broker.controller.create_topic(NewTopic("t", 1), TIMEOUT_MS)

        holding = asyncio.create_task(held())
        await opening.wait()
        answer = await other.produce("t", good)
        await holding
        assert answer.error_code == 3
        assert server.broker.require_partition("t", 0).log.log_end_offset == 0


async def test_a_request_of_many_elements_is_answered_and_one_of_too_many_is_not(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client, connect(server.address) as other:
        for count in (10, 20_000):
            names = [MetadataRequestTopic(name=f"t{number}") for number in range(count)]
            request = MetadataRequest(names, allow_auto_topic_creation=False)
            answer = await client.ask(request, 12, MetadataResponse)
            assert {topic.error_code for topic in answer.topics} == {3}
            assert len(answer.topics) == count
        await client.send(MetadataRequest([MetadataRequestTopic(name="")] * (REQUEST_ITEMS_MAX + 1)), 12)
        assert await client.is_closed()
        await other.create_topic("t")
        assert (await other.produce("t", batch_of("good"))).error_code == 0
