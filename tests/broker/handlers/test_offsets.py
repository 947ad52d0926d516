"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers: where things are in a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from broker.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
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
from tests.broker.running import running_broker
from tests.broker.wire_client import WireClient, batch_of, connect, values_in

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
T0 = 1_600_000_000_000


async def list_offset(
    client: WireClient, timestamp: int, *, version: int = 7, epoch: int = -1, topic: str = "t", isolation: int = 0
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, epoch, timestamp)])
    response = await client.ask(ListOffsetsRequest(-1, isolation, [asked]), version, ListOffsetsResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 10))
async def test_ends_and_exact_times_in_each_version(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("a", "b", "c", timestamp=T0))
        await client.produce("t", batch_of("d", "e", timestamp=T0 + 100))
        found = {}
        for timestamp in (LATEST, EARLIEST, 0, T0 + 1, T0 + 3, T0 + 101, T0 + 102):
            answer = await list_offset(client, timestamp, version=version)
            assert answer.error_code == 0
            found[timestamp] = (answer.offset, answer.timestamp)
        assert found == {
            LATEST: (5, -1),
            EARLIEST: (0, -1),
            0: (0, T0),
            T0 + 1: (1, T0 + 1),
            T0 + 3: (3, T0 + 100),
            T0 + 101: (4, T0 + 101),
            T0 + 102: (-1, -1),
        }


async def test_the_highest_timestamp(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        assert (await list_offset(client, MAX_TIMESTAMP)).offset == -1
        await client.produce("t", batch_of("a", "late", timestamp=T0 + 500))
        await client.produce("t", batch_of("b", timestamp=T0))
        answer = await list_offset(client, MAX_TIMESTAMP)
        assert (answer.offset, answer.timestamp) == (1, T0 + 501)
        assert (await list_offset(client, MAX_TIMESTAMP, version=6)).error_code == 35
        assert (await list_offset(client, -7)).error_code == 35


@pytest.mark.parametrize(("committed", "found"), [(0, 0), (1, -1)])
async def test_the_highest_timestamp_of_an_open_transaction(tmp_path: Path, committed: int, found: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        ids = await client.ask(InitProducerIdRequest("x", 60_000), 4, InitProducerIdResponse)
        topics = [AddPartitionsToTxnTopic("t", [0])]
        await client.ask(AddPartitionsToTxnRequest("x", ids.producer_id, 0, topics), 3, AddPartitionsToTxnResponse)
        batch = batch_of("a", transactional=True, producer_id=ids.producer_id, producer_epoch=0, base_sequence=0)
        assert (await client.produce("t", batch, transactional_id="x")).error_code == 0
        assert (await list_offset(client, MAX_TIMESTAMP, isolation=committed)).offset == found


async def test_the_local_log_is_all_there_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("a", "b"))
        await delete_before(client, 1)
        assert (await list_offset(client, -4, version=8)).offset == 1
        assert (await list_offset(client, -5, version=9)).offset == -1
        assert (await list_offset(client, -4, version=7)).error_code == 35
        assert (await list_offset(client, -5, version=8)).error_code == 35


async def test_a_partition_asked_about_twice_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        topic = ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=LATEST)] * 2)
        answer = await client.ask(ListOffsetsRequest(-1, topics=[topic]), 7, ListOffsetsResponse)
        assert [partition.error_code for partition in answer.topics[0].partitions] == [42, 42]


async def test_what_cannot_be_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        assert (await list_offset(client, LATEST, topic="nowhere")).error_code == 3
        assert (await list_offset(client, LATEST, epoch=3)).error_code == 75
        assert (await list_offset(client, LATEST, epoch=0)).leader_epoch == 0


async def delete_before(client: WireClient, offset: int, topic: str = "t") -> tuple[int, int]:
    asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])
    response = await client.ask(DeleteRecordsRequest([asked], 1000), 2, DeleteRecordsResponse)
    result = response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


async def test_records_are_deleted_up_to_an_offset_for_good(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", retention_ms="-1")
        await client.create_topic("c", cleanup_policy="compact")
        for value in "abc":
            await client.produce("t", batch_of(value))
        assert await delete_before(client, 4) == (1, -1)
        assert await delete_before(client, 2) == (0, 2)
        assert await delete_before(client, 1) == (0, 2)
        assert await delete_before(client, 0, "c") == (44, -1)
        assert await delete_before(client, 0, "nowhere") == (3, -1)
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert (await list_offset(client, EARLIEST)).offset == 2
        assert values_in(await client.fetch("t", 2)) == ["c"]
        assert await delete_before(client, -1) == (0, 3)
        assert (await list_offset(client, 0)).offset == -1
        assert (await client.produce("t", batch_of("d"))).base_offset == 3


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_epochs_ended(tmp_path: Path, version: int) -> None:
    for _ in range(3):
        async with running_broker(tmp_path) as address, connect(address) as client:
            if not (tmp_path / "t-0").exists():
                await client.create_topic("t")
            await client.produce("t", batch_of("a", "b"))
    async with running_broker(tmp_path) as address, connect(address) as client:

        async def end_of(epoch: int, current: int = -1) -> tuple[int, int, int]:
            asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, current, epoch)])
            request = OffsetForLeaderEpochRequest(-1, [asked])
            response = await client.ask(request, version, OffsetForLeaderEpochResponse)
            answer = response.topics[0].partitions[0]
            return answer.error_code, answer.leader_epoch, answer.end_offset

        assert [await end_of(epoch) for epoch in range(4)] == [(0, 0, 2), (0, 1, 4), (0, 2, 6), (0, 3, 6)]
        assert await end_of(0, current=3) == (0, 0, 2)
        assert (await end_of(0, current=2))[0] == 74
        assert (await end_of(0, current=4))[0] == 75


async def test_who_writes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("a"))
        await client.produce("t", batch_of("a", "b", producer_id=7, producer_epoch=3, base_sequence=0))
        request = DescribeProducersRequest([TopicRequest("t", [0, 5])])
        known, unknown = (await client.ask(request, 0, DescribeProducersResponse)).topics[0].partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
        assert producer.current_txn_start_offset == -1
        assert unknown.error_code == 3
