"""Orders as Kafka's messages, and back. Pure.

What Kafka has stands in its fields; what only our orders say, in tagged fields (`wire/messages/own_fields.py`,
`docs/adr/0015-orders-in-kafkas-messages.md`). Of the topics of LeaderAndIsr only those partitions are told that the
order is about.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from broker.cluster.metadata import (
    INTER_BROKER_LISTENER,
    BrokerRegistration,
    Endpoint,
    LiveBroker,
    PartitionState,
    TopicState,
)
from broker.cluster.orders import Carried, Failures, LeaderAndIsr, ReplicaLog, StopReplica, UpdateMetadata
from broker.wire.errors import ErrorCode
from broker.wire.messages.leader_and_isr import (
    IsrEpoch,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrLog,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    LogEpoch,
)
from broker.wire.messages.own_fields import SetConfig, TopicConfigs
from broker.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from broker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.wire.vocabulary import TopicPartition

INCREMENTAL: Final = 1
FULL: Final = 2
LED_DURING_DELETION: Final = -2
"""In place of a leader, where the topic is gone."""
RECOVERING: Final = 1
NO_PORT: Final = -1
SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_PROTOCOL_NAMES: Final = {number: name for name, number in SECURITY_PROTOCOLS.items()}

# -- LeaderAndIsr --------------------------------------------------------------------------------------------------


def leader_and_isr_request(order: LeaderAndIsr) -> LeaderAndIsrRequest:
    states = {
        name: LeaderAndIsrTopicState(name, topic.topic_id, configs=_configs(topic))
        for name, topic in order.topics.items()
    }
    for where, state in order.partitions.items():
        states[where.topic].partition_states.append(
            LeaderAndIsrPartitionState(
                where.partition,
                state.controller_epoch,
                state.leader,
                state.leader_epoch,
                list(state.isr),
                state.version,
                list(state.replicas),
                list(state.adding_replicas),
                list(state.removing_replicas),
                where in order.new,
                RECOVERING if state.recovering else 0,
                [IsrEpoch(node, epoch) for node, epoch in state.isr_epochs],
            )
        )
    leaders = {state.leader for state in order.partitions.values()}
    return LeaderAndIsrRequest(
        controller_id=order.controller,
        controller_epoch=order.controller_epoch,
        broker_epoch=order.broker_epoch,
        type=FULL if order.complete else INCREMENTAL,
        topic_states=list(states.values()),
        live_leaders=[_live_leader(broker) for node, broker in order.brokers.items() if node in leaders],
        unreadable_topics=sorted(order.unreadable),
    )


def _live_leader(broker: LiveBroker) -> LeaderAndIsrLiveLeader:
    endpoint = broker.registration.endpoint(INTER_BROKER_LISTENER)
    where = ("", NO_PORT) if endpoint is None else (endpoint.host, endpoint.port)
    return LeaderAndIsrLiveLeader(broker.registration.node_id, *where)


def leader_and_isr_order(request: LeaderAndIsrRequest) -> LeaderAndIsr:
    """Its topics have no partitions, and it names no brokers: what is followed is found by the broker's own view."""
    topics: dict[str, TopicState] = {}
    partitions: dict[TopicPartition, PartitionState] = {}
    new: set[TopicPartition] = set()
    for told in request.topic_states:
        topics[told.topic_name] = _topic(told.topic_name, told.topic_id, (), told.configs)
        for state in told.partition_states:
            where = TopicPartition(told.topic_name, state.partition_index)
            partitions[where] = PartitionState(
                state.leader,
                state.leader_epoch,
                tuple(state.replicas),
                tuple(state.isr),
                tuple(state.adding_replicas),
                tuple(state.removing_replicas),
                state.controller_epoch,
                state.leader_recovery_state == RECOVERING,
                state.partition_epoch,
                isr_epochs=tuple((each.broker_id, each.broker_epoch) for each in state.isr_epochs),
            )
            if state.is_new:
                new.add(where)
    return LeaderAndIsr(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        topics,
        partitions,
        {},
        frozenset(new),
        request.type == FULL,
        frozenset(request.unreadable_topics),
    )


def leader_and_isr_response(request: LeaderAndIsrRequest, carried: Carried) -> LeaderAndIsrResponse:
    """Of every partition of the request, as Kafka answers."""
    return LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(
                topic.topic_id,
                [
                    _partition_error(TopicPartition(topic.topic_name, state.partition_index), carried)
                    for state in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]
    )


def _partition_error(where: TopicPartition, carried: Carried) -> LeaderAndIsrPartitionError:
    told, code = carried.logs.get(where), carried.failures.get(where, ErrorCode.NONE)
    if told is None:
        return LeaderAndIsrPartitionError(where.partition, code)
    epochs = [LogEpoch(*each) for each in told.epochs]
    log = LeaderAndIsrLog(told.leader_epoch, epochs, told.end_offset, told.high_watermark)
    return LeaderAndIsrPartitionError(where.partition, code, log)


def carried_order(order: LeaderAndIsr, response: LeaderAndIsrResponse) -> Carried:
    names = {topic.topic_id: name for name, topic in order.topics.items()}
    told = {
        TopicPartition(names[topic.topic_id], each.partition_index): each
        for topic in response.topics
        if topic.topic_id in names
        for each in topic.partition_errors
    }
    return Carried(
        {where: ErrorCode.of(each.error_code) for where, each in told.items() if each.error_code},
        {where: _replica_log(each.log) for where, each in told.items() if each.log is not None},
    )


def _replica_log(log: LeaderAndIsrLog) -> ReplicaLog:
    epochs = tuple((each.leader_epoch, each.start_offset) for each in log.epochs)
    return ReplicaLog(log.leader_epoch, epochs, log.end_offset, log.high_watermark)


# -- StopReplica ---------------------------------------------------------------------------------------------------


def stop_replica_request(order: StopReplica) -> StopReplicaRequest:
    states = {name: StopReplicaTopicState(name, topic_id=topic_id) for name, topic_id in order.topic_ids.items()}
    for where, leader_epoch in order.partitions.items():
        states[where.topic].partition_states.append(
            StopReplicaPartitionState(where.partition, leader_epoch, order.delete)
        )
    return StopReplicaRequest(
        controller_id=order.controller,
        controller_epoch=order.controller_epoch,
        broker_epoch=order.broker_epoch,
        topic_states=list(states.values()),
    )


def stop_replica_order(request: StopReplicaRequest) -> StopReplica:
    told = [(topic, state) for topic in request.topic_states for state in topic.partition_states]
    return StopReplica(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        {topic.topic_name: topic.topic_id for topic in request.topic_states},
        {TopicPartition(topic.topic_name, state.partition_index): state.leader_epoch for topic, state in told},
        # One order has either.
        any(state.delete_partition for _, state in told),
    )


def stop_replica_response(failures: Failures) -> StopReplicaResponse:
    return StopReplicaResponse(
        partition_errors=[StopReplicaPartitionError(*where, code) for where, code in failures.items()]
    )


def stop_replica_failures(response: StopReplicaResponse) -> Failures:
    return {
        TopicPartition(each.topic_name, each.partition_index): ErrorCode.of(each.error_code)
        for each in response.partition_errors
        if each.error_code
    }


# -- UpdateMetadata ------------------------------------------------------------------------------------------------


def update_metadata_request(order: UpdateMetadata) -> UpdateMetadataRequest:
    told = [
        UpdateMetadataTopicState(
            name,
            topic.topic_id,
            [
                UpdateMetadataPartitionState(
                    index,
                    state.controller_epoch,
                    state.leader,
                    state.leader_epoch,
                    list(state.isr),
                    state.version,
                    list(state.replicas),
                    [node for node in state.replicas if node not in order.brokers],
                )
                for index, state in enumerate(topic.partitions)
            ],
            _configs(topic),
        )
        for name, topic in order.topics.items()
    ]
    gone = [
        UpdateMetadataTopicState(name, partition_states=[UpdateMetadataPartitionState(leader=LED_DURING_DELETION)])
        for name in sorted(order.gone - order.topics.keys())
    ]
    return UpdateMetadataRequest(
        controller_id=order.controller,
        controller_epoch=order.controller_epoch,
        broker_epoch=order.broker_epoch,
        type=FULL if order.complete else INCREMENTAL,
        topic_states=[*told, *gone],
        live_brokers=[_live_broker(broker) for broker in order.brokers.values()],
        unreadable_topics=sorted(order.unreadable),
    )


def _live_broker(broker: LiveBroker) -> UpdateMetadataBroker:
    registration = broker.registration
    endpoints = [
        UpdateMetadataEndpoint(each.port, each.host, each.listener, SECURITY_PROTOCOLS[each.security_protocol])
        for each in registration.endpoints
    ]
    return UpdateMetadataBroker(registration.node_id, endpoints, registration.rack, broker.epoch)


def update_metadata_order(request: UpdateMetadataRequest) -> UpdateMetadata:
    topics: dict[str, TopicState] = {}
    gone: set[str] = set()
    for told in request.topic_states:
        if any(state.leader == LED_DURING_DELETION for state in told.partition_states):
            gone.add(told.topic_name)
            continue
        states = tuple(
            PartitionState(
                state.leader,
                state.leader_epoch,
                tuple(state.replicas),
                tuple(state.isr),
                controller_epoch=state.controller_epoch,
                version=state.zk_version,
            )
            for state in sorted(told.partition_states, key=lambda state: state.partition_index)
        )
        topics[told.topic_name] = _topic(told.topic_name, told.topic_id, states, told.configs)
    return UpdateMetadata(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        topics,
        frozenset(gone),
        _brokers(request.live_brokers),
        request.type == FULL,
        frozenset(request.unreadable_topics),
    )


def _brokers(told: Iterable[UpdateMetadataBroker]) -> Mapping[int, LiveBroker]:
    brokers: dict[int, LiveBroker] = {}
    for broker in told:
        endpoints = tuple(
            Endpoint(each.listener, each.host, each.port, _PROTOCOL_NAMES.get(each.security_protocol, "UNKNOWN"))
            for each in broker.endpoints
        )
        brokers[broker.id] = LiveBroker(BrokerRegistration(broker.id, endpoints, broker.rack), broker.broker_epoch)
    return brokers


# -- topics --------------------------------------------------------------------------------------------------------


def _configs(topic: TopicState) -> TopicConfigs:
    return TopicConfigs(topic.config_version, [SetConfig(name, value) for name, value in topic.configs.items()])


def _topic(
    name: str, topic_id: uuid.UUID, partitions: tuple[PartitionState, ...], configs: TopicConfigs | None
) -> TopicState:
    told = configs or TopicConfigs()
    values = {config.name: config.value for config in told.configs}
    return TopicState(name, topic_id, partitions, values, config_version=told.version)
