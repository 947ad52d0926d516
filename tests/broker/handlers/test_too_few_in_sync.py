"""Nothing is appended that could not get to min.insync.replicas, however often it is asked for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from broker.coordination.internal_log import TRANSACTIONS_TOPIC, Producer
from broker.errors import BrokerError
from broker.transactions.markers import Marker
from broker.transactions.model import InitAsk
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.handlers.test_replicated import LONG_MS, begun, follow, parked, replicated
from tests.broker.wire_client import batch_of


async def test_a_marker_is_not_written_while_too_few_are_in_sync(tmp_path: Path) -> None:
    """It is ordered again and again until it is replicated: each time one more of them would be in the log."""
    async with replicated(tmp_path, min_insync_replicas=2) as (broker, partition):
        batch = batch_of("a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        partition.log.append(batch, leader_epoch=0)
        where = TopicPartition("t", 0)
        ends = Marker(Producer(5, 0), commit=True, coordinator_epoch=0)
        partition.take_state(replace(partition.state, isr=(1,)), now_ms=0)
        with broker.markers.guard(where, 5) as guard:
            for _ in range(3):
                assert await broker.markers.write(ends, [where]) == {where: ErrorCode.NOT_ENOUGH_REPLICAS}
        assert (partition.log.log_end_offset, partition.log.last_stable_offset, guard.ended) == (1, 0, False)
        partition.take_state(replace(partition.state, isr=(1, 2)), now_ms=0)
        async with asyncio.TaskGroup() as tasks:
            writing = await parked(broker.markers.write(ends, [where]), tasks)
            await follow(broker, 2, 2)
            assert await writing == {where: ErrorCode.NONE}
        assert (partition.log.log_end_offset, partition.log.last_stable_offset) == (2, 2)


async def test_a_coordinator_writes_nothing_while_too_few_are_in_sync(tmp_path: Path) -> None:
    """Its clients ask again, and each time one more entry, and one more producer epoch, would be in the log."""
    async with replicated(tmp_path) as (broker, _):
        producer = await begun(broker)
        coordinator = await broker.transactions.at("x")
        kept = broker.require_partition(TRANSACTIONS_TOPIC, coordinator.log.index)
        alone, end_offset = kept.state, kept.log.log_end_offset
        await broker.topic_configs.alter(TRANSACTIONS_TOPIC, lambda configs: {**configs, "min.insync.replicas": "2"})
        kept.take_state(replace(alone, replicas=(1, 2, 3)), now_ms=0)
        for _ in range(3):
            with pytest.raises(BrokerError) as refused:
                await broker.transactions.ask(
                    "x", lambda at: at.add_partitions("x", producer, [TopicPartition("t", 1)])
                )
            assert refused.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            code, _ = await coordinator.init_producer_id(InitAsk("x", LONG_MS, LONG_MS))
            assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert kept.log.log_end_offset == end_offset
        kept.take_state(replace(alone, version=alone.version + 1), now_ms=0)
        assert not await broker.transactions.ask(
            "x", lambda at: at.add_partitions("x", producer, [TopicPartition("t", 0)])
        )
