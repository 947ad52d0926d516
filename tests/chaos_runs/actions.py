"""What an operator, a disk or the power can do to one topic, or to a whole site."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from broker.client.cluster import Cluster
from broker.client.configs import alter_topic_configs
from broker.client.log import append
from broker.client.offsets import log_end_offsets, log_start_offsets
from broker.client.topics import NewTopic, create_topics, delete_records, delete_topics
from broker.wire.records import encode_batch
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from tests.chaos_runs.clusters import ClusterServer, copy_data, cut_end, freeze, restore_data, restore_partition, thaw
from tests.chaos_runs.looking import content_of
from tests.chaos_runs.stage import CLOCK_STEP_MS, Stage, Topic

DELETION_TIMEOUT_S = 40.0
RETENTION_TIMEOUT_S = 30.0
COPIES = 2
"""Of each site's disk, from which its partitions are restored."""
REFILL_BATCHES = (5, 60)
POLL_S = 0.2

TopicAction = Callable[[Stage, Topic], Awaitable[None]]


async def delete(stage: Stage, server: ClusterServer, topic: Topic) -> None:
    """Delete the topic and wait until it is gone."""
    async with Cluster(stage.site(server)) as cluster, asyncio.timeout(DELETION_TIMEOUT_S):
        await delete_topics(cluster, [topic.name])
        while topic.name in (await cluster.metadata([topic.name])).topics:
            await asyncio.sleep(POLL_S)


async def create(stage: Stage, server: ClusterServer, topic: Topic) -> None:
    """Create it; what is left of one that was deleted may be in the way for a moment, or the mirror was quicker."""
    async with Cluster(stage.site(server)) as cluster, asyncio.timeout(DELETION_TIMEOUT_S):
        new = NewTopic(topic.name, 1, 1, {"retention.ms": "-1"})
        while await create_topics(cluster, [new]):
            if server is stage.target and topic.name in (await cluster.metadata([topic.name])).topics:
                return
            await asyncio.sleep(POLL_S)


async def source_delete(stage: Stage, topic: Topic) -> None:
    async with topic.writable:
        topic.is_gone = True
        await delete(stage, stage.source, topic)


async def source_recreate(stage: Stage, topic: Topic) -> None:
    async with topic.writable:
        await delete(stage, stage.source, topic)
        topic.life += 1
        await stage.make(topic)


async def source_refill(stage: Stage, topic: Topic) -> None:
    """Recreated, and at once as long as it was, or longer."""
    async with topic.writable:
        await delete(stage, stage.source, topic)
        topic.life += 1
        await stage.make(topic)
        async with Cluster(stage.site(stage.source)) as cluster:
            for _ in range(topic.chance.randint(*REFILL_BATCHES)):
                topic.clock_ms += CLOCK_STEP_MS
                await stage.write(cluster, topic, topic.clock_ms)


async def source_rename(stage: Stage, topic: Topic) -> None:
    """Kafka has no other way: delete, and create under another name; the link's pattern takes that, too."""
    await source_delete(stage, topic)
    renamed = Topic(f"{topic.name}-renamed", "none", topic.seed)
    await stage.make(renamed)
    stage.topics.append(renamed)


async def source_cut_start(stage: Stage, topic: Topic) -> None:
    async with Cluster(stage.site(stage.source)) as cluster:
        start = (await log_start_offsets(cluster, [topic.where]))[topic.where]
        end = (await log_end_offsets(cluster, [topic.where]))[topic.where]
        await delete_records(cluster, {topic.where: topic.chance.randint(start, end)})


async def source_retention(stage: Stage, topic: Topic) -> None:
    """Let retention run until it removed something, then put it back."""
    async with Cluster(stage.site(stage.source)) as cluster:
        before = (await log_start_offsets(cluster, [topic.where]))[topic.where]
        await _set_retention(cluster, topic, "600")
        try:
            async with asyncio.timeout(RETENTION_TIMEOUT_S):
                while (await log_start_offsets(cluster, [topic.where]))[topic.where] == before:
                    await asyncio.sleep(POLL_S)
        finally:
            await _set_retention(cluster, topic, "-1")


async def _set_retention(cluster: Cluster, topic: Topic, value: str) -> None:
    failures = await alter_topic_configs(cluster, {topic.name: [("retention.ms", ConfigOperation.SET, value)]})
    assert not failures, failures


async def target_delete(stage: Stage, topic: Topic) -> None:
    await delete_there(stage, topic)


async def target_recreate(stage: Stage, topic: Topic) -> None:
    await delete_there(stage, topic)
    await create(stage, stage.target, topic)


async def target_refill(stage: Stage, topic: Topic) -> None:
    """Deleted at the target, made again by hand, and filled by somebody else."""
    await target_recreate(stage, topic)
    async with Cluster(stage.site(stage.target)) as cluster:
        for _ in range(topic.chance.randint(1, 20)):
            topic.clock_ms += CLOCK_STEP_MS
            records = stage.batch(topic, topic.clock_ms, "foreign")
            await append(cluster, topic.where, encode_batch(records))
            topic.foreign |= {content_of(record) for record in records}


async def target_rename(stage: Stage, topic: Topic) -> None:
    """As one has to at Kafka: copied under another name, which the link's pattern takes, too, and deleted."""
    moved = TopicPartition(f"{topic.name}-moved", 0)
    records = await stage.read(stage.target, topic)
    async with Cluster(stage.site(stage.target)) as cluster, asyncio.timeout(DELETION_TIMEOUT_S):
        assert not await create_topics(cluster, [NewTopic(moved.topic, 1, 1, {"retention.ms": "-1"})])
        for at in range(0, len(records), 100):
            part = [record._replace(offset=number) for number, record in enumerate(records[at : at + 100])]
            await append(cluster, moved, encode_batch(part))
    topic.moved = [content_of(record) for record in records]
    await delete_there(stage, topic)


async def delete_there(stage: Stage, topic: Topic) -> None:
    """Delete at the target, where a mirror that runs may make it again at once."""
    async with Cluster(stage.site(stage.target)) as cluster:
        await delete_topics(cluster, [topic.name])


async def target_cut_start(stage: Stage, topic: Topic) -> None:
    records = await stage.read(stage.target, topic)
    if not records:
        return
    cut = topic.chance.choice(records).offset
    async with Cluster(stage.site(stage.target)) as cluster:
        await delete_records(cluster, {topic.where: cut})
    topic.cut_away |= {content_of(record) for record in records if record.offset < cut}


TOPIC_ACTIONS: dict[str, TopicAction] = {
    "source-delete": source_delete,
    "source-recreate": source_recreate,
    "source-refill": source_refill,
    "source-rename": source_rename,
    "source-cut-start": source_cut_start,
    "source-retention": source_retention,
    "target-delete": target_delete,
    "target-rename": target_rename,
    "target-recreate": target_recreate,
    "target-refill": target_refill,
    "target-cut-start": target_cut_start,
}
DISK_ACTIONS = ("source-cut-end", "source-restore", "target-cut-end", "target-restore")
"""To single partitions, while their broker is down."""
SITE_ACTIONS = (
    "mirror-kill",
    "mirror-twice",
    "source-kill",
    "target-kill",
    "source-disk",
    "target-disk",
)
"""To all at once."""


async def copy_disk(stage: Stage, server: ClusterServer, name: str) -> None:
    """As a snapshot of its disk has it, while it runs."""
    freeze(server)
    try:
        await asyncio.to_thread(copy_data, server, stage.folder / name)
    finally:
        thaw(server)


def copy_name(is_source: bool, chance: random.Random) -> str:
    """One of the copies that were made of a site's disk."""
    return f"{'source' if is_source else 'target'}-copy-{chance.randrange(COPIES)}"


async def hurt_disk(stage: Stage, server: ClusterServer, topics: Sequence[Topic]) -> None:
    """Stop the broker, do what is to be done to its files, start it."""
    await asyncio.to_thread(stage.chance.choice((server.stop, server.kill9)))
    for topic in topics:
        if topic.action.endswith("-restore"):
            restore_partition(server, topic.where, stage.folder / copy_name(server is stage.source, topic.chance))
        else:
            lost = cut_end(server, topic.where, topic.chance.randint(0, 4), topic.chance.random())
            stage.notes.append(f"{topic.name}: cut {lost} records")
    await asyncio.to_thread(server.start)


async def restore_disk(stage: Stage, server: ClusterServer, name: str) -> None:
    """The whole of an old disk put back."""
    await asyncio.to_thread(stage.chance.choice((server.stop, server.kill9)))
    restore_data(server, stage.folder / name)
    await asyncio.to_thread(server.start)


async def site_action(stage: Stage, action: str) -> None:
    match action:
        case "mirror-kill":
            stage.operator.kill_mirrors()
        case "source-kill":
            await asyncio.to_thread(stage.source.kill9)
            await asyncio.to_thread(stage.source.start)
        case "target-kill":
            await asyncio.to_thread(stage.target.kill9)
            await asyncio.to_thread(stage.target.start)
        case "source-disk":
            await restore_disk(stage, stage.source, action)
        case "target-disk":
            await restore_disk(stage, stage.target, action)
        case _:
            raise AssertionError(action)
