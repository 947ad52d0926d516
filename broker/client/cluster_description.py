"""A cluster as each of its brokers tells it: described for people, and held against itself.

It speaks Kafka's protocol only, so it works on Apache Kafka too. Brokers of KRaft clusters name any broker as the
controller, by chance: of those it is said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from broker.base.address import Address
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.model import ClusterMetadata, Node, Partition, read_metadata
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_log_dirs import DescribeLogDirsResult
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.vocabulary import NO_LEADER, TopicPartition

KRAFT_FEATURE: Final = "metadata.version"


class ClusterFindingKind(StrEnum):
    BROKER_MISSING = "broker_missing"
    """It should be one of the cluster's, and the cluster has none of its id."""
    BROKER_SILENT = "broker_silent"
    ZOOKEEPER_UNREACHABLE = "zookeeper_unreachable"
    """From where it was asked; brokers that do not reach it either lead nothing."""
    NO_CONTROLLER = "no_controller"
    CONTROLLERS_DIFFER = "controllers_differ"
    BROKERS_DIFFER = "brokers_differ"
    LEADERS_DIFFER = "leaders_differ"
    NO_LEADER = "no_leader"
    LEADER_REFUSES = "leader_refuses"
    BELOW_MIN_INSYNC_REPLICAS = "below_min_insync_replicas"
    UNDER_REPLICATED = "under_replicated"
    TOPIC_UNREADABLE = "topic_unreadable"
    TOPIC_CONFIGS_UNREADABLE = "topic_configs_unreadable"
    """So how many of its replicas have to be in sync, and whether it is throttled, is not known."""
    REPLICA_NOT_ASSIGNED = "replica_not_assigned"
    STRAY = "stray"
    """Records that farshore's own broker set aside, because the metadata does not have their topic id there."""
    LOG_DIR_UNREADABLE = "log_dir_unreadable"
    THROTTLE_LEFT = "throttle_left"


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """Something that is not as it should be. `topic`, `partition` and `broker` are None where it is not about one."""

    kind: ClusterFindingKind
    topic: str | None
    partition: int | None
    broker: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker and what it has; `in_sync` are those of its `replicas` that count as being so. `problem` says why it
    does not answer.
    """

    node_id: int
    address: str
    rack: str | None
    is_controller: bool | None
    leaders: int
    replicas: int
    in_sync: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster in numbers. `controller_id` is None where there is none or it cannot be known (KRaft)."""

    cluster_id: str
    controller_id: int | None
    brokers: int
    topics: int
    partitions: int
    without_leader: int
    under_replicated: int


@dataclass(frozen=True, slots=True)
class ControllerTold:
    """Who is the controller, as one broker tells it: None when it knows of none; `problem` when it does not answer."""

    node_id: int
    controller_id: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """What every broker that was named told of itself and of all others, or why it did not."""

    metadata: ClusterMetadata
    told: Mapping[int, ClusterMetadata | ClientError]
    is_kraft: bool

    def partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for name, topic in sorted(self.metadata.topics.items()):
            for partition in topic.partitions:
                yield TopicPartition(name, partition.partition), partition

    @property
    def controller_id(self) -> int | None:
        return None if self.is_kraft else _known(self.metadata)


LogDirs = Mapping[int, Sequence[DescribeLogDirsResult] | ClientError]
"""What each broker has on its disks, or why it does not tell."""


async def look_from_each(cluster: Cluster) -> ClusterLook:
    """Asks every broker for everything. Raises ClientError when none answers."""
    metadata = await cluster.metadata()
    told: dict[int, ClusterMetadata | ClientError] = {}
    kraft: set[bool] = set()

    async def ask(node_id: int) -> None:
        try:
            connection = await cluster.connection(node_id)
            answer = await connection.request(MetadataRequest(None, allow_auto_topic_creation=False))
        except ClientError as error:
            told[node_id] = error
            return
        kraft.add(KRAFT_FEATURE in connection.features)
        told[node_id] = read_metadata(answer)

    async with asyncio.TaskGroup() as tasks:
        for node_id in metadata.nodes:
            tasks.create_task(ask(node_id))
    return ClusterLook(metadata, told, True in kraft)


def describe_cluster(look: ClusterLook) -> ClusterDescription:
    states = [state for _, state in look.partitions()]
    return ClusterDescription(
        look.metadata.cluster_id,
        look.controller_id,
        len(look.metadata.nodes),
        len(look.metadata.topics),
        len(states),
        sum(state.leader_id == NO_LEADER for state in states),
        sum(len(state.isr) < len(state.replicas) for state in states),
    )


def describe_brokers(look: ClusterLook, node_ids: Collection[int] = ()) -> list[BrokerDescription]:
    """`node_ids`: those that should be there; they have a line also where they are not."""
    states = [state for _, state in look.partitions()]
    leaders = Counter(state.leader_id for state in states)
    replicas = Counter(node for state in states for node in state.replicas)
    in_sync = Counter(node for state in states for node in state.isr)
    gone = {node: Node(node, "", -1) for node in {*replicas, *node_ids} - look.metadata.nodes.keys()}
    return [
        BrokerDescription(
            node_id,
            str(Address(node.host, node.port)) if node.host else "",
            node.rack,
            None if look.is_kraft else node_id == look.controller_id,
            leaders[node_id],
            replicas[node_id],
            in_sync[node_id],
            "it is not there" if node_id in gone else _problem(look.told[node_id]),
        )
        for node_id, node in sorted({**look.metadata.nodes, **gone}.items())
    ]


def controllers_told(look: ClusterLook) -> list[ControllerTold]:
    return [
        ControllerTold(node_id, None, _problem(told))
        if isinstance(told, ClientError)
        else ControllerTold(node_id, None if look.is_kraft else _known(told))
        for node_id, told in sorted(look.told.items())
    ]


def broker_findings(look: ClusterLook, node_ids: Collection[int] = ()) -> Iterator[ClusterFinding]:
    """Of brokers that should be there (`node_ids`) and are not, or do not answer, and of what they tell differently."""
    kind = ClusterFindingKind
    for node_id in sorted(set(node_ids) - look.metadata.nodes.keys()):
        yield ClusterFinding(kind.BROKER_MISSING, None, None, node_id, "it is not one of the cluster's brokers now")
    heard: dict[int, ClusterMetadata] = {}
    for node_id, told in sorted(look.told.items()):
        if isinstance(told, ClientError):
            yield ClusterFinding(kind.BROKER_SILENT, None, None, node_id, str(told))
        else:
            heard[node_id] = told
    if not look.is_kraft:
        controllers = {node_id: _known(told) for node_id, told in heard.items()}
        if len(set(controllers.values())) > 1:
            yield ClusterFinding(kind.CONTROLLERS_DIFFER, None, None, None, _each_tells(controllers))
        elif None in controllers.values():
            yield ClusterFinding(kind.NO_CONTROLLER, None, None, None, "no broker that is there is the controller")
    brokers = {node_id: tuple(sorted(told.nodes)) for node_id, told in heard.items()}
    if len(set(brokers.values())) > 1:
        yield ClusterFinding(kind.BROKERS_DIFFER, None, None, None, _each_tells(brokers))
    led = {node_id: _leaders(told) for node_id, told in heard.items()}
    for where in sorted({where for told in led.values() for where in told}):
        leaders = {node_id: told.get(where, "none") for node_id, told in led.items()}
        if len(set(leaders.values())) > 1:
            yield ClusterFinding(kind.LEADERS_DIFFER, where.topic, where.partition, None, _each_tells(leaders))


def partition_findings(
    look: ClusterLook, refused: Mapping[TopicPartition, ClientError], min_insync_replicas: Mapping[str, int]
) -> Iterator[ClusterFinding]:
    """`refused`: partitions for which the leader did not answer; `min_insync_replicas` by topic."""
    kind = ClusterFindingKind
    for name, code in sorted(look.metadata.topic_errors.items()):
        is_held_back = code is ErrorCode.LEADER_NOT_AVAILABLE  # by farshore's own brokers
        told = "the controller's log says what of its metadata cannot be read" if is_held_back else code.description
        yield ClusterFinding(kind.TOPIC_UNREADABLE, name, None, None, told)
    for where, state in look.partitions():
        wanted = min(min_insync_replicas.get(where.topic, 1), len(state.replicas))
        in_sync = f"{len(state.isr)} of {len(state.replicas)} replicas are in sync"
        lacking = ", ".join(str(node) for node in state.replicas if node not in state.isr)
        if state.leader_id == NO_LEADER:
            last = ", ".join(map(str, state.isr)) or "nobody"
            detail = f"replicas on brokers {', '.join(map(str, state.replicas))}; the last in sync: {last}"
            yield ClusterFinding(kind.NO_LEADER, *where, None, detail)
        elif where in refused:
            yield ClusterFinding(kind.LEADER_REFUSES, *where, state.leader_id, str(refused[where]))
        if len(state.isr) < wanted:
            yield ClusterFinding(
                kind.BELOW_MIN_INSYNC_REPLICAS, *where, None, f"{in_sync}, {wanted} are wanted; lacking: {lacking}"
            )
        elif lacking:
            yield ClusterFinding(kind.UNDER_REPLICATED, *where, None, f"{in_sync}; lacking: {lacking}")


def disk_findings(look: ClusterLook, dirs: LogDirs, hidden: Collection[str] = ()) -> Iterator[ClusterFinding]:
    """What brokers have on their disks that is not theirs to have. Who tells nothing is said not to.

    `hidden`: names that this client may not describe: whether there are such topics it cannot know, and their replicas
    are passed over.
    """
    unreadable = ClusterFindingKind.LOG_DIR_UNREADABLE
    assigned = {where: state.replicas for where, state in look.partitions()}
    for node_id, told in sorted(dirs.items()):
        if isinstance(told, ClientError):
            yield ClusterFinding(unreadable, None, None, node_id, f"what it has on its disks is not known: {told}")
            continue
        for each in told:
            if each.error_code:
                detail = f"{each.log_dir}: {ErrorCode.of(each.error_code).description}"
                yield ClusterFinding(unreadable, None, None, node_id, detail)
            # Of a topic that cannot be read nobody knows whose it is.
            topics = [topic for topic in each.topics if topic.name not in {*look.metadata.topic_errors, *hidden}]
            yield from _not_its_own(node_id, replace(each, topics=topics), assigned)


def _not_its_own(
    node_id: int, has: DescribeLogDirsResult, assigned: Mapping[TopicPartition, Sequence[int]]
) -> Iterator[ClusterFinding]:
    for topic in has.topics:
        for replica in topic.partitions:
            where = TopicPartition(topic.name, replica.partition_index)
            replicas = assigned.get(where)
            if replicas is None or node_id not in replicas:
                detail = f"{replica.partition_size} bytes in {has.log_dir}; {_assigned_to(replicas)}"
                yield ClusterFinding(ClusterFindingKind.REPLICA_NOT_ASSIGNED, *where, node_id, detail)
    for stray in has.strays:
        detail = (
            f"{stray.size} bytes that the metadata does not have on this broker are kept, and taken in again when it "
            f"has them again; where they are not wanted: rm -r {stray.folder}"
        )
        yield ClusterFinding(ClusterFindingKind.STRAY, stray.topic, stray.partition, node_id, detail)


def _assigned_to(replicas: Sequence[int] | None) -> str:
    if replicas is None:
        return "the metadata has no such partition"
    return f"the metadata has its replicas on brokers {', '.join(map(str, replicas))}"


def _known(metadata: ClusterMetadata) -> int | None:
    return metadata.controller_id if metadata.controller_id in metadata.nodes else None


def _leaders(metadata: ClusterMetadata) -> dict[TopicPartition, str]:
    """A topic of the same name that was made anew has another id."""
    return {
        TopicPartition(name, at.partition): f"{at.leader_id} in leader epoch {at.leader_epoch}, topic {topic.topic_id}"
        for name, topic in metadata.topics.items()
        for at in topic.partitions
    }


def _problem(told: ClusterMetadata | ClientError) -> str:
    return str(told) if isinstance(told, ClientError) else ""


def _each_tells(told: Mapping[int, object]) -> str:
    return "; ".join(f"broker {node_id} tells {value}" for node_id, value in sorted(told.items()))
