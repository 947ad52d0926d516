"""Partitions of three real brokers that move: records and all, while they are written, and when it is called off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.cluster_description import ClusterFindingKind
from broker.client.cluster_verification import verify_cluster
from broker.client.site import Site
from broker.client.throttles import THROTTLED_REPLICAS
from broker.cluster.metadata import PartitionState
from broker.wire.errors import ErrorCode
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import WireClient, batch_of, values_in

NODES = (1, 2, 3)


async def create(client: WireClient, *assigned: list[int]) -> None:
    topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(i, each) for i, each in enumerate(assigned)])
    assert (await client.ask(CreateTopicsRequest([topic]), 7, CreateTopicsResponse)).topics[0].error_code == 0


async def reassign(client: WireClient, wanted: Mapping[int, Sequence[int] | None]) -> list[int]:
    moved = [ReassignablePartition(i, None if nodes is None else list(nodes)) for i, nodes in wanted.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", moved)])
    answer = await client.ask(request, 0, AlterPartitionReassignmentsResponse)
    assert answer.error_code == 0
    (topic,) = answer.responses
    return [result.error_code for result in topic.partitions]


async def under_way(
    client: WireClient, topics: list[ListPartitionReassignmentsTopics] | None = None
) -> dict[int, tuple[list[int], list[int], list[int]]]:
    answer = await client.ask(ListPartitionReassignmentsRequest(topics=topics), 0, ListPartitionReassignmentsResponse)
    assert answer.error_code == 0
    return {
        one.partition_index: (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


async def settled(cluster: RunningCluster, replicas: tuple[int, ...], index: int = 0) -> PartitionState:
    def has_moved() -> bool:
        state = cluster.told("t", index)
        return state is not None and state.replicas == replicas and set(state.isr) == set(replicas)

    await until(has_moved)
    state = cluster.told("t", index)
    assert state is not None
    return state


def folders(tmp_path: Path) -> set[int]:
    return {node for node in NODES if (tmp_path / str(node) / "t-0").is_dir()}


async def test_a_partition_moves_with_its_records_while_it_is_written(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], [1])
        assert await cluster.led("t") == 1
        for value in "abc":
            assert (await clients[1].produce("t", batch_of(value))).error_code == 0
        other = next(node for node in NODES if node != cluster.controller)
        assert await reassign(clients[other], {0: [3, 2]}) == [0]
        moved = await settled(cluster, (3, 2))
        assert moved.leader in (2, 3)
        assert await under_way(clients[other]) == {}
        await until(lambda: folders(tmp_path) == {2, 3})
        leader = await cluster.led("t")
        assert (await clients[leader].produce("t", batch_of("d"))).error_code == 0
        assert values_in(await clients[leader].fetch("t", 0, version=11)) == ["a", "b", "c", "d"]
        assert (await clients[1].produce("t", batch_of("x"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_move_that_waits_is_listed_outlives_its_controller_and_ends_when_it_can(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster:
        await until(lambda: cluster.controller is not None)
        controller = cluster.controller
        assert controller is not None
        stays, comes = (node for node in NODES if node != controller)
        in_the_way = tmp_path / str(comes) / "t-0"
        in_the_way.write_text("no folder can be made here")
        expected = {0: ([comes, stays], [comes], [stays])}
        async with cluster.clients() as clients:
            await create(clients[stays], [stays])
            assert (await clients[stays].produce("t", batch_of("a"))).error_code == 0
            assert await reassign(clients[stays], {0: [comes]}) == [0]
            assert await under_way(clients[stays]) == expected
            named = [ListPartitionReassignmentsTopics("t", [1]), ListPartitionReassignmentsTopics("none", [0])]
            assert await under_way(clients[stays], named) == {}
            request = CreatePartitionsRequest([CreatePartitionsTopic("t", 2)])
            grown = await clients[stays].ask(request, 3, CreatePartitionsResponse)
            assert grown.results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        await cluster.kill(controller)
        await until(lambda: cluster.controller in (stays, comes))
        async with cluster.clients() as clients:
            assert await under_way(clients[stays]) == expected
            assert values_in(await clients[stays].fetch("t", 0, version=11)) == ["a"]
        await cluster.kill(comes)
        in_the_way.unlink(missing_ok=True)
        await cluster.start(comes)
        await settled(cluster, (comes,))
        await until(lambda: folders(tmp_path) == {comes})
        assert await cluster.led("t") == comes
        async with cluster.clients() as clients:
            assert values_in(await clients[comes].fetch("t", 0, version=11)) == ["a"]


async def test_a_move_is_called_off(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], [1], [1])
        (tmp_path / "3" / "t-0").write_text("no folder can be made here")
        assert await reassign(clients[2], {0: [2, 3], 1: None}) == [0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
        await until(lambda: (tmp_path / "2" / "t-0").is_dir())
        assert await reassign(clients[3], {0: None}) == [0]
        assert (await settled(cluster, (1,))).leader == 1
        await until(lambda: folders(tmp_path) == {1})
        assert await under_way(clients[1]) == {}
        assert (await clients[1].produce("t", batch_of("a"))).error_code == 0
        refused = {0: [2, 2], 1: [], 2: [1]}
        wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await reassign(clients[1], refused) == [wrong, wrong, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await reassign(clients[1], {0: [9]}) == [wrong]


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_move_that_is_held_back_goes_on_when_the_rate_is_raised(tmp_path: Path, side: str) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], [1])
        await cluster.led("t")
        assert (await clients[1].produce("t", batch_of("a"))).error_code == 0
        held_back, rate = f"{side}.replication.throttled.replicas", f"{side}.replication.throttled.rate"
        await cluster.broker(2).topic_configs.alter("t", lambda _: {held_back: "0:1" if side == "leader" else "0:3"})
        await cluster.broker(2).broker_configs.alter(default=True, change=lambda _: {rate: "0"})
        await until(lambda: all(cluster.broker(node).broker_configs.value(rate) == "0" for node in NODES))
        await until(lambda: bool(cluster.broker(1).topics["t"].state.configs))
        assert await reassign(clients[1], {0: [3, 1]}) == [0]
        await until(lambda: cluster.broker(3).partition("t", 0) is not None)
        leading = cluster.broker(1).require_partition("t", 0).leading
        assert leading is not None
        if side == "leader":
            await until(lambda: (follower := leading.follower(3)) is not None and follower.end_offset == 0)
        assert await under_way(clients[1])
        here = cluster.broker(3).partition("t", 0)
        assert here is not None
        assert here.log.log_end_offset == 0
        await cluster.broker(3 if side == "follower" else 1).broker_configs.alter(
            default=False, change=lambda _: {rate: "1000000"}
        )
        await settled(cluster, (3, 1))


async def test_throttles_are_found_when_a_move_left_them_and_not_while_it_is_under_way(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], [1])
        await cluster.led("t")
        lists = {name: f"0:{node}" for node, name in zip((1, 3), THROTTLED_REPLICAS, strict=True)}
        await cluster.broker(2).topic_configs.alter("t", lambda _: lists)
        await until(
            lambda: all(lists.items() <= cluster.broker(node).view.topics["t"].configs.items() for node in NODES)
        )
        (tmp_path / "3" / "t-0").write_text("no folder can be made here")
        assert await reassign(clients[2], {0: [3]}) == [0]
        site = Site("east", ",".join(server.address for server in cluster.servers.values()))
        async with Cluster(site) as client:
            found = {each.kind for each in (await verify_cluster(client)).findings}
            assert found
            assert ClusterFindingKind.THROTTLE_LEFT not in found
            assert await reassign(clients[2], {0: None}) == [0]
            await settled(cluster, (1,))
            (left,) = (await verify_cluster(client)).findings
        assert (left.kind, left.topic) == (ClusterFindingKind.THROTTLE_LEFT, "t")
        assert "no partition of it moves" in left.detail
        assert left.detail.endswith(f"--entity-name t --delete-config {','.join(lists)}")
        assert all(f"{name}={value}" in left.detail for name, value in lists.items())
