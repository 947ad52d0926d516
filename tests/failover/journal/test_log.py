"""The journal at a living target: two machines that carry on one operation, and two operations at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.offsets import log_end_offsets
from broker.client.producers import ProducerIdAndEpoch
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.site import Site
from broker.client.topics import delete_topics
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from failover.errors import JournalUnanswered, OperationTakenUp, OperationUnderWay
from failover.journal.log import OperationJournal, OperationsReader, claim, load_operations
from failover.journal.standing import OperationState, refuse_second, standing_of
from failover.journal.topic import OPERATIONS_TOPIC, WHERE
from failover.journal.values import GENESIS_HASH, PART_MAX_BYTES, Event, JournalEntry, Lease, OperationLog
from failover.planning.intent import Intent
from failover.running.steps import Operation
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server

SITES = ("east", "west")
INTENT = Intent(Operation.SWITCHOVER, ("east-west",), *SITES, reason="a test")


class _Target:
    """A target, twice: as two machines see it."""

    def __init__(self, here: Cluster, there: Cluster, faults: Faults) -> None:
        self.here, self.there, self.faults = here, there, faults


@pytest.fixture
async def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Target]:
    faults = Faults()
    async with running_server(tmp_path / "west") as west:
        site = Site("west", west.address)
        with injected(monkeypatch, {west.broker: faults}):
            async with Cluster(site, client_id="farshore-one") as one, Cluster(site, client_id="farshore-two") as two:
                yield _Target(one, two, faults)


async def taken(cluster: Cluster, sites: tuple[str, str] = SITES) -> ProducerIdAndEpoch:
    return (await claim(cluster, sites, lambda _: None))[0]


async def begun(cluster: Cluster, operation_id: str = "one", who: str = "ann on hill") -> OperationJournal:
    journal = OperationJournal(cluster, operation_id, who, await taken(cluster), SITES)
    await journal.record(Event.PLANNED, {"intent": INTENT.document(), "who": who})
    return journal


async def log_at(cluster: Cluster, operation_id: str = "one") -> OperationLog:
    return (await load_operations(cluster))[operation_id].whole()


async def test_what_one_machine_records_another_one_reads(target: _Target) -> None:
    assert await load_operations(target.there) == {}
    journal = await begun(target.here)
    written = [await journal.record("step", {"number": number}) for number in range(3)]
    long = await journal.record("step", {"text": "".join(chr(0x100 + n % 5000) for n in range(PART_MAX_BYTES))})
    log = await log_at(target.there)
    assert log.entries[1:] == (*written, long)
    configs = await describe_topic_configs(target.here, [OPERATIONS_TOPIC])
    described = configs[OPERATIONS_TOPIC]
    assert not isinstance(described, KafkaError)
    assert described["cleanup.policy"].value == "compact"


async def test_an_entry_of_several_parts_takes_one_batch(target: _Target) -> None:
    """Of 1,000 groups each took two to four, one round trip after the other."""
    journal = await begun(target.here)
    before = (await log_end_offsets(target.here, [WHERE]))[WHERE]
    long = await journal.record("step", {"text": "moved " * PART_MAX_BYTES})
    assert len(long.records()) == 7
    batches: list[int] = []
    span = OffsetSpan(before, before + 7)
    await scan_batches(target.there, {WHERE: span}, lambda _at, header, _batch: batches.append(header.record_count))
    assert batches == [7]
    assert (await log_at(target.there)).entries[-1] == long


async def test_who_is_cancelled_amid_an_append_goes_on_behind_what_it_wrote(target: _Target) -> None:
    """Ctrl-C: what was on its way lands, and the word of the operation that was cut short comes behind it."""
    journal = await begun(target.here)
    appending = asyncio.create_task(journal.record_all([("step", {"number": 1}), ("step", {"number": 2})]))
    await asyncio.sleep(0)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    await journal.record(Event.CUT_SHORT, {"error": "ctrl-c"})
    log = await log_at(target.there)
    assert [entry.event for entry in log.entries] == [Event.PLANNED, "step", "step", Event.CUT_SHORT]


async def test_who_reads_again_reads_on_and_one_that_was_made_anew_from_its_start(target: _Target) -> None:
    reader = OperationsReader()
    assert await reader.read(target.there) == {}
    journal = await begun(target.here)
    first = await reader.read(target.there)
    await begun(target.here, "two")
    second = await reader.read(target.there)
    assert second == await load_operations(target.there)
    assert list(second) == ["one", "two"]
    assert second["one"] is first["one"]
    with pytest.raises(OperationTakenUp):
        await journal.record("step", {})
    assert not await delete_topics(target.here, [OPERATIONS_TOPIC])
    assert await reader.read(target.there) == {}
    await begun(target.here, "three")
    assert list(await reader.read(target.there)) == ["three"]


async def test_who_asks_while_others_read_is_told_what_stood_there_when_he_asked(target: _Target) -> None:
    reader = OperationsReader()
    journal = await begun(target.here)
    first = asyncio.create_task(reader.read(target.there))
    await asyncio.sleep(0)
    await journal.record("step", {})
    others = [asyncio.create_task(reader.read(target.there)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    others[0].cancel()
    found = await asyncio.gather(first, *others, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, True, False, False]
    assert found[2] == found[3] == await load_operations(target.there)
    assert found[2] is not found[3], "what one of them changes is not the others'"
    assert [entry.event for entry in found[3]["one"].entries] == [Event.PLANNED, "step"]


async def test_who_has_it_taken_away_is_refused_and_what_it_wrote_stands(target: _Target) -> None:
    first = await begun(target.here)
    await first.record(Event.STARTED, {"step": "drain"})
    log = await log_at(target.there)
    second = OperationJournal(target.there, "one", "bob on dale", await taken(target.there), SITES, log)
    with pytest.raises(OperationTakenUp, match="one was taken up elsewhere") as refused:
        await first.record(Event.DONE, {"step": "drain"})
    assert "farshore operation show one" in refused.value.hint
    assert not first.is_held
    with pytest.raises(OperationTakenUp):
        await first.record(Event.DONE, {"step": "drain"})
    await second.record(Event.TAKEN_UP, {"who": "bob on dale"})
    found = await log_at(target.here)
    assert [entry.event for entry in found.entries] == ["planned", "started", "taken_up"]
    assert found.entries[:2] == log.entries
    assert standing_of(found, found.entries[-1].at_ms).who == "bob on dale"


async def test_of_two_that_begin_at_once_one_at_most_goes_on(target: _Target) -> None:
    def check(operations: Mapping[str, OperationLog]) -> None:
        refuse_second(operations, SITES, target.here.clock.now_ms())

    async def begin(cluster: Cluster, operation_id: str) -> None:
        writer, _ = await claim(cluster, SITES, check)
        journal = OperationJournal(cluster, operation_id, operation_id, writer, SITES)
        await journal.record(Event.PLANNED, {"intent": INTENT.document(), "who": operation_id})
        await journal.record(Event.STARTED, {"step": "drain"})

    ends = await asyncio.gather(begin(target.here, "a"), begin(target.there, "b"), return_exceptions=True)
    assert all(end is None or isinstance(end, OperationUnderWay | OperationTakenUp) for end in ends), ends
    assert len([end for end in ends if end is None]) <= 1
    with pytest.raises(OperationUnderWay) as refused:
        await claim(target.here, SITES, check)
    assert "nothing was changed" in str(refused.value)
    refuse_second(await load_operations(target.here), ("east", "north"), target.here.clock.now_ms())


async def test_the_other_operator_is_told_who_when_and_where(target: _Target) -> None:
    await begun(target.here, who="ann on hill, process 7")
    operations = await load_operations(target.there)
    heard_at_ms = standing_of(operations["one"], 0).heard_at_ms
    with pytest.raises(
        OperationUnderWay, match=r"one moves east-west: ann on hill, process 7, heard of 4 s ago"
    ) as soon:
        refuse_second(operations, SITES, heard_at_ms + 4_000)
    assert "farshore operation wait one" in soon.value.hint
    with pytest.raises(OperationUnderWay, match="was cut short") as late:
        refuse_second(operations, SITES, heard_at_ms + 60_000)
    assert "farshore operation resume one" in late.value.hint
    refuse_second(operations, ("west", "east"), heard_at_ms)


async def test_an_entry_is_there_once_where_the_first_answer_was_lost(target: _Target) -> None:
    """A leader that goes while an entry is written: it is sent again, and is there once."""
    journal = await begun(target.here)
    target.faults.late[WHERE] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    asyncio.get_running_loop().call_later(1.0, target.faults.heal)
    await journal.record("step", {"number": 1})
    target.faults.heal()
    assert [entry.event for entry in (await log_at(target.there)).entries] == ["planned", "step"]


async def test_who_carries_it_on_is_heard_of_and_stops_where_it_cannot_be(
    target: _Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("failover.journal.log.HEARTBEAT_S", 0.1)
    monkeypatch.setattr("failover.journal.log.LEASE_S", 1.0)
    journal = await begun(target.here)
    seen = []

    async def carry_on() -> None:
        async with journal.kept():
            for _ in range(3):
                seen.append((await log_at(target.there)).lease)
                await asyncio.sleep(0.3)
            assert journal.is_held
            target.faults.leaderless.add(WHERE)
            await asyncio.sleep(60)

    with pytest.raises(JournalUnanswered, match="west was not told in time that one is carried on here") as stopped:
        await carry_on()
    assert "farshore operation resume one" in stopped.value.hint
    assert len({lease.at_ms for lease in seen if lease is not None}) == 3
    assert not journal.is_held
    target.faults.heal()
    with pytest.raises(JournalUnanswered):
        await journal.record("step", {})


def test_an_operation_is_under_way_while_it_is_heard_of() -> None:
    planned = JournalEntry(
        0, 1_000_000, "one", Event.PLANNED, {"intent": INTENT.document(), "who": "ann"}, GENESIS_HASH
    )
    log = OperationLog("one", (planned,), Lease("ann", 1_010_000))
    assert standing_of(log, 1_029_000).state is OperationState.UNDER_WAY
    assert standing_of(log, 1_031_000).state is OperationState.CUT_SHORT
    cut = JournalEntry(1, 1_010_000, "one", Event.CUT_SHORT, {"step": "fence", "error": "gone"}, planned.hash())
    standing = standing_of(replace(log, entries=(planned, cut)), 1_010_001)
    assert (standing.state, standing.error, standing.reason) == (OperationState.CUT_SHORT, "gone", "a test")


async def test_many_who_ask_at_once_are_told_by_two_reads_that_there_is_no_answer(target: _Target) -> None:
    """One behind the other: of twenty links each waited out the time that a journal without a leader gets."""
    await begun(target.here)
    target.faults.refuse(WHERE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.LIST_OFFSETS)
    reader = OperationsReader()
    target.faults.asked.clear()
    told = await asyncio.gather(*(reader.read(target.here) for _ in range(20)), return_exceptions=True)
    assert [type(one) for one in told] == [KafkaError] * 20
    assert len(set(map(id, told))) == len(set(map(id, (cast(KafkaError, one).__traceback__ for one in told)))) == 20
    assert len(set(map(str, told))) == 1
    assert target.faults.asked[ApiKey.LIST_OFFSETS] <= 2 * 2, "a read asks for the end, and for the last stable offset"
    target.faults.heal()
    assert list(await reader.read(target.here)) == ["one"], "the next one is told anew"
