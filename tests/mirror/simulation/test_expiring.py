"""Retention at the target that takes what lies behind a checkpoint, and the markers there, before anybody looked at it.

A leader moves at the target while the source does not answer: the fence is extended, and nothing more is proved.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from broker.wire.vocabulary import TopicPartition
from mirror.offsets import tail
from mirror.offsets.entries import Checkpoint, GapKind
from mirror.offsets.recovery import TailBatch
from mirror.offsets.tail import Tail
from mirror.worker import latecomers
from mirror.worker.ground import Ground
from mirror.worker.replicator import Replicator
from mirror.worker.resume import Evidence
from mirror.worker.session import Session
from tests.mirror.simulation.logs import SimulatedPartition
from tests.mirror.simulation.network import Weather
from tests.mirror.simulation.profile import Profile, Rival, choose_profile
from tests.mirror.simulation.world import World
from tests.mirror.simulation.writing import SiteLife
from tests.worlds import first_worlds, rarely_found

WORLDS = first_worlds(16, of=40)
FIRST = 73
"""Of worlds of retention alone. In two of the first eighty a worker dies between its fence and what it settles."""
HANDS = 0.3
"""How much of what happens is an outage with retention."""
AWAY_MAX_S = 8.0
SEEDS = 100
"""Within so many a planted bug must be found."""


def choose(rng: random.Random) -> Profile:
    profile = choose_profile(rng)
    calm = replace(profile, shared=False, disaster=None, words=False, rival=Rival.NEVER, held=False, weather=Weather())
    limits = replace(profile.limits, fetch_max_wait_ms=500, topic_refresh_interval_ms=500, hold_pause_ms=200)
    return replace(calm, node_count=2, kills=0, births=0, actions=24, action_pause_max_s=0.4, limits=limits)


class WorldOfRetention(World):
    """It counts what the starts were told of what is gone."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, choose)
        self.outages: list[asyncio.Task[None]] = []

    async def _live(self) -> None:
        await super()._live()
        await asyncio.gather(*self.outages)

    def _act(self, life: SiteLife) -> None:
        if self.rng.random() < HANDS and all(task.done() for task in self.outages):
            self.outages.append(self.loop.create_task(self._outage(life)))
        else:
            super()._act(life)

    async def _outage(self, life: SiteLife) -> None:
        rng, there = self.rng, self.rng.choice(list(life.cluster.partitions()))
        here = self.sites["west"].partition(*there.where)
        if here is None:
            return
        life.write(there)
        await asyncio.sleep(rng.random() * 0.05)
        if rng.random() < 0.7:
            here.lead(next(node for node in self.sites["west"].node_ids if node != here.leader))
            there.tells_epochs = False
            await asyncio.sleep(rng.random() * AWAY_MAX_S)
        for _ in range(rng.randrange(1, 4)):
            for process in list(self._workers):
                self._kill(process)
            if rng.random() < 0.7:
                self._expire(here)
            await asyncio.sleep(rng.random() * AWAY_MAX_S)
        there.tells_epochs = True

    def _expire(self, here: SimulatedPartition) -> None:
        starts = [stored.header.base_offset for stored in here.batches]
        before = here.log_end if self.rng.random() < 0.5 else self.rng.choice([here.log_start, *starts])
        self.trace("retention:", here.where, before)
        self.oracles[0].partitions[here.where].strike({GapKind.TARGET_NOT_EMPTY})
        here.delete_before(before)


def settles_nothing(patch: pytest.MonkeyPatch) -> None:
    """As versions before there was that, and as a worker that dies before it."""
    checkpoint = Replicator.checkpoint

    async def nothing(*_args: Any) -> list[Checkpoint]:
        return []

    def planted(self: Replicator, now_ms: int) -> Checkpoint:
        return replace(checkpoint(self, now_ms), marker_may_follow=self.is_held, records_behind=-1)

    patch.setattr(Ground, "settle", nothing)
    patch.setattr(Replicator, "checkpoint", planted)


@pytest.mark.parametrize(
    ("settles", "common"),
    [(True, ("settled", "records")), (False, ("unclear", "records", "expected markers", "accepted"))],
)
def test_nothing_is_lost_and_nothing_comes_twice_without_a_word(
    settles: bool, common: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not settles:
        settles_nothing(monkeypatch)
    seen: Counter[str] = Counter()
    stand_in = tail.stand_in

    def noted(checkpoint: Checkpoint, found: Tail) -> Tail:
        known = stand_in(checkpoint, found)
        seen["settled"] += checkpoint.records_behind >= 0 and known.gone is not None
        seen["unclear"] += bool(known.unclear)
        seen["records"] += known.guess is not None
        seen["expected markers"] += checkpoint.marker_may_follow and bool(known.unclear)
        return known

    monkeypatch.setattr(tail, "stand_in", noted)
    for seed in range(FIRST, FIRST + WORLDS):
        world = WorldOfRetention(seed)
        world.run()
        seen += world.counts
    assert min(seen[what] for what in common) > WORLDS / 20, seen
    assert not (settles and seen["unclear"]), "no worker died before it had settled anything"


class WorldOfHolds(WorldOfRetention):
    """Partitions are held for what the source does not say, workers come and go, and retention takes what lies behind
    the checkpoints: but only of those of which the state has said how much of their writers that is.
    """

    async def _outage(self, life: SiteLife) -> None:
        rng, there = self.rng, self.rng.choice(list(life.cluster.partitions()))
        here = self.sites["west"].partition(*there.where)
        if here is None:
            return
        life.write(there)
        await asyncio.sleep(rng.random() * AWAY_MAX_S)
        there.tells_epochs = False
        for _ in range(rng.randrange(2, 5)):
            life.write(there)
            await asyncio.sleep(rng.random() * 0.05)
            if rng.random() < 0.5:
                here.lead(next(node for node in self.sites["west"].node_ids if node != here.leader))
            else:
                for process in list(self._workers):
                    self._kill(process)
            await asyncio.sleep(rng.random() * AWAY_MAX_S)
            self._expire(here)
        there.tells_epochs = True

    def _expire(self, here: SimulatedPartition) -> None:
        known = self.oracles[0].partitions[here.where].settled
        if known is None:
            return
        first, starts = known.end.target_next, [stored.header.base_offset for stored in here.batches]
        before = here.log_end if self.rng.random() < 0.5 else self.rng.choice([here.log_start, *starts])
        if before > first:
            self.counts["markers gone"] += 1
            self.counts["records gone"] += known.records_behind > 0
        self.trace("retention:", here.where, before)
        here.delete_before(before)


def test_where_the_state_says_what_lies_behind_a_held_partition_it_goes_on_without_a_word() -> None:
    """Every gap there would be one without a cause."""
    seen: Counter[str] = Counter()
    for seed in range(WORLDS):
        world = WorldOfHolds(seed)
        world.run()
        seen += world.counts
    assert min(seen["markers gone"], seen["records gone"]) > WORLDS / 20, seen


def counts_markers_by_epochs(patch: pytest.MonkeyPatch) -> None:
    """As if each fence raised it by two, and nothing else did."""

    def planted(checkpoint: Checkpoint, found: Tail) -> Tail:
        first, writer = checkpoint.end.target_next, checkpoint.writer
        begins = min([found.log_start, *(batch.base_offset for batch in found.batches[:1])])
        left = [batch for batch in found.batches if batch.is_control and batch.producer_id == writer.producer_id]
        fences = (left[-1].producer_epoch - writer.epoch + 1) // 2 if left else 0
        last = begins - 1 - max(0, fences - len(left))
        guess = [TailBatch(first, last, *writer, checkpoint.sequence, is_control=False)] if last >= first else []
        return replace(found, batches=[*guess, *found.batches])

    patch.setattr(tail, "stand_in", planted)


def tells_of_no_extended_fence(patch: pytest.MonkeyPatch) -> None:
    """Nor of what is settled, as a worker that dies before that."""
    settles_nothing(patch)
    checkpoint = Replicator.checkpoint

    async def nothing(*_args: Any) -> None:
        pass

    patch.setattr(latecomers, "_expect_markers", nothing)
    patch.setattr(
        Replicator, "checkpoint", lambda self, now_ms: replace(checkpoint(self, now_ms), marker_may_follow=False)
    )


def writes_old_checkpoints_behind_new_ones(patch: pytest.MonkeyPatch) -> None:
    """Who is taken in has its new position durable, and then comes what was known of it before."""
    opens = latecomers._open

    async def planted(session: Session, ground: Ground, evidence: Mapping[TopicPartition, Evidence]) -> None:
        old = [session.replicators[where] for where in evidence if where in session.replicators]
        await opens(session, ground, evidence)
        await session.state_writer.write([each.checkpoint(0) for each in old if each.gap is None])

    patch.setattr(latecomers, "_open", planted)


PLANTED = (
    rarely_found(counts_markers_by_epochs, WorldOfRetention),
    (tells_of_no_extended_fence, WorldOfRetention),
    (writes_old_checkpoints_behind_new_ones, WorldOfHolds),
)


@pytest.mark.parametrize(("plant", "world"), PLANTED)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], world: type[WorldOfRetention], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        try:
            world(seed).run()
        except Exception:  # noqa: BLE001 whatever it was: the worker's own assertions come in groups
            return
    pytest.fail(f"{SEEDS} seeds do not see what is wrong where the worker {plant.__name__}")
