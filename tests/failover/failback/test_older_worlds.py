"""Worlds, one per seed, in which a lost site comes back with an older disk, or with the newest one: what is said to be
missing there, and to be there alone, is held against both logs by content.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from failover.failback.stranding import look_for_stranded
from mirror.link import Link
from mirror.offsets.operations import promote_link
from mirror.worker.parted import source_partings, that_are_missing
from tests.chaos_runs.looking import read_committed
from tests.failover.failback.older_disk import Disks
from tests.failover.failback.stage import transaction
from tests.mirror.harness import eventually, make_topic, running, write
from tests.worlds import first_worlds

PARTITIONS = [TopicPartition("flights", number) for number in range(2)]
SIZES = (0, 1, 3, 20, 300)


class World:
    """`written`: how many values there are, so that each is another one."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.written = 0
        self.told: list[str] = []

    async def write(self, cluster: Cluster, who: str) -> None:
        for where in PARTITIONS:
            for _ in range(self.rng.randint(0, 2)):
                await self._write_once(cluster, where, self.rng.choice(SIZES), who)

    async def _write_once(self, cluster: Cluster, where: TopicPartition, count: int, who: str) -> None:
        values = [b"%s %d" % (who.encode(), self.written + number) for number in range(count)]
        self.written += count
        kind = self.rng.choice(("plain", "plain", "committed", "aborted")) if count else "none"
        if kind == "plain":
            stamp = 1_700_000_000_000
            await write(cluster, where, [Record(at, stamp, None, value) for at, value in enumerate(values)])
        elif kind != "none":
            async with transaction(cluster.site.bootstrap_servers) as producer:
                for value in values[:20]:
                    await producer.send_and_wait(where.topic, value, partition=where.partition)
                await (producer.commit_transaction() if kind == "committed" else producer.abort_transaction())
        self.told.append(f"{who}: {count} {kind} to {where}")


async def values_at(cluster: Cluster, where: TopicPartition) -> list[bytes]:
    return [record.value or b"" for record in await read_committed(cluster, where)]


async def mirror(link: Link, source: Cluster, target: Cluster, who: str) -> None:
    """Until all that the source's own writers wrote is at the target."""

    async def is_there() -> bool:
        for where in PARTITIONS:
            ours = [value for value in await values_at(source, where) if value.startswith(who.encode())]
            if not set(ours) <= set(await values_at(target, where)):
                return False
        return True

    async with running(link):
        await eventually(is_there, "the mirror")


@pytest.mark.parametrize("seed", [*range(first_worlds(2, of=6)), 13, 19])
async def test_what_is_missing_and_what_is_there_alone_is_said_as_it_is(seed: int, tmp_path: Path) -> None:
    world, disks = World(seed), Disks(tmp_path)
    async with disks.up() as up:
        await make_topic(up.source, PARTITIONS[0].topic, len(PARTITIONS))
        await world.write(up.source, "east")
        if world.rng.random() < 0.7:
            await mirror(up.there, up.source, up.target, "east")
    disks.keep()
    async with disks.up() as up:
        await world.write(up.source, "east")
        await mirror(up.there, up.source, up.target, "east")
        await promote_link(up.there, up.target, "failover-1")
        await world.write(up.target, "west")
        await world.write(up.source, "east's tail")
    if is_older := world.rng.random() < 0.8:
        disks.restore()
    async with disks.up() as up:
        for _ in range(world.rng.randint(0, 2)):
            if world.rng.random() < 0.5:
                await world.write(up.source, "east anew")
            else:
                await mirror(up.back, up.target, up.source, "west")
        missing, alone = {}, {}
        for where in PARTITIONS:
            east, west = await values_at(up.source, where), await values_at(up.target, where)
            missing[where] = [value for value in west if value.startswith(b"east") and value not in east]
            alone[where] = [value for value in east if value not in west]
        note = "\n".join([f"seed {seed}, older: {is_older}", *world.told])
        partings = {one.where for one in that_are_missing(await source_partings(up.there, up.source, up.target))}
        assert partings == {where for where, values in missing.items() if values}, note
        found = await look_for_stranded(up.there, up.source, up.target)
        counts = dict.fromkeys(PARTITIONS, 0) | {tail.where: tail.records for tail in found.tails}
        assert counts == {where: len(values) for where, values in alone.items()}, note
