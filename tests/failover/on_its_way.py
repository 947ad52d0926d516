"""Records that a leader of the source has and its followers have not: nobody is shown them, and a drain waits."""

from __future__ import annotations

from dataclasses import replace

from broker.broker import Broker
from broker.handlers import produce
from broker.topics.partition import Partition
from tests.broker.handlers.test_replicated import context
from tests.broker.wire_client import batch_of, produce_request
from tests.failover.stage import PARTITIONS, TOPIC, Stage


def replicate(partition: Partition, *others: int) -> None:
    """From now on these are its replicas beside its leader, and in sync; they ask for nothing."""
    nodes = (partition.state.replicas[0], *others)
    partition.take_state(replace(partition.state, replicas=nodes, isr=nodes), now_ms=0)


async def append(broker: Broker) -> None:
    await produce.handle(broker, produce_request(TOPIC, batch_of("late"), acks=1), context(11))


async def hold_drain(stage: Stage) -> None:
    """Whoever drains the source, which is closed to every client, waits until somebody ends it."""
    broker = stage.brokers[0]
    partition = broker.require_partition(*PARTITIONS[0])
    leader = partition.state.replicas[0]
    replicate(partition, leader + 1, leader + 2)
    await append(broker)
