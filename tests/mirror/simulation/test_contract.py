"""The simulated cluster answers as our broker does: the same conversations with both, word for word."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.fanout import split_failures
from broker.client.group_transactions import Staged, add_groups_to_txn, held_offsets, stage_offsets
from broker.client.groups import (
    commit_offsets,
    committed_offsets,
    describe_groups,
    list_groups,
    stable_offsets_of_groups,
)
from broker.client.log import FetchLimits, fetch_once, records_of
from broker.client.model import CommittedOffset
from broker.client.offsets import list_offsets, log_end_offsets
from broker.client.producers import ProducerIdAndEpoch, add_partitions_to_txn, end_txn, init_producer_id
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.site import Site
from broker.client.topics import NewTopic, create_partitions, create_topics, describe_topics
from broker.wire.batch import BatchHeader, iter_batches
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.records import ControlKind, Record, decode_control, encode_batch
from broker.wire.vocabulary import EARLIEST, LATEST, MAX_TIMESTAMP, IsolationLevel, TopicPartition
from tests.broker.running import running_broker
from tests.mirror.simulation.answers import CONFIG_DEFAULTS, SimulatedNode
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop
from tests.mirror.simulation.network import Network, Weather
from tests.mirror.simulation.trace import Trace

Transcript = list[object]
Conversation = Callable[[Cluster], Awaitable[Transcript]]
FLIGHTS = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)


async def produce(cluster: Cluster, where: TopicPartition, count: int, *, tid: str | None = None, **how: Any) -> object:
    """-> the base offset, or the name of the error code."""
    records = [Record(0, 1_000 + 10 * number, b"k", b"v") for number in range(count)]
    return await send(cluster, where, encode_batch(records, **how), tid)


async def send(cluster: Cluster, where: TopicPartition, batch: bytearray, tid: str | None = None) -> object:
    request = ProduceRequest(tid, -1, 10_000, [TopicProduceData(where[0], [PartitionProduceData(where[1], batch)])])
    connection = await cluster.connection(await cluster.leader(*where))
    answer = (await connection.request(request)).responses[0].partition_responses[0]
    return ErrorCode.of(answer.error_code).name if answer.error_code else answer.base_offset


async def fetched(cluster: Cluster, offset: int, isolation: IsolationLevel, max_bytes: int = 1 << 20) -> object:
    """-> (offsets of the batches, high watermark, last stable offset, aborted first offsets), or the error's name."""
    try:
        data = (await fetch_once(cluster, {FLIGHTS: offset}, FetchLimits(max_bytes, max_bytes, 0, 0), isolation))[
            FLIGHTS
        ]
    except KafkaError as error:
        return error.code.name
    spans = [(header.base_offset, header.last_offset) for header, _ in iter_batches(records_of(data))]
    aborted = data.aborted_transactions
    firsts = None if aborted is None else [one.first_offset for one in aborted]
    return spans, data.high_watermark, data.last_stable_offset, data.log_start_offset, firsts


async def layout(cluster: Cluster, where: TopicPartition, *known: ProducerIdAndEpoch) -> object:
    """All batches: offsets, whose they are, epoch, sequence, and what a marker says."""
    ids = [producer.producer_id for producer in known]
    end = (await log_end_offsets(cluster, [where]))[where]
    seen: list[object] = []

    def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
        whose = ids.index(header.producer_id) if header.producer_id in ids else header.producer_id
        kind = ControlKind(decode_control(batch).kind).name if header.is_control else "data"
        seen.append((header.base_offset, header.last_offset, whose, header.producer_epoch, header.base_sequence, kind))

    await scan_batches(cluster, {where: OffsetSpan(0, end)}, visit)
    return seen


async def make(cluster: Cluster, **configs: str) -> None:
    named = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in configs.items()}
    assert not await create_topics(cluster, [NewTopic("flights", 2, 1, named)])


async def plain_records(cluster: Cluster) -> Transcript:
    await make(cluster)
    said: Transcript = [await produce(cluster, FLIGHTS, count) for count in (3, 1, 4)]
    for offset in (0, 1, 3, 5, 8, 9, -1):
        said += [await fetched(cluster, offset, IsolationLevel.READ_UNCOMMITTED)]
        said += [await fetched(cluster, offset, IsolationLevel.READ_COMMITTED)]
    said += [await fetched(cluster, 0, IsolationLevel.READ_UNCOMMITTED, max_bytes=1)]
    for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, 0, 1_010, 1_030, 5_000):
        said += [await list_offsets(cluster, {FLIGHTS: timestamp, OTHER: timestamp})]
    return said


async def refused_batches(cluster: Cluster) -> Transcript:
    await make(cluster, max_message_bytes="500", cleanup_policy="compact")
    without_key = encode_batch([Record(0, 1_000, None, b"v")])
    damaged = encode_batch([Record(0, 1_000, b"k", b"v")])
    damaged[-1] ^= 1
    said = [await send(cluster, FLIGHTS, batch) for batch in (without_key, damaged)]
    said += [await produce(cluster, FLIGHTS, 100), await produce(cluster, FLIGHTS, 1)]
    return said


async def idempotence(cluster: Cluster) -> Transcript:
    await make(cluster)
    producer = await init_producer_id(cluster)
    said: Transcript = [producer.producer_epoch]
    steps = [(0, 2, 0), (2, 3, 0), (0, 2, 0), (2, 3, 0), (2, 1, 0), (9, 1, 0), (5, 1, 0), (3, 1, 1), (0, 1, 1)]
    steps += [(6, 1, 0), (1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 1, 1), (0, 1, 1), (1, 1, 1)]
    for sequence, count, epoch in steps:
        how: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        said.append(await produce(cluster, FLIGHTS, count, **how))
    return [*said, await layout(cluster, FLIGHTS, producer)]


async def transactions(cluster: Cluster) -> Transcript:
    await make(cluster)
    said: Transcript = [await produce(cluster, FLIGHTS, 2)]
    first = await init_producer_id(cluster, "one")
    other = await init_producer_id(cluster, "two")
    for name, producer in (("one", first), ("two", other)):
        await add_partitions_to_txn(cluster, name, producer, [FLIGHTS, OTHER])
        how = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0}
        said.append(await produce(cluster, FLIGHTS, 2, tid=name, transactional=True, **how))
    said += [await fetched(cluster, 0, IsolationLevel.READ_COMMITTED)]
    await end_txn(cluster, "one", first, commit=False)
    await init_producer_id(cluster, "one")
    said += [await fetched(cluster, 0, IsolationLevel.READ_COMMITTED)]
    await end_txn(cluster, "two", other, commit=True)
    await init_producer_id(cluster, "two")
    said += [await fetched(cluster, offset, IsolationLevel.READ_COMMITTED) for offset in (0, 2, 5, 7)]
    said += [await fetched(cluster, 0, IsolationLevel.READ_UNCOMMITTED)]
    return [*said, await layout(cluster, FLIGHTS, first, other), await layout(cluster, OTHER, first, other)]


async def a_fence(cluster: Cluster) -> Transcript:
    await make(cluster)
    said: Transcript = []

    async def tried(asked: Awaitable[Any]) -> Any:
        try:
            answer = await asked
        except KafkaError as error:
            said.append(error.code.name)
            return None
        said.append(answer.producer_epoch if isinstance(answer, ProducerIdAndEpoch) else answer)
        return answer

    first = await tried(init_producer_id(cluster, "link"))
    how = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch, "base_sequence": 0}
    said.append(await produce(cluster, FLIGHTS, 1, **how))
    second = await tried(init_producer_id(cluster, "link"))
    await tried(init_producer_id(cluster, "link", first))
    await add_partitions_to_txn(cluster, "link", second, [FLIGHTS, OTHER])
    await tried(add_partitions_to_txn(cluster, "link", first, [FLIGHTS]))
    await end_txn(cluster, "link", second, commit=False)
    third = await tried(init_producer_id(cluster, "link", second))
    await tried(init_producer_id(cluster, "link", second))  # as if its answer had been lost
    said.append(await produce(cluster, FLIGHTS, 1, **{**how, "base_sequence": 1}))
    said.append(await produce(cluster, OTHER, 1, **how))
    said.append(await produce(cluster, OTHER, 1, **{**how, "producer_epoch": third.producer_epoch}))
    await tried(init_producer_id(cluster, "link"))
    await tried(init_producer_id(cluster, "link", second))
    await tried(end_txn(cluster, "link", second, commit=False))
    return [*said, await layout(cluster, FLIGHTS, first), await layout(cluster, OTHER, first)]


async def topics(cluster: Cluster) -> Transcript:
    await make(cluster, max_message_bytes="5000")
    again = await create_topics(cluster, [NewTopic("flights", 1, 1), NewTopic("orders", 1, 1)])
    grown = await create_partitions(cluster, {"flights": 3, "orders": 1, "nothing": 2})
    found = await describe_topics(cluster, ["flights", "orders", "nothing"])
    configs = (await describe_topic_configs(cluster, ["flights", "nothing"])).items()
    return [
        {name: error.code.name for name, error in (again | grown).items()},
        {name: [p[:3] for p in map(_placed, topic.partitions)] for name, topic in found.items()},
        len({topic.topic_id for topic in found.values()}),
        [
            entries.code.name
            if isinstance(entries, KafkaError)
            else {n: (e.value, e.source) for n, e in entries.items() if n in CONFIG_DEFAULTS}
            for _, entries in configs
        ],
    ]


def _placed(partition: Any) -> tuple[int, int, int]:
    return partition.partition, partition.leader_id, partition.leader_epoch


async def groups(cluster: Cluster) -> Transcript:
    await make(cluster)
    said: Transcript = [await committed_offsets(cluster, "g")]
    await commit_offsets(cluster, "g", {FLIGHTS: CommittedOffset(3, "x"), OTHER: CommittedOffset(0)})
    await commit_offsets(cluster, "g", {FLIGHTS: CommittedOffset(2)})
    described = await describe_groups(cluster, ["g", "none"])
    listed = await list_groups(cluster)
    found, failures = split_failures(described)
    assert not failures
    return [*said, await committed_offsets(cluster, "g"), listed, {n: d.state for n, d in found.items()}]


async def groups_in_transactions(cluster: Cluster) -> Transcript:
    """Staged, taken back, committed, overtaken by a plain commit, refused for what is not there, and fenced; and over
    what another transaction holds.
    """
    await make(cluster)
    said: Transcript = []

    async def stage(producer: ProducerIdAndEpoch, txn: str = "one", **offsets: int) -> None:
        try:
            await add_groups_to_txn(cluster, txn, producer, offsets)
            wanted = {name: {FLIGHTS: CommittedOffset(offset, "x")} for name, offset in offsets.items()}
            for name in wanted:
                wanted[name][TopicPartition("none", 0)] = CommittedOffset(1)
            found = await stage_offsets(cluster, txn, producer, wanted, patience_ms=500)
            said.append([(n, o.is_any_taken, str(o.error), o.held) for n, o in found.items() if isinstance(o, Staged)])
        except KafkaError as error:
            said.append(error.code.name)
        said.append([await committed_offsets(cluster, name) for name in offsets])

    first = await init_producer_id(cluster, "one")
    await stage(first, g=3, h=4)
    await commit_offsets(cluster, "h", {FLIGHTS: CommittedOffset(9)})
    await end_txn(cluster, "one", first, commit=True)
    second = await init_producer_id(cluster, "one")
    await stage(second, g=5)
    await stage(first, g=6)
    third = await init_producer_id(cluster, "one")
    await stage(second, g=7)
    await stage(third, g=8)
    await end_txn(cluster, "one", third, commit=False)
    for is_first_to_end in (True, False):
        one, two = await init_producer_id(cluster, "one"), await init_producer_id(cluster, "two")
        await stage(one, g=20 + is_first_to_end)
        await stage(two, "two", g=30 + is_first_to_end)
        said.append(await held_offsets(cluster, {"g": [FLIGHTS, OTHER], "h": [FLIGHTS]}))
        for txn, producer in (("one", one), ("two", two))[:: 1 if is_first_to_end else -1]:
            await end_txn(cluster, txn, producer, commit=True)
            await init_producer_id(cluster, txn)
            said.append((await committed_offsets(cluster, "g"), await stable_offsets_of_groups(cluster, ["g", "h"])))
    return [*said, await committed_offsets(cluster, "g"), await committed_offsets(cluster, "h")]


async def leader_epochs(cluster: Cluster) -> Transcript:
    await make(cluster)
    await produce(cluster, FLIGHTS, 3)
    epoch = (await describe_topics(cluster, ["flights"]))["flights"].partitions[0].leader_epoch
    connection = await cluster.connection(await cluster.leader(*FLIGHTS))
    said: Transcript = [epoch]
    for asked, current in ((epoch, -1), (epoch, epoch), (epoch + 1, -1), (epoch, epoch + 1), (epoch - 1, -1)):
        partitions = [OffsetForLeaderPartition(0, current, asked), OffsetForLeaderPartition(7, -1, asked)]
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("flights", partitions)])
        answer = (await connection.request(request)).topics[0].partitions
        said.append([(p.error_code, p.leader_epoch, p.end_offset) for p in answer])
    return said


CONVERSATIONS: list[Conversation] = [
    plain_records,
    refused_batches,
    idempotence,
    transactions,
    a_fence,
    topics,
    groups,
    groups_in_transactions,
    leader_epochs,
]


def simulated(conversation: Conversation) -> Transcript:
    loop = SimulatedLoop()
    rng, trace = random.Random(1), Trace(loop.time)
    network = Network(loop, rng, trace, Weather())
    site = SimulatedCluster("west", loop, rng, trace, node_count=1)
    network.nodes[site.address(1)] = SimulatedNode(site, 1)

    async def main() -> Transcript:
        async with Cluster(Site("west", site.bootstrap), clock=SimulatedClock(loop)) as cluster:
            return await conversation(cluster)

    return loop.run(main())


async def real(conversation: Conversation, folder: Path) -> Transcript:
    async with running_broker(folder) as address, Cluster(Site("west", address)) as cluster:
        return await conversation(cluster)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_the_simulated_cluster_answers_as_the_broker_does(conversation: Conversation, tmp_path: Path) -> None:
    assert simulated(conversation) == asyncio.run(real(conversation, tmp_path))
