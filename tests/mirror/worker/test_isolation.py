"""One partition's fault stops that partition: it is named, with its reason, and the others go on behind one fence.

The property, for every fault that one partition or topic can have, there from the start or coming while a session runs:
all records of all others arrive, in bounded time and without another fence; once the fault is gone, all of its own do,
and nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.topics import delete_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.state import load_link_state, read_entries
from mirror.worker.events import Event
from mirror.worker.group_map import load_group_map
from tests.mirror.harness import (
    Told,
    accept_all,
    eventually,
    make_topic,
    read_all,
    running,
)
from tests.mirror.worker.stage import BAD, BOUND_S, GOOD, LIMITS, NEXT, OTHER, Stage, is_held, open_stage


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path, monkeypatch) as opened:
        yield opened


Fault = Callable[[Stage], None]


def at_east(code: ErrorCode, *apis: ApiKey) -> Fault:
    return lambda stage: stage.east.refuse(BAD, code, *apis)


def at_west(code: ErrorCode, *apis: ApiKey) -> Fault:
    return lambda stage: stage.west.refuse(BAD, code, *apis)


PARTITION_FAULTS: dict[str, tuple[Fault, HoldReason]] = {
    "no leader at the source": (lambda s: s.east.leaderless.add(BAD), HoldReason.NO_LEADER_AT_SOURCE),
    "no leader at the target": (lambda s: s.west.leaderless.add(BAD), HoldReason.NO_LEADER_AT_TARGET),
    "unknown at the source": (at_east(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), HoldReason.ERROR_AT_SOURCE),
    "unknown at the target": (at_west(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), HoldReason.ERROR_AT_TARGET),
    "source may not be read": (at_east(ErrorCode.TOPIC_AUTHORIZATION_FAILED), HoldReason.ERROR_AT_SOURCE),
    "source may only be described": (
        at_east(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.FETCH),
        HoldReason.ERROR_AT_SOURCE,
    ),
    "target may not be written": (
        at_west(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN),
        HoldReason.ERROR_AT_TARGET,
    ),
    "source disk": (at_east(ErrorCode.KAFKA_STORAGE_ERROR), HoldReason.ERROR_AT_SOURCE),
    "target disk": (
        at_west(ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS, ApiKey.FETCH),
        HoldReason.ERROR_AT_TARGET,
    ),
}
HEALED_IN_THE_SESSION = [name for name in PARTITION_FAULTS if "may" not in name]
"""Who gives a right has to say so, and is a command that fences."""


@pytest.mark.parametrize("name", PARTITION_FAULTS)
async def test_a_fault_from_the_start_stops_its_partition_only(stage: Stage, name: str) -> None:
    fault, reason = PARTITION_FAULTS[name]
    await make_topic(stage.target, "flights", 2)
    await stage.write(BAD, *GOOD)
    fault(stage)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(*GOOD)
        await is_held(stage, told, reason)
        await stage.write(BAD, *GOOD)
        await stage.wait_for(*GOOD)
        assert stage.fences() == 1
        assert not told.of(Event.RESTARTING)
        assert not stage.west.marked & stage.west.leaderless
        await _heal(stage, told)
        sessions = 1 if name in HEALED_IN_THE_SESSION else 2
        await told.wait_for(Event.STARTED, sessions)  # records flow before it is told
        assert told.count(Event.STARTED) == sessions, told.of(Event.RENEWED)


@pytest.mark.parametrize("name", PARTITION_FAULTS)
async def test_a_fault_that_comes_stops_its_partition_only(stage: Stage, name: str) -> None:
    fault, reason = PARTITION_FAULTS[name]
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, *GOOD)
        fault(stage)
        await stage.write(BAD, *GOOD)
        await stage.wait_for(*GOOD)
        await is_held(stage, told, reason)
        await stage.write(*GOOD)
        await stage.wait_for(*GOOD)
        assert (stage.fences(), told.of(Event.RESTARTING)) == (1, [])
        await _heal(stage, told)
        sessions = 1 if name in HEALED_IN_THE_SESSION else 2
        await told.wait_for(Event.STARTED, sessions)  # records flow before it is told
        assert told.count(Event.STARTED) == sessions, told.of(Event.RENEWED)


async def _heal(stage: Stage, told: Told) -> None:
    """Once the fault is gone the partition is taken in, with all that it missed, and is not held any more."""
    stage.east.heal()
    stage.west.heal()
    if told.of(Event.PARTITION_HELD) and "AUTHORIZATION" in str(told.of(Event.PARTITION_HELD)):
        # No question shows that a right was given: the long first pause is what protects from fencing in a loop.
        await resume_link(stage.link, stage.target, "op")
    await stage.wait_for(BAD, *GOOD)

    async def gone() -> bool:
        return await stage.reason() is None

    await eventually(gone, "the hold to be taken back", BOUND_S)


async def test_too_few_replicas_in_sync_take_no_marker(stage: Stage) -> None:
    """The fence would wait for the marker, and every fence after it."""
    await make_topic(stage.target, "flights", 2, min_insync_replicas="2")
    await stage.write(BAD, OTHER)
    stage.west.short_isr.add(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(OTHER)
        await is_held(stage, told, HoldReason.ERROR_AT_TARGET)
        assert stage.fences() == 1


async def test_a_promotion_does_not_fence_what_takes_no_marker(stage: Stage) -> None:
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS):
        await stage.wait_for(BAD, *GOOD)
    stage.west.leaderless.add(BAD)
    async with asyncio.timeout(BOUND_S), Cluster(stage.link.target) as target:
        fence = await promote_link(stage.link, target, "op")
    assert fence.left_out.keys() == {BAD}, "and says so"
    assert not stage.west.marked & stage.west.leaderless


TOPIC_FAULTS: dict[str, tuple[Fault, HoldReason | None]] = {
    "cannot be created": (
        lambda s: s.west.topics.update({(ApiKey.CREATE_TOPICS, "flights"): ErrorCode.POLICY_VIOLATION}),
        HoldReason.TOPIC_NOT_CREATED,
    ),
    "cannot be created for now": (
        lambda s: s.west.topics.update({(ApiKey.CREATE_TOPICS, "flights"): ErrorCode.NOT_ENOUGH_REPLICAS}),
        HoldReason.TOPIC_NOT_CREATED,
    ),
    "configs unreadable at the source": (
        lambda s: s.east.topics.update({(ApiKey.DESCRIBE_CONFIGS, "flights"): ErrorCode.TOPIC_AUTHORIZATION_FAILED}),
        HoldReason.TOPIC_NOT_CREATED,
    ),
    "not described at the source": (
        lambda s: s.east.topics.update({(ApiKey.METADATA, "flights"): ErrorCode.TOPIC_AUTHORIZATION_FAILED}),
        HoldReason.ERROR_AT_SOURCE,
    ),
    "not described at the target": (
        lambda s: s.west.topics.update({(ApiKey.METADATA, "flights"): ErrorCode.TOPIC_AUTHORIZATION_FAILED}),
        HoldReason.ERROR_AT_TARGET,
    ),
}


@pytest.mark.parametrize("name", TOPIC_FAULTS)
async def test_a_topic_that_cannot_be_taken_in_stops_no_other(stage: Stage, name: str) -> None:
    fault, reason = TOPIC_FAULTS[name]
    await stage.write(OTHER)
    for where in (BAD, NEXT):
        await stage.write(where)
    fault(stage)
    looks = stage.east.asked[ApiKey.METADATA]
    async with running(stage.link, limits=replace(LIMITS, hold_refused_pause_ms=1_000)) as told:
        await stage.wait_for(OTHER)

        async def held() -> bool:
            return await stage.reason() is reason

        await eventually(held, f"{reason} in the state", BOUND_S)

        async def looked() -> bool:
            return stage.east.asked[ApiKey.METADATA] > looks + 8

        await eventually(looked, "several looks at the topics")
        await stage.write(OTHER)
        await stage.wait_for(OTHER)
        assert stage.fences() == 1
        assert not told.of(Event.RESTARTING)
        stage.east.heal()
        stage.west.heal()
        await stage.wait_for(BAD, NEXT, OTHER)
        assert told.count(Event.STARTED) == 1


async def test_a_target_topic_whose_configs_cannot_be_read_is_mirrored(stage: Stage) -> None:
    await make_topic(stage.target, "flights", 2)
    stage.west.topics[ApiKey.DESCRIBE_CONFIGS, "flights"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS):
        await stage.wait_for(BAD, *GOOD)
        assert stage.fences() == 1


async def test_looks_at_topics_do_not_ask_for_their_configs(stage: Stage) -> None:
    await stage.write(BAD)
    async with running(stage.link, limits=replace(LIMITS, config_sync_interval_ms=600_000)) as told:
        await told.wait_for(Event.STARTED)
        await stage.wait_for(BAD)
        looks = stage.east.asked[ApiKey.METADATA]

        async def looked() -> bool:
            return stage.east.asked[ApiKey.METADATA] > looks + 8

        await eventually(looked, "several looks at the topics")
        assert stage.east.asked[ApiKey.DESCRIBE_CONFIGS] <= 3, "for new topics, for concerns, and for the drift"


async def test_a_name_that_is_too_long_at_the_target_stops_no_other(stage: Stage) -> None:
    stage.link = replace(stage.link, topic_names="prefixed")
    long = "x" * 249
    await make_topic(stage.source, long)
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, *GOOD)
        (held,) = told.of(Event.PARTITION_HELD)
        assert (held["topic"], held["partition"], held["reason"]) == (long, "all", HoldReason.NAME_TOO_LONG)
        assert stage.fences() == 1


async def test_a_topic_that_is_born_while_a_session_starts_is_mirrored(stage: Stage) -> None:
    """The watch compares with what the session was opened with, not with what it finds when it begins."""
    await stage.write(BAD)
    born = TopicPartition("born", 0)
    describe = stage.west.asked

    async with running(stage.link, limits=LIMITS) as told:

        async def fencing() -> bool:
            return describe[ApiKey.END_TXN] > 0  # the list that the session opens with is behind it

        await eventually(fencing, "the first fence")
        await make_topic(stage.source, born.topic)
        await stage.write(born)
        await stage.wait_for(BAD, born)
        assert not told.of(Event.RESTARTING)


async def test_a_partition_that_was_held_does_not_forget_that_its_topic_was_recreated(stage: Stage) -> None:
    """The others of a recreated topic go on behind their gaps; one that was not asked keeps the old identity."""
    await stage.write(BAD, NEXT)
    async with running(stage.link, limits=LIMITS):
        await stage.wait_for(BAD, NEXT)
    await delete_topics(stage.source, ["flights"])
    await make_topic(stage.source, "flights", 2)
    stage.written.clear()
    stage.east.leaderless.add(BAD)
    async with running(stage.link, limits=LIMITS) as told:
        await told.wait_for(Event.PARTITION_STOPPED)
        await accept_all(stage.link, stage.target, "op")
        await told.wait_for(Event.GAP_PASSED)
    stage.east.heal()
    async with running(stage.link, limits=LIMITS) as told:
        stopped = await told.wait_for(Event.PARTITION_STOPPED)
        assert stopped[0]["partition"] == BAD.partition


async def test_a_reverse_link_that_cannot_be_read_in_one_partition_declines_its_offsets_only(stage: Stage) -> None:
    back = Link("west-east", stage.link.target, stage.link.source, (".*",), shared_targets=True)
    there = replace(stage.link, shared_targets=True, reverse_links=(back,))
    await stage.write(BAD, OTHER)
    async with running(there, replace(back, reverse_links=(there,)), limits=LIMITS) as told:
        await stage.wait_for(BAD, OTHER)
        await told.wait_for(Event.STARTED, 2)

        async def taken_in() -> bool:
            checkpoints = (await read_entries(back, stage.source)).checkpoints
            return {BAD, OTHER} <= checkpoints.keys()

        await eventually(taken_in, "the reverse link's checkpoints")
    own = (await load_link_state(there, stage.target)).map
    stage.east.leaderless.add(BAD)
    async with asyncio.timeout(BOUND_S), Cluster(there.source) as source:
        found = await load_group_map(there, own, (), (source, stage.target), {})
    assert found.to_target(*OTHER, 5) is not None
    assert found.to_target(*BAD, 5) is None


async def test_what_was_mirrored_before_a_hold_translates(stage: Stage) -> None:
    await stage.write(BAD, *GOOD)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(BAD, *GOOD)
        stage.west.refuse(BAD, ErrorCode.KAFKA_STORAGE_ERROR, ApiKey.PRODUCE, ApiKey.LIST_OFFSETS)
        await stage.write(BAD)
        await told.wait_for(Event.PARTITION_HELD)
        stage.west.heal()
        await stage.wait_for(BAD)
    found = await read_all(stage.target, BAD)
    state = await load_link_state(stage.link, stage.target)
    for offset, record in enumerate(found):
        assert state.map.to_target(*BAD, offset) == record.offset
