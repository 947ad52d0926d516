"""Topics of farshore's own that are to outlive a disk: made with as many replicas as the cluster gives, and found where
it gave few.

The replicas that are wanted are asked for whoever is away: a controller with KRaft places them on brokers that it has
registered. One with ZooKeeper refuses what it has no living brokers for, and what cannot wait is made with fewer then.
Why nothing heals that unasked: docs/adr/0036-replicas-of-farshores-own-topics.md.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.model import Topic
from broker.client.topics import NewTopic, create_topics
from broker.wire.errors import ErrorCode

REPLICAS_WANTED: Final = 3


async def create_durable_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> dict[str, KafkaError]:
    """As `create_topics`, whatever replication factor they name."""
    failures: dict[str, KafkaError] = {}
    asked = [replace(topic, replication_factor=REPLICAS_WANTED) for topic in topics]
    while asked:
        found = await create_topics(cluster, asked)
        too_many = [one for one in asked if one.replication_factor > 1 and _is_too_many(found.get(one.name))]
        failures |= {name: error for name, error in found.items() if name not in {one.name for one in too_many}}
        brokers = max(1, len(cluster.nodes))
        asked = [replace(one, replication_factor=min(brokers, one.replication_factor - 1)) for one in too_many]
    return failures


async def make_durable_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> None:
    """Those that nobody has made by now. Raises ClientError."""
    for error in (await create_durable_topics(cluster, topics)).values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error


def _is_too_many(error: KafkaError | None) -> bool:
    return error is not None and error.code is ErrorCode.INVALID_REPLICATION_FACTOR


@dataclass(frozen=True, slots=True)
class FewReplicas:
    """A topic that has fewer replicas than are wanted, and than there are brokers; `command` gives it the others."""

    topic: str
    replicas: int
    wanted: int
    command: str


async def few_replicas(cluster: Cluster, names: Iterable[str]) -> tuple[FewReplicas, ...]:
    """Those of the topics; of one that is not there, or may not be described, nothing is said. Raises ClientError."""
    metadata = await cluster.metadata(names)
    brokers = sorted(metadata.nodes)
    wanted = min(REPLICAS_WANTED, len(brokers))
    return tuple(
        FewReplicas(name, topic.replication_factor, wanted, _command(cluster, topic, brokers, wanted))
        for name, topic in sorted(metadata.topics.items())
        if 0 < topic.replication_factor < wanted
    )


def _command(cluster: Cluster, topic: Topic, brokers: Sequence[int], wanted: int) -> str:
    moved = []
    for each in topic.partitions:
        if len(each.replicas) < wanted:
            at = each.partition % len(brokers)
            others = [broker for broker in (*brokers[at:], *brokers[:at]) if broker not in each.replicas]
            replicas = [*each.replicas, *others][:wanted]
            moved.append({"topic": topic.name, "partition": each.partition, "replicas": replicas})
    document = json.dumps({"version": 1, "partitions": moved}, separators=(",", ":"))
    tool = f"kafka-reassign-partitions.sh --bootstrap-server {cluster.site.bootstrap_servers}"
    return f"echo {shlex.quote(document)} >replicas.json; {tool} --reassignment-json-file replicas.json --execute"
