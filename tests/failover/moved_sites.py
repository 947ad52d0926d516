"""The two sites of a world of moves, and what an application finds there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ConsumedPartition

from broker.client.cluster import Cluster
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from tests.broker.running import running_broker
from tests.chaos_runs.looking import read_committed
from tests.mirror.harness import link_between

PATIENCE_S = 30.0
POLL_S = 0.02


@dataclass
class Site:
    """One of the two, and the link that carries what is written there to the other one."""

    cluster: Cluster
    bootstrap: str
    link: Link


async def two_linked_sites(stack: AsyncExitStack, folder: Path) -> list[Site]:
    """Both, with a link each way."""
    bootstraps = [await stack.enter_async_context(running_broker(folder / name)) for name in ("east", "west")]
    there = replace(
        link_between(bootstraps[0], bootstraps[1], ["flights-.*"], name="east-west", groups=(".*",)),
        shared_targets=True,
    )
    back = replace(there, name="west-east", source=there.target, target=there.source)
    links = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
    clusters = [await stack.enter_async_context(Cluster(link.source, client_id="farshore-test")) for link in links]
    return [Site(*of_site) for of_site in zip(clusters, bootstraps, links, strict=True)]


async def values_at(cluster: Cluster, where: TopicPartition) -> list[tuple[int, bytes]]:
    """Of the committed records, in order, with their offsets; none where there is no such partition."""
    if where.topic not in (await cluster.metadata([where.topic])).topics:
        return []
    return [(record.offset, record.value or b"") for record in await read_committed(cluster, where)]


async def consume(
    bootstrap: str, group: str, wheres: Mapping[TopicPartition, list[tuple[int, bytes]]]
) -> dict[TopicPartition, list[bytes]]:
    """What an unmodified consumer of the group gets, from where it goes on to the end."""
    consumer = AIOKafkaConsumer(
        *sorted({where.topic for where in wheres}),
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="latest",
    )
    found: dict[TopicPartition, list[bytes]] = {where: [] for where in wheres}
    ends = {where: records[-1][0] + 1 if records else 0 for where, records in wheres.items()}
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while {TopicPartition(*at) for at in consumer.assignment()} != set(wheres):
                await asyncio.sleep(POLL_S)
            while any([await consumer.position(ConsumedPartition(*where)) < end for where, end in ends.items()]):
                for at, messages in (await consumer.getmany(timeout_ms=50)).items():
                    found[TopicPartition(*at)] += [message.value for message in messages]
    finally:
        await consumer.stop()
    return found
