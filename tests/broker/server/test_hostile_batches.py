"""No batch that a client can produce, or could while less was looked at, ends the broker or another's connection."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.errors import BrokerError
from broker.log.validation import AppendOrigin
from broker.server import Server
from broker.wire.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, pack_header
from broker.wire.compression import Compression, compress
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire.varint import varint
from tests.broker.running import TIMEOUT_MS, running_server
from tests.broker.wire_client import WireClient, batch_of, connect, values_in

NOW_MS = 1_700_000_000_000
LONG_MAX = 2**63 - 1
CONFIGS = {
    "cleanup_policy": "compact,delete",
    "segment_bytes": "300",
    "retention_ms": "-1",
    "min_cleanable_dirty_ratio": "0",
    "message_timestamp_after_max_ms": str(LONG_MAX),
}
longs = st.one_of(
    st.sampled_from([0, -1, 1, NOW_MS, LONG_MAX, LONG_MAX - 3, -(2**63), -(2**63) + 2, 2**62]),
    st.integers(-(2**63), LONG_MAX),
)
deltas = st.one_of(st.integers(0, 3), st.sampled_from([-1, -64, 63, 2**31, 2**60, LONG_MAX, -(2**63)]))
sized = st.one_of(st.none(), st.binary(max_size=6))


def sized_bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record, mostly well formed, with times, offsets and headers from anywhere."""
    body = b"\x00" + varint(draw(deltas)) + varint(draw(deltas)) + sized_bytes(draw(sized)) + sized_bytes(draw(sized))
    headers = draw(st.lists(st.tuples(sized, sized), max_size=2))
    body += varint(len(headers)) + b"".join(sized_bytes(name) + sized_bytes(value) for name, value in headers)
    return varint(len(body) + draw(st.sampled_from([0, 0, 0, 1, -1]))) + body


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    """A batch with a CRC that fits and anything else in it."""
    count = draw(st.integers(1, 4))
    data = draw(st.one_of(st.lists(records(), min_size=count, max_size=count).map(b"".join), st.binary(max_size=40)))
    codec = draw(st.sampled_from([Compression.NONE, Compression.NONE, *Compression]))
    body = compress(codec, data) if draw(st.booleans()) else data
    batch = bytearray(HEADER_BYTES) + body
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - LOG_OVERHEAD,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=int(codec) | draw(st.sampled_from([0, 0, 0, 8])),
        last_offset_delta=count - 1,
        base_timestamp=draw(longs),
        max_timestamp=draw(longs),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    pack_header(batch, header)
    return batch


async def read_everything(client: WireClient) -> None:
    """Every handler that reads the log gives an answer on this one connection."""
    times = [-1, -2, -3, 0, NOW_MS, LONG_MAX]
    for time in times:
        asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, time)])
        for isolation_level in (0, 1):
            await client.ask(ListOffsetsRequest(-1, isolation_level, [asked]), 7, ListOffsetsResponse)
    for offset in (0, 1, 5):
        await client.fetch("t", offset)
        await client.fetch("t", offset, isolation_level=1)
    await client.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0, DescribeProducersResponse)
    epochs = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])
    await client.ask(OffsetForLeaderEpochRequest(-2, [epochs]), 4, OffsetForLeaderEpochResponse)


async def upkeep(server: Server) -> None:
    """What happens by time alone, now. Whatever it raises would have ended the broker."""
    partition = server.broker.require_partition("t", 0)
    partition.log.enforce_retention()
    for _ in range(5):
        partition.log.compact()
    assert not partition.log.compact(), "a pass that never comes to an end"


async def trial(folder: Path, hostile: list[bytearray]) -> None:
    async with running_server(folder) as server, connect(server.address) as client:
        await client.create_topic("t", 1, **CONFIGS)
        partition = server.broker.require_partition("t", 0)
        for batch in hostile:
            answer = await client.produce("t", bytes(batch))
            if answer.error_code:
                # An earlier version may have let it in.
                try:
                    partition.log.append(bytearray(batch), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
                except BrokerError:
                    continue
        await read_everything(client)
        for number in range(3):
            good = await client.produce("t", batch_of(f"good {number}", key=b"good", timestamp=NOW_MS))
            assert good.error_code == 0
        await upkeep(server)
        await read_everything(client)
        request = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])], 1000)
        await client.ask(request, 2, DeleteRecordsResponse)
        await read_everything(client)
    async with running_server(folder) as server, connect(server.address) as client:
        await read_everything(client)
        await upkeep(server)
        end = server.broker.require_partition("t", 0).log.log_end_offset
        assert values_in(await client.fetch("t", end - 1)) == ["good 2"]


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(batches(), min_size=1, max_size=4))
def test_no_batch_ends_a_connection_or_the_broker(hostile: list[bytearray]) -> None:
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(trial(Path(folder), hostile))
    finally:
        logging.disable(logging.NOTSET)


def test_a_damaged_partition_is_offline_and_the_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running_server(tmp_path) as server, connect(server.address) as client:
            for topic in ("whole", "broken"):
                await client.create_topic(topic, segment_bytes="300")
                for number in range(8):
                    await client.produce(topic, batch_of(f"{number}" + "x" * 100))
            server.broker.require_partition("broken", 0).log.flush()
        oldest = min((tmp_path / "broken-0").glob("*.log"))
        oldest.with_suffix(".index").unlink()
        data = bytearray(oldest.read_bytes())
        data[80] ^= 1
        oldest.write_bytes(data)
        async with running_server(tmp_path) as server, connect(server.address) as client:
            assert len(values_in(await client.fetch("whole", 0))) > 0
            assert (await client.fetch("broken", 0)).error_code == 56
            assert (await client.produce("broken", batch_of("more"))).error_code == 56
            asked = ListOffsetsTopic("broken", [ListOffsetsPartition(0, -1, -1)])
            answer = await client.ask(ListOffsetsRequest(-1, 0, [asked]), 7, ListOffsetsResponse)
            assert answer.topics[0].partitions[0].error_code == 56
            await server.broker.topic_configs.alter("broken", lambda _: {"retention.ms": "1000"})
            await server.broker.controller.delete_topic("broken", TIMEOUT_MS)
            assert not (tmp_path / "broken-0").exists()
            await client.create_topic("broken")
            assert (await client.produce("broken", batch_of("new"))).error_code == 0

    asyncio.run(run())
    lines = [record.getMessage() for record in caplog.records if "broken-0 is offline" in record.getMessage()]
    assert len(lines) == 1
    assert ".log" in lines[0]


def test_a_deletion_removes_the_files_whatever_its_listeners_meet(tmp_path: Path) -> None:
    def fails(topic: str) -> None:
        raise BrokerError(f"{topic} is not let go")

    async def run() -> None:
        async with running_server(tmp_path) as server, connect(server.address) as client:
            await client.create_topic("t")
            server.broker.view.deletion_listeners.append(fails)
            with pytest.raises(BrokerError, match="not let go"):
                await server.broker.controller.delete_topic("t", TIMEOUT_MS)
            assert not (tmp_path / "t-0").exists()

    asyncio.run(run())


def test_a_lost_topic_id_takes_the_partition_offline_and_removes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_server(tmp_path) as server, connect(server.address) as client:
            await client.create_topic("t")
            await client.produce("t", batch_of("kept"))
        metadata = tmp_path / "t-0" / "partition.metadata"
        text = metadata.read_bytes()
        metadata.write_bytes(b"")
        async with running_server(tmp_path) as server, connect(server.address) as client:
            assert (await client.fetch("t", 0)).error_code == 56
        metadata.write_bytes(text)
        async with running_server(tmp_path) as server, connect(server.address) as client:
            assert values_in(await client.fetch("t", 0)) == ["kept"]

    asyncio.run(run())


def test_a_partition_whose_folder_is_gone_is_offline_and_not_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running_server(tmp_path) as server, connect(server.address) as client:
            await client.create_topic("t")
            await client.produce("t", batch_of("lost"))
        shutil.rmtree(tmp_path / "t-0")
        async with running_server(tmp_path) as server, connect(server.address) as client:
            assert (await client.fetch("t", 0)).error_code == 56
            assert (await client.produce("t", batch_of("more"))).error_code == 56
            assert not (tmp_path / "t-0").exists()
            await server.broker.controller.delete_topic("t", TIMEOUT_MS)
            await client.create_topic("t")
            assert (await client.produce("t", batch_of("new"))).error_code == 0

    asyncio.run(run())
    lines = [record.getMessage() for record in caplog.records if "t-0 is offline" in record.getMessage()]
    assert len(lines) == 1
    assert str(tmp_path / "t-0") in lines[0]
