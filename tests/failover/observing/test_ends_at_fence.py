"""Where the source's logs ended is kept with the promotion: what comes to the site that was left is found by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.limits import ClientLimits
from broker.wire.vocabulary import TopicPartition
from failover.observing.ends_at_fence import ends_at_fence
from failover.planning.plan import plan_failover, plan_switchover
from mirror.offsets.fence_ends import FenceEnd, FenceEnds
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state import load_link_state
from mirror.split import EndSeen, Split, look_for_split
from tests.broker.faults import Faults, injected
from tests.failover.stage import PARTITIONS, RECORDS, Stage, mirrored, now_ms, two_sites
from tests.mirror.harness import eventually, some_records, write

FIRST = PARTITIONS[0]


async def kept(stage: Stage, operation_id: str) -> FenceEnds:
    return (await load_observation(stage.link, stage.target)).fence_ends[operation_id]


async def found(stage: Stage) -> Split:
    state = await load_link_state(stage.link, stage.target)
    split = await look_for_split(stage.link, stage.source, stage.target, state, ())
    assert split is not None
    return split


async def all_seen(stage: Stage) -> None:
    async def are_seen() -> bool:
        ends = (await load_observation(stage.link, stage.target)).ends
        return [ends[at].end for at in PARTITIONS if at in ends] == [RECORDS] * len(PARTITIONS)

    await eventually(are_seen, "the source's ends to be seen")


async def test_a_source_that_answers_says_where_it_ends_right_before_the_fence(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        plan = plan_failover(await stage.sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        await write(stage.source, FIRST, some_records(70_000, 2))  # lost: it came before the fence
        result = await stage.run(plan, stage.sites)
        ends = await kept(stage, result.operation_id)
        assert {at: (end.end, end.is_told) for at, end in ends.items()} == {
            FIRST: (RECORDS + 2, True),
            PARTITIONS[1]: (RECORDS, True),
        }
        await write(stage.target, FIRST, some_records(80_000, 1))
        assert not (await found(stage)).is_split
        await write(stage.source, FIRST, some_records(90_000, 1))
        split = await found(stage)
        assert split.is_split
        assert [(at.first_offset, at.records, at.end_seen) for at in split.at_source] == [
            (RECORDS + 2, 1, EndSeen.TOLD)
        ]


async def test_of_a_source_that_told_nothing_counts_what_was_last_seen_before(tmp_path: Path) -> None:
    """The worker lives on, and sees what comes then."""
    async with two_sites(tmp_path) as stage, mirrored(stage):
        await all_seen(stage)
        gone = stage.without_source
        plan = plan_failover(await gone.look_past_source(), allow_data_loss=True, even_if_source_answers=False)
        result = await stage.run(plan, gone)
        ends = await kept(stage, result.operation_id)
        assert {at: (end.end, end.is_told) for at, end in ends.items()} == dict.fromkeys(PARTITIONS, (RECORDS, False))
        await write(stage.target, FIRST, some_records(80_000, 1))
        await write(stage.source, FIRST, some_records(90_000, 1, now_ms() + 60_000))
        split = await found(stage)
        assert [(at.first_offset, at.records, at.end_seen) for at in split.at_source] == [
            (RECORDS, 1, EndSeen.LAST_SEEN)
        ]


async def test_a_switchover_keeps_what_its_drain_saw(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        result = await stage.run(plan_switchover(await stage.sites.look()), stage.sites)
        ends = await kept(stage, result.operation_id)
        assert {at: (end.end, end.is_told) for at, end in ends.items()} == dict.fromkeys(PARTITIONS, (RECORDS, True))


async def test_a_source_that_dies_behind_the_plan_tells_nothing(tmp_path: Path) -> None:
    """Where the plan had seen it end was kept as what it said at the fence: what came in between, and is lost, was told
    to have come since.
    """
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        plan = plan_failover(await stage.sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
        await write(stage.source, FIRST, some_records(0, 2, plan.snapshot.taken_at_ms))
        result = await stage.run(plan, stage.without_source)
        at_plan = FenceEnd(RECORDS, plan.snapshot.taken_at_ms, is_told=False)
        assert await kept(stage, result.operation_id) == dict.fromkeys(PARTITIONS, at_plan)
        await write(stage.target, FIRST, some_records(80_000, 1))
        assert (await found(stage)).at_source == ()
        await write(stage.source, FIRST, some_records(90_000, 1, now_ms() + 60_000))
        (here,) = (await found(stage)).at_source
        assert (here.first_offset, here.records, here.end_seen) == (RECORDS + 2, 1, EndSeen.LAST_SEEN)


async def test_what_one_leader_does_not_tell_in_time_is_as_the_last_look_had_it_and_others_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ClientLimits(partition_patience_ms=60_000, retry_timeout_ms=60_000)
    east = Faults()
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        seen = await stage.sites.look()
        await write(stage.source, PARTITIONS[1], some_records(70_000, 2))
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with Cluster(stage.link.source, client_id="farshore-failover", limits=limits) as source:
                east.leaderless.add(FIRST)
                ends = await ends_at_fence(stage.link, source, seen, lambda: seen.taken_at_ms + 7)
    assert ends == {
        FIRST: FenceEnd(RECORDS, seen.taken_at_ms, is_told=False),
        PARTITIONS[1]: FenceEnd(RECORDS + 2, seen.taken_at_ms + 7, is_told=True),
    }


async def test_a_partition_without_a_leader_that_no_look_had_seen_is_not_told_to_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    east = Faults()
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        seen = await stage.sites.look()
        born = replace(seen, partitions=tuple(view for view in seen.partitions if view.partition == 0))
        with injected(monkeypatch, {stage.brokers[0]: east}):
            async with Cluster(stage.link.source, client_id="farshore-failover") as source:
                east.leaderless.add(PARTITIONS[1])
                ends = await ends_at_fence(stage.link, source, born, lambda: seen.taken_at_ms + 7)
    assert ends == {
        FIRST: FenceEnd(RECORDS, seen.taken_at_ms + 7, is_told=True),
        PARTITIONS[1]: FenceEnd(0, seen.taken_at_ms, is_told=False),
    }


async def test_what_the_source_does_not_tell_is_as_the_last_look_had_it(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        for sites in (stage.without_source, stage.sites):
            seen = await sites.look()
            silent = await ends_at_fence(stage.link, None, seen, now_ms)
            assert {(end.end, end.is_told) for end in silent.values()} == {(RECORDS, False)}
            told = await ends_at_fence(stage.link, stage.source, seen, now_ms)
            assert {(end.end, end.is_told) for end in told.values()} == {(RECORDS, True)}
            assert silent.keys() == told.keys() == {TopicPartition(*at) for at in PARTITIONS}
