from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from broker.wire.batch import peek
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.running import running_broker, running_server
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request, values_in


def size_of(data: PartitionData) -> int:
    assert isinstance(data.records, memoryview | bytes)
    return len(data.records)


@pytest.mark.parametrize("version", range(4, 13))
async def test_each_version_reads_whole_batches_from_the_one_that_holds_the_offset(
    tmp_path: Path, version: int
) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("a", "b", "c"))
        await client.produce("t", batch_of("d"))
        data = await client.fetch("t", 1, version=version)
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 4, 4)
        assert values_in(data) == ["a", "b", "c", "d"]
        assert data.aborted_transactions is None
        assert size_of(await client.fetch("t", 4, version=version)) == 0


async def test_at_least_one_batch_however_small_the_limits(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("x" * 5000))
        await client.produce("t", batch_of("y" * 5000))
        assert len(values_in(await client.fetch("t", 0, partition_max_bytes=1))) == 1
        assert len(values_in(await client.fetch("t", 0, max_bytes=1))) == 1
        assert len(values_in(await client.fetch("t", 0, partition_max_bytes=0))) == 1


async def test_the_limit_of_the_request_spans_its_partitions(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", partitions=3)
        for partition in range(3):
            await client.produce("t", batch_of("x" * 5000), partition=partition)
        asked = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)]
        for limit, full in ((6_000, 1), (11_000, 2), (1 << 20, 3)):
            request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=limit, topics=[FetchTopic("t", asked)])
            response = await client.ask(request, 12, FetchResponse)
            assert [size_of(p) > 0 for p in response.responses[0].partitions] == [True] * full + [False] * (3 - full)


async def test_an_offset_out_of_range_says_so_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", retention_ms="-1")
        await client.produce("t", batch_of("a", "b", "c"))
        for offset in (4, -5):
            assert (await client.fetch("t", offset, max_wait_ms=60_000)).error_code == 1
        topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 2)])
        deleted = await client.ask(DeleteRecordsRequest([topic], 1000), 2, DeleteRecordsResponse)
        assert (deleted.topics[0].partitions[0].error_code, deleted.topics[0].partitions[0].low_watermark) == (0, 2)
        data = await client.fetch("t", 1)
        assert (data.error_code, data.log_start_offset) == (1, -1), "as Kafka's: the reader asks ListOffsets"
        assert values_in(await client.fetch("t", 2)) == ["a", "b", "c"]


async def received(client: WireClient) -> PartitionData:
    _, response = await client.receive(1, 12)
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


async def test_a_waiting_fetch_collects_min_bytes(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as reader, connect(server.address) as writer:
        await writer.create_topic("t")
        await reader.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=3000), 12)
        for number in range(3):
            await writer.produce("t", batch_of(f"{number}" * 1000))
        assert [value[0] for value in values_in(await received(reader))] == ["0", "1", "2"]
        assert not server.broker.require_partition("t", 0).waiters


async def test_a_fetch_gives_what_there_is_when_its_wait_is_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("little"))
        started = asyncio.get_running_loop().time()
        assert values_in(await client.fetch("t", 0, max_wait_ms=150, min_bytes=1 << 20)) == ["little"]
        assert asyncio.get_running_loop().time() - started >= 0.14


async def test_deleting_the_topic_wakes_its_readers(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as reader, connect(address) as other:
        await other.create_topic("t")
        await reader.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await other.ask(DeleteTopicsRequest([DeleteTopicState("t")]), 6, DeleteTopicsResponse)
        assert (await received(reader)).error_code == 3


async def test_a_leader_epoch_of_another_time_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        assert (await client.fetch("t", 0, current_leader_epoch=0)).error_code == 0
        assert (await client.fetch("t", 0, current_leader_epoch=1)).error_code == 75
    async with running_broker(tmp_path) as address, connect(address) as client:
        assert (await client.fetch("t", 0, current_leader_epoch=0)).error_code == 74
        assert (await client.fetch("t", 0, current_leader_epoch=1)).error_code == 0


async def test_a_reader_whose_log_parted_is_told_where(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("a", "b"))
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.produce("t", batch_of("c"))
        # It claims to have read offset 4 in epoch 0, which ended at 2.
        data = await client.fetch("t", 5, last_fetched_epoch=0, max_wait_ms=60_000)
        assert data.diverging_epoch is not None
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
        assert values_in(await client.fetch("t", 2, last_fetched_epoch=0)) == ["c"]


async def test_batches_carry_the_epoch_they_were_written_in(tmp_path: Path) -> None:
    for epoch in range(3):
        async with running_broker(tmp_path) as address, connect(address) as client:
            if epoch == 0:
                await client.create_topic("t")
            await client.produce("t", batch_of("a"))
            data = await client.fetch("t", epoch)
            assert isinstance(data.records, memoryview)
            assert peek(data.records).partition_leader_epoch == epoch


async def test_an_empty_request_is_answered_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        response = await client.ask(FetchRequest(max_wait_ms=60_000, min_bytes=1), 12, FetchResponse)
        assert (response.responses, response.session_id, response.error_code) == ([], 0, 0)


async def test_retention_of_a_part_does_not_end_a_fetch_with_an_error(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as reader, connect(server.address) as writer:
        await writer.create_topic("t", segment_bytes="2000", retention_bytes="4000")
        for number in range(8):
            await writer.produce("t", batch_of(f"{number}" * 1000))
        partition = server.broker.require_partition("t", 0)
        await reader.send(fetch_request("t", 8, max_wait_ms=60_000), 12)
        await writer.fetch("t", 0)
        assert partition.log.enforce_retention() > 0
        partition.wake()
        await writer.produce("t", batch_of("new"))
        assert values_in(await received(reader)) == ["new"]
        assert (await writer.fetch("t", 0)).error_code == 1


def by_id(topic_id: uuid.UUID, offset: int, **fields: int) -> FetchRequest:
    request = fetch_request("", offset, **fields)
    request.topics[0].topic_id = topic_id
    return request


async def id_of(client: WireClient, topic: str) -> uuid.UUID:
    request = MetadataRequest([MetadataRequestTopic(name=topic)])
    return (await client.ask(request, 12, MetadataResponse)).topics[0].topic_id


@pytest.mark.parametrize("version", range(13, 18))
async def test_topics_are_fetched_by_their_ids(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        await client.produce("t", batch_of("a", "b"))
        topic_id = await id_of(client, "t")
        answer = (await client.ask(by_id(topic_id, 0), version, FetchResponse)).responses[0]
        assert answer.topic_id == topic_id
        assert values_in(answer.partitions[0]) == ["a", "b"]
        for unknown in (uuid.uuid4(), uuid.UUID(int=0)):
            answer = (await client.ask(by_id(unknown, 0), version, FetchResponse)).responses[0]
            assert (answer.topic_id, answer.partitions[0].error_code) == (unknown, 100)


async def test_a_topic_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as reader, connect(address) as other:
        await other.create_topic("t")
        topic_id = await id_of(other, "t")
        begun = await reader.ask(by_id(topic_id, 0, session_epoch=0), 17, FetchResponse)
        await reader.send(
            FetchRequest(session_id=begun.session_id, session_epoch=1, max_wait_ms=60_000, min_bytes=1), 17
        )
        await other.ask(DeleteTopicsRequest([DeleteTopicState("t")]), 6, DeleteTopicsResponse)
        await other.create_topic("t")
        await other.produce("t", batch_of("new"))
        _, answer = await reader.receive(1, 17)
        assert isinstance(answer, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == 100
        assert await id_of(other, "t") != topic_id


async def test_a_session_waits_for_news_and_tells_only_them(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as reader, connect(address) as writer:
        await writer.create_topic("t", 3)
        rows = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)]
        first = FetchRequest(session_epoch=0, topics=[FetchTopic("t", rows)])
        begun = await reader.ask(first, 12, FetchResponse)
        assert [data.partition_index for data in begun.responses[0].partitions] == [0, 1, 2]

        def go_on(epoch: int, max_wait_ms: int = 0) -> FetchRequest:
            return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_id=begun.session_id, session_epoch=epoch)

        assert (await reader.ask(go_on(1), 12, FetchResponse)).responses == []
        await reader.send(go_on(2, max_wait_ms=60_000), 12)
        await writer.produce("t", batch_of("a"), partition=1)
        data = await received(reader)
        assert (data.partition_index, values_in(data)) == (1, ["a"])
        assert (await reader.ask(go_on(2), 12, FetchResponse)).error_code == 71
        assert (await writer.ask(go_on(3), 12, FetchResponse)).session_id == begun.session_id


async def test_a_session_is_woken_by_what_happens_to_its_partitions_and_looks_at_no_other(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as reader, connect(server.address) as other:
        await other.create_topic("t", 3, retention_ms="-1")
        await other.produce("t", batch_of("a", "b"), partition=1)
        rows = [FetchPartition(index, fetch_offset=2 * (index == 1), partition_max_bytes=1 << 20) for index in range(3)]
        begun = await reader.ask(FetchRequest(session_epoch=0, topics=[FetchTopic("t", rows)]), 12, FetchResponse)
        session = server.broker.fetch_sessions._sessions[begun.session_id]

        def go_on(epoch: int, *changed: FetchPartition, max_wait_ms: int = 60_000) -> FetchRequest:
            topics = [FetchTopic("t", [*changed])] if changed else []
            place = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)
            place.session_id, place.session_epoch = begun.session_id, epoch
            return place

        assert (await reader.ask(go_on(1, max_wait_ms=0), 12, FetchResponse)).responses == []
        assert not session.due
        await reader.send(go_on(2), 12)
        await other.produce("t", batch_of("c"), partition=2)
        assert values_in(await received(reader)) == ["c"]
        assert list(session.due) == [("t", 2)]
        await reader.send(go_on(3, FetchPartition(2, fetch_offset=1, partition_max_bytes=1 << 20), max_wait_ms=300), 12)
        topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(1, 1)])
        await other.ask(DeleteRecordsRequest([topic], 1000), 2, DeleteRecordsResponse)
        data = await received(reader)
        assert (data.partition_index, data.error_code, data.log_start_offset) == (1, 0, 1)
        assert not session.due
        await reader.send(go_on(4), 12)
        await other.ask(DeleteTopicsRequest([DeleteTopicState("t")]), 6, DeleteTopicsResponse)
        assert (await received(reader)).error_code == 3


async def test_a_full_answer_of_a_session_lets_each_partition_have_its_turn(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", 3)
        for index in range(3):
            await client.produce("t", batch_of(f"{index}" * 1000), partition=index)
        rows = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(3)]
        request = FetchRequest(session_epoch=0, max_bytes=1, topics=[FetchTopic("t", rows)])
        seen = []
        for epoch in range(1, 4):
            answer = await client.ask(request, 12, FetchResponse)
            full = [data for data in answer.responses[0].partitions if size_of(data)]
            seen += [data.partition_index for data in full]
            request = FetchRequest(session_id=answer.session_id, session_epoch=epoch, max_bytes=1, min_bytes=1)
        assert seen == [0, 1, 2]


async def test_a_reader_of_an_older_epoch_is_told_who_leads(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        topic_id = await id_of(client, "t")
    async with running_broker(tmp_path) as address, connect(address) as client:
        for version in (15, 16):
            request = by_id(topic_id, 0, current_leader_epoch=0)
            answer = await client.ask(request, version, FetchResponse)
            data = answer.responses[0].partitions[0]
            assert data.error_code == 74
            told = [(node.node_id, f"{node.host}:{node.port}") for node in answer.node_endpoints]
            assert told == ([(1, address)] if version == 16 else [])
            assert (data.current_leader is not None and data.current_leader.leader_epoch == 1) is (version == 16)


async def test_what_no_reader_may_ask(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t")
        topic_id = await id_of(client, "t")
        for fields, code in (
            ({"replica_id": 0}, 6),
            ({"isolation_level": 2}, 42),
            ({"isolation_level": -1}, 42),
            ({"max_bytes": -1}, 42),
            ({"partition_max_bytes": -1}, 42),
            ({"max_bytes": 0, "partition_max_bytes": 0}, 0),
        ):
            assert (await client.fetch("t", 0, **fields)).error_code == code, fields
        follower = by_id(topic_id, 0)
        for replica_id, code in ((0, 6), (-1, 0)):
            follower.replica_state = ReplicaState(replica_id, 3)
            answer = await client.ask(follower, 17, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == code
