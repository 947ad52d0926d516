"""Partitions that are born, or grow, while a session runs: it takes them in, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.offsets import log_end_offsets
from broker.client.topics import create_partitions
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import GapKind
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.state import load_link_state, read_entries
from mirror.worker.events import Event
from tests.mirror.harness import Told, eventually, make_topic, read_all, running, some_records, write
from tests.mirror.worker.stage import BAD, BOUND_S, GOOD, LIMITS, NEXT, OTHER, Stage, open_stage

BORN = TopicPartition("born", 0)
GROWN = TopicPartition("flights", 2)


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path, monkeypatch) as opened:
        yield opened


def assert_one_session(told: Told) -> None:
    assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], [])


async def test_new_topics_and_partitions_are_taken_in_by_the_session_that_runs(stage: Stage) -> None:
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, *GOOD)
        ends = await log_end_offsets(stage.target, [BAD, *GOOD])
        await make_topic(stage.source, "born", max_message_bytes="700000")
        assert not await create_partitions(stage.source, {"flights": 3})
        await stage.write(BORN, GROWN)
        await stage.wait_for(BORN, GROWN)
        assert await log_end_offsets(stage.target, ends) == ends, "the others have not even a marker of it"
        await stage.write(BORN, GROWN, BAD, *GOOD)
        await stage.wait_for(BORN, GROWN, BAD, *GOOD)
        assert_one_session(told)
        taken_in = {(fields["topic"], fields["partition"]) for fields in told.of(Event.PARTITION_TAKEN_IN)}
        assert taken_in == {BORN, GROWN}
        entries = await read_entries(stage.link, stage.target)
        assert not entries.holds
        configs = (await describe_topic_configs(stage.target, ["born"]))["born"]
        assert not isinstance(configs, KafkaError)
        assert configs["max.message.bytes"].value == "700000"
        topics = await stage.source.metadata(["born"])
        assert entries.topic_ids["born"] == str(topics.topics["born"].topic_id)
    async with running(stage.link, limits=LIMITS) as told:
        await told.wait_for(Event.STARTED)
        await stage.write(BORN, GROWN, BAD)
        await stage.wait_for(BORN, GROWN, BAD, *GOOD)
        found = (await load_link_state(stage.link, stage.target)).map
        assert found.to_target(*BORN, 10) == 11, "behind the marker of the join"
        assert not told.of(Event.PARTITION_STOPPED)


async def test_records_flow_while_others_are_taken_in(stage: Stage) -> None:
    await stage.write(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD)
        for number in range(5):
            await make_topic(stage.source, f"born-{number}")
            await stage.write(TopicPartition(f"born-{number}", 0), BAD, OTHER)
        await stage.wait_for(BAD, OTHER, *(TopicPartition(f"born-{number}", 0) for number in range(5)))
        assert_one_session(told)


async def test_what_a_fence_did_not_reach_at_the_start_is_taken_in_later(stage: Stage) -> None:
    await make_topic(stage.target, "flights", 2)
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS):
        await stage.wait_for(BAD, *GOOD)
    stage.west.leaderless.add(BAD)
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(*GOOD)
        assert [fields["reason"] for fields in told.of(Event.PARTITION_HELD)] == [HoldReason.NO_LEADER_AT_TARGET.value]
        stage.west.heal()
        await stage.wait_for(BAD)
        await stage.write(BAD, NEXT)
        await stage.wait_for(BAD, *GOOD)
        assert_one_session(told)
        assert not told.of(Event.PARTITION_STOPPED)

        async def released() -> bool:
            return not (await read_entries(stage.link, stage.target)).holds

        await eventually(released, "the hold to be taken back")


async def test_a_new_topic_that_somebody_wrote_at_the_target_stands_still_alone(stage: Stage) -> None:
    await stage.write(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD)
        await make_topic(stage.target, "born")
        await write(stage.target, BORN, some_records(0, 1))
        await make_topic(stage.source, "born")
        await stage.write(BORN, BAD)
        (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        assert (stopped["topic"], stopped["reason"]) == ("born", GapKind.TARGET_NOT_EMPTY.value)
        await stage.wait_for(BAD)
        assert len(await read_all(stage.target, BORN)) == 1
        assert_one_session(told)


async def test_what_refuses_the_fence_of_a_new_topic_holds_it_alone(stage: Stage) -> None:
    """And it is tried again, by the same session."""
    await stage.write(BAD)
    stage.west.refuse(BORN, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.ADD_PARTITIONS_TO_TXN)
    async with running(stage.link, limits=replace(LIMITS, hold_refused_pause_ms=1_000)) as told:
        await stage.wait_for(BAD)
        await make_topic(stage.source, "born")
        await stage.write(BORN, BAD)
        await stage.wait_for(BAD)
        (held,) = await told.wait_for(Event.PARTITION_HELD)
        assert (held["topic"], held["reason"]) == ("born", HoldReason.ERROR_AT_TARGET.value)
        assert not await read_all(stage.target, BORN)
        stage.west.heal()
        await stage.wait_for(BORN)
        assert_one_session(told)


async def test_a_topic_that_cannot_be_made_is_told_by_the_session_that_runs(stage: Stage) -> None:
    await stage.write(BAD)
    stage.west.topics[ApiKey.CREATE_TOPICS, "born"] = ErrorCode.POLICY_VIOLATION
    async with running(stage.link, limits=replace(LIMITS, hold_refused_pause_ms=1_000)) as told:
        await stage.wait_for(BAD)
        await make_topic(stage.source, "born")
        await stage.write(BORN)
        (held,) = await told.wait_for(Event.PARTITION_HELD)
        assert (held["topic"], held["partition"], held["reason"]) == ("born", "all", HoldReason.TOPIC_NOT_CREATED.value)
        stage.west.heal()
        async with asyncio.timeout(BOUND_S):
            await stage.wait_for(BORN)
        assert_one_session(told)
