"""Several `farshore mirror run` carry one link, and one of them is killed: the others' partitions never pause."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from deploy.cli.terminal import ExitCode
from mirror.link import Link
from tests.chaos_runs.warm_commands import warm_commands
from tests.deploy.cli.fleet_files import fleet_file
from tests.deploy.cli.test_fleet import Fleet, fleet_of
from tests.interop.servers import FarshoreBroker
from tests.mirror.fleet.etcd_server import EtcdServer
from tests.mirror.harness import eventually, make_topic, read_all

UNITS = 4
PARTITIONS = [TopicPartition("red", number) for number in range(UNITS)]
WRITE_EVERY_S = 0.1
PAUSE_MAX_S = 2.0
"""Of a partition whose worker lives, on a machine that has time for it. A takeover takes longer than a lease, and where
all stands still meanwhile, longer still.
"""


class CutFleet(Fleet):
    """One link of four units, with a topic of as many partitions."""

    def __init__(self, folder: Path, east: FarshoreBroker, west: FarshoreBroker, etcd: EtcdServer) -> None:
        super().__init__(folder, east, west, etcd)
        self.config.write_text(fleet_file(["red"], self.sites, etcd.address) + f"units = {UNITS}\n")
        self.values: dict[TopicPartition, list[bytes | None]] = {where: [] for where in PARTITIONS}

    def unit_holders(self) -> dict[int, str]:
        lines = iter(self.etcd.ctl("get", "--prefix", "/farshore/fleet/held/").splitlines())
        held = {key: json.loads(value)["worker"] for key, value in zip(lines, lines, strict=True)}
        return {int(key.removeprefix("/farshore/fleet/held/red/")): worker for key, worker in held.items()}

    def unit_of(self, where: TopicPartition) -> int:
        return Link("red", self.east, self.west, ("red",), units=UNITS).unit_of(*where)

    async def write_each(self, east: Cluster) -> None:
        for where in PARTITIONS:
            value = b"%d-%d" % (where.partition, len(self.values[where]))
            await append(east, where, encode_batch([Record(0, east.clock.now_ms(), b"k", value)]))
            self.values[where].append(value)

    async def is_mirrored(self, west: Cluster) -> bool:
        if "red" not in (await west.metadata(["red"])).topics:
            return False
        for where in PARTITIONS:
            if [record.value for record in await read_all(west, where)] != self.values[where]:
                return False
        return True


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[CutFleet]:
    with fleet_of(CutFleet, tmp_path) as made:
        yield made


async def test_one_of_two_that_carry_a_link_is_killed_and_the_others_partitions_never_pause(fleet: CutFleet) -> None:
    link_units = {where: fleet.unit_of(where) for where in PARTITIONS}
    async with Cluster(fleet.east) as east, Cluster(fleet.west) as west:
        await make_topic(east, "red", UNITS)
        await fleet.write_each(east)
        fleet.start("one")
        await eventually(lambda: fleet.is_mirrored(west), "the first worker to run all units")
        fleet.start("two")

        async def shared() -> bool:
            return sorted(fleet.unit_holders().values()) == ["one", "one", "two", "two"]

        await eventually(shared, "the second worker to be given two units")
        await fleet.write_each(east)
        await eventually(lambda: fleet.is_mirrored(west), "both to run theirs")
        held = fleet.unit_holders()
        seen: defaultdict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
        running = asyncio.Event()

        async def write() -> None:
            while not running.is_set():
                await fleet.write_each(east)
                await asyncio.sleep(WRITE_EVERY_S)

        async def watch() -> None:
            async with Cluster(fleet.west) as other:
                while not running.is_set():
                    for where, end in (await log_end_offsets(other, PARTITIONS)).items():
                        if not seen[where] or seen[where][-1][1] != end:
                            seen[where].append((time.monotonic(), end))
                    await asyncio.sleep(0.02)

        async def taken_over() -> bool:
            return set(fleet.unit_holders().values()) == {"two"} and len(fleet.unit_holders()) == UNITS

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            tasks.create_task(watch())
            await asyncio.sleep(2)
            fleet.kill9("one")
            killed_s = time.monotonic()
            await eventually(taken_over, "the other worker to take over")
            again_s = time.monotonic() + 3

            async def all_go_on() -> bool:
                return all(seen[where] and seen[where][-1][0] > again_s for where in PARTITIONS)

            await eventually(all_go_on, "each partition to go on")
            running.set()
        await eventually(lambda: fleet.is_mirrored(west), "all to be mirrored, in order, once")
        check_pauses(seen, killed_s, {where: held[link_units[where]] for where in PARTITIONS})
    assert fleet.log("two").count("event=started") == UNITS, "each unit's session began once there"
    assert "Traceback" not in fleet.log("one") + fleet.log("two")


async def test_a_fleet_goes_on_by_itself_when_its_link_is_cut_anew_and_the_files_follow(fleet: CutFleet) -> None:
    async with Cluster(fleet.east) as east, Cluster(fleet.west) as west:
        await make_topic(east, "red", UNITS)
        await fleet.write_each(east)
        fleet.start("one")
        fleet.start("two")
        await eventually(lambda: fleet.is_mirrored(west), "four units to be run")
        text, ended = fleet.config.read_text(), asyncio.Event()

        async def write() -> None:
            while not ended.is_set():
                await fleet.write_each(east)
                await asyncio.sleep(WRITE_EVERY_S)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            for units, pins, file_first in ((1, ("red:2",), False), (3, (), True)):
                said = text.replace(f"units = {UNITS}\n", f"units = {units}\npins = {json.dumps(pins)}\n")
                if file_first:
                    fleet.config.write_text(said)
                named = " ".join(f"--pin {pin}" for pin in pins)
                line = f"--config {fleet.config} link cut --link red --units {units} {named} --yes"
                done = await asyncio.to_thread(warm_commands().run, line.split(), fleet.folder)
                assert done.code == ExitCode.DONE, done.err
                fleet.config.write_text(said)
                count, before = units + len(pins), {where: len(fleet.values[where]) for where in PARTITIONS}

                async def held(count: int = count) -> bool:
                    return sorted(fleet.unit_holders()) == list(range(count))

                async def all_go_on(before: dict[TopicPartition, int] = before) -> bool:
                    ends = await log_end_offsets(west, PARTITIONS)
                    return all(ends[where] > before[where] + 20 for where in PARTITIONS)

                await eventually(held, f"workers to have {count} units")
                await eventually(all_go_on, "each partition to go on")
            ended.set()
        await eventually(lambda: fleet.is_mirrored(west), "all to be mirrored, in order, once")
    assert "Traceback" not in fleet.log("one") + fleet.log("two")


def check_pauses(
    seen: Mapping[TopicPartition, Sequence[tuple[float, int]]], killed_s: float, carriers: Mapping[TopicPartition, str]
) -> None:
    """`seen`: when each partition's end was seen to move; `carriers`: who carried it until one was killed."""
    pauses = {w: max(b - a for (a, _), (b, _) in pairwise(seen[w])) for w in PARTITIONS}
    first = {w: min(at for at, _ in seen[w] if at > killed_s + 1) - killed_s for w in PARTITIONS}
    told = {w: f"{carriers[w]}: longest pause {pauses[w]:.2f} s" for w in PARTITIONS}
    print(f"killed one: {told}; first records behind it after {first}")
    carried = {worker: [pauses[w] for w in PARTITIONS if carriers[w] == worker] for worker in ("one", "two")}
    assert max(carried["two"]) < max(PAUSE_MAX_S, min(carried["one"]) / 2), told
