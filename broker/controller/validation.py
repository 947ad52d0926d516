"""What a request for a topic must be, as Kafka checks it. Pure but for the random place where an assignment begins."""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from broker.cluster.metadata import NO_LEADER, LiveBroker, PartitionState, TopicState
from broker.controller.assignment import TooFewBrokers, assign_replicas
from broker.controller.elections import is_reassigned
from broker.controller.errors import ReassignmentUnderWay
from broker.controller.requests import NewTopic
from broker.limits import PARTITIONS_PER_TOPIC_MAX
from broker.topics import configs as topic_configs
from broker.topics.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicRequest,
    TopicExists,
)
from broker.topics.naming import INTERNAL_TOPICS, check_collision, check_name
from broker.wire.vocabulary import BROKER_DEFAULT, NO_LEADER_EPOCH

DEFAULT_REPLICATION_FACTOR: Final = 1


def new_topic_id(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)


def check_free(name: str, others: Collection[str]) -> None:
    """Raises InvalidTopicName, TopicExists."""
    check_name(name)
    if name in others:
        raise TopicExists(f"Topic '{name}' already exists.")
    check_collision(name, others)


def checked_topic(
    new: NewTopic, others: Collection[str], brokers: Mapping[int, LiveBroker], num_partitions: int, rng: random.Random
) -> TopicState:
    """The topic with replicas and no leaders yet. Raises as `ControllerRequests.create_topic`."""
    check_free(new.name, others)
    if new.assignment:
        if new.partitions != BROKER_DEFAULT or new.replication_factor != BROKER_DEFAULT:
            raise InvalidTopicRequest(
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time."
            )
        if sorted(new.assignment) != list(range(len(new.assignment))):
            raise InvalidReplicaAssignment("Partitions must be assigned once each, from 0 on.")
        assigned = [new.assignment[index] for index in range(len(new.assignment))]
        check_assignment(assigned, brokers)
        _check_partition_count(len(assigned))
    else:
        assigned = list(_assigned(new, brokers, num_partitions, rng))
    kept = topic_configs.checked(new.configs)
    return TopicState(new.name, new_topic_id(rng), _waiting(assigned), kept)


def _assigned(
    new: NewTopic, brokers: Mapping[int, LiveBroker], num_partitions: int, rng: random.Random
) -> Sequence[Sequence[int]]:
    factor = new.replication_factor
    if factor != BROKER_DEFAULT and factor < 1:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    count = num_partitions if new.partitions == BROKER_DEFAULT else new.partitions
    _check_partition_count(count)
    factor = DEFAULT_REPLICATION_FACTOR if factor == BROKER_DEFAULT else factor
    return assigned_at_random(brokers, count, factor, rng)


def assigned_at_random(
    brokers: Mapping[int, LiveBroker], count: int, factor: int, rng: random.Random
) -> Sequence[Sequence[int]]:
    """Raises InvalidReplicationFactor."""
    racks = {node: broker.registration.rack for node, broker in brokers.items()}
    first, shift = (rng.randrange(max(len(racks), 1)) for _ in range(2))
    try:
        return assign_replicas(racks, count, factor, first=first, shift=shift)
    except TooFewBrokers as error:
        raise InvalidReplicationFactor(
            f"Replication factor: {factor} larger than available brokers: {len(brokers)}.", hint=error.hint
        ) from error


def _check_partition_count(partitions: int) -> None:
    """Of a new topic. Raises InvalidPartitions."""
    if not 1 <= partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidPartitions(
            f"Number of partitions was set to {partitions}, allowed are 1 to {PARTITIONS_PER_TOPIC_MAX}."
        )


def check_assignment(assigned: Sequence[Sequence[int]], brokers: Mapping[int, LiveBroker]) -> None:
    """Raises InvalidReplicaAssignment unless every partition has equally many replicas on brokers that are there."""
    for replicas in assigned:
        if not replicas or len(set(replicas)) != len(replicas) or len(replicas) != len(assigned[0]):
            raise InvalidReplicaAssignment(f"Replicas {list(replicas)}: not the same number for each, or one twice.")
        if missing := [node for node in replicas if node not in brokers]:
            raise InvalidReplicaAssignment(
                f"Replicas {list(replicas)}: broker {missing[0]} is not there; there are {sorted(brokers)}."
            )


def _check_same_factor(topic: TopicState, assignment: Sequence[Sequence[int]]) -> None:
    """A partition of fewer replicas than the others would lose what these keep. Raises InvalidReplicaAssignment."""
    factor = len(topic.partitions[0].replicas)
    if (given := len(assignment[0])) != factor:
        raise InvalidReplicaAssignment(
            "Inconsistent replication factor between partitions: "
            f"partition 0 of {topic.name} has {factor} replicas, the new ones would have {given}."
        )


def grown_topic(
    topic: TopicState,
    count: int,
    assignment: Sequence[Sequence[int]] | None,
    brokers: Mapping[int, LiveBroker],
    rng: random.Random,
) -> TopicState:
    """The topic with more partitions, without leaders yet. Raises as `ControllerRequests.grow_topic`."""
    if topic.name in INTERNAL_TOPICS:
        # A group's partition follows from their number: with another one its offsets would not be found again.
        raise InvalidTopicRequest(f"The number of partitions of {topic.name} cannot be changed.")
    if any(is_reassigned(state) for state in topic.partitions):
        raise ReassignmentUnderWay(f"Partitions of {topic.name} are being reassigned.")
    now = len(topic.partitions)
    if not now < count <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidPartitions(
            f"Topic currently has {now} partitions, {count} is not an increase up to {PARTITIONS_PER_TOPIC_MAX}."
        )
    if assignment is None:
        assignment = assigned_at_random(brokers, count - now, len(topic.partitions[0].replicas), rng)
    elif len(assignment) != count - now:
        raise InvalidReplicaAssignment(f"{len(assignment)} assignments do not fit the new partitions.")
    else:
        check_assignment(assignment, brokers)
        _check_same_factor(topic, assignment)
    return TopicState(
        topic.name,
        topic.topic_id,
        (*topic.partitions, *_waiting(assignment)),
        topic.configs,
        topic.version,
        topic.config_version,
    )


def _waiting(assigned: Sequence[Sequence[int]]) -> tuple[PartitionState, ...]:
    """Equal ones are one object: a topic of ten thousand partitions has few different ones."""
    states: dict[tuple[int, ...], PartitionState] = {}
    for replicas in {tuple(each) for each in assigned}:
        states[replicas] = PartitionState(NO_LEADER, NO_LEADER_EPOCH, replicas, ())
    return tuple(states[tuple(replicas)] for replicas in assigned)
