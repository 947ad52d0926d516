"""Topics that an operator pauses and resumes while a link runs: nothing more of them comes, and nobody else notices."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.topics import create_partitions, delete_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.heartbeat import HeartbeatWatch
from mirror.link_finding import LinkFindingKind
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.operations import restart_link
from mirror.offsets.state import read_entries
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from mirror.status import LinkStatus, link_status
from mirror.worker.events import Event
from tests.mirror.harness import (
    Told,
    contents,
    eventually,
    link_between,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)
from tests.mirror.worker.stage import BAD, LIMITS, NEXT, OTHER, Stage, open_stage


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path, monkeypatch) as opened:
        yield opened


def assert_one_session(told: Told) -> None:
    assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], [])


def held(told: Told) -> set[tuple[object, object]]:
    """The partitions that were said to be paused."""
    found = [fields for fields in told.of(Event.PARTITION_HELD) if fields["reason"] == HoldReason.PAUSED.value]
    return {(fields["topic"], fields["partition"]) for fields in found}


async def until_held(stage: Stage, told: Told, *partitions: TopicPartition) -> None:
    async def said() -> bool:
        return held(told) >= set(partitions)

    await eventually(said, "the mirror to have seen the pause")


async def status_of(stage: Stage) -> LinkStatus:
    return await link_status(stage.link, HeartbeatWatch(SystemClock()))


async def test_a_paused_topic_stands_and_the_others_have_not_even_a_marker_of_it(stage: Stage) -> None:
    await stage.write(BAD, NEXT, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, NEXT, OTHER)
        ends = await log_end_offsets(stage.target, [BAD, NEXT, OTHER])
        await pause_topics(stage.link, stage.target, "pause-1", ["flights"])
        await until_held(stage, told, BAD, NEXT)
        await stage.write(BAD, NEXT, OTHER)
        await stage.wait_for(OTHER)
        status = await status_of(stage)
        assert status.topics_paused == ("flights",)
        (finding,) = status.findings
        assert (finding.kind, finding.topic, finding.partition) == (LinkFindingKind.TOPIC_PAUSED, "flights", None)
        assert finding.next_step == f"farshore topic resume --link {stage.link.name} --topic flights"
        lags = {(lag.topic, lag.partition): lag.lag_records for lag in status.partition_lags}
        assert (lags[BAD], lags[NEXT], lags[OTHER]) == (10, 10, 0), "its lag is known all the same"
        after = await log_end_offsets(stage.target, [BAD, NEXT, OTHER])
        assert (after[BAD], after[NEXT], after[OTHER]) == (ends[BAD], ends[NEXT], ends[OTHER] + 10)
        await resume_topics(stage.link, stage.target, ["flights"])
        await stage.wait_for(BAD, NEXT)
        await stage.write(BAD, NEXT, OTHER)
        await stage.wait_for(BAD, NEXT, OTHER)
        assert_one_session(told)
        assert await log_end_offsets(stage.target, [OTHER]) == {OTHER: ends[OTHER] + 20}

        async def healthy() -> bool:
            return not (await status_of(stage)).findings

        await eventually(healthy, "no finding to be left")


async def test_a_pause_holds_for_whoever_runs_the_link_next(stage: Stage) -> None:
    await stage.write(BAD, OTHER)
    async with running(stage.link, limits=LIMITS):
        await stage.wait_for(BAD, OTHER)
    await pause_topics(stage.link, stage.target, "pause-1", ["flights"])
    await stage.write(BAD, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(OTHER)
        await until_held(stage, told, BAD, NEXT)
        await restart_link(stage.link, stage.target, "restart-1")
        await told.wait_for(Event.STARTED, 2)
        await stage.write(OTHER)
        await stage.wait_for(OTHER)
        assert contents(await read_all(stage.target, BAD)) == contents(some_records(0, 10)), "no session takes more"
        entries = await read_entries(stage.link, stage.target)
        assert {key: hold.reason for key, hold in entries.holds.items()} == dict.fromkeys(
            (BAD, NEXT), HoldReason.PAUSED
        )
        since = entries.paused["flights"].at_ms
        assert {hold.at_ms for hold in entries.holds.values()} == {since}, "as of the pause, not of the session"
        await resume_topics(stage.link, stage.target, ["flights"])
        await stage.wait_for(BAD)
        assert (told.count(Event.STARTED), told.of(Event.RESTARTING)) == (2, [])
    await stage.write(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD)
        assert not told.of(Event.PARTITION_STOPPED)
        assert not held(told)


async def test_what_comes_to_a_paused_topic_waits_with_it(stage: Stage) -> None:
    """A partition that is new, and a topic of that name that is another one."""
    new = TopicPartition("flights", 2)
    await stage.write(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD)
        await pause_topics(stage.link, stage.target, "pause-1", ["flights", "gates"])
        await until_held(stage, told, BAD, NEXT, OTHER)
        await create_partitions(stage.source, {"flights": 3})
        await stage.write(new)
        await until_held(stage, told, new)
        assert not await delete_topics(stage.source, ["gates"])
        await told.wait_for(Event.TOPIC_LEFT)
        assert not await read_all(stage.target, new)
        await resume_topics(stage.link, stage.target, ["flights"])
        await stage.wait_for(new)
        assert_one_session(told)


async def test_what_the_target_refuses_of_a_topic_that_is_being_paused_is_sent_again_after_it(stage: Stage) -> None:
    """In doubt what became of the last that was sent, the partition is taken in behind a marker of its own."""
    await stage.write(BAD, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, OTHER)
        stage.west.refuse(BAD, ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.PRODUCE)
        await stage.write(BAD)
        await told.wait_for(Event.PARTITION_HELD)
        await pause_topics(stage.link, stage.target, "pause-1", ["flights"])
        await until_held(stage, told, NEXT)
        stage.west.heal()
        await until_held(stage, told, BAD)
        await resume_topics(stage.link, stage.target, ["flights"])
        await stage.wait_for(BAD)
        assert_one_session(told)


async def test_a_topic_is_paused_in_all_units_of_a_link(brokers: tuple[str, str]) -> None:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    link = link_between(*brokers, [topic], units=2)
    partitions = [TopicPartition(topic, number) for number in range(4)]
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, 4)
        async with running(link, limits=LIMITS) as told:
            for where in partitions:
                await write(source, where, some_records(0, 5))
                await wait_for_records(target, where, 5)
            await pause_topics(replace(link, units=1), target, "pause-1", [topic])

            async def said() -> bool:
                return held(told) == set(partitions)

            await eventually(said, "both units to have seen it")
            for where in partitions:
                await write(source, where, some_records(5, 5))
            for unit in link.each_unit():
                assert (await read_entries(unit, target)).paused.keys() == {topic}
            assert {where: len(await read_all(target, where)) for where in partitions} == dict.fromkeys(partitions, 5)
            await resume_topics(replace(link, units=1), target, [topic])
            for where in partitions:
                assert contents(await wait_for_records(target, where, 10)) == contents(some_records(0, 10))
            assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (2, [], [])
