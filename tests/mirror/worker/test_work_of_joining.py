"""What it costs a session of many partitions when one joins: what is new of the state, and what is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.client.offsets import log_end_offsets
from broker.client.topics import delete_topics
from broker.wire.api import ApiKey
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import encode_key
from mirror.offsets.state import read_entries
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from mirror.worker.events import Event
from mirror.worker.limits import PARTITIONS_AT_ONCE
from mirror.worker.replicator import Replicator
from mirror.worker.session import Session
from tests.mirror.harness import make_topic, running, write
from tests.mirror.worker.stage import GOOD, LIMITS, OTHER, Stage, open_stage

BORN, AGAIN = TopicPartition("born", 0), TopicPartition("again", 0)
MANY = 2 * PARTITIONS_AT_ONCE + 1


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with open_stage(tmp_path, monkeypatch) as opened:
        yield opened


async def test_who_joins_has_read_what_is_new_of_the_state_and_no_entries_of_others(stage: Stage) -> None:
    """Those of another partition cannot even be read: whoever opened them would end the session."""
    state, read_from = TopicPartition(stage.link.state_topic, 0), list[int]()

    def note(request: Any) -> None:
        asked = [(topic.topic, one) for topic in request.topics for one in topic.partitions]
        read_from.extend(one.fetch_offset for name, one in asked if name == state.topic)

    await make_topic(stage.source, "again")
    await stage.write(AGAIN, *GOOD)
    async with running(stage.link, limits=LIMITS):
        await stage.wait_for(AGAIN, *GOOD)
    before = (await log_end_offsets(stage.target, [state]))[state]
    async with running(stage.link, limits=LIMITS) as told:
        await told.wait_for(Event.STARTED)
        known = (await read_entries(stage.link, stage.target)).checkpoints[GOOD[0]]
        stage.west.moments[ApiKey.FETCH] = note
        await write(stage.target, state, [Record(0, 1, encode_key(known), b"?")])
        await make_topic(stage.source, "born")
        await stage.write(BORN, OTHER)
        await stage.wait_for(BORN, OTHER)
        await pause_topics(stage.link, stage.target, "operation-1", [OTHER.topic])
        await told.wait_for(Event.PARTITION_HELD)
        await resume_topics(stage.link, stage.target, [OTHER.topic])
        await told.wait_for(Event.PARTITION_TAKEN_IN, 2)
        await stage.write(OTHER)
        await stage.wait_for(OTHER)
        await delete_topics(stage.source, [AGAIN.topic])
        await told.wait_for(Event.PARTITION_STOPPED)
        assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], [])
    assert read_from, "it was read when the paused one was taken in"
    assert min(read_from) >= before, "what this session began with was not read again"


async def test_many_that_join_are_opened_in_turns_with_all_else_behind_one_fence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted: list[int] = []
    admit = Session.admit

    async def noted(session: Session, replicators: Sequence[Replicator]) -> None:
        admitted.append(len(replicators))
        await admit(session, replicators)

    monkeypatch.setattr(Session, "admit", noted)
    await stage.write(OTHER)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.wait_for(OTHER)
        fences = stage.west.asked[ApiKey.END_TXN]
        await make_topic(stage.source, "many", MANY)
        await told.wait_for(Event.PARTITION_TAKEN_IN, MANY)
        assert admitted == [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE, 1]
        last = TopicPartition("many", MANY - 1)
        await stage.write(last, OTHER)
        await stage.wait_for(last, OTHER)
        assert (told.count(Event.STARTED), told.of(Event.RENEWED), told.of(Event.RESTARTING)) == (1, [], [])
        assert stage.west.asked[ApiKey.END_TXN] - fences <= 2, "ended, and asked whether that is done"
