from __future__ import annotations

import errno
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.controller.requests import NewTopic
from broker.log.disk import OS_DISK
from broker.wire.batch import pack_header, peek
from broker.wire.compression import Compression
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.broker.running import TIMEOUT_MS, running_broker, running_server
from tests.broker.wire_client import batch_of, connect, produce_request, values_in


@pytest.mark.parametrize("version", range(3, 12))
async def test_each_version_appends(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        for base_offset in (0, 2):
            answer = await client.produce("t", batch_of("a", "b"), version=version)
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, base_offset, -1)
        assert values_in(await client.fetch("t", 0)) == ["a", "b", "a", "b"]


async def test_the_bytes_are_kept_as_they_came(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        for codec in Compression:
            sent = batch_of("some text " * 100, compression=codec)
            answer = await client.produce("t", sent)
            got = (await client.fetch("t", answer.base_offset)).records
            assert isinstance(got, memoryview)
            # Base offset and leader epoch are the broker's; from the magic on nothing may change.
            assert bytes(got[16:]) == bytes(sent[16:])
            assert peek(got).base_offset == answer.base_offset


async def test_acks_0_is_not_answered_and_an_error_closes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.send(produce_request("t", batch_of("quiet"), acks=0), 9)
        assert (await client.produce("t", batch_of("loud"))).base_offset == 1
        await client.send(produce_request("nowhere", batch_of("x"), acks=0), 9)
        assert await client.is_closed()


async def test_each_partition_stands_for_itself(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", partitions=2)
        data = [PartitionProduceData(index, memoryview(batch_of(f"p{index}"))) for index in (1, 7, 0)]
        answer = await client.ask(ProduceRequest(None, 1, 1000, [TopicProduceData("t", data)]), 9, ProduceResponse)
        codes = {p.index: p.error_code for p in answer.responses[0].partition_responses}
        assert codes == {1: 0, 7: 3, 0: 0}


def corrupted(position: int) -> bytearray:
    batch = batch_of("value")
    batch[position] ^= 0xFF
    return batch


def with_count(count: int) -> bytearray:
    batch = batch_of("a", "b")
    pack_header(batch, peek(batch)._replace(record_count=count))
    return batch


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (corrupted(-1), 2),
        (with_count(5), 87),
        (batch_of("a") + batch_of("b"), 87),
        (b"", 87),
        (b"short", 87),
        (batch_of("a")[:-3], 87),
        (batch_of("a", base_offset=7), 87),
        (batch_of("x" * 2_000_000), 10),
        (batch_of("a", control=True), 87),
        (batch_of("future", timestamp=4_000_000_000_000), 32),
    ],
    ids=["crc", "count", "two batches", "nothing", "short", "cut", "base offset", "large", "control", "future"],
)
async def test_a_bad_batch_is_refused_with_kafkas_code(tmp_path: Path, batch: bytes, code: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        answer = await client.produce("t", batch)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert (await client.produce("t", batch_of("good"))).base_offset == 0


async def test_acks_are_checked(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", min_insync_replicas="2")
        assert (await client.produce("t", batch_of("a"), acks=5)).error_code == 21
        # One replica is all there can be in sync of one.
        assert (await client.produce("t", batch_of("a"), acks=-1)).error_code == 0
        partition = server.broker.require_partition("t", 0)
        partition.take_state(replace(partition.state, replicas=(1, 2, 3), isr=(1,)), now_ms=0)
        assert (await client.produce("t", batch_of("a"), acks=-1)).error_code == 19
        assert (await client.produce("t", batch_of("a"), acks=1)).error_code == 0


async def test_a_transactional_batch_needs_a_transactional_id(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        batch = batch_of("a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        assert (await client.produce("t", batch)).error_code == 53


async def test_formats_before_v2_are_refused_by_name(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        for magic in (0, 1):
            batch = batch_of("a")
            batch[16] = magic
            answer = await client.produce("t", batch)
            assert (answer.error_code, answer.log_start_offset) == (87, -1)
            assert f"v{magic}" in str(answer.error_message)


async def test_zstd_needs_v7(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        batch = batch_of("a", compression=Compression.ZSTD)
        assert (await client.produce("t", batch, version=6)).error_code == 76
        assert (await client.produce("t", batch, version=7)).error_code == 0


async def test_log_append_time_is_answered_and_kept(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", message_timestamp_type="LogAppendTime")
        answer = await client.produce("t", batch_of("a"))
        assert answer.log_append_time_ms > 1_700_000_000_000
        got = (await client.fetch("t", 0)).records
        assert isinstance(got, memoryview)
        assert peek(got).is_log_append_time
        assert peek(got).max_timestamp == answer.log_append_time_ms


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_a_topic_with_a_codec_of_its_own_recompresses(tmp_path: Path, codec: str) -> None:
    expected = Compression.NONE if codec == "uncompressed" else Compression[codec.upper()]
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", compression_type=codec)
        for sent in (Compression.NONE, Compression.ZSTD, Compression.GZIP):
            batch = batch_of("x" * 500, "y" * 500, compression=sent, producer_id=4, producer_epoch=0, base_sequence=0)
            answer = await client.produce("t", batch)
            # The same producer and sequence each time: only the first is appended, recompressed or not.
            assert (answer.error_code, answer.base_offset) == (0, 0)
        data = await client.fetch("t", 0)
        assert isinstance(data.records, memoryview)
        assert peek(data.records).compression is expected
        assert peek(data.records).producer_id == 4
        assert values_in(data) == ["x" * 500, "y" * 500]
        broken = batch_of("z" * 500, compression=Compression.SNAPPY if codec != "snappy" else Compression.LZ4)
        broken[-1] ^= 1
        assert (await client.produce("t", broken)).error_code == 2


async def test_a_keyless_record_in_a_compacted_topic_is_named(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", cleanup_policy="compact")
        answer = await client.produce("t", batch_of("a"))
        assert answer.error_code == 87
        assert [error.batch_index for error in answer.record_errors] == [0]
        assert (await client.produce("t", batch_of("a", key=b"k"))).error_code == 0


async def test_internal_topics_are_not_for_clients(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await server.broker.controller.create_topic(
            NewTopic("__consumer_offsets", 1, configs={"cleanup.policy": "compact"}), TIMEOUT_MS
        )
        assert (await client.produce("__consumer_offsets", batch_of("a", key=b"k"))).error_code == 17


async def test_transactional_records_without_a_transaction_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        batch = batch_of("a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        answer = await client.produce("t", batch, transactional_id="nobody")
        assert answer.error_code in (48, 49)
        assert (await client.fetch("t", 0)).high_watermark == 0


async def test_idempotence_holds_over_a_restart(tmp_path: Path) -> None:
    def batch(sequence: int, epoch: int = 0) -> bytearray:
        return batch_of(f"v{sequence}", producer_id=9, producer_epoch=epoch, base_sequence=sequence)

    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        for sequence in range(3):
            await client.produce("t", batch(sequence))
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert (await client.produce("t", batch(2))).base_offset == 2
        assert (await client.produce("t", batch(5))).error_code == 45
        assert (await client.produce("t", batch(3))).base_offset == 3
        assert (await client.produce("t", batch(0, epoch=1))).base_offset == 4
        assert (await client.produce("t", batch(4))).error_code == 47


async def test_a_full_disk_is_told_to_the_producer_and_the_broker_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        assert (await client.produce("t", batch_of("before"))).base_offset == 0

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(type(OS_DISK), "pwrite", full)
            answer = await client.produce("t", batch_of("lost"))
            assert answer.error_code == 56
            assert values_in(await client.fetch("t", 0)) == ["before"]
        assert (await client.produce("t", batch_of("after"))).base_offset == 1
        assert values_in(await client.fetch("t", 0)) == ["before", "after"]


async def test_topics_are_produced_to_by_their_ids(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        topic_id = server.broker.topics["t"].topic_id
        for asked, code in ((topic_id, 0), (uuid.uuid4(), 100), (uuid.UUID(int=0), 100)):
            data = TopicProduceData(topic_id=asked, partition_data=[PartitionProduceData(0, batch_of("a"))])
            answer = await client.ask(ProduceRequest(None, -1, 1000, [data]), 13, ProduceResponse)
            topic = answer.responses[0]
            assert (topic.topic_id, topic.partition_responses[0].error_code) == (asked, code)
        assert (await client.fetch("t", 0)).high_watermark == 1
