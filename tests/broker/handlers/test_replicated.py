"""A partition with followers: who may follow, what consumers see, and when producers are answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.broker import Broker
from broker.coordination.internal_log import TRANSACTIONS_TOPIC, Producer
from broker.handlers import fetch, list_offsets, produce, txn_offset_commit
from broker.handlers.handler import RequestContext
from broker.limits import BYTES_PER_TURN
from broker.topics.broker_configs import LEADER_RATE
from broker.topics.partition import Partition
from broker.transactions.model import InitAsk
from broker.wire.api import ApiKey
from broker.wire.batch import patch_leader_epoch
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from broker.wire.records import ControlKind, control_batch
from broker.wire.vocabulary import LATEST, TopicPartition
from tests.broker.running import running_server
from tests.broker.running_cluster import until
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request, produce_request

LONG_MS = 60_000


@asynccontextmanager
async def replicated(path: Path, min_insync_replicas: int = 1) -> AsyncIterator[tuple[Broker, Partition]]:
    """Topic t of one partition, led by broker 1, with 2 and 3 in sync that ask for nothing by themselves."""
    async with running_server(path) as server, connect(server.address) as client:
        yield server.broker, await with_followers(server.broker, client, min_insync_replicas)


async def with_followers(broker: Broker, client: WireClient, min_insync_replicas: int = 1) -> Partition:
    await client.create_topic("t", min_insync_replicas=str(min_insync_replicas))
    partition = broker.require_partition("t", 0)
    partition.take_state(replace(partition.state, replicas=(1, 2, 3), isr=(1, 2, 3)), now_ms=0)
    return partition


def context(version: int, *, inter_broker: bool = False) -> RequestContext:
    return RequestContext(version, "test", "127.0.0.1", {}, inter_broker)


async def asked(
    broker: Broker, request: FetchRequest, *, version: int = 12, inter_broker: bool = True
) -> PartitionData:
    answer: FetchResponse = await fetch.handle(broker, request, context(version, inter_broker=inter_broker))
    return answer.responses[0].partitions[0]


def following(node_id: int, offset: int, *, epoch: int = 0, last_epoch: int = -1, **fields: int) -> FetchRequest:
    request = fetch_request("t", offset, **fields)
    request.replica_id = node_id
    where = request.topics[0].partitions[0]
    where.current_leader_epoch, where.last_fetched_epoch, where.log_start_offset = epoch, last_epoch, 0
    return request


async def follow(broker: Broker, offset: int, *nodes: int) -> None:
    for node_id in nodes:
        data = await asked(broker, following(node_id, offset, last_epoch=0 if offset else -1, max_wait_ms=0))
        assert not data.error_code


async def produced(broker: Broker, *, acks: int = -1, timeout_ms: int = LONG_MS) -> PartitionProduceResponse:
    request = produce_request("t", batch_of("a"), acks=acks)
    request.timeout_ms = timeout_ms
    answer = await produce.handle(broker, request, context(11))
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def size_of(data: PartitionData) -> int:
    assert isinstance(data.records, list)
    return sum(len(buffer) for buffer in data.records)


async def begun(broker: Broker) -> Producer:
    """A transaction of "x" that has the partition."""
    coordinator = await broker.transactions.at("x")
    await broker.prepare_producer_ids()
    code, producer = await coordinator.init_producer_id(InitAsk("x", LONG_MS, LONG_MS))
    assert not code
    assert not coordinator.add_partitions("x", producer, [TopicPartition("t", 0)])
    return producer


async def parked(work: Coroutine[Any, Any, Any], tasks: asyncio.TaskGroup) -> asyncio.Task[Any]:
    """Begun, and waiting for something."""
    task = tasks.create_task(work)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_only_acks_all_waits_until_all_in_sync_have_the_batch(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, partition), asyncio.TaskGroup() as tasks:
        assert not (await produced(broker, acks=1)).error_code
        task = await parked(produced(broker), tasks)
        await follow(broker, 2, 2)
        assert partition.log.high_watermark == 0
        await follow(broker, 1, 3)
        await asyncio.sleep(0)
        assert partition.log.high_watermark == 1
        assert not task.done()
        await follow(broker, 2, 3)
        answer = await task
        assert (answer.error_code, answer.base_offset) == (0, 1)


async def test_batches_of_one_connection_do_not_wait_for_each_others_replicas(tmp_path: Path) -> None:
    """They are appended at once, so that a follower copies them together, and answered in the order of the requests."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        partition = await with_followers(server.broker, client)
        sent = [await client.send(produce_request("t", batch_of("a"), acks=-1), 11) for _ in range(2)]
        sent.append(await client.send(produce_request("t", batch_of("a"), acks=7), 11))
        await until(lambda: partition.log.log_end_offset == 2)
        assert partition.leading is not None
        assert partition.leading.high_watermark == 0
        sent.append(await client.send(produce_request("t", batch_of("b"), acks=-1), 11))
        keys = [(ApiKey.PRODUCE, 11)] * len(sent)
        # What is no batch is handled when all batches before it are answered.
        sent.append(await client.send(following(-1, 0), 12))
        await follow(server.broker, 2, 2, 3)
        await until(lambda: partition.log.log_end_offset == 3)
        await follow(server.broker, 3, 2, 3)
        answers = [await client.receive(*key) for key in [*keys, (ApiKey.FETCH, 12)]]
        assert [correlation_id for correlation_id, _ in answers] == sent
        codes = [a.responses[0].partition_responses[0].error_code for _, a in answers if isinstance(a, ProduceResponse)]
        assert codes == [0, 0, ErrorCode.INVALID_REQUIRED_ACKS, 0]
        fetched = answers[-1][1]
        assert isinstance(fetched, FetchResponse)
        assert fetched.responses[0].partitions[0].high_watermark == 3


async def test_a_client_that_leaves_takes_its_waiting_batches_along(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        async with connect(server.address) as client:
            partition = await with_followers(server.broker, client)
            for _ in range(2):
                await client.send(produce_request("t", batch_of("a"), acks=-1), 11)
            await until(lambda: partition.log.log_end_offset == 2)
            assert all(connection.busy for connection in server.connections)
        await until(lambda: not server.connections)


async def test_a_batch_that_is_not_replicated_in_time_is_said_to_be(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, partition):
        assert (await produced(broker, timeout_ms=1)).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert partition.log.log_end_offset == 1


async def test_the_loss_of_leadership_ends_the_wait(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, partition), asyncio.TaskGroup() as tasks:
        task = await parked(produced(broker), tasks)
        reader = await parked(asked(broker, fetch_request("t", 0, max_wait_ms=LONG_MS), inter_broker=False), tasks)
        follower = await parked(asked(broker, following(2, 1, last_epoch=0, max_wait_ms=LONG_MS)), tasks)
        epoch = partition.leader_epoch
        partition.follow(replace(partition.state, leader=2, leader_epoch=epoch + 1))
        for waiting in (reader, follower):
            assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Not NOT_LEADER_OR_FOLLOWER, which says that nothing was kept: the new leader may have the batch.
        assert (await task).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (await produced(broker)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # And though it leads again, with as many records: those may be others.
        partition.lead(replace(partition.state, leader=1, leader_epoch=epoch + 2, isr=(1,)), now_ms=0)
        assert partition.is_replicated(1, epoch + 2)
        with pytest.raises(Exception, match="not led here in leader epoch"):
            partition.is_replicated(1, epoch)


async def test_too_few_in_sync_after_the_append(tmp_path: Path) -> None:
    async with replicated(tmp_path, min_insync_replicas=2) as (broker, partition), asyncio.TaskGroup() as tasks:
        task = await parked(produced(broker), tasks)
        partition.take_state(replace(partition.state, isr=(1,)), now_ms=0)
        assert (await task).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (await produced(broker)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.log_end_offset == 1, "and nothing more was appended"


async def test_consumers_see_what_is_before_the_high_watermark_and_wake_when_it_rises(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, _), asyncio.TaskGroup() as tasks:
        await produced(broker, acks=1)
        wanted = fetch_request("t", 0, max_wait_ms=LONG_MS, min_bytes=1)
        reader = await parked(asked(broker, wanted, inter_broker=False), tasks)
        await follow(broker, 1, 2)
        await asyncio.sleep(0)
        assert not reader.done()
        await follow(broker, 1, 3)
        data = await reader
        assert (data.high_watermark, size_of(data)) == (1, len(batch_of("a")))


async def test_a_follower_reads_to_the_end_of_the_log_and_wakes_with_an_append(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, _), asyncio.TaskGroup() as tasks:
        follower = await parked(asked(broker, following(2, 0, max_wait_ms=LONG_MS, min_bytes=1)), tasks)
        await produced(broker, acks=1)
        data = await follower
        assert (data.high_watermark, size_of(data)) == (0, len(batch_of("a")))


async def test_a_follower_that_waited_for_nothing_is_told_how_far_the_high_watermark_rose(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, _), asyncio.TaskGroup() as tasks:
        await produced(broker, acks=1)
        follower = await parked(asked(broker, following(2, 1, last_epoch=0, max_wait_ms=300, min_bytes=1)), tasks)
        await follow(broker, 1, 3)
        data = await follower
        assert (data.high_watermark, len(data.records or b"")) == (1, 0)


@pytest.mark.parametrize("version", [11, 12, 15])
async def test_who_says_that_he_is_a_replica_is_believed_between_brokers_only(tmp_path: Path, version: int) -> None:
    async with replicated(tmp_path) as (broker, partition):
        for inter_broker in (False, True):
            request = following(2, 0)
            if version >= 15:
                request.replica_id, request.replica_state = -1, ReplicaState(2, 7)
                request.topics[0].topic_id = broker.topics["t"].topic_id
            data = await asked(broker, request, version=version, inter_broker=inter_broker)
            accepted = inter_broker and version >= 12
            assert data.error_code == (0 if accepted else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert partition.leading is not None
            known = partition.leading.follower(2)
            assert known is not None
            assert known.end_offset == (0 if accepted else -1)


async def test_a_position_that_is_not_known_to_be_ours_does_not_count(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, partition):
        await produced(broker, acks=1)
        leading = partition.leading
        assert leading is not None
        for request, code in (
            (following(2, 1, epoch=-1, last_epoch=0), ErrorCode.INVALID_REQUEST),
            (following(2, 2, epoch=0), ErrorCode.OFFSET_OUT_OF_RANGE),
            (following(9, 1, last_epoch=0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (following(2, 1, epoch=1, last_epoch=0), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (following(2, 5, last_epoch=0), ErrorCode.NONE),
        ):
            data = await asked(broker, request)
            assert data.error_code == code
            assert (data.log_start_offset == 0) == (code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE))
            follower = leading.follower(2)
            assert follower is not None
            assert follower.end_offset == -1
        assert data.diverging_epoch is not None
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
async def test_a_new_leader_tells_no_end_that_may_be_too_low(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async with replicated(tmp_path) as (broker, partition):
        await produced(broker, acks=1)
        partition.lead(replace(partition.state, leader_epoch=1), now_ms=0)
        question = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=LATEST)])])

        async def end() -> tuple[int, int]:
            answer = (await list_offsets.handle(broker, question, context(version))).topics[0].partitions[0]
            return answer.error_code, answer.offset

        assert await end() == (code, -1)
        for node_id in (2, 3):
            data = await asked(broker, following(node_id, 1, epoch=1, last_epoch=0, max_wait_ms=0))
            assert not data.error_code
        assert await end() == (0, 1)


async def test_what_was_looked_up_by_time_is_not_told_by_who_stopped_leading_meanwhile(tmp_path: Path) -> None:
    """Also when it leads again by then: the offsets are those of another log."""
    async with replicated(tmp_path) as (broker, partition):
        assert not (await produced(broker, acks=1)).error_code
        await follow(broker, 1, 2, 3)
        state = partition.state
        for turns in range(2):
            topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, 0)])]
            asking = asyncio.create_task(list_offsets.handle(broker, ListOffsetsRequest(-1, 0, topics), context(7)))
            await asyncio.sleep(0)
            assert not asking.done()
            partition.follow(replace(state, leader=2, leader_epoch=2 * turns + 1))
            if turns:
                partition.lead(replace(state, leader_epoch=2 * turns + 2), now_ms=0)
            answer = (await asking).topics[0].partitions[0]
            assert (answer.error_code, answer.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            partition.lead(replace(state, leader_epoch=2 * turns + 2), now_ms=0)


async def test_records_of_a_transaction_that_another_leader_ended_meanwhile_are_not_appended(tmp_path: Path) -> None:
    """Nobody would ever end them."""
    async with replicated(tmp_path) as (broker, partition):
        producer = await begun(broker)
        value = random.Random(7).randbytes(2 * BYTES_PER_TURN).hex()
        ids = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        batch = batch_of(value, key=None, transactional=True, base_sequence=0, **ids)
        request = produce_request("t", batch, acks=1, transactional_id="x")
        producing = asyncio.create_task(produce.handle(broker, request, context(11)))
        await asyncio.sleep(0)
        assert not producing.done()
        state = partition.state
        partition.follow(replace(state, leader=2, leader_epoch=1))
        marker = control_batch(ControlKind.ABORT, coordinator_epoch=0, timestamp_ms=0, **ids)
        patch_leader_epoch(memoryview(marker), 1)
        partition.log.append_as_follower(marker, leader_epoch=1)
        partition.lead(replace(state, leader_epoch=2), now_ms=0)
        response = await producing
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 1


async def test_offsets_of_a_transaction_that_ended_at_another_coordinator_are_not_taken(
    tmp_path: Path,
) -> None:
    """They would be pending for ever, and hide the group's offsets from whoever asks for stable ones."""
    async with replicated(tmp_path) as (broker, _), asyncio.TaskGroup() as tasks:
        producer = await begun(broker)
        index = await broker.groups.partition_for("g")
        coordinator = await broker.transactions.at("x")
        deciding = broker.require_partition(TRANSACTIONS_TOPIC, coordinator.log.index)
        alone = deciding.state
        deciding.take_state(replace(alone, replicas=(1, 2), isr=(1, 2)), now_ms=0)
        assert not coordinator.add_partitions("x", producer, [TopicPartition(OFFSETS_TOPIC, index)])
        topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]
        request = TxnOffsetCommitRequest("x", "g", *producer, topics=topics)
        committing = await parked(txn_offset_commit.handle(broker, request, context(3)), tasks)
        offsets = broker.require_partition(OFFSETS_TOPIC, index)
        state = offsets.state
        offsets.follow(replace(state, leader=2, leader_epoch=1))
        broker.groups.leads(index, None)
        offsets.lead(replace(state, leader_epoch=2), now_ms=0)
        broker.groups.leads(index, 2)
        await broker.groups.load()
        deciding.take_state(replace(alone, version=alone.version + 1), now_ms=0)
        answer = (await committing).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        assert not await broker.groups.ask("g", lambda at: at.offsets.has_any("g"))


async def test_a_transaction_has_ended_for_consumers_when_its_marker_is_replicated(tmp_path: Path) -> None:
    async with replicated(tmp_path) as (broker, partition):
        batch = batch_of("a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        partition.log.append(batch, leader_epoch=0)
        partition.log.write_marker(producer_id=5, producer_epoch=0, commit=True, coordinator_epoch=0, leader_epoch=0)
        await follow(broker, 1, 2, 3)
        assert (partition.log.high_watermark, partition.log.last_stable_offset) == (1, 0)
        await follow(broker, 2, 2, 3)
        assert partition.log.last_stable_offset == 2


async def test_a_leader_holds_back_who_catches_up_and_nobody_else(tmp_path: Path) -> None:
    throttled = "leader.replication.throttled.replicas"
    async with replicated(tmp_path) as (broker, partition):
        partition.take_state(replace(partition.state, isr=(1, 2)), now_ms=0)
        await broker.topic_configs.alter("t", lambda configs: {**configs, throttled: "0:1"})
        await broker.broker_configs.alter(default=True, change=lambda _: {LEADER_RATE: "1"})
        assert not (await produced(broker, acks=1)).error_code
        assert size_of(await asked(broker, following(3, 0, max_wait_ms=0))) > 0, "the rate is not exceeded yet"
        waiting = await asked(broker, following(3, 0, max_wait_ms=1))
        assert not waiting.error_code
        assert not waiting.records
        assert size_of(await asked(broker, following(2, 0, max_wait_ms=0))) > 0, "it is in sync"
        await broker.topic_configs.alter("t", lambda configs: {**configs, throttled: "0:2"})
        assert size_of(await asked(broker, following(3, 0, max_wait_ms=0))) > 0, "that is another replica"
        await broker.topic_configs.alter("t", lambda configs: {**configs, throttled: "*"})
        assert not (await asked(broker, following(3, 0, max_wait_ms=0))).records
        await broker.broker_configs.alter(default=False, change=lambda _: {LEADER_RATE: str(1 << 40)})
        await asyncio.sleep(0.001)
        assert size_of(await asked(broker, following(3, 0, max_wait_ms=0))) > 0, "this broker's own rate holds"
