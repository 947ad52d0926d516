"""Partitions that a session takes in while it runs: what happens to others, or is asked, in the middle of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import delete_records
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import GapKind
from mirror.offsets.hold_entries import Hold, VoidHold
from mirror.offsets.offset_map import Where
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import Change, StateWriter
from mirror.topics.seen import HoldKey
from mirror.worker import latecomers, watching
from mirror.worker.events import Event
from mirror.worker.session import Session
from tests.broker.faults import SPARED, Faults, injected
from tests.broker.running import running_server
from tests.mirror.harness import (
    QUICK,
    Told,
    contents,
    eventually,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)

FLIGHTS, GATES = TopicPartition("flights", 0), TopicPartition("gates", 0)
LIMITS = replace(QUICK, hold_pause_ms=200)


@dataclass
class Stage:
    link: Link
    source: Cluster
    target: Cluster
    east: Faults

    async def lose_leaders(self, told: Told) -> None:
        """Both are mirrored, then lose their leader, and have more that is not mirrored."""
        for where in (FLIGHTS, GATES):
            await write(self.source, where, some_records(0, 10))
            await wait_for_records(self.target, where, 10)
        self.east.leaderless |= {FLIGHTS, GATES}
        await told.wait_for(Event.PARTITION_HELD, 2)
        for where in (FLIGHTS, GATES):
            await write(self.source, where, some_records(10, 5))

    async def go_through(self, *, told: Told, healed: TopicPartition) -> None:
        """Both lose their leader, and one has it again."""
        await self.lose_leaders(told)
        self.east.leaderless.discard(healed)
        await wait_for_records(self.target, healed, 15)


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    faults = Faults()
    async with running_server(tmp_path / "east") as one, running_server(tmp_path / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), (".*",))
        with injected(monkeypatch, {one.broker: faults}):
            async with Cluster(link.source, client_id=SPARED) as source, Cluster(link.target) as target:
                for topic in ("flights", "gates"):
                    await make_topic(source, topic)
                yield Stage(link, source, target, faults)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """Those that took something in, the last one last."""
    found: list[Session] = []
    take_in = latecomers._take_in

    async def noted(session: Session, *more: Any) -> None:
        found.append(session)
        await take_in(session, *more)

    monkeypatch.setattr(latecomers, "_take_in", noted)
    return found


async def test_one_that_becomes_late_while_others_are_taken_in_keeps_its_sequence(
    stage: Stage, sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Session.read_state

    async def meanwhile(session: Session, target: Cluster, only: Collection[Where]) -> StateEntries:
        if stage.east.leaderless and sessions:
            stage.east.leaderless.clear()
            sessions[-1].holds.make_late(GATES)
        return await read(session, target, only)

    monkeypatch.setattr(Session, "read_state", meanwhile)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.go_through(told=told, healed=FLIGHTS)
        await wait_for_records(stage.target, GATES, 15)
        assert not [*told.of(Event.RENEWED), *told.of(Event.RESTARTING)]
    for where in (FLIGHTS, GATES):
        assert contents(await read_all(stage.target, where)) == contents(some_records(0, 15))


async def test_what_is_in_doubt_is_so_until_its_map_is_the_new_one(
    stage: Stage, sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over groups in between would translate by the map of a log that may have been cut since."""
    write_changes = StateWriter.write
    in_doubt: list[bool] = []

    async def noted(self: StateWriter, changes: Sequence[Change]) -> None:
        await write_changes(self, changes)
        if any(isinstance(change, VoidHold) for change in changes):
            in_doubt.append(FLIGHTS in sessions[-1].in_doubt())

    monkeypatch.setattr(StateWriter, "write", noted)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.go_through(told=told, healed=FLIGHTS)
        assert in_doubt == [True]
        assert FLIGHTS not in sessions[-1].in_doubt()


async def test_who_was_held_makes_room_for_who_is_taken_in(stage: Stage, sessions: list[Session]) -> None:
    """With its map, which may be large: a partition may be held a hundred times in a session."""
    async with running(stage.link, limits=LIMITS) as told:
        await stage.go_through(told=told, healed=FLIGHTS)
        session = sessions[-1]
        for shares in (session.fetched, session.produced):
            moved = [replicator for share in shares._by_node.values() for replicator in share]
            assert sorted(replicator.source for replicator in moved) == [FLIGHTS, GATES]
            assert session.replicators[FLIGHTS] in moved


async def test_what_is_found_of_each_that_is_taken_in_stands_in_the_state(stage: Stage) -> None:
    """Two at once: one lost records while nobody could ask, and stops; the other goes on."""
    async with running(stage.link, limits=LIMITS) as told:
        await stage.lose_leaders(told)
        await delete_records(stage.source, {FLIGHTS: 13})
        stage.east.leaderless.clear()
        (stopped,) = await told.wait_for(Event.PARTITION_STOPPED)
        await wait_for_records(stage.target, GATES, 15)
        entries = await read_entries(stage.link, stage.target)
    assert (stopped["topic"], stopped["source_from"], stopped["source_to"]) == (FLIGHTS.topic, 10, 13)
    assert [(gap.kind, gap.source_to) for gap in entries.open_gaps().values()] == [(GapKind.TRUNCATED_START, 13)]
    assert not entries.holds


async def test_what_was_taken_in_since_a_look_is_not_held_by_it(
    stage: Stage, sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be called held while it moves, and then be taken in a second time, beside the one that moves."""
    read, ask_about = Session.read_state, watching._ask_about
    looked, reviewed = asyncio.Event(), asyncio.Event()

    async def leaderless_for_a_look(session: Session, target: Cluster, only: Collection[Where]) -> StateEntries:
        if sessions and not looked.is_set():
            stage.east.leaderless.add(FLIGHTS)
            sessions[-1].look_due.set()
            await looked.wait()
        return await read(session, target, only)

    async def taken_in_meanwhile(session: Session, partitions: Sequence[TopicPartition]) -> dict[HoldKey, Hold]:
        if FLIGHTS in stage.east.leaderless and FLIGHTS in session.holds.late and not looked.is_set():
            stage.east.leaderless.discard(FLIGHTS)
            looked.set()
            await eventually(lambda: _true(FLIGHTS not in session.holds.late), "it to be taken in")
            asyncio.get_running_loop().call_later(0.1, reviewed.set)
        return await ask_about(session, partitions)

    monkeypatch.setattr(Session, "read_state", leaderless_for_a_look)
    monkeypatch.setattr(watching, "_ask_about", taken_in_meanwhile)
    async with running(stage.link, limits=LIMITS) as told:
        await stage.go_through(told=told, healed=FLIGHTS)
        await reviewed.wait()
        assert FLIGHTS not in sessions[-1].holds.current
        assert len(sessions) == 1


async def _true(value: bool) -> bool:
    return value
