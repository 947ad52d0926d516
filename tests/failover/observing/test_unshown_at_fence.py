"""What a leader of the source has at the fence, and its followers have not: it came before the promotion."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from broker.topics.partition import Partition
from broker.wire.api import ApiKey
from failover.observing.ends_at_fence import ends_at_fence
from failover.planning.plan import plan_failover
from mirror.heartbeat import HeartbeatWatch
from mirror.link_finding import LinkFindingKind
from mirror.offsets.fence_ends import FenceEnd
from mirror.offsets.state import load_link_state
from mirror.split import EndSeen, Since, SourceTail
from mirror.status import link_status
from mirror.tails import look_for_tails
from tests.broker.faults import Faults, injected
from tests.failover.losses.test_unshown_stranded import ends_connections, tells_nobody
from tests.failover.observing.test_ends_at_fence import all_seen, found, kept
from tests.failover.on_its_way import hold_drain, replicate
from tests.failover.stage import PARTITIONS, RECORDS, TOPIC, Stage, mirrored, now_ms, two_sites
from tests.mirror.harness import contents, read_all, some_records, wait_for_records, write

FIRST, SECOND = PARTITIONS


def _leader(stage: Stage) -> Partition:
    return stage.brokers[0].require_partition(*FIRST)


async def _fail_over(stage: Stage) -> str:
    """While its leader has one record more than it shows; the target is written to behind that."""
    async with mirrored(stage):
        await all_seen(stage)
    await hold_drain(stage)
    plan = plan_failover(await stage.sites.look_past_source(), allow_data_loss=True, even_if_source_answers=True)
    result = await stage.run(plan, stage.sites)
    await write(stage.target, FIRST, some_records(80_000, 1))
    return result.operation_id


async def _kinds(stage: Stage) -> set[LinkFindingKind]:
    return {one.kind for one in (await link_status(stage.link, HeartbeatWatch(stage.target.clock))).findings}


async def test_a_record_of_before_the_fence_that_is_shown_behind_it_is_no_split(tmp_path: Path) -> None:
    """It was counted as one that the source took since: a split brain, where nobody had written."""
    async with two_sites(tmp_path) as stage:
        operation_id = await _fail_over(stage)
        ends = await kept(stage, operation_id)
        epoch = _leader(stage).leader_epoch
        assert ends[FIRST] == FenceEnd(RECORDS, ends[FIRST].at_ms, True, RECORDS + 1, epoch)
        assert ends[SECOND] == FenceEnd(RECORDS, ends[SECOND].at_ms, is_told=True)
        replicate(_leader(stage))
        await wait_for_records(stage.source, FIRST, RECORDS + 1)
        assert LinkFindingKind.SPLIT_BRAIN not in await _kinds(stage)
        split = await found(stage)
        assert (split.at_source, split.tails) == ((), (SourceTail(*FIRST, RECORDS),))
        state = await load_link_state(stage.link, stage.target)
        until_s = asyncio.get_running_loop().time() + 5
        tails = await look_for_tails(stage.link, stage.source, stage.target, state, (), until_s)
        assert tails is not None
        assert (tails.records, tails.not_read) == ({FIRST: 1}, ())

        await write(stage.source, FIRST, some_records(90_000, 2))
        split = await found(stage)
        assert split.is_split
        (since,) = split.at_source
        assert (since.first_offset, since.records, since.end_seen) == (RECORDS + 1, 2, EndSeen.TOLD)
        assert contents((await read_all(stage.source, FIRST))[since.first_offset :]) == contents(
            some_records(90_000, 2)
        )


async def test_what_another_leader_takes_at_its_offset_came_since(tmp_path: Path) -> None:
    """The record went with its leader, and nobody ever was shown it."""
    async with two_sites(tmp_path) as stage:
        await _fail_over(stage)
        partition = _leader(stage)
        partition.log.truncate_to(RECORDS)
        state = partition.state
        own = (state.replicas[0],)
        later = replace(state, leader_epoch=state.leader_epoch + 1, version=state.version + 1, replicas=own, isr=own)
        partition.lead(later, now_ms=0)
        await write(stage.source, FIRST, some_records(90_000, 1))
        split = await found(stage)
        assert split.is_split
        assert [(at.first_offset, at.records) for at in split.at_source] == [(RECORDS, 1)]
        assert split.tails == ()


async def test_of_a_cluster_that_tells_nobody_how_far_its_logs_go_what_it_shows_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        seen = await stage.sites.look()
        with injected(monkeypatch, {stage.brokers[0]: tells_nobody()}):
            ends = await ends_at_fence(stage.link, stage.source, seen, now_ms)
        assert {(end.end, end.is_told, end.unshown_to) for end in ends.values()} == {(RECORDS, True, 0)}


async def test_what_a_cluster_shows_is_told_where_it_ends_connections_at_being_asked_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept as ends that nobody told, and times judged what came since."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        seen = await stage.sites.look()
        with injected(monkeypatch, {stage.brokers[0]: ends_connections()}):
            ends = await ends_at_fence(stage.link, stage.source, seen, now_ms)
        assert {(end.end, end.is_told, end.unshown_to) for end in ends.values()} == {(RECORDS, True, 0)}


async def test_an_epoch_that_is_forgotten_meanwhile_is_known_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another partition of the topic has lost its leader: it was kept as an end that nobody told."""
    async with two_sites(tmp_path) as stage:
        async with mirrored(stage):
            await all_seen(stage)
        await hold_drain(stage)
        seen = await stage.sites.look()

        def forget(_request: object) -> None:
            stage.source.forget_leaders([TOPIC])

        with injected(monkeypatch, {stage.brokers[0]: Faults(moments={ApiKey.LIST_OFFSETS: forget})}):
            ends = await ends_at_fence(stage.link, stage.source, seen, now_ms)
        assert ends[FIRST] == FenceEnd(RECORDS, ends[FIRST].at_ms, True, RECORDS + 1, _leader(stage).leader_epoch)


def test_no_more_is_read_than_what_its_leader_had_at_the_fence() -> None:
    """All that the link back wrote since was read for one record; where time judges, it may be anywhere."""
    assert Since(60, (0, 0), EndSeen.TOLD, 60, 61, 4).older_end(20_061) == 61
    assert Since(60, (0, 0), EndSeen.TOLD, 60, 61, 4).older_end(60) == 60
    assert Since(60, (0, 0), EndSeen.TOLD, 50).older_end(20_061) == 60
    assert Since(60, (5_000, 9_000), EndSeen.LAST_SEEN, 60).older_end(20_061) == 20_061
