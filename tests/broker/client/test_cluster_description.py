"""What is found of a cluster whose brokers differ, or lack something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.cluster_description import (
    ClusterFindingKind,
    ClusterLook,
    LogDirs,
    broker_findings,
    controllers_told,
    describe_brokers,
    describe_cluster,
    disk_findings,
    look_from_each,
    partition_findings,
)
from broker.client.cluster_verification import settled_look, verify_cluster
from broker.client.errors import ConnectionLost, KafkaError
from broker.client.model import ClusterMetadata, Node, Partition, Topic
from broker.client.site import Site
from broker.controller.requests import NewTopic
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    StrayFolder,
)
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from tests.broker.running import TIMEOUT_MS
from tests.broker.running_cluster import running_cluster, until

Kind = ClusterFindingKind
WHERE = TopicPartition("t", 0)
NODES = {node: Node(node, f"host-{node}", 9092, "a") for node in (1, 2, 3)}


def metadata(state: Partition | None = None, controller: int = 1) -> ClusterMetadata:
    states = (state or Partition(0, 1, 5, (1, 2, 3), (1, 2, 3)),)
    return ClusterMetadata("cluster", controller, NODES, {"t": Topic("t", None, False, states)}, {})


def look(told: ClusterMetadata | None = None, *, is_kraft: bool = False, **others: object) -> ClusterLook:
    """`others`: what brokers tell that tell something else, as `b2=...`."""
    base = told or metadata()
    answers = {node: others.get(f"b{node}", base) for node in NODES}
    return ClusterLook(base, answers, is_kraft)  # type: ignore[arg-type]


def found(look: ClusterLook, min_insync: int = 1, refused: KafkaError | None = None) -> list[tuple[Kind, int | None]]:
    wheres = {} if refused is None else {WHERE: refused}
    findings = [*broker_findings(look), *partition_findings(look, wheres, {"t": min_insync})]
    assert all(each.detail for each in findings)
    return [(each.kind, each.broker) for each in findings]


def test_nothing_is_found_of_a_cluster_that_is_as_it_should_be() -> None:
    assert found(look(), min_insync=3) == []
    assert found(look(), min_insync=4) == [], "a topic of three replicas cannot have four in sync"


@pytest.mark.parametrize(
    ("cluster", "kind"),
    [
        (look(b2=metadata(controller=2)), Kind.CONTROLLERS_DIFFER),
        (look(metadata(controller=-1)), Kind.NO_CONTROLLER),
        (look(metadata(controller=9)), Kind.NO_CONTROLLER),
        (look(b3=replace(metadata(), nodes={1: NODES[1], 3: NODES[3]})), Kind.BROKERS_DIFFER),
        (look(b2=metadata(Partition(0, 2, 6, (1, 2, 3), (1, 2, 3)))), Kind.LEADERS_DIFFER),
        (look(b2=metadata(Partition(0, 1, 4, (1, 2, 3), (1, 2, 3)))), Kind.LEADERS_DIFFER),
        (look(b2=replace(metadata(), topics={})), Kind.LEADERS_DIFFER),
        (
            look(b2=replace(metadata(), topics={"t": replace(metadata().topics["t"], topic_id=UUID(int=9))})),
            Kind.LEADERS_DIFFER,
        ),
        (look(metadata(Partition(0, NO_LEADER, 6, (1, 2, 3), (1, 2, 3)))), Kind.NO_LEADER),
        (look(metadata(Partition(0, 1, 6, (1, 2, 3), (1, 2)))), Kind.UNDER_REPLICATED),
        (look(replace(metadata(), topic_errors={"x": ErrorCode.UNKNOWN_SERVER_ERROR})), Kind.TOPIC_UNREADABLE),
    ],
)
def test_each_is_found_alone(cluster: ClusterLook, kind: Kind) -> None:
    assert found(cluster, min_insync=2) == [(kind, None)]


def test_a_topic_below_its_minimum_is_not_only_under_replicated() -> None:
    assert found(look(metadata(Partition(0, 1, 6, (1, 2, 3), (1,)))), min_insync=2) == [
        (Kind.BELOW_MIN_INSYNC_REPLICAS, None)
    ]


def test_a_leader_that_refuses_and_a_broker_that_is_silent_are_named() -> None:
    assert found(look(), refused=KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-0")) == [(Kind.LEADER_REFUSES, 1)]
    assert found(look(b3=ConnectionLost("gone"))) == [(Kind.BROKER_SILENT, 3)]


def test_what_the_broker_that_was_asked_first_lacks_is_found() -> None:
    lacking = replace(metadata(), topics={})
    assert (Kind.LEADERS_DIFFER, None) in found(look(lacking, b2=metadata(), b3=metadata()))


def test_of_kraft_clusters_the_controller_is_unknown() -> None:
    """Each broker names any broker as the controller."""
    kraft = look(is_kraft=True, b2=metadata(controller=2))
    assert found(kraft) == []
    assert describe_cluster(kraft).controller_id is None
    assert {broker.is_controller for broker in describe_brokers(kraft)} == {None}
    assert [told.controller_id for told in controllers_told(kraft)] == [None] * 3


def test_a_broker_that_is_gone_is_listed_with_what_it_has() -> None:
    told = replace(metadata(Partition(0, 1, 6, (1, 2, 9), (1, 2))), nodes={1: NODES[1], 2: NODES[2]})
    described = describe_brokers(ClusterLook(told, {1: told, 2: ConnectionLost("silent")}, False))
    assert [(each.node_id, each.leaders, each.replicas, each.in_sync) for each in described] == [
        (1, 1, 1, 1),
        (2, 0, 1, 1),
        (9, 0, 1, 0),
    ]
    assert [each.problem for each in described] == ["", "silent", "it is not there"]
    assert [each.is_controller for each in described] == [True, False, False]


def test_a_broker_that_should_be_there_has_a_line_though_it_has_nothing() -> None:
    described = describe_brokers(look(), [1, 4])
    assert [(each.node_id, each.problem) for each in described] == [(1, ""), (2, ""), (3, ""), (4, "it is not there")]


def on_disk(partition: int, *strays: StrayFolder, error: int = 0) -> DescribeLogDirsResult:
    topics = [DescribeLogDirsTopic("t", [DescribeLogDirsPartition(partition, 70)])]
    return DescribeLogDirsResult(error, "/data", topics, strays=list(strays))


def test_what_a_broker_has_and_should_not_have_is_named() -> None:
    cluster = look(metadata(Partition(0, 1, 5, (1, 3), (1, 3))))
    dirs = {
        1: [on_disk(0)],
        2: [on_disk(0)],
        3: [on_disk(1, StrayFolder("u", 4, "/data/u-4.id-stray", 9))],
    }
    named = [(each.kind, each.topic, each.partition, each.broker) for each in disk_findings(cluster, dirs)]
    assert named == [
        (Kind.REPLICA_NOT_ASSIGNED, "t", 0, 2),
        (Kind.REPLICA_NOT_ASSIGNED, "t", 1, 3),
        (Kind.STRAY, "u", 4, 3),
    ]
    details = [each.detail for each in disk_findings(cluster, dirs)]
    assert details[0] == "70 bytes in /data; the metadata has its replicas on brokers 1, 3"
    assert details[1] == "70 bytes in /data; the metadata has no such partition"
    assert details[2].endswith("rm -r /data/u-4.id-stray")
    unreadable = replace(metadata(), topics={}, topic_errors={"t": ErrorCode.UNKNOWN_SERVER_ERROR})
    assert {each.kind for each in disk_findings(look(unreadable), dirs)} == {Kind.STRAY}
    assert {each.kind for each in disk_findings(look(replace(metadata(), topics={})), dirs, {"t"})} == {Kind.STRAY}


def test_a_disk_that_cannot_be_read_and_a_broker_that_tells_nothing_are_findings() -> None:
    dirs: LogDirs = {1: [DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, "/data")], 2: ConnectionLost("silent")}
    named = [(each.kind, each.broker) for each in disk_findings(look(), dirs)]
    assert named == [(Kind.LOG_DIR_UNREADABLE, 1), (Kind.LOG_DIR_UNREADABLE, 2)]


class QuickClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)


async def test_of_real_brokers_what_one_lacks_is_found(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 1, 2, 3) as running:
        await until(lambda: running.controller is not None)
        await running.broker(1).controller.create_topic(NewTopic("t", 3, 3), TIMEOUT_MS)
        site = Site("east", ",".join(server.address for server in running.servers.values()))
        async with Cluster(site, clock=QuickClock()) as cluster:
            assert (await verify_cluster(cluster, [1, 2, 3])).findings == []
            seen = await look_from_each(cluster)
            assert describe_cluster(seen).controller_id == running.controller
            assert {told.controller_id for told in controllers_told(seen)} == {running.controller}
            assert [(each.leaders, each.replicas, each.problem) for each in describe_brokers(seen)] == [(1, 3, "")] * 3
        gone = next(node for node in running.servers if node != running.controller)
        await running.kill(gone)
        for index in range(3):
            await running.led("t", index)
        async with Cluster(site, clock=QuickClock()) as cluster:
            findings = (await verify_cluster(cluster)).findings
            again = await verify_cluster(cluster, [1, 2, 3])
            missing = [each for each in again.findings if each not in findings]
        async with Cluster(site, clock=QuickClock()) as cluster:
            settled, replica_gone = await settled_look(cluster, [], [Kind.BROKER_MISSING, Kind.NO_CONTROLLER])
            _, none = await settled_look(cluster, [1, 2, 3], [Kind.NO_CONTROLLER])
    assert [(each.kind, each.broker) for each in replica_gone] == [(Kind.BROKER_MISSING, gone)], "it has replicas"
    assert (set(settled.metadata.nodes), none) == ({1, 2, 3} - {gone}, [])
    assert [(each.kind, each.broker) for each in missing] == [(Kind.BROKER_MISSING, gone)]
    assert {each.kind for each in findings} == {Kind.UNDER_REPLICATED}
    assert [each.partition for each in findings] == [0, 1, 2]
    assert all(each.detail == f"2 of 3 replicas are in sync; lacking: {gone}" for each in findings)


class EventfulClock(SystemClock):
    """Between two looks something happens."""

    def __init__(self, *events: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.events = list(events)

    async def sleep(self, seconds: float) -> None:
        if self.events:
            await self.events.pop(0)()


async def test_findings_that_become_others_are_not_taken_for_none(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 1, 2) as running:

        async def another_one_goes() -> None:
            await running.start(3)
            await running.kill(2)
            await until(lambda: running.controller is not None and set(running.broker(1).view.brokers) == {1, 3})
            await until(lambda: set(running.broker(3).view.brokers) == {1, 3})

        async def it_comes_back() -> None:
            await running.start(2)
            await until(lambda: all(set(each.broker.view.brokers) == {1, 2, 3} for each in running.servers.values()))

        await until(lambda: running.controller is not None)
        site = Site("east", running.servers[1].address)
        async with Cluster(site, clock=EventfulClock(another_one_goes)) as cluster:
            findings = (await verify_cluster(cluster, [1, 2, 3])).findings
            assert [(each.kind, each.broker) for each in findings] == [(Kind.BROKER_MISSING, 2)]
        async with Cluster(site, clock=EventfulClock(it_comes_back)) as cluster:
            assert (await verify_cluster(cluster, [1, 2, 3])).findings == [], "one look found nothing"


async def test_where_every_look_finds_something_else_the_last_is_told(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, 1) as running:
        await until(lambda: running.controller is not None)
        wanted = {1, 2}

        async def others_are_wanted() -> None:
            wanted.add(max(wanted) + 1)
            wanted.discard(max(wanted) - 1)

        clock = EventfulClock(*[others_are_wanted] * 100)
        async with Cluster(Site("east", running.servers[1].address), clock=clock) as cluster:
            findings = (await verify_cluster(cluster, wanted)).findings
        assert [(each.kind, each.broker) for each in findings] == [(Kind.BROKER_MISSING, max(wanted))]
        assert clock.events, "it ends"
