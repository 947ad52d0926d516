"""What a running session's fetch is told, and what it must not take for what it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.log import FETCH_BY_ID_VERSION, append
from broker.client.scan import OffsetSpan, scan_each
from broker.client.site import Site
from broker.client.topics import delete_topics
from broker.log.validation import AppendOrigin
from broker.server import Server
from broker.wire.api import ApiKey
from broker.wire.batch import BatchHeader
from broker.wire.errors import ErrorCode
from broker.wire.records import encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.coordinator.current import Current
from mirror.lag import partial_lag
from mirror.link import Link
from mirror.offsets.entries import GapKind, Writer
from mirror.offsets.state import load_link_state
from mirror.offsets.state_writer import ensure_own_topics
from mirror.origins import SiteIdentity
from mirror.worker import service
from mirror.worker.events import Event
from mirror.worker.fetching import next_fetch_bytes
from mirror.worker.limits import MIB, WorkerLimits
from mirror.worker.origins import Passage
from mirror.worker.registry import OriginRegistry
from mirror.worker.session import Session
from tests.broker.faults import SPARED, Faults, injected
from tests.broker.running import running_server
from tests.mirror.harness import (
    QUICK,
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

LIMITS = WorkerLimits()
FLIGHTS, GATES = TopicPartition("flights", 0), TopicPartition("gates", 0)


@dataclass
class Stage:
    link: Link
    east: Server
    source: Cluster
    target: Cluster
    faults: Faults


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    faults = Faults()
    async with running_server(tmp_path / "east") as one, running_server(tmp_path / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), (".*",))
        with injected(monkeypatch, {one.broker: faults}):
            async with Cluster(link.source, client_id=SPARED) as source, Cluster(link.target) as target:
                for topic in ("flights", "gates"):
                    await make_topic(source, topic)
                yield Stage(link, one, source, target, faults)


async def test_retention_that_passes_a_running_mirror_is_a_gap_at_once(stage: Stage) -> None:
    """The answer to a fetch out of range does not say where the log begins, on Apache Kafka and on ours."""
    await write(stage.source, FLIGHTS, some_records(0, 10))
    async with running(stage.link) as told:
        await wait_for_records(stage.target, FLIGHTS, 10)
        log = stage.east.broker.require_partition(*FLIGHTS).log
        batch = memoryview(bytearray(encode_batch(some_records(10, 10))))
        log.append(batch, leader_epoch=0, origin=AppendOrigin.CLIENT)
        log.delete_records_before(15)  # before the mirror has a turn
        (gap,) = await told.wait_for(Event.PARTITION_STOPPED)
        assert (gap["reason"], gap["source_from"], gap["source_to"]) == (GapKind.TRUNCATED_START.value, 10, 15)
        assert not told.of(Event.RESTARTING)
        await write(stage.source, GATES, some_records(0, 5))
        await wait_for_records(stage.target, GATES, 5)


@pytest.mark.parametrize("newest", [FETCH_BY_ID_VERSION, FETCH_BY_ID_VERSION - 1], ids=["by id", "by name"])
async def test_a_topic_made_anew_and_filled_between_two_fetches_is_not_read_on(stage: Stage, newest: int) -> None:
    """The watch looks at topics seldom: until then only the id says that these are other records."""
    stage.faults.newest[ApiKey.FETCH] = newest
    await write(stage.source, FLIGHTS, some_records(0, 10))
    async with running(stage.link, limits=replace(QUICK, topic_refresh_interval_ms=3_000)) as told:
        await wait_for_records(stage.target, FLIGHTS, 10)
        stage.faults.empty.add(FLIGHTS)
        assert await delete_topics(stage.source, ["flights"]) == {}
        await make_topic(stage.source, "flights")
        await write(stage.source, FLIGHTS, some_records(100, 30))
        stage.faults.empty.clear()
        (gap,) = await told.wait_for(Event.PARTITION_STOPPED)
        assert gap["reason"] == GapKind.RECREATED.value
        assert contents(await read_all(stage.target, FLIGHTS)) == contents(some_records(0, 10))
        await accept_all(stage.link, stage.target, "op")
        found = await wait_for_records(stage.target, FLIGHTS, 40)
        assert told.count(Event.STARTED) == 1
    assert contents(found) == contents(some_records(0, 10) + some_records(100, 30))


async def test_an_answer_that_was_asked_for_before_a_hold_says_nothing_of_who_was_taken_in_since(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come late, from a broker that led before. Here the same one leads, and the hold is by hand."""
    sessions: list[Session] = []
    run_tasks = service._run_tasks

    async def noted(session: Session, declared: Current[Link]) -> None:
        sessions.append(session)
        await run_tasks(session, declared)

    monkeypatch.setattr(service, "_run_tasks", noted)
    await write(stage.source, FLIGHTS, some_records(0, 10))
    limits = replace(QUICK, fetch_max_wait_ms=25_000, topic_refresh_interval_ms=600_000)
    async with running(stage.link, limits=limits) as told:
        await wait_for_records(stage.target, FLIGHTS, 10)
        (session,) = sessions

        async def waits_for_more() -> bool:
            return session.is_settled(FLIGHTS) and session.replicators[FLIGHTS].position == 10

        await eventually(waits_for_more, "the acknowledgement")
        moved = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "a fetch of before")
        session.hold(session.replicators[FLIGHTS], moved, at_source=True)
        session.holds.make_late(FLIGHTS)
        await told.wait_for(Event.PARTITION_TAKEN_IN)
        stage.faults.late[FLIGHTS] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await write(stage.source, GATES, some_records(0, 5))
        await wait_for_records(stage.target, GATES, 5)
        assert not stage.faults.late, "the fetch of before has not answered"
        await write(stage.source, FLIGHTS, some_records(10, 10))
        found = await wait_for_records(stage.target, FLIGHTS, 20)
        assert len(told.of(Event.PARTITION_HELD)) == 1
    assert contents(found) == contents(some_records(0, 20))


async def test_what_another_task_learned_of_the_registry_renews_the_session(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison, or another leader's fetch, asks about a producer first: nobody asks about it again."""
    learn = OriginRegistry.learn

    async def learn_as_others_did(self: OriginRegistry, records: memoryview) -> None:
        await learn(self, records)
        await learn(self, records)

    monkeypatch.setattr(OriginRegistry, "learn", learn_as_others_did)
    async with running(stage.link, limits=replace(QUICK, topic_refresh_interval_ms=600_000)) as told:
        await write(stage.source, FLIGHTS, some_records(0, 10))
        await wait_for_records(stage.target, FLIGHTS, 10)
        into = Link("north-east", Site("north", "127.0.0.1:1"), stage.link.source, ("flights",))
        await ensure_own_topics(stage.source, into)
        passage = Passage(into, stage.source, stage.source)
        await passage.register(stage.source, SiteIdentity("north"), Writer(7_001, 0))
        batch = encode_batch(some_records(10, 5), producer_id=7_001, producer_epoch=0, base_sequence=0)
        await append(stage.source, FLIGHTS, batch)
        (renewed,) = await told.wait_for(Event.RENEWED)
        assert "north" in str(renewed["reason"])
        await wait_for_records(stage.target, FLIGHTS, 15)
        registry = OriginRegistry(stage.target)
        await registry.refresh()
        assert [found.origins for found in registry.registered()] == [{"east", "north"}]


def damage(stage: Stage) -> None:
    """A batch whose length field lies, on the disk of the source: no check at the broker sees it at run time."""
    log = stage.east.broker.require_partition(*FLIGHTS).log
    folder = Path(log.directory)
    segment = sorted(folder.glob("*.log"))[-1]
    with segment.open("r+b") as file:
        file.seek(8)
        file.write((20).to_bytes(4, "big"))


async def test_a_batch_that_cannot_be_read_stops_its_partition_only(stage: Stage) -> None:
    for where in (FLIGHTS, GATES):
        await write(stage.source, where, some_records(0, 10))
    damage(stage)
    link = replace(stage.link, shared_targets=True)
    async with running(link) as told:
        await wait_for_records(stage.target, GATES, 10)
        assert not told.of(Event.RESTARTING)
        state = await load_link_state(link, stage.target)
        report = await partial_lag(link, stage.source, stage.target, state)
        assert ("gates", 0) in {(lag.topic, lag.partition) for lag in report.lags}


async def test_a_scan_names_the_partition_that_it_cannot_read(stage: Stage) -> None:
    for where in (FLIGHTS, GATES):
        await write(stage.source, where, some_records(0, 10))
    damage(stage)
    seen: list[TopicPartition] = []

    def visit(where: TopicPartition, _header: BatchHeader, _batch: memoryview) -> None:
        seen.append(where)

    spans = {where: OffsetSpan(0, 10) for where in (FLIGHTS, GATES)}
    failures = await scan_each(stage.source, spans, visit)
    assert list(failures) == [FLIGHTS]
    assert seen == [GATES]


def sizes(round_trip_ms: float, ms_per_mib: float, steps: int = 12) -> list[int]:
    """What is asked for, one fetch after another, from a source that always fills its answers."""
    asked = [LIMITS.fetch_start_bytes]
    for _ in range(steps):
        took_ms = round_trip_ms + ms_per_mib * asked[-1] / MIB
        asked.append(next_fetch_bytes(LIMITS, asked[-1], asked[-1], took_ms))
    return asked


def test_nearby_it_stays_small() -> None:
    assert set(sizes(round_trip_ms=0.2, ms_per_mib=1.5)) == {LIMITS.fetch_start_bytes}


def test_over_a_distance_it_grows_to_the_limit() -> None:
    assert sizes(round_trip_ms=100, ms_per_mib=1.5)[-1] == LIMITS.fetch_max_bytes


def test_small_answers_do_not_make_it_grow() -> None:
    assert next_fetch_bytes(LIMITS, MIB, 100, 500) == MIB


def test_it_comes_back_when_the_distance_is_gone() -> None:
    assert next_fetch_bytes(LIMITS, 16 * MIB, 100, 1) == 8 * MIB
    assert next_fetch_bytes(LIMITS, LIMITS.fetch_start_bytes, 100, 1) == LIMITS.fetch_start_bytes
