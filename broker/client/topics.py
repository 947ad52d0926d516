"""Topics of a cluster: list, create, grow, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_leaders
from broker.client.model import Topic
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from broker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from broker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.vocabulary import BROKER_DEFAULT, NO_LEADER, TopicPartition

T = TypeVar("T")
Described: TypeAlias = tuple[Mapping[str, Topic], Mapping[str, KafkaError]]
"""A cluster's topics, and why others cannot be described."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


async def list_topics(cluster: Cluster, known: Iterable[str] = ()) -> dict[str, Topic]:
    """All topics that can be described now, by name. Raises KafkaError where one of the `known` is not shown, and that
    is not for its being gone, and ClientError.
    """
    topics, failures = await list_each_topic(cluster, known)
    for failure in failures.values():
        raise failure
    return topics


async def list_each_topic(
    cluster: Cluster, known: Iterable[str], selects: Callable[[str], bool] = lambda _name: False
) -> tuple[dict[str, Topic], dict[str, KafkaError]]:
    """All topics that can be described now, and why others of the `known` cannot be, or of those that it lists without
    describing them, where `selects` says so; those of them that do not exist are in neither.

    A cluster leaves out of its list what one may not describe, as if it were not there. Asked for it by name it says
    so.
    """
    topics, listed = await describe_each_topic(cluster)
    unlisted = set(known).union(filter(selects, listed)) - topics.keys()
    if not unlisted:
        return topics, {}
    found, failures = await describe_each_topic(cluster, unlisted)
    return {**topics, **found}, failures


async def describe_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, Topic]:
    """These topics, by name; those that do not exist are left out. Raises KafkaError for any other error."""
    topics, failures = await describe_each_topic(cluster, names)
    for failure in failures.values():
        raise failure
    return topics


async def describe_each_topic(
    cluster: Cluster, names: Iterable[str] | None = None
) -> tuple[dict[str, Topic], dict[str, KafkaError]]:
    """These topics (None: all), and why others of them cannot be described; those that do not exist are in neither."""
    metadata = await cluster.metadata(names)
    failures = {
        name: KafkaError(code, f"topic {name} at {cluster.site.name}")
        for name, code in metadata.topic_errors.items()
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    return dict(metadata.topics), failures


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, KafkaError]:
    """Make topics and wait until each has its leaders -> those that could not be made, and why.

    A topic that exists is among the failures, with TOPIC_ALREADY_EXISTS; one that was made and got no leaders within
    `retry_timeout_ms`, with LEADER_NOT_AVAILABLE; one that was made, and that one may not describe, with
    TOPIC_AUTHORIZATION_FAILED. Raises ClientError.
    """
    if not topics:
        return {}
    asked = [
        CreatableTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    request = CreateTopicsRequest(asked, cluster.limits.delivery_timeout_ms, validate_only)

    async def ask(connection: Connection) -> dict[str, KafkaError]:
        response = await connection.request(request)
        return _failures(cluster, [(t.name, t.error_code, t.error_message) for t in response.topics])

    failures = await ask_controller(cluster, ask)
    if not validate_only:
        made = {topic.name: max(1, topic.partitions) for topic in topics if topic.name not in failures}
        failures |= await _await_leaders(cluster, made)
    return failures


async def create_topic(cluster: Cluster, topic: NewTopic, *, if_not_exists: bool) -> None:
    """Make one topic and wait until it has its leaders. Raises KafkaError where it could not be made.

    `if_not_exists`: one of that name is no error. Raises ClientError.
    """
    for error in (await create_topics(cluster, [topic])).values():
        if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            raise error


async def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> dict[str, KafkaError]:
    """Grow topics to these partition counts and wait for the leaders -> those that could not grow, and why."""
    if not counts:
        return {}
    asked = [CreatePartitionsTopic(name, count, None) for name, count in counts.items()]
    request = CreatePartitionsRequest(asked, cluster.limits.delivery_timeout_ms)

    async def ask(connection: Connection) -> dict[str, KafkaError]:
        response = await connection.request(request)
        return _failures(cluster, [(t.name, t.error_code, t.error_message) for t in response.results])

    failures = await ask_controller(cluster, ask)
    grown = {name: count for name, count in counts.items() if name not in failures}
    return failures | await _await_leaders(cluster, grown)


async def delete_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, KafkaError]:
    """Delete topics -> those that could not be deleted, and why."""
    wanted = list(names)
    if not wanted:
        return {}
    request = DeleteTopicsRequest(
        [DeleteTopicState(name) for name in wanted], wanted, cluster.limits.delivery_timeout_ms
    )

    async def ask(connection: Connection) -> dict[str, KafkaError]:
        response = await connection.request(request)
        answers = [(t.name or "", t.error_code, t.error_message) for t in response.responses]
        return _failures(cluster, answers)

    failures = await ask_controller(cluster, ask)
    cluster.forget_leaders(wanted)
    return failures


async def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete what lies before these offsets (-1: all that is there) -> the new log start offsets."""

    async def ask(connection: Connection, share: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | ErrorCode]:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for where, offset in share.items():
            topics.setdefault(where.topic, []).append(DeleteRecordsPartition(where.partition, offset))
        asked = [DeleteRecordsTopic(name, partitions) for name, partitions in topics.items()]
        response = await connection.request(DeleteRecordsRequest(asked, cluster.limits.delivery_timeout_ms))
        return {
            TopicPartition(topic.name, found.partition_index): ErrorCode.of(found.error_code)
            if found.error_code
            else found.low_watermark
            for topic in response.topics
            for found in topic.partitions
        }

    return await ask_leaders(cluster, "delete records", before, ask)


async def ask_controller(
    cluster: Cluster, ask: Callable[[Connection], Awaitable[dict[str, KafkaError]]]
) -> dict[str, KafkaError]:
    """Ask the controller, again while it is elsewhere -> failures by name; NOT_CONTROLLER never is among them.

    A lost connection leaves open whether it was done; asking again is safe, because doing it twice only gives
    TOPIC_ALREADY_EXISTS or the like.
    """
    retry = cluster.retry()
    while True:
        try:
            failures = await ask(await cluster.controller())
            moved = [e for e in failures.values() if e.code is ErrorCode.NOT_CONTROLLER]
            if not moved:
                return failures
            await retry.pause(moved[0])
        except ClientError as error:
            await retry.pause(error)
        cluster.forget_controller()


async def _await_leaders(cluster: Cluster, partition_counts: Mapping[str, int]) -> dict[str, KafkaError]:
    """Wait until the broker asked knows the topics, with their leaders -> those where that took too long, or that one
    may not see.
    """
    retry, hidden = cluster.retry(), dict[str, KafkaError]()
    while partition_counts:
        found, failures = await describe_each_topic(cluster, partition_counts)
        hidden = {n: error for n, error in failures.items() if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        shown = ((name, count) for name, count in partition_counts.items() if name not in hidden)
        missing = [name for name, count in shown if not _is_ready(found.get(name), count)]
        if not missing:
            break
        errors = {n: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {n} at {cluster.site.name}") for n in missing}
        try:
            await retry.pause(errors[missing[0]])
        except KafkaError:  # the time is over; the other topics are ready
            return errors | hidden
    return hidden


def _is_ready(topic: Topic | None, partitions: int) -> bool:
    if topic is None or len(topic.partitions) < partitions:
        return False
    return all(partition.leader_id != NO_LEADER for partition in topic.partitions)


def _failures(cluster: Cluster, answers: Iterable[tuple[str, int, str | None]]) -> dict[str, KafkaError]:
    return {
        name: KafkaError(code, f"topic {name} at {cluster.site.name}", detail) for name, code, detail in answers if code
    }
