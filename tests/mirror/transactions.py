"""Transactions at a source that nobody ends, and such as its coordinator does not know of."""

from __future__ import annotations

from collections.abc import Iterable

from broker.broker import Broker
from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.producers import ProducerIdAndEpoch, add_partitions_to_txn, init_producer_id
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition

APP = "shop's app"
OLD_MS = 1_500_000_000_000
OLD = (Record(0, OLD_MS, b"k", b"replayed"),)


async def begin(source: Cluster, where: TopicPartition, timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
    """A transaction with one batch, which nobody ends."""
    producer = await init_producer_id(source, APP, transaction_timeout_ms=timeout_ms)
    assert not await add_partitions_to_txn(source, APP, producer, [where])
    await append(source, where, transactional(producer), APP)
    return producer


def transactional(producer: ProducerIdAndEpoch, records: Iterable[Record] = OLD, sequence: int = 0) -> bytearray:
    return encode_batch(
        list(records),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )


def append_unasked(broker: Broker, where: TopicPartition, batch: bytearray) -> None:
    """Into the log, past the broker's check that the coordinator knows of it."""
    partition = broker.require_partition(*where)
    partition.log.append(memoryview(batch), leader_epoch=partition.leader_epoch)
