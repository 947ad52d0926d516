"""Orders over the wire come out as they went in, but for what the other side has no use for."""

from __future__ import annotations

import uuid
from dataclasses import replace
from random import Random
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.metadata import BrokerRegistration, Endpoint, LiveBroker, PartitionState, TopicState
from broker.cluster.order_messages import (
    SECURITY_PROTOCOLS,
    carried_order,
    leader_and_isr_order,
    leader_and_isr_request,
    leader_and_isr_response,
    stop_replica_failures,
    stop_replica_order,
    stop_replica_request,
    stop_replica_response,
    update_metadata_order,
    update_metadata_request,
)
from broker.cluster.orders import Carried, LeaderAndIsr, ReplicaLog, StopReplica, UpdateMetadata
from broker.wire.codec import decode, encode_bytes
from broker.wire.errors import ErrorCode
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition

M = TypeVar("M", bound=Message)

INT32 = st.integers(-1, 2**31 - 1)
EPOCHS = st.integers(-1, 2**63 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
LOGS = st.lists(
    st.none()
    | st.builds(
        ReplicaLog,
        leader_epoch=INT32,
        epochs=st.lists(st.tuples(INT32, OFFSETS), max_size=3).map(tuple),
        end_offset=OFFSETS,
        high_watermark=OFFSETS,
    ),
    max_size=4,
)
NODES = st.lists(st.integers(0, 5), max_size=4, unique=True).map(tuple)
NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXT = st.text(max_size=5)
STATES = st.builds(
    PartitionState,
    leader=st.integers(-1, 5),
    leader_epoch=INT32,
    replicas=NODES,
    isr=NODES,
    adding_replicas=NODES,
    removing_replicas=NODES,
    controller_epoch=INT32,
    recovering=st.booleans(),
    version=INT32,
    isr_epochs=st.lists(st.tuples(st.integers(0, 5), EPOCHS), max_size=3).map(tuple),
)
ENDPOINTS = st.builds(Endpoint, TEXT, TEXT, st.integers(0, 65535), st.sampled_from(list(SECURITY_PROTOCOLS)))
BROKERS = st.dictionaries(st.integers(0, 5), st.tuples(st.lists(ENDPOINTS, max_size=2), st.none() | TEXT, EPOCHS)).map(
    lambda found: {
        node: LiveBroker(BrokerRegistration(node, tuple(endpoints), rack), epoch)
        for node, (endpoints, rack, epoch) in found.items()
    }
)
TOPICS = st.dictionaries(
    NAMES,
    st.builds(
        TopicState,
        name=st.just(""),
        topic_id=st.uuids(),
        partitions=st.lists(STATES, max_size=3).map(tuple),
        configs=st.dictionaries(TEXT, TEXT, max_size=2),
        config_version=INT32,
    ),
).map(lambda topics: {name: replace(topic, name=name) for name, topic in topics.items()})


def sent(message: M) -> M:
    low, high = message.VERSIONS
    assert low == high
    data = encode_bytes(message, high)
    decoded, end = decode(type(message), high, data)
    assert end == len(data)
    return decoded


def states_of(topics: dict[str, TopicState]) -> dict[TopicPartition, PartitionState]:
    return {TopicPartition(t.name, i): state for t in topics.values() for i, state in enumerate(t.partitions)}


@given(TOPICS, BROKERS, INT32, INT32, EPOCHS, st.booleans(), st.frozensets(NAMES), LOGS, st.randoms())
def test_leader_and_isr(
    topics: dict[str, TopicState],
    brokers: dict[int, LiveBroker],
    controller: int,
    epoch: int,
    broker_epoch: int,
    complete: bool,
    unreadable: frozenset[str],
    told: list[ReplicaLog | None],
    rng: Random,
) -> None:
    states = states_of(topics)
    new = frozenset(where for where in states if rng.random() < 0.5)
    order = LeaderAndIsr(controller, epoch, broker_epoch, topics, states, brokers, new, complete, unreadable)
    request = sent(leader_and_isr_request(order))
    bare = {name: replace(topic, partitions=()) for name, topic in topics.items()}
    arrived = leader_and_isr_order(request)
    assert arrived == replace(order, topics=bare, brokers={})
    assert {w: s.isr_epochs for w, s in arrived.partitions.items()} == {w: s.isr_epochs for w, s in states.items()}
    by_id = {topic.topic_id: name for name, topic in topics.items()}
    failures = {w: ErrorCode.KAFKA_STORAGE_ERROR for w in states if by_id[topics[w.topic].topic_id] == w.topic}
    logs = {where: log for where, log in zip(failures, told, strict=False) if log is not None}
    carried = Carried(failures, logs)
    assert carried_order(order, sent(leader_and_isr_response(request, carried))) == carried


@given(TOPICS, BROKERS, INT32, INT32, EPOCHS, st.booleans(), st.frozensets(NAMES), st.frozensets(NAMES))
def test_update_metadata(
    topics: dict[str, TopicState],
    brokers: dict[int, LiveBroker],
    controller: int,
    epoch: int,
    broker_epoch: int,
    complete: bool,
    gone: frozenset[str],
    unreadable: frozenset[str],
) -> None:
    order = UpdateMetadata(controller, epoch, broker_epoch, topics, gone - topics.keys(), brokers, complete, unreadable)
    told = {
        name: replace(
            topic,
            partitions=tuple(
                replace(state, adding_replicas=(), removing_replicas=(), recovering=False) for state in topic.partitions
            ),
        )
        for name, topic in topics.items()
    }
    assert update_metadata_order(sent(update_metadata_request(order))) == replace(order, topics=told)


@given(st.dictionaries(NAMES, st.uuids(), min_size=1), st.booleans(), st.lists(INT32, min_size=1, max_size=3))
def test_stop_replica(topic_ids: dict[str, uuid.UUID], delete: bool, epochs: list[int]) -> None:
    partitions = {TopicPartition(name, index): epoch for name in topic_ids for index, epoch in enumerate(epochs)}
    order = StopReplica(1, 2, 3, topic_ids, partitions, delete)
    assert stop_replica_order(sent(stop_replica_request(order))) == order
    failures = dict.fromkeys(partitions, ErrorCode.FENCED_LEADER_EPOCH)
    assert stop_replica_failures(sent(stop_replica_response(failures))) == failures
