"""Who leads in a cluster of three, by command and by itself."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from broker.errors import BrokerError
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.vocabulary import ElectionType
from tests.broker.cluster.test_three_replicas import create
from tests.broker.running_cluster import RunningCluster, running_cluster, until
from tests.broker.wire_client import WireClient, batch_of

NODES = (1, 2, 3)


async def elect(
    client: WireClient, kind: ElectionType, wheres: dict[str, list[int]] | None, version: int = 2
) -> dict[tuple[str, int], int]:
    named = None if wheres is None else [ElectLeadersTopicPartitions(*each) for each in wheres.items()]
    answer = await client.ask(ElectLeadersRequest(kind, named), version, ElectLeadersResponse)
    assert answer.error_code == 0
    return {
        (topic.topic, result.partition_id): result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


async def in_sync(cluster: RunningCluster, index: int, nodes: tuple[int, ...]) -> None:
    await until(lambda: (state := cluster.told("t", index)) is not None and sorted(state.isr) == list(nodes))


async def test_first_replicas_lead_again_when_they_are_asked_to(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, auto_leader_rebalance_enable=False) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t", 3)
            owners = {index: await cluster.led("t", index) for index in range(3)}
        (lost,) = (index for index, node in owners.items() if node == 2)
        await cluster.kill(2)
        assert await cluster.led("t", lost) != 2
        async with cluster.clients() as clients:
            codes = await elect(clients[1], ElectionType.PREFERRED, {"t": [lost], "none": [0]})
            assert codes == {
                ("t", lost): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
        await cluster.start(2)
        for index in range(3):
            await in_sync(cluster, index, NODES)
        async with cluster.clients() as clients:
            assert cluster.controller is not None
            other = next(node for node in NODES if node != cluster.controller)
            assert await elect(clients[other], ElectionType.PREFERRED, None) == {("t", lost): 0}
            assert {index: await cluster.led("t", index) for index in range(3)} == owners
            assert await elect(clients[other], ElectionType.PREFERRED, None) == {}
            for version in (0, 1, 2):
                codes = await elect(clients[other], ElectionType.PREFERRED, {"t": [0, 0]}, version)
                assert codes == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


async def test_an_unclean_election_by_command_goes_on_without_what_is_lost(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, *NODES, auto_leader_rebalance_enable=False) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t")
            first = await cluster.led("t")
        others = [node for node in NODES if node != first]
        await cluster.kill(others[0])
        await cluster.kill(others[1])
        await until(lambda: (state := cluster.told("t")) is not None and state.isr == (first,))
        async with cluster.clients() as clients:
            assert (await clients[first].produce("t", batch_of("lost"))).error_code == 0
        await cluster.kill(first)
        await cluster.start(*others)
        await until(lambda: (state := cluster.told("t")) is not None and state.leader == -1)
        async with cluster.clients() as clients:
            client = clients[others[0]]
            (told,) = (await client.ask(MetadataRequest(None), 12, MetadataResponse)).topics[0].partitions
            assert (told.leader_id, told.isr_nodes) == (-1, [first]), "whom an operator has to bring back"
            assert told.offline_replicas == [first]
            codes = await elect(client, ElectionType.PREFERRED, {"t": [0]})
            assert codes == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
            assert await elect(client, ElectionType.UNCLEAN, {"t": [0]}) == {("t", 0): 0}
            leader = await cluster.led("t", among=others)
            assert (await clients[leader].produce("t", batch_of("kept"))).error_code == 0
            codes = await elect(client, ElectionType.UNCLEAN, {"t": [0]})
            assert codes == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


@pytest.mark.parametrize(("percent", "comes_back"), [(10, True), (100, False)])
async def test_leaders_come_back_by_themselves_beyond_the_imbalance_that_is_allowed(
    tmp_path: Path, percent: int, comes_back: bool
) -> None:
    settings = {"leader_imbalance_check_interval_seconds": 1, "leader_imbalance_per_broker_percentage": percent}
    async with running_cluster(tmp_path, *NODES, **settings) as cluster:
        async with cluster.clients() as clients:
            await create(clients[1], "t")
            first = await cluster.led("t")
        await cluster.kill(first)
        assert await cluster.led("t") != first
        await cluster.start(first)
        await in_sync(cluster, 0, NODES)
        if comes_back:
            await until(lambda: (state := cluster.told("t")) is not None and state.leader == first)
        async with cluster.clients() as clients:
            codes = await elect(clients[first], ElectionType.PREFERRED, {"t": [0]})
            assert codes == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED if comes_back else 0}


async def test_who_leaves_is_not_taken_in_again_before_it_is_gone(tmp_path: Path) -> None:
    """Its logs may take long to close, and what is produced meanwhile would wait for it."""
    async with running_cluster(tmp_path, *NODES) as cluster, cluster.clients() as clients:
        await create(clients[1], "t")
        leader = await cluster.led("t")
        leaving = next(node for node in NODES if node not in (leader, cluster.controller))
        await in_sync(cluster, 0, NODES)
        partition = cluster.broker(leaving).partition("t", 0)
        assert partition is not None
        epoch = partition.leader_epoch
        await cluster.broker(leaving).leave()
        await until(lambda: partition.leader_epoch > epoch)
        for value in "abc":
            assert (await clients[leader].produce("t", batch_of(value))).error_code == 0
        state = cluster.told("t")
        assert state is not None
        assert set(state.isr) == set(NODES) - {leaving}
        leading = cluster.broker(leader).require_partition("t", 0).leading
        assert leading is not None
        follower = leading.follower(leaving)
        assert follower is not None
        assert follower.end_offset < 0, "it asks for nothing any more"


async def test_who_leaves_answers_for_no_group_before_another_one_can(tmp_path: Path) -> None:
    """It leaves the ISR before it hears who leads in its place: what it knows of a group may be old then."""
    async with running_cluster(tmp_path, *NODES) as cluster:

        async def is_served() -> bool:
            with contextlib.suppress(BrokerError):
                await cluster.broker(NODES[0]).groups.partition_for("g")
                await cluster.broker(await cluster.led(OFFSETS_TOPIC)).groups.at("g")
                return True
            return False

        await until(is_served)
        leaving = cluster.broker(await cluster.led(OFFSETS_TOPIC))
        going = asyncio.ensure_future(leaving.leave())
        await asyncio.sleep(0)
        with pytest.raises(BrokerError) as refused:
            await leaving.groups.at("g")
        assert refused.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await going
