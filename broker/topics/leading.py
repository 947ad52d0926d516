"""Which partitions the broker that is its whole cluster leads, as its metadata store has them: all."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace

from broker.cluster.metadata import NO_LEADER, NO_TOPIC_ID, Controller, PartitionState, TopicState
from broker.cluster.metadata_store import MetadataConflict, MetadataStore
from broker.wire.vocabulary import TopicPartition


def leading(node_id: int) -> PartitionState:
    """Of a new partition."""
    return PartitionState(node_id, 0, (node_id,), (node_id,))


async def identified(store: MetadataStore, controller: Controller, known: Collection[TopicState]) -> list[TopicState]:
    """The topics; those of a Kafka before 2.8 have an id from now on, as Kafka's own controller gives them one. Raises
    MetadataConflict, and what the store raises.
    """
    return [
        await store.set_assignment(controller, replace(topic, topic_id=uuid.uuid4()))
        if topic.topic_id == NO_TOPIC_ID
        else topic
        for topic in known
    ]


async def lead_anew(
    store: MetadataStore, controller: Controller, known: Collection[TopicState], since: int = 0
) -> list[TopicState]:
    """The topics with their partitions from index `since` on in a new epoch, written; those without a leader are led by
    the controller. Raises MetadataConflict, and what the store raises.
    """
    states = {
        TopicPartition(topic.name, index): _next_epoch(state, controller)
        for topic in known
        for index, state in enumerate(topic.partitions)
        if index >= since
    }
    written = await store.write_partition_states(controller, states)
    if written.refused:
        raise MetadataConflict(f"another broker elects leaders too: {sorted(written.refused)[0]}")
    return [
        replace(
            topic,
            partitions=tuple(
                written.states.get(TopicPartition(topic.name, index), state)
                for index, state in enumerate(topic.partitions)
            ),
        )
        for topic in known
    ]


def _next_epoch(state: PartitionState, controller: Controller) -> PartitionState:
    waiting = state.leader == NO_LEADER
    return replace(
        state,
        leader=controller.node_id if waiting else state.leader,
        isr=(controller.node_id,) if waiting else state.isr,
        leader_epoch=state.leader_epoch + 1,
        controller_epoch=controller.epoch,
    )
