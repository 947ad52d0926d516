"""A lost site that came back: what the tests of the way back share."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from aiokafka import AIOKafkaProducer

from broker.wire.vocabulary import TopicPartition
from failover.failback.stranding import Stranded, look_for_stranded
from mirror.link import Link
from mirror.offsets.operations import promote_link
from tests.failover.stage import PARTITIONS, Stage, mirrored, two_sites
from tests.mirror.harness import read_all, some_records, write


@dataclass
class Lost:
    """Both sites, with links both ways. The first link's target was promoted; each site went on alone."""

    stage: Stage
    there: Link
    back: Link

    async def stranded(self) -> Stranded:
        return await look_for_stranded(self.there, self.stage.source, self.stage.target)

    async def only_at_source(self, where: TopicPartition) -> list[tuple[object, ...]]:
        """By content: what the source has and the target has not, in the source's order."""
        there = {tuple(record)[1:] for record in await read_all(self.stage.target, where)}
        found = [tuple(record)[1:] for record in await read_all(self.stage.source, where)]
        return [content for content in found if content not in there]

    async def listed(self, where: TopicPartition) -> list[tuple[object, ...]]:
        """By content: what stands in the ranges that are said to be stranded, of local records alone."""
        records = {record.offset: record for record in await read_all(self.stage.source, where)}
        return [
            tuple(records[offset])[1:]
            for tail in (await self.stranded()).tails
            if tail.where == where
            for offset in range(tail.first_offset, tail.end_offset)
            if offset in records
        ]


@asynccontextmanager
async def lost_and_back(folder: Path, seed: int, tails: tuple[int, int], news: tuple[int, int]) -> AsyncIterator[Lost]:
    """After the promotion the source has `tails` records more per partition, the target `news` of its own."""
    chance = random.Random(seed)
    async with two_sites(folder) as stage:
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        there = replace(there, reverse_links=(back,))
        back = replace(back, reverse_links=(replace(there, reverse_links=()),))
        stage.link = there
        async with mirrored(stage):
            pass
        await promote_link(there, stage.target, "failover-1")
        for number, at in enumerate(PARTITIONS):
            await write_in_parts(chance, stage, tails[number], 10_000 * (seed + 1), at, to_source=True)
            await write_in_parts(chance, stage, news[number], 10_000 * (seed + 1) + 5_000, at, to_source=False)
        yield Lost(stage, there, back)


async def write_in_parts(
    chance: random.Random, stage: Stage, count: int, start: int, at: TopicPartition, *, to_source: bool
) -> None:
    while count:
        part = chance.randint(1, count)
        await write(stage.source if to_source else stage.target, at, some_records(start, part))
        start, count = start + part, count - part


@asynccontextmanager
async def transaction(bootstrap_servers: str, transactional_id: str = "shop") -> AsyncIterator[AIOKafkaProducer]:
    """A producer that has begun a transaction."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
    await producer.start()
    try:
        await producer.begin_transaction()
        yield producer
    finally:
        await producer.stop()
