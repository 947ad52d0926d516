"""Topics that go, or are made anew, and gaps that are accepted, while a session runs: nobody else notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_records, delete_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.errors import GapNotOpen
from mirror.offsets import acceptance, operations
from mirror.offsets.acceptance_entries import NEVER_ASKED, Acceptance
from mirror.offsets.entries import Gap, GapKind, GapStatus
from mirror.offsets.operations import resume_link
from mirror.offsets.state import read_entries
from mirror.worker import latecomers
from mirror.worker.events import Event
from tests.mirror.harness import (
    Told,
    accept_all,
    contents,
    eventually,
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


async def gap_of(stage: Stage, where: TopicPartition) -> Gap:
    gaps = (await read_entries(stage.link, stage.target)).open_gaps()
    return gaps[where]


async def test_a_topic_that_is_deleted_at_the_source_leaves_alone(stage: Stage) -> None:
    await stage.write(BAD, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, OTHER)
        ends = await log_end_offsets(stage.target, [BAD])
        assert not await delete_topics(stage.source, ["gates"])
        (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        assert (stopped["topic"], stopped["reason"]) == ("gates", GapKind.DELETED.value)
        assert [left["topic"] for left in told.of(Event.TOPIC_LEFT)] == ["gates"]
        assert await log_end_offsets(stage.target, [BAD]) == ends, "the others have not even a marker of it"
        entries = await read_entries(stage.link, stage.target)
        assert not entries.holds
        assert entries.checkpoints[OTHER].position == 10
        await stage.write(BAD)
        await stage.wait_for(BAD)
        await accept_all(stage.link, stage.target, "op")
        await told.wait_for(Event.GAP_PASSED)
        await make_topic(stage.source, "gates")
        await write(stage.source, OTHER, some_records(100, 5))
        assert (await told.wait_for(Event.PARTITION_STOPPED, 2))[-1]["reason"] == GapKind.RECREATED.value
        await accept_all(stage.link, stage.target, "op-2")
        found = await wait_for_records(stage.target, OTHER, 15)
        assert contents(found[10:]) == contents(some_records(100, 5))
        await stage.write(BAD)
        await stage.wait_for(BAD)
        assert_one_session(told)
        entries = await read_entries(stage.link, stage.target)
        assert not entries.acceptances
        topics = (await stage.source.metadata(["gates"])).topics
        assert entries.topic_ids["gates"] == str(topics["gates"].topic_id)
    async with running(stage.link, limits=LIMITS) as told:
        await write(stage.source, OTHER, some_records(105, 5))
        assert contents((await wait_for_records(stage.target, OTHER, 20))[10:]) == contents(some_records(100, 10))
        assert not told.of(Event.PARTITION_STOPPED)


async def test_a_topic_that_is_deleted_at_the_target_is_made_anew_and_stands_alone(stage: Stage) -> None:
    """Its leader expects the sequences of a log that knows nothing but the fence's marker."""
    await stage.write(BAD, NEXT, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, NEXT, OTHER)
        assert not await delete_topics(stage.target, ["flights"])
        stopped = await told.wait_for(Event.PARTITION_STOPPED, 2)
        assert {fields["reason"] for fields in stopped} == {GapKind.TARGET_TRUNCATED.value}
        await stage.write(BAD, NEXT, OTHER)
        await stage.wait_for(OTHER)
        await resume_link(stage.link, stage.target, "op", [await gap_of(stage, BAD)])
        await stage.wait_for(BAD)
        assert (await gap_of(stage, NEXT)).status is GapStatus.STOPPED
        assert not await read_all(stage.target, NEXT), "each gap is accepted for itself"
        await resume_link(stage.link, stage.target, "op-2", [await gap_of(stage, NEXT)])
        await stage.write(BAD, NEXT, OTHER)
        await stage.wait_for(BAD, NEXT, OTHER)
        assert_one_session(told)
    await stage.write(BAD, NEXT, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, NEXT, OTHER)
        assert not told.of(Event.PARTITION_STOPPED)


async def test_a_batch_that_the_target_refuses_is_stepped_over_by_the_session_that_runs(stage: Stage) -> None:
    await stage.write(BAD, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, OTHER)
        stage.west.refuse(BAD, ErrorCode.INVALID_RECORD, ApiKey.PRODUCE)
        await stage.write(BAD)
        await told.wait_for(Event.PARTITION_STOPPED)
        stage.west.heal()
        await write(stage.source, BAD, some_records(20, 10))
        await accept_all(stage.link, stage.target, "op")
        found = await wait_for_records(stage.target, BAD, 20)
        assert contents(found) == contents(some_records(0, 10) + some_records(20, 10))
        await stage.write(OTHER)
        await stage.wait_for(OTHER)
        assert_one_session(told)


async def test_a_gap_that_stopped_the_partition_anew_was_not_accepted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stop is accepted for itself: what was shown to the operator was another one."""
    await stage.write(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD)
        assert not await delete_topics(stage.source, ["flights"])
        await told.wait_for(Event.PARTITION_STOPPED, 1)
        gap = await gap_of(stage, BAD)
    ask = acceptance.ask_to_accept

    async def late(link: object, target: object, acceptances: list[object]) -> None:
        await make_topic(stage.source, "flights", 2)
        async with running(stage.link, limits=LIMITS) as told:
            stopped = await told.wait_for(Event.PARTITION_STOPPED, 2)
            assert {fields["reason"] for fields in stopped} == {GapKind.RECREATED.value}
        await ask(link, target, acceptances)  # type: ignore[arg-type]

    monkeypatch.setattr(operations, "ask_to_accept", late)
    with pytest.raises(GapNotOpen):
        await resume_link(stage.link, stage.target, "op", [gap])


async def test_what_is_accepted_while_no_worker_runs_is_seen_by_the_next(stage: Stage) -> None:
    await stage.write(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD)
        assert not await delete_topics(stage.source, ["flights"])
        await told.wait_for(Event.PARTITION_STOPPED)
    await accept_all(stage.link, stage.target, "op")
    assert not (await read_entries(stage.link, stage.target)).open_gaps()
    async with running(stage.link, limits=LIMITS) as told:
        await told.wait_for(Event.GAP_PASSED)

        async def seen() -> bool:
            return not (await read_entries(stage.link, stage.target)).acceptances

        await eventually(seen, "the acceptance to be taken back")


async def test_a_partition_is_mirrored_anew_by_the_session_that_runs_amid_its_records(stage: Stage) -> None:
    await stage.write(BAD, NEXT, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, NEXT, OTHER)
        at_ms = NEVER_ASKED
        for round_ in range(2):
            for _ in range(5):
                await stage.write(BAD)
            asked = anew_asked(stage, f"repair {round_}", at_ms)
            at_ms = asked.stopped_at_ms
            await acceptance.ask_to_accept(stage.link, stage.target, [asked])
            for _ in range(5):
                await stage.write(BAD, OTHER)
            await told.wait_for(Event.GAP_PASSED, round_ + 1)
            (gap,) = (await read_entries(stage.link, stage.target)).gaps.values()
            assert (gap.status, gap.detail) == (GapStatus.PASSED, f"repair {round_}")
            await delete_records(stage.target, {BAD: gap.target_offset})
            await stage.wait_for(BAD, NEXT, OTHER)
        assert_one_session(told)
    await stage.write(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, NEXT, OTHER)
        assert not told.of(Event.PARTITION_STOPPED)


async def test_a_repair_that_is_heard_twice_or_asked_for_by_two_at_once_is_one_copy(stage: Stage) -> None:
    """An answer that was lost, or two who looked before either asked."""
    await stage.write(BAD, OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, OTHER)
        asked = anew_asked(stage, "repair")
        theirs = replace(asked, source_from=9, stopped_at_ms=asked.stopped_at_ms + 1, operation_id="theirs")
        for late in ([], [asked], [theirs]):
            await acceptance.ask_to_accept(stage.link, stage.target, late or [asked])
            await told.wait_for(Event.GAP_PASSED)

            async def heard() -> bool:
                return not (await read_entries(stage.link, stage.target)).acceptances

            await eventually(heard, "the worker to hear of it")
        await stage.write(BAD)
        (gap,) = (await read_entries(stage.link, stage.target)).gaps.values()
        assert (gap.status, gap.detail) == (GapStatus.PASSED, "repair")
        await delete_records(stage.target, {BAD: gap.target_offset})
        await stage.wait_for(BAD, OTHER)
        assert told.count(Event.GAP_PASSED) == 1
        assert_one_session(told)


def anew_asked(stage: Stage, why: str, after_ms: int = NEVER_ASKED) -> Acceptance:
    return Acceptance(*BAD, 10, GapKind.MIRRORED_ANEW, stage.target.clock.now_ms(), 0, why, after_ms)


async def test_a_repair_that_is_asked_for_while_the_partition_is_taken_in_is_carried_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes it in has read the state before that."""
    await stage.write(BAD, OTHER)
    with_sequences, waiting = latecomers._with_sequences, [True]

    async def heard() -> bool:
        entries = await read_entries(stage.link, stage.target)
        return GapKind.MIRRORED_ANEW in {gap.kind for gap in entries.gaps.values()} and not entries.acceptances

    async def late(*looked: Any) -> Any:
        if waiting and waiting.pop():
            await acceptance.ask_to_accept(stage.link, stage.target, [anew_asked(stage, "repair")])
            await eventually(heard, "the worker to hear of it")
        return await with_sequences(*looked)

    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, OTHER)
        stage.west.refuse(BAD, ErrorCode.INVALID_RECORD, ApiKey.PRODUCE)
        await stage.write(BAD)
        await told.wait_for(Event.PARTITION_STOPPED)
        stage.west.heal()
        monkeypatch.setattr(latecomers, "_with_sequences", late)
        await accept_all(stage.link, stage.target, "op")
        await told.wait_for(Event.GAP_PASSED, 2)
        gaps = (await read_entries(stage.link, stage.target)).gaps.values()
        (gap,) = (gap for gap in gaps if gap.kind is GapKind.MIRRORED_ANEW)
        assert gap.status is GapStatus.PASSED
        await delete_records(stage.target, {BAD: gap.target_offset})
        await stage.wait_for(BAD, OTHER)
        assert_one_session(told)
