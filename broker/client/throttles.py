"""Throttles that a reassignment left behind: it is over, and they still slow the replicas that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.client.cluster import Cluster
from broker.client.configs import ConfigEntry
from broker.client.errors import ClientError, KafkaError
from broker.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

THROTTLED_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


async def throttles_left(cluster: Cluster, configs: Mapping[str, Mapping[str, ConfigEntry]]) -> dict[str, str]:
    """By topic what is throttled, and what ends it, where none of its partitions moves. `configs` by topic and name."""
    throttled = {topic: lists for topic, entries in sorted(configs.items()) if (lists := _lists(entries))}
    if not throttled:
        return {}
    known = "no partition of it moves"
    moving: set[str] = set()
    try:
        connection = await cluster.controller()
        answer = await connection.request(ListPartitionReassignmentsRequest(topics=None))
        if answer.error_code:
            raise KafkaError(answer.error_code, f"partitions that move at {cluster.site.name}", answer.error_message)
        moving = {topic.name for topic in answer.topics}
    except ClientError as error:
        known = f"whether a partition of it moves is not known: {error}"
    return {topic: _told(topic, lists, known) for topic, lists in throttled.items() if topic not in moving}


def _lists(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    return {name: each.value for name in THROTTLED_REPLICAS if (each := entries.get(name)) and each.value}


def _told(topic: str, lists: Mapping[str, str], known: str) -> str:
    named = ", ".join(f"{name}={value}" for name, value in lists.items())
    return (
        f"{named}; {known}; these catch up no faster than their brokers' throttled.rate; to end it: kafka-configs "
        f"--alter --entity-type topics --entity-name {topic} --delete-config {','.join(lists)}"
    )
