"""Topics that were deleted, and the brokers that still have to remove their records: znodes that only farshore has.

Kafka keeps a topic until every broker has removed it. Here its name is free at once, and who was away is told later, by
its id; what no deletion stands for is never removed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

from broker.cluster.metadata import NO_TOPIC_ID, Controller, DeletedTopic, TopicState
from broker.cluster.metadata_store import MetadataConflict, MetadataUnreadable, OutcomeUnknown
from broker.cluster.zookeeper import layout
from broker.cluster.zookeeper.errors import BadVersion, FoundationMissing, NoNode, ZooKeeperError
from broker.cluster.zookeeper.seen import CHANGES
from broker.cluster.zookeeper.session import Check, Create, Delete, Operation, SetData, ZooKeeper
from broker.cluster.zookeeper.topics import fenced, read_each
from broker.cluster.zookeeper.values import as_text, int32, node_ids

DELETED_TOPICS: Final = "/farshore/deleted_topics"
OWN_PATHS: Final = ("/farshore", DELETED_TOPICS, CHANGES)
"""Parents first."""
DELETED_AT_ONCE: Final = 200
"""Znodes in one transaction."""

log = logging.getLogger(__name__)


async def delete_topic(zk: ZooKeeper, controller: Controller, topic: TopicState, again: bool) -> None:
    """With whatever stands below it, whoever put it there. Cut off, it leaves the wish to delete, and can be begun
    again; with its end it is remembered.
    """
    path, wish = layout.topic(topic.name), layout.topic_deletion(topic.name)
    config_path = layout.config(f"topics/{topic.name}")
    if again and await zk.exists(path) is None:
        return
    try:
        wished = [] if await zk.exists(wish) else [Create(wish)]
        await _step(zk, controller, [Check(path, topic.version), *wished])
        for each in (path, config_path, wish):
            await _delete_below(zk, controller, each)
        there = [each for each in (config_path, wish) if await zk.exists(each)]
        last = [Delete(path, topic.version), *(Delete(each) for each in there), *await _remembered(zk, topic)]
        await _step(zk, controller, last)
    except (BadVersion, NoNode) as refused:
        raise MetadataConflict(f"topic {topic.name} was changed since version {topic.version}") from refused
    except (OutcomeUnknown, FoundationMissing):
        raise
    except ZooKeeperError as refused:
        raise MetadataConflict(f"topic {topic.name} is deleted in part: {refused}") from refused


async def _step(zk: ZooKeeper, controller: Controller, operations: Sequence[Operation]) -> None:
    """Raises FoundationMissing, and as `fenced`."""
    try:
        await fenced(zk, controller, operations)
    except NoNode as refused:
        if isinstance(operations[refused.operation or 0], Create):
            raise FoundationMissing(str(refused)) from refused
        raise


async def _delete_below(zk: ZooKeeper, controller: Controller, path: str) -> None:
    """All that is under a znode, which need not be there."""

    async def below(above: str) -> list[str]:
        try:
            return [f"{above}/{name}" for name in await zk.children(above)]
        except NoNode:
            return []

    found: list[str] = []
    level = [path]
    while level:
        level = [each for under in await read_each(level, below) for each in under]
        found += level
    found.reverse()
    for start in range(0, len(found), DELETED_AT_ONCE):
        await fenced(zk, controller, [Delete(each) for each in found[start : start + DELETED_AT_ONCE]])


async def _remembered(zk: ZooKeeper, topic: TopicState) -> list[Operation]:
    """It is already where a hand undid an earlier deletion."""
    if topic.topic_id == NO_TOPIC_ID or not topic.partitions:
        return []  # what cannot be read names no brokers: what they have is set aside
    deleted = DeletedTopic.of(topic)
    path, data = _path(deleted.topic_id), _encode(deleted)
    return [SetData(path, data) if await zk.exists(path) else Create(path, data)]


async def read_deleted_topics(zk: ZooKeeper) -> dict[UUID, DeletedTopic]:
    """Those that can be read; of the others nothing is removed."""
    found = await read_each(await zk.children(DELETED_TOPICS), lambda name: _read(zk, f"{DELETED_TOPICS}/{name}"))
    return {topic.topic_id: topic for topic in found if topic is not None}


async def set_deleted_topics(zk: ZooKeeper, controller: Controller, changed: Collection[DeletedTopic]) -> None:
    for topic in changed:
        path = _path(topic.topic_id)
        with contextlib.suppress(NoNode):
            await fenced(zk, controller, [SetData(path, _encode(topic)) if topic.nodes else Delete(path)])


def _path(topic_id: UUID) -> str:
    return f"{DELETED_TOPICS}/{topic_id}"


def _encode(topic: DeletedTopic) -> bytes:
    document = {"version": 1, "topic": topic.name, "partitions": topic.partitions, "brokers": sorted(topic.nodes)}
    return layout.encode(document)


async def _read(zk: ZooKeeper, path: str) -> DeletedTopic | None:
    try:
        data, _ = await zk.get(path)
        document = layout.decode(data, path)
        with layout.reading(path):
            name, partitions = as_text(document["topic"]), int32(document["partitions"])
            topic_id = UUID(path.rpartition("/")[2])
            return DeletedTopic(name, topic_id, partitions, frozenset(node_ids(document["brokers"])))
    except NoNode:
        return None
    except MetadataUnreadable as error:
        log.error("%s: what was deleted with it stays on the brokers", error)  # noqa: TRY400 - foreseen
        return None
