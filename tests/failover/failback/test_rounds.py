"""Worlds, one per seed, in which applications go back and forth between two sites, planned and not, and what a site
that was lost has alone is left there: every move is verified, what the maps say is held against both logs by content,
and the group reads next at the one site what it would at the other.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.wire.records import Record
from failover.failback.stranding import leave_at_source, look_for_stranded
from failover.planning.plan import plan_failover, plan_switchover
from mirror.offsets.intervals import End, Interval
from mirror.offsets.operations import resume_link
from mirror.offsets.paged import Intervals
from mirror.offsets.runs import next_landed
from mirror.offsets.state import load_link_state
from tests.failover.failback.stage import transaction
from tests.failover.machines import quick
from tests.failover.stage import PARTITIONS, RECORDS, Stage, commit_group, mirrored, two_sites
from tests.mirror.harness import contents, eventually, read_all, running, write
from tests.worlds import first_worlds

ROUNDS = 5


class World:
    """`stages`: of the link that leads away from where the applications are, and of the link back."""

    def __init__(self, seed: int, stage: Stage) -> None:
        self.rng, self.written, self.told = random.Random(seed), 0, list[str]()
        there = replace(stage.link, shared_targets=True)
        back = replace(there, name=f"{there.name}-back", source=there.target, target=there.source)
        links = replace(there, reverse_links=(back,)), replace(back, reverse_links=(there,))
        self.stages = tuple(
            replace(stage, link=link, source=source, target=target)
            for link, source, target in zip(
                links, (stage.source, stage.target), (stage.target, stage.source), strict=True
            )
        )
        self.promoted: set[str] = set()

    async def write(self, cluster: Cluster, fewest: int = 0) -> None:
        for at in PARTITIONS:
            for _ in range(self.rng.randint(1, 2)):
                count = max(fewest, self.rng.choice((1, 3, 20)))
                values = [b"%d" % (self.written + number) for number in range(count)]
                self.written += count
                kind = self.rng.choice(("plain", "plain", "committed", "aborted"))
                if kind == "plain" or fewest:
                    await write(cluster, at, [Record(0, 1_700_000_000_000, None, value) for value in values])
                else:
                    async with transaction(cluster.site.bootstrap_servers) as producer:
                        for value in values:
                            await producer.send_and_wait(at.topic, value, partition=at.partition)
                        await (producer.commit_transaction() if kind == "committed" else producer.abort_transaction())
                self.told.append(f"{count} {kind} to {at} at {cluster.site.name}")

    async def until_mirrored(self, stages: Collection[Stage]) -> None:
        """Each link stands behind all that there is at its source, and says so."""

        async def stand() -> bool:
            for stage in stages:
                ends = await log_end_offsets(stage.source, PARTITIONS)
                known = (await load_link_state(stage.link, stage.target)).entries.checkpoints
                if any(at not in known or known[at].position < ends[at] for at in PARTITIONS):
                    return False
            return True

        await eventually(stand, "the links to stand behind their sources' logs")

    async def go(self) -> None:
        """One move, after which the stages are the other way round."""
        away, back = self.stages
        for stage in (away, back):
            if stage.link.name in self.promoted:
                await resume_link(stage.link, stage.target, f"back-{len(self.told)}")
                self.promoted.discard(stage.link.name)
        is_planned = self.rng.random() < 0.6
        self.told.append(f"{'switchover' if is_planned else 'failover'} along {away.link.name}")
        async with running(away.link, back.link):
            if self.rng.random() < 0.7:
                await self.write(away.source)
            await self.write(away.source, fewest=3)
            await commit_group(away.source, *[end - self.rng.randint(0, 2) for end in await self.ends(away)])
            await self.until_mirrored((away, back))
            if is_planned:
                before = [await away.next_record(away.source, at) for at in PARTITIONS]
                plan = plan_switchover(await away.sites.look())
                counts = {(move.read_again_records, move.skipped_records) for move in plan.moves}
                assert counts == {(0, 0)}, self.note(*plan.moves)
                result = await away.run(plan, away.sites)
                assert [await away.next_record(away.target, at) for at in PARTITIONS] == before, self.note()
        if not is_planned:
            await self.write(away.source)
            lost = away.without_source
            plan = plan_failover(await lost.look(), allow_data_loss=True, even_if_source_answers=False)
            result = await away.run(plan, lost)
            found = await look_for_stranded(away.link, away.source, away.target)
            await leave_at_source(away.link, away.target, found.undecided, "by this test")
        assert result.verified, self.note(result)
        self.promoted.add(away.link.name)
        for stage in (away, back):
            await self.judge_map(stage)
        self.stages = back, away

    async def ends(self, stage: Stage) -> list[int]:
        ends = await log_end_offsets(stage.source, PARTITIONS)
        return [ends[at] for at in PARTITIONS]

    async def judge_map(self, stage: Stage) -> None:
        """Each record that the map says was brought is the one at the target that it says."""
        state = await load_link_state(stage.link, stage.target)
        for at in PARTITIONS:
            found, start = state.map.find(*at), 0
            here = {record.offset: record for record in await read_all(stage.source, at)}
            there = {record.offset: record for record in await read_all(stage.target, at)}
            while found is not None and (run := next_landed(found, start)) is not None:
                sources, start = range(run.source, run.source + run.length), run.target + run.length
                note = self.note(stage.link.name, at, run, list(found.intervals), found.end)
                assert here.keys() >= set(sources), note
                assert there.keys() >= set(range(run.target, start)), note
                brought = contents(there[offset] for offset in range(run.target, start))
                assert contents(here[offset] for offset in sources) == brought, note

    def note(self, *more: object) -> str:
        return "\n".join([*self.told, *map(str, more)])


@pytest.mark.parametrize("seed", range(first_worlds(2, of=20)))
async def test_applications_that_go_back_and_forth_never_lose_their_place(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play(seed, tmp_path, monkeypatch)


async def play(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    async with two_sites(folder) as stage:
        world = World(seed, stage)
        stage.link = world.stages[0].link
        async with mirrored(stage):
            pass
        for _ in range(ROUNDS):
            await world.go()
        assert world.written > RECORDS


async def test_a_map_that_takes_a_left_tail_for_what_others_wrote_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: an offset gap before the end stays where it was."""

    def go_on(self: Intervals, intervals: Collection[Interval], _end: End) -> tuple[Interval, ...]:
        for interval in intervals:
            self.put(interval)
        return tuple(intervals)

    monkeypatch.setattr(Intervals, "go_on", go_on)
    with pytest.raises(AssertionError):
        await play(0, tmp_path, monkeypatch)
