"""Topics deleted: first taken out of the metadata, which remembers it, then off the brokers; those that are away remove
theirs when they are back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from broker.cluster.metadata import Controller, DeletedTopic, TopicState
from broker.cluster.metadata_store import MetadataConflict, MetadataStore
from broker.controller.errors import ReignOver
from broker.controller.issuing import deletion_orders
from broker.controller.queues import Answer
from broker.errors import BrokerError

if TYPE_CHECKING:
    from broker.controller.reign import Reign

log = logging.getLogger(__name__)

Asked = Mapping[tuple[int, UUID], Answer]
"""By node and topic id."""


async def carry_on(store: MetadataStore, controller: Controller, topics: dict[str, TopicState]) -> None:
    """Takes topics out whose deletion was cut off: nobody can ask for those any more. What cannot be deleted stays, and
    that is its damage.
    """
    for name in await store.topic_deletions() & topics.keys():
        topic = topics.pop(name)
        try:
            await store.delete_topic(controller, topic)
        except MetadataConflict as error:
            damage = f"it is to be deleted, and cannot be: {error}"
            topics[name] = replace(topic, partitions=(), damage=damage)


async def remembered(
    store: MetadataStore, controller: Controller, topics: Mapping[str, TopicState]
) -> dict[UUID, DeletedTopic]:
    """Topics of which brokers may still have records. One that a hand put back is none: absent again, for whatever
    reason, it would lose its records by a deletion that was undone.
    """
    deleted, there = dict(await store.deleted_topics()), {topic.topic_id for topic in topics.values()}
    undone = [deleted.pop(topic_id) for topic_id in deleted.keys() & there]
    if undone:
        await store.set_deleted_topics(controller, [replace(topic, nodes=frozenset()) for topic in undone])
        log.warning("deletions are undone, the topics were put back: %s", ", ".join(topic.name for topic in undone))
    return deleted


async def delete(reign: Reign, name: str) -> list[Answer]:
    """In the reign's turn."""
    topic = reign.cluster.topics[name]
    await reign.store.delete_topic(reign.controller, topic)
    reign.cluster.forget(name)
    deleted = reign.deleted[topic.topic_id] = DeletedTopic.of(topic)
    # In this order: who is told that a partition went away finds no topic, and not another leader to look for.
    return [*reign.tell((), [name]), *order_removal(reign, reign.queues, [deleted])]


def order_removal(reign: Reign, nodes: Iterable[int], deleted: Iterable[DeletedTopic]) -> list[Answer]:
    asked: dict[tuple[int, UUID], Answer] = {}
    for node in nodes:
        if node in reign.cluster.brokers:
            for topic_id, order in deletion_orders(reign.cluster, reign.controller, node, deleted).items():
                asked[node, topic_id] = reign.queues[node].put(order)
    if asked:
        reign.spawn(_note_removed(reign, asked))
    return list(asked.values())


async def _note_removed(reign: Reign, asked: Asked) -> None:
    """What was not removed is ordered again when the broker is back, or another one the controller."""
    await asyncio.wait(asked.values())
    done = [key for key, answer in asked.items() if answer.exception() is None and not answer.result()]
    changed: dict[UUID, DeletedTopic] = {}
    try:
        async with reign.turn_to_write():
            for node, topic_id in done:
                if (topic := changed.get(topic_id) or reign.deleted.get(topic_id)) is not None:
                    changed[topic_id] = replace(topic, nodes=topic.nodes - {node})
            await reign.store.set_deleted_topics(reign.controller, list(changed.values()))
            known = {**reign.deleted, **changed}
            reign.deleted = {topic_id: topic for topic_id, topic in known.items() if topic.nodes}
    except ReignOver:
        raise
    except BrokerError as error:
        log.warning("that deleted topics were removed is not noted, and is asked again later: %s", error)
