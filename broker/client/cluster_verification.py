"""A cluster held against itself: what is found twice, some seconds apart, is no passing state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.client.cluster import Cluster
from broker.client.cluster_description import (
    ClusterFinding,
    ClusterFindingKind,
    ClusterLook,
    LogDirs,
    broker_findings,
    disk_findings,
    look_from_each,
    partition_findings,
)
from broker.client.configs import ConfigEntry, describe_topic_configs
from broker.client.errors import ClientError, KafkaError
from broker.client.offsets import list_each_offset
from broker.client.throttles import throttles_left
from broker.client.topics import describe_each_topic
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from broker.wire.vocabulary import LATEST, NO_LEADER

SETTLING_S: Final = 2
"""Between two looks: what both find is no passing state of an election."""
LOOKS_MAX: Final = 5
"""Where each finds something else, the last one counts."""
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class ClusterVerification:
    """`topics_passed_over`: how many are on disks and may not be described by this client: whether they are there at
    all, and their replicas where they should be, is not known.
    """

    findings: Sequence[ClusterFinding]
    topics_passed_over: int = 0


async def verify_cluster(cluster: Cluster, node_ids: Collection[int] = ()) -> ClusterVerification:
    """What two looks find, one after the other; nothing, only when a look finds nothing. Raises ClientError.

    `node_ids`: the brokers that should be there, as far as that is known. Of topics that are passed over the last look
    counts.
    """
    passed_over = 0

    async def find() -> Sequence[ClusterFinding]:
        nonlocal passed_over
        last = await _verification(cluster, node_ids)
        passed_over = last.topics_passed_over
        return last.findings

    return ClusterVerification(await _staying(cluster, find), passed_over)


async def settled_look(
    cluster: Cluster, node_ids: Collection[int], kinds: Collection[ClusterFindingKind]
) -> tuple[ClusterLook, list[ClusterFinding]]:
    """The last look, and what is found of `kinds`, as by `verify_cluster`; brokers that are replicas should be there,
    too. Raises ClientError.
    """
    look: ClusterLook

    async def find() -> Sequence[ClusterFinding]:
        nonlocal look
        look = await look_from_each(cluster)
        replicas = {node for _, state in look.partitions() for node in state.replicas}
        return [each for each in broker_findings(look, {*node_ids, *replicas}) if each.kind in kinds]

    found = await _staying(cluster, find)
    return look, list(found)


async def _staying(
    cluster: Cluster, find: Callable[[], Awaitable[Sequence[ClusterFinding]]]
) -> Sequence[ClusterFinding]:
    before = await find()
    for _ in range(LOOKS_MAX - 1):
        if not before:
            return []
        await cluster.clock.sleep(SETTLING_S)
        now = await find()
        seen = {(each.kind, each.topic, each.partition, each.broker) for each in before}
        staying = [each for each in now if (each.kind, each.topic, each.partition, each.broker) in seen]
        if staying:
            return staying
        # A broker that is first silent and then missed is not well for that.
        before = now
    return before


async def _verification(cluster: Cluster, node_ids: Collection[int]) -> ClusterVerification:
    look = await look_from_each(cluster)
    led = {where: LATEST for where, state in look.partitions() if state.leader_id != NO_LEADER}
    cluster.forget_leaders(look.metadata.topics)
    answers = await list_each_offset(cluster, led)
    refused = {where: answer for where, answer in answers.items() if isinstance(answer, ClientError)}
    configs = await describe_topic_configs(cluster, look.metadata.topics)
    readable = {name: entries for name, entries in configs.items() if not isinstance(entries, KafkaError)}
    wanted = {name: _min_insync(entries) for name, entries in readable.items()}
    heard = [node_id for node_id, told in look.told.items() if not isinstance(told, ClientError)]
    dirs = await _log_dirs(cluster, heard)
    hidden = await _hidden(cluster, _names_on(dirs) - look.metadata.topics.keys() - look.metadata.topic_errors.keys())
    unseen = [
        ClusterFinding(ClusterFindingKind.TOPIC_CONFIGS_UNREADABLE, name, None, None, str(entries))
        for name, entries in sorted(configs.items())
        if isinstance(entries, KafkaError)
    ]
    throttles = [
        ClusterFinding(ClusterFindingKind.THROTTLE_LEFT, topic, None, None, detail)
        for topic, detail in (await throttles_left(cluster, readable)).items()
    ]
    findings = [
        *broker_findings(look, node_ids),
        *partition_findings(look, refused, wanted),
        *disk_findings(look, dirs, hidden),
        *unseen,
        *throttles,
    ]
    return ClusterVerification(findings, len(hidden))


async def _log_dirs(cluster: Cluster, node_ids: Iterable[int]) -> LogDirs:
    found: dict[int, Sequence[DescribeLogDirsResult] | ClientError] = {}

    async def ask(node_id: int) -> None:
        try:
            connection = await cluster.connection(node_id)
            answer = await connection.request(DescribeLogDirsRequest(None))
        except ClientError as error:
            found[node_id] = error
        else:
            found[node_id] = answer.results
            if answer.error_code:
                what = f"broker {node_id} of {cluster.site.name} does not tell what is on its disks"
                found[node_id] = KafkaError(answer.error_code, what)

    async with asyncio.TaskGroup() as tasks:
        for node_id in node_ids:
            tasks.create_task(ask(node_id))
    return found


def _names_on(dirs: LogDirs) -> set[str]:
    read = [told for told in dirs.values() if not isinstance(told, ClientError)]
    return {topic.name for told in read for each in told for topic in each.topics}


async def _hidden(cluster: Cluster, names: Collection[str]) -> set[str]:
    """Of those on disks, and in no list, whose names this client may not describe. Kafka tells that of every such name,
    whether there is a topic of it or not; none is made by being asked for.
    """
    if not names:
        return set()
    _, failures = await describe_each_topic(cluster, names)
    return {name for name, failure in failures.items() if failure.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def _min_insync(entries: Mapping[str, ConfigEntry]) -> int:
    entry = entries.get(MIN_INSYNC_REPLICAS)
    return 1 if entry is None or entry.value is None else int(entry.value)
