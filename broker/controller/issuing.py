"""What the controller knows, as orders to brokers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from broker.cluster.metadata import UNWRITTEN, Controller, DeletedTopic, TopicState
from broker.cluster.orders import LeaderAndIsr, Order, StopReplica, UpdateMetadata
from broker.controller.cluster import Cluster, States
from broker.wire.vocabulary import TopicPartition

ANY_LEADER_EPOCH: Final = 2**31 - 1
"""Whatever its last one was."""


def leader_orders(
    cluster: Cluster, controller: Controller, wheres: Iterable[TopicPartition]
) -> dict[int, LeaderAndIsr]:
    """To each broker that is there its part of these partitions; those that have no leader yet are nobody's."""
    by_node: dict[int, States] = {}
    for where in wheres:
        state = cluster.state(where)
        if state is None or state.version == UNWRITTEN:
            continue
        for node in state.replicas:
            if node in cluster.brokers:
                by_node.setdefault(node, {})[where] = state
    return {node: _leader_order(cluster, controller, node, states) for node, states in by_node.items()}


def complete_order(cluster: Cluster, controller: Controller, node: int) -> LeaderAndIsr:
    """All that the broker is to have. Of partitions that nobody leads yet nothing may be concluded: where their states
    were lost they have records.
    """
    states = {where: state for where, state in cluster.elected().items() if node in state.replicas}
    return _leader_order(cluster, controller, node, states, complete=True)


def _leader_order(
    cluster: Cluster, controller: Controller, node: int, states: States, *, complete: bool = False
) -> LeaderAndIsr:
    names = {where.topic for where in states}
    return LeaderAndIsr(
        controller.node_id,
        controller.epoch,
        cluster.brokers[node].epoch,
        {name: cluster.topics[name] for name in names},
        states,
        dict(cluster.brokers),
        complete=complete,
        unreadable=frozenset(cluster.unreadable | cluster.waiting().keys() if complete else cluster.unreadable),
    )


def making_orders(
    cluster: Cluster, controller: Controller, topic: TopicState, indexes: Iterable[int]
) -> dict[int, LeaderAndIsr]:
    """To each broker that is there: make the folders of its replicas of these new partitions."""
    by_node: dict[int, States] = {}
    for index in indexes:
        for node in topic.partitions[index].replicas:
            if node in cluster.brokers:
                by_node.setdefault(node, {})[TopicPartition(topic.name, index)] = topic.partitions[index]
    return {
        node: LeaderAndIsr(
            controller.node_id,
            controller.epoch,
            cluster.brokers[node].epoch,
            {topic.name: topic},
            states,
            dict(cluster.brokers),
            new=frozenset(states),
        )
        for node, states in by_node.items()
    }


def stop_orders(
    cluster: Cluster, controller: Controller, topic: TopicState, indexes: Iterable[int], *, delete: bool
) -> dict[int, StopReplica]:
    by_node: dict[int, dict[TopicPartition, int]] = {}
    for index in indexes:
        state = topic.partitions[index]
        for node in state.replicas:
            if node in cluster.brokers:
                by_node.setdefault(node, {})[TopicPartition(topic.name, index)] = state.leader_epoch
    return {
        node: StopReplica(
            controller.node_id,
            controller.epoch,
            cluster.brokers[node].epoch,
            {topic.name: topic.topic_id},
            epochs,
            delete,
        )
        for node, epochs in by_node.items()
    }


def deletion_orders(
    cluster: Cluster, controller: Controller, node: int, deleted: Iterable[DeletedTopic]
) -> dict[UUID, StopReplica]:
    """To a broker that is there: remove what there is of these. Not of one that the metadata has again, as a hand may
    have put it back, or may have, as far as it can be read.
    """
    there = {topic.topic_id for topic in cluster.topics.values()}
    return {
        topic.topic_id: StopReplica(
            controller.node_id,
            controller.epoch,
            cluster.brokers[node].epoch,
            {topic.name: topic.topic_id},
            {TopicPartition(topic.name, index): ANY_LEADER_EPOCH for index in range(topic.partitions)},
            delete=True,
        )
        for topic in deleted
        if node in topic.nodes and topic.topic_id not in there and topic.name not in cluster.unreadable
    }


def removal_orders(
    cluster: Cluster, controller: Controller, dropped: Mapping[TopicPartition, Collection[int]]
) -> dict[int, StopReplica]:
    """To each broker that is there: replicas that are no more among a partition's, files and all."""
    by_node: dict[int, dict[TopicPartition, int]] = {}
    for where, nodes in dropped.items():
        for node in nodes:
            if node in cluster.brokers and (state := cluster.state(where)) is not None:
                by_node.setdefault(node, {})[where] = state.leader_epoch
    return {
        node: StopReplica(
            controller.node_id,
            controller.epoch,
            cluster.brokers[node].epoch,
            {where.topic: cluster.topics[where.topic].topic_id for where in epochs},
            epochs,
            delete=True,
        )
        for node, epochs in by_node.items()
    }


def metadata_order(
    cluster: Cluster,
    controller: Controller,
    node: int,
    changed: Collection[str],
    gone: Collection[str] = (),
) -> UpdateMetadata:
    return UpdateMetadata(
        controller.node_id,
        controller.epoch,
        cluster.brokers[node].epoch,
        {name: cluster.topics[name] for name in changed if name in cluster.topics},
        frozenset(gone),
        dict(cluster.brokers),
    )


def complete_metadata(cluster: Cluster, controller: Controller, node: int) -> UpdateMetadata:
    return UpdateMetadata(
        controller.node_id,
        controller.epoch,
        cluster.brokers[node].epoch,
        dict(cluster.topics),
        frozenset(),
        dict(cluster.brokers),
        complete=True,
        unreadable=frozenset(cluster.unreadable),
    )


def newest_order(cluster: Cluster, controller: Controller, node: int, order: Order) -> Order | None:
    """In place of one that was not carried out: what it was about, as it is now. None where nothing is left of it."""
    match order:
        case LeaderAndIsr(complete=True):
            return complete_order(cluster, controller, node)
        case LeaderAndIsr():
            return leader_orders(cluster, controller, order.partitions).get(node)
        case UpdateMetadata(complete=True):
            return complete_metadata(cluster, controller, node)
        case UpdateMetadata():
            names = order.topics.keys() | order.gone
            return metadata_order(cluster, controller, node, names, names - cluster.topics.keys())
        case StopReplica():
            gone = {
                where: epoch for where, epoch in order.partitions.items() if not _is_there(cluster, node, order, where)
            }
            return replace(order, partitions=gone) if gone else None


def _is_there(cluster: Cluster, node: int, order: StopReplica, where: TopicPartition) -> bool:
    """It was to stop, and is to run there again."""
    topic, state = cluster.topics.get(where.topic), cluster.state(where)
    same = topic is not None and topic.topic_id == order.topic_ids[where.topic]
    return same and state is not None and node in state.replicas
