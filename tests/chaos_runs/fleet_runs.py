"""Rounds of a fleet under faults, while three kinds of producers write; then every record is compared.

A round has topics of its own, one for each link; the fleet, the clusters and etcd are those of the rounds before. What
the target has is read as one does who does not wait for transactions, at the end of the round, and again, behind
whatever came late, at the end of all rounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from deploy.demo.takeovers import EndsSeen, first_by_another
from mirror.offsets.state import load_link_state
from tests.chaos_runs.content_runs import ContentResult
from tests.chaos_runs.fleet_faults import FAULTS, WEIGHTS
from tests.chaos_runs.fleet_stage import LINKS, FleetStage
from tests.chaos_runs.looking import content_of, mistranslated, read_committed
from tests.chaos_runs.noting import noted
from tests.chaos_runs.oracle import compare
from tests.chaos_runs.writers import Writer, writing
from tests.mirror.harness import eventually, make_topic, read_all

PARTITIONS = 2
RATE_BURSTS_PER_S = 12.0
WATCH_S = 0.02
FLOWING_RECORDS = 10
"""At the target of each partition: more than what fences leave there."""
QUIET_S = 0.5
SETTLE_TIMEOUT_S = 90.0
HEALTHY_TIMEOUT = "60s"


@dataclass
class FleetResult(ContentResult):
    """Also how long links stood still whose worker was killed."""

    takeovers_s: list[float] = field(default_factory=list)

    def line(self) -> str:
        waits = " ".join(f"{wait:.2f}" for wait in self.takeovers_s)
        return super().line() + (f"\n     from kill -9 to the next record: {waits} s" if waits else "")


class FleetRound:
    """One seed: topics, writers, faults, and what came of it."""

    def __init__(self, seed: int, pair: str, stage: FleetStage, length_s: float) -> None:
        self._stage, self._length_s = stage, length_s
        self._chance = random.Random(f"{pair}-{seed}")
        self._seed = str(seed)
        self.topics = {name: f"{name}-{seed}" for name in LINKS}
        self.partitions = [TopicPartition(topic, n) for topic in self.topics.values() for n in range(PARTITIONS)]
        self.result = FleetResult(seed, pair)

    async def run(self) -> FleetResult:
        return await noted(self._run, self.result, self._stage.folder / f"traceback-{self._seed}.txt")

    async def _run(self) -> None:
        stage = self._stage
        async with Cluster(stage.links()[0].source) as east, Cluster(stage.links()[0].target) as west:
            for topic in self.topics.values():
                await make_topic(east, topic, PARTITIONS)
            with writing(stage.source.bootstrap, self.partitions, self._seed, RATE_BURSTS_PER_S) as (writers, stop):
                await eventually(lambda: self._flow(west), "the topics at the target", SETTLE_TIMEOUT_S)
                ends = EndsSeen(west, self.partitions)
                watching = asyncio.ensure_future(ends.watch(WATCH_S))
                try:
                    await self._disturb(west, ends)
                finally:
                    stop.set()
                    watching.cancel()
            await self._settle(east, west, writers)
        self.result.problems += stage.ended()

    async def _flow(self, west: Cluster) -> bool:
        if not set(self.topics.values()) <= (await west.metadata(list(self.topics.values()))).topics.keys():
            return False
        ends = await log_end_offsets(west, self.partitions)
        return all(end >= FLOWING_RECORDS for end in ends.values())

    async def _disturb(self, west: Cluster, ends: EndsSeen) -> None:
        """One fault after the other until the time is over."""
        stage, until_s = self._stage, time.monotonic() + self._length_s
        while True:
            await asyncio.sleep(self._chance.uniform(0.2, 1.5))
            await asyncio.to_thread(stage.until, lambda: bool(stage.held()), "a worker to hold something")
            held = stage.held()
            unit = self._chance.choice(sorted(held))
            (name,) = self._chance.choices(list(FAULTS), [WEIGHTS.get(kind, 1) for kind in FAULTS])
            self.result.faults[name] = self.result.faults.get(name, 0) + 1
            began_s = time.monotonic()
            fault = partial(FAULTS[name], stage, self._chance, held[unit].value)
            await asyncio.get_running_loop().run_in_executor(stage.hands, fault)
            if name == "kill":
                link = next(link for link in LINKS if unit.startswith(link))
                self.result.takeovers_s.append(await self._takeover_s(west, ends, self.topics[link], began_s))
            if time.monotonic() > until_s:
                return

    async def _takeover_s(self, west: Cluster, ends: EndsSeen, topic: str, killed_s: float) -> float:
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            while (first_s := await first_by_another(west, ends, topic, killed_s)) is None:
                await asyncio.sleep(QUIET_S)
        return first_s - killed_s

    async def _settle(self, east: Cluster, west: Cluster, writers: Sequence[Writer]) -> None:
        """All that is at the source comes to the target; what comes beyond that has a moment to show."""
        source = {where: await read_committed(east, where) for where in self.partitions}
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            target = {where: await read_all(west, where) for where in self.partitions}
            if all(len(target[where]) >= len(source[where]) for where in source) or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(QUIET_S)
        await asyncio.sleep(QUIET_S)
        target = {where: await read_all(west, where) for where in self.partitions}
        self.judge(source, target)
        self.result.records = sum(map(len, source.values()))
        self.result.aborts = sum(writer.written.aborts for writer in writers)
        at_source = {record.value for records in source.values() for record in records}
        for writer in writers:
            if gone := writer.written.acknowledged - at_source:
                self.result.problems.append(f"the source lost {len(gone)} records of the {writer.kind} producer")
        if not at_source:
            self.result.problems.append("nothing was written: this round proves nothing")

    def judge(
        self, source: Mapping[TopicPartition, Sequence[Record]], target: Mapping[TopicPartition, Sequence[Record]]
    ) -> None:
        for where in self.partitions:
            found = compare(
                [content_of(record) for record in source[where]], [content_of(each) for each in target[where]]
            )
            self.result.lost += len(found.lost)
            self.result.twice += len(found.twice)
            self.result.extra += len(found.extra)
            self.result.reordered += found.reordered
            if found:
                self.result.problems.append(
                    f"{where} differs: lost {found.lost[:2]}, twice {found.twice[:2]}, extra {found.extra[:2]}, "
                    f"{found.reordered} reordered"
                )


async def check_all(rounds: Sequence[FleetRound], stage: FleetStage) -> None:
    """When all rounds are over: no link has a finding, every record once more, and the map of each link."""
    said = await asyncio.to_thread(stage.farshore, "status", "--until", "healthy", "--timeout", HEALTHY_TIMEOUT)
    last = rounds[-1].result
    if said.code:
        last.problems.append(
            f"not healthy after {HEALTHY_TIMEOUT}: {said.err.strip()[-400:]} {said.out.strip()[-600:]}"
        )
    last.problems += [f"a worker said: {line}" for line in stage.unexpected_lines()]
    chance = random.Random(last.seed)
    links = {link.name: link for link in stage.links()}
    async with Cluster(links[LINKS[0]].source) as east, Cluster(links[LINKS[0]].target) as west:
        maps = {name: (await load_link_state(link, west)).map for name, link in links.items()}
        for each in rounds:
            source = {where: await read_committed(east, where) for where in each.partitions}
            target = {where: await read_all(west, where) for where in each.partitions}
            each.judge(source, target)
            for where in each.partitions:
                link = where.topic.partition("-")[0]
                each.result.problems += mistranslated(maps[link], where, source[where], target[where], chance)


def run_rounds(pair: str, seeds: Sequence[int], length_s: float, stage: FleetStage, folder: Path) -> list[FleetResult]:
    """One after the other on one stage, a line for each; after one that failed no other is begun."""
    rounds: list[FleetRound] = []
    for seed in seeds:
        rounds.append(FleetRound(seed, pair, stage, length_s))
        print(asyncio.run(rounds[-1].run()).line(), flush=True)
        if not rounds[-1].result.is_good:
            break
    good = [each.result.is_good for each in rounds]
    asyncio.run(check_all(rounds, stage))
    for each, was_good in zip(rounds, good, strict=True):
        if was_good and not each.result.is_good:
            print(f"at the end: {each.result.line()}", flush=True)
        (folder / f"seed-{each.result.seed}.txt").write_text(each.result.line())
    return [each.result for each in rounds]
