"""A consumer that says its rack reads there, what is acknowledged and nothing else (KIP-392)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.wire.errors import ErrorCode
from broker.wire.messages.fetch import FetchResponse, PartitionData
from tests.broker.cluster.test_three_replicas import create, ends
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import WireClient, batch_of, fetch_request, values_in

NODES = (1, 2, 3)
RACKS = {1: "a", 2: "b", 3: "c"}
WAIT_MS = 60_000


async def fetch(client: WireClient, offset: int, rack: str, **fields: Any) -> PartitionData:
    request = fetch_request("t", offset, rack_id=rack, **fields)
    return (await client.ask(request, 12, FetchResponse)).responses[0].partitions[0]


@asynccontextmanager
async def cluster_with(folder: Path, *values: str) -> AsyncIterator[tuple[RunningCluster, dict[int, WireClient], int]]:
    """Every replica has these records, and knows that all do."""
    async with running_cluster(folder, *NODES, racks=RACKS) as cluster, cluster.clients() as clients:
        await create(clients[1], "t")
        leader = await cluster.led("t")
        for value in values:
            assert (await clients[leader].produce("t", batch_of(value))).error_code == 0
        await until(lambda: ends(cluster) == {(0, len(values), len(values))})
        await until(lambda: all(len(server.broker.view.brokers) == 3 for server in cluster.servers.values()))
        yield cluster, clients, leader


async def test_the_leader_sends_a_consumer_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    async with cluster_with(tmp_path, "a", "b") as (_, clients, leader):
        for node in NODES:
            told = await fetch(clients[leader], 0, RACKS[node])
            assert told.error_code == 0
            assert told.preferred_read_replica == (-1 if node == leader else node)
            assert values_in(told) == (["a", "b"] if node == leader else [])
            there = await fetch(clients[node], 1, RACKS[node], current_leader_epoch=0)
            assert (there.preferred_read_replica, there.high_watermark) == (-1, 2)
            assert values_in(there)[-1] == "b"
        for nowhere in ("", "d"):
            assert values_in(await fetch(clients[leader], 0, nowhere)) == ["a", "b"]
        assert (await fetch(clients[leader], 3, RACKS[leader % 3 + 1])).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_who_compares_replicas_is_answered_by_each_of_them(tmp_path: Path) -> None:
    async with cluster_with(tmp_path, "a", "b") as (_, clients, _leader):
        for node in NODES:
            told = await fetch(clients[node], 0, "", replica_id=-2)
            assert (told.error_code, told.high_watermark, values_in(told)) == (0, 2, ["a", "b"])


async def test_a_follower_gives_nothing_to_who_expects_a_leader_or_another_epoch(tmp_path: Path) -> None:
    async with cluster_with(tmp_path, "a") as (_, clients, leader):
        follower = leader % 3 + 1
        assert (await fetch(clients[follower], 0, "")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        newer = await fetch(clients[follower], 0, RACKS[follower], current_leader_epoch=1)
        assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_consumer_that_waits_at_a_follower_is_told_when_records_are_acknowledged_and_not_before(
    tmp_path: Path,
) -> None:
    async with cluster_with(tmp_path, "a") as (cluster, clients, leader):
        follower, slow = (node for node in NODES if node != leader)
        assert (await fetch(clients[leader], 1, RACKS[follower])).preferred_read_replica == follower
        waiting = asyncio.create_task(fetch(clients[follower], 1, RACKS[follower], max_wait_ms=WAIT_MS))
        # The third replica copies nothing, so nothing more is acknowledged.
        topic = cluster.broker(slow).topics["t"]
        cluster.broker(slow).followers.forget(topic.topic_id, 0)
        assert (await clients[leader].produce("t", batch_of("b"), acks=1)).error_code == 0
        here = cluster.broker(follower).partition("t", 0)
        assert here is not None
        await until(lambda: here.log.log_end_offset == 2)
        assert (here.log.high_watermark, waiting.done()) == (1, False)
        cluster.broker(slow).followers.follow(leader, topic.topic_id, topic.partitions[0])
        async with asyncio.timeout(30):
            assert values_in(await waiting) == ["b"]
