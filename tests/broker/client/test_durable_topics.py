"""Topics that are to outlive a disk: as many replicas as the cluster will give, also on a day when brokers are away."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.durable_topics import create_durable_topics, few_replicas
from broker.client.errors import KafkaError
from broker.client.site import Site
from broker.client.topics import NewTopic, describe_topics
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.wire.schema import Message
from tests.broker.client.peer import peer
from tests.broker.running_cluster import RunningCluster, running_cluster, until

TOPIC = NewTopic("journal", 1, configs={"cleanup.policy": "compact"})


class Registered:
    """A cluster that takes up to so many replicas, of whose brokers one answers; or that refuses with that `code`."""

    def __init__(self, brokers: int, code: ErrorCode = ErrorCode.INVALID_REPLICATION_FACTOR) -> None:
        self.brokers, self.code = brokers, code
        self.asked: list[int] = []
        self.made: dict[str, int] = {}
        self.port = 0

    async def answer(self, _header: RequestHeader, message: Message) -> Message:
        if isinstance(message, CreateTopicsRequest):
            (topic,) = message.topics
            self.asked.append(topic.replication_factor)
            is_refused = topic.replication_factor > self.brokers
            if not is_refused:
                self.made[topic.name] = topic.replication_factor
            return CreateTopicsResponse(
                0, [CreatableTopicResult(topic.name, error_code=self.code if is_refused else 0)]
            )
        assert isinstance(message, MetadataRequest)
        topics = [
            MetadataResponseTopic(
                0, name, partitions=[MetadataResponsePartition(0, 0, 1, 1, list(range(1, count + 1)), [1])]
            )
            for name, count in self.made.items()
        ]
        broker = MetadataResponseBroker(1, "127.0.0.1", self.port)
        return MetadataResponse(brokers=[broker], cluster_id="c", controller_id=1, topics=topics)


@asynccontextmanager
async def at(site: Registered) -> AsyncIterator[Cluster]:
    async with peer(site.answer) as address:
        site.port = address.port
        async with Cluster(Site("west", str(address))) as cluster:
            yield cluster


@pytest.mark.parametrize(
    ("brokers", "asked"),
    [
        pytest.param(3, [3], id="two are registered, and away"),
        pytest.param(5, [3], id="more than are wanted"),
        pytest.param(1, [3, 1], id="there are no others"),
    ],
)
async def test_as_many_replicas_are_asked_for_as_are_wanted_and_fewer_where_they_are_refused(
    brokers: int, asked: list[int]
) -> None:
    """Kafka's controllers with KRaft place replicas on brokers that are away: these catch up when they are back."""
    site = Registered(brokers)
    async with at(site) as cluster:
        assert await create_durable_topics(cluster, [TOPIC]) == {}
    assert (site.asked, site.made) == (asked, {"journal": asked[-1]})


async def test_any_other_refusal_is_the_answer() -> None:
    site = Registered(0, ErrorCode.POLICY_VIOLATION)
    async with at(site) as cluster:
        failures = await create_durable_topics(cluster, [TOPIC])
    assert {name: error.code for name, error in failures.items()} == {"journal": ErrorCode.POLICY_VIOLATION}
    assert site.asked == [3]


async def test_one_that_takes_none_is_not_asked_for_ever() -> None:
    site = Registered(0)
    async with at(site) as cluster:
        (error,) = (await create_durable_topics(cluster, [TOPIC])).values()
    assert isinstance(error, KafkaError)
    assert site.asked == [3, 1]


async def reassign(brokers: RunningCluster, command: str) -> None:
    """What the printed command asks for."""
    told = json.loads(shlex.split(command)[1])
    topics: dict[str, list[ReassignablePartition]] = {}
    for each in told["partitions"]:
        topics.setdefault(each["topic"], []).append(ReassignablePartition(each["partition"], each["replicas"]))
    asked = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name, of) for name, of in topics.items()])
    assert brokers.controller is not None
    async with brokers.clients() as clients:
        answer = await clients[brokers.controller].ask(asked, 0, AlterPartitionReassignmentsResponse)
    assert answer.error_code == 0


async def test_what_a_bad_day_made_is_told_when_brokers_are_back_and_the_command_heals_it(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 1) as brokers:
        site = Site("west", str(brokers.servers[1].address))
        async with Cluster(site) as cluster:
            assert await create_durable_topics(cluster, [NewTopic("journal", 2)]) == {}
            assert await few_replicas(cluster, ["journal", "not-there"]) == (), "one broker is all there is"
        await brokers.start(2, 3)
        async with Cluster(site) as cluster:

            async def is_told() -> bool:
                return bool(found := await few_replicas(cluster, ["journal"])) and found[0].wanted == 3

            await until(is_told)
            (found,) = await few_replicas(cluster, ["journal"])
            assert (found.topic, found.replicas) == ("journal", 1)
            await reassign(brokers, found.command)

            async def is_healed() -> bool:
                topic = (await describe_topics(cluster, ["journal"]))["journal"]
                return all(len(each.isr) == 3 for each in topic.partitions)

            await until(is_healed)
            assert await few_replicas(cluster, ["journal"]) == ()
