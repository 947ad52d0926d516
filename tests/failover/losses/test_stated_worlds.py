"""Seeded histories of a link whose source goes: what is stated of the loss, held against both sites by content."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

from broker.client.configs import alter_topic_configs
from broker.client.offsets import log_end_offsets
from broker.client.topics import list_topics
from broker.wire.vocabulary import ConfigOperation, TopicPartition
from failover.losses.stated_losses import stated_losses
from failover.losses.statements import Certainty, total_loss
from mirror.api import load_observation, read_entries
from tests.failover.stage import Stage, two_sites
from tests.mirror.harness import DRIFT_STAYS, eventually, make_topic, read_all, running, some_records, write

WORLDS = range(3)
ACTIONS = 14
NEVER_MIRRORED = "-" * 240
"""Behind a topic's name: with the source's name before it, it is too long for the target."""


class World:
    """One seed: topics of its own, and a link that mirrors them."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stage = stage
        link = replace(stage.link, name=f"world-{seed}", topics=(f"w{seed}-.*",), topic_names="prefixed")
        self.at = replace(stage, link=link)
        self.prefix = f"w{seed}-"
        self.partitions: list[TopicPartition] = []
        self.written = 0
        self.stalled: set[TopicPartition] = set()

    async def make_topic(self, *, never_mirrored: bool = False) -> None:
        name = f"{self.prefix}{len(self.partitions)}{NEVER_MIRRORED if never_mirrored else ''}"
        count = self.rng.randint(1, 3)
        await make_topic(self.stage.source, name, count)
        self.partitions += [TopicPartition(name, number) for number in range(count)]

    async def write(self, where: TopicPartition | None = None) -> None:
        count = self.rng.choice((1, 20, 300))
        records = some_records(10_000 * self.written, count)
        await write(self.stage.source, where or self.rng.choice(self.partitions), records)
        self.written += 1

    async def stall(self) -> None:
        """Nothing more is taken of one topic at the target: the records' path stands still there."""
        name = self.rng.choice(sorted({w.topic for w in self.partitions if not w.topic.endswith(NEVER_MIRRORED)}))
        topic = self.at.link.target_topic(name)

        async def is_there() -> bool:
            return topic in await list_topics(self.stage.target)

        await eventually(is_there, f"{topic} at the target")
        limit = ("max.message.bytes", ConfigOperation.SET, "70")
        assert not await alter_topic_configs(self.stage.target, {topic: [limit]})
        self.stalled |= {where for where in self.partitions if where.topic == name}

    async def live(self) -> dict[TopicPartition, int]:
        """Until the mirror goes, and the source a little later -> the ends that had been seen by then, at least."""
        await self.make_topic()
        await self.write()
        async with running(self.at.link, limits=DRIFT_STAYS):
            for number in range(ACTIONS):
                chance = self.rng.random()
                if number in (5, 9):
                    await self.stall()
                elif chance < 0.2:
                    await self.make_topic(never_mirrored=chance < 0.08)
                else:
                    await self.write()
            for where in sorted(self.stalled):
                await self.write(where)
            await eventually(self._stands, "what is stalled to stand")
            for where in sorted(self.stalled):
                await self.write(where)
            seen = await log_end_offsets(self.stage.source, self.partitions)
            await eventually(lambda: self._were_seen(seen), "the source's ends to be seen")
        for _ in range(self.rng.randrange(4)):
            await self.write()
        return seen

    async def _stands(self) -> bool:
        gaps = (await read_entries(self.at.link, self.stage.target)).open_gaps()
        return {TopicPartition(*where) for where in gaps} >= self.stalled

    async def _were_seen(self, ends: dict[TopicPartition, int]) -> bool:
        kept = (await load_observation(self.at.link, self.stage.target)).ends
        return all(where in kept and kept[where].end >= end for where, end in ends.items())

    async def lost(self, where: TopicPartition) -> int:
        """Records that only the source has."""
        here = Counter(record[1:] for record in await read_all(self.stage.source, where))
        target = TopicPartition(self.at.link.target_topic(where.topic), where.partition)
        if target.topic in await list_topics(self.stage.target):
            here -= Counter(record[1:] for record in await read_all(self.stage.target, target))
        return here.total()


async def test_no_bound_is_above_what_was_lost_exact_is_equal_and_no_partition_is_missing(tmp_path: Path) -> None:
    stalls = bounds = unseen = 0
    async with two_sites(tmp_path) as stage:
        for seed in WORLDS:
            world = World(stage, seed)
            seen = await world.live()
            snapshot = await world.at.without_source.look_past_source()
            stated = {
                TopicPartition(loss.topic, loss.partition): loss
                for loss in await stated_losses(world.at.without_source, snapshot)
            }
            assert stated.keys() == set(world.partitions)
            true = {where: await world.lost(where) for where in world.partitions}
            ends = await log_end_offsets(stage.source, world.partitions)
            for where, loss in stated.items():
                assert loss.certainty is Certainty.AT_LEAST
                assert loss.offsets is not None
                assert loss.offsets <= true[where], (seed, loss)
                assert loss.offsets >= true[where] - (ends[where] - seen[where]), "what was seen is stated"
            total = total_loss(stated.values(), snapshot.taken_at_ms, snapshot.last_look)
            assert total.offsets <= sum(true.values())
            if total.pace_seconds:  # after one look no pace is known
                assert total.likely_offsets is not None
                assert total.offsets <= total.likely_offsets
            whole = await world.at.sites.look_past_source()
            for loss in await stated_losses(world.at.sites, whole):
                assert (loss.certainty, loss.records) == (
                    Certainty.EXACT,
                    true[TopicPartition(loss.topic, loss.partition)],
                )
            stalls += len(world.stalled)
            bounds += total.offsets > 0
            unseen += sum(true.values()) > total.offsets
    assert min(stalls, bounds, unseen) > 0, "the worlds have what they are about"
