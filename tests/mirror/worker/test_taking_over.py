"""A link is taken over, or nearly: its worker ends for a successor alone, never for a command that was cut short."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.wire.batch import BatchHeader
from broker.wire.records import decode_records
from broker.wire.vocabulary import TopicPartition
from mirror.errors import GapNotOpen
from mirror.link import Link
from mirror.offsets.entries import Gap, GapKind, GapStatus, LinkRun, Owner, RunState, Writer, decode_key
from mirror.offsets.fence import fence_link
from mirror.offsets.operations import promote_link, resume_link
from mirror.offsets.state import read_entries
from mirror.offsets.taking_over import claim_link, is_successor, is_told
from mirror.worker.events import Event
from tests.mirror.harness import (
    DEADLINE_S,
    QUICK,
    eventually,
    link_between,
    make_topic,
    running,
    some_records,
    wait_for_records,
    write,
)

PATIENT = replace(QUICK, fence_reason_wait_ms=60_000, fence_reason_poll_ms=37)
IMPATIENT = replace(QUICK, fence_reason_wait_ms=300)
NO_GAP = Gap("flights", 0, GapKind.RECREATED, 3, 4, 5, GapStatus.STOPPED, 1, "that nobody has found")


@pytest.fixture
def where() -> TopicPartition:
    """Of the test alone: a link would wait for another one's heartbeat to grow old."""
    return TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)


@pytest.fixture
def link(brokers: tuple[str, str], where: TopicPartition) -> Link:
    return link_between(*brokers, [where.topic])


async def test_a_gap_that_is_not_open_changes_nothing(link: Link) -> None:
    async with Cluster(link.target) as target, running(link, limits=IMPATIENT) as told:
        await told.wait_for(Event.STARTED)
        before = (await read_entries(link, target)).owner
        with pytest.raises(GapNotOpen):
            await resume_link(link, target, "resume-1", [NO_GAP])

        async def lives() -> bool:
            owner = (await read_entries(link, target)).owner
            return owner is not None and before is not None and owner.at_ms > before.at_ms + 1_000

        await eventually(lives, "heartbeats of a worker that was not fenced")
        assert (told.count(Event.STARTED), told.count(Event.RENEWED)) == (1, 0)


async def test_a_command_that_was_cut_short_behind_its_fence_ends_no_worker(link: Link, where: TopicPartition) -> None:
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 5))
        async with running(link, limits=IMPATIENT) as told:
            await wait_for_records(target, where, 5)
            await fence_link(target, link)
            await told.wait_for(Event.STARTED, 2)
            await claim_link(target, link, "operation resume-1")
            await told.wait_for(Event.STARTED, 3)
            await write(source, where, some_records(5, 5))
            await wait_for_records(target, where, 10)
            assert "nobody has taken it over" in str(told.of(Event.RENEWED)[0]["reason"])
            assert "operation resume-1" in str(told.of(Event.RENEWED)[1]["reason"])
            assert not told.of(Event.STOPPED)


class PollClock(SystemClock):
    """Tells each time that a fenced worker has looked for its successor, and found too little."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == PATIENT.fence_reason_poll_ms / 1000:
            self.looked.set()
        await super().sleep(seconds)


async def test_a_fenced_worker_lets_a_command_end_that_has_only_said_its_name(link: Link) -> None:
    """It would fence the command before that could write what it decided."""
    clock = PollClock()
    async with (
        asyncio.timeout(DEADLINE_S),
        Cluster(link.target) as target,
        running(link, limits=PATIENT, clock=clock) as told,
    ):
        await told.wait_for(Event.STARTED)
        claim = await claim_link(target, link, "operation resume-2")
        for _ in range(3):
            clock.looked.clear()
            await clock.looked.wait()
        assert told.count(Event.STARTED) == 1
        await claim.log.append([LinkRun(RunState.RUNNING, "resume-2", 1), claim.owner])
        await told.wait_for(Event.STARTED, 2)
        assert "operation resume-2" in str(told.of(Event.RENEWED)[0]["reason"])


WORKER, COMMAND = "host:1", "operation resume-2"


@pytest.mark.parametrize(
    ("owner", "operation_id", "expected"),
    [
        (None, None, False),
        (Owner(Writer(7, 3), WORKER, 1), None, False),
        (Owner(Writer(7, 4), WORKER, 1), None, True),
        (Owner(Writer(7, 4), COMMAND, 1), None, False),
        (Owner(Writer(7, 4), COMMAND, 1), "resume-1", False),
        (Owner(Writer(7, 4), COMMAND, 1), "resume-2", True),
        (Owner(Writer(7, 3), COMMAND, 1), "resume-2", False),
    ],
)
def test_a_successor_is_told_when_it_has_done_what_it_came_for(
    owner: Owner | None, operation_id: str | None, expected: bool
) -> None:
    run = LinkRun(RunState.RUNNING, operation_id, 1) if operation_id else None
    assert is_told(owner, run, (7, 3)) is expected


async def test_a_promotion_pauses_the_worker_before_any_partition_is_fenced(link: Link) -> None:
    """The markers of 10,000 partitions may take longer than a fenced worker waits."""
    async with Cluster(link.target) as target, running(link, limits=IMPATIENT) as told:
        await told.wait_for(Event.STARTED)
        await claim_link(target, link, "operation f-1", also=[LinkRun(RunState.PROMOTED, "f-1", 1)])
        await told.wait_for(Event.PAUSED)
        assert not told.of(Event.STOPPED)
        assert not told.of(Event.RENEWED)
        await promote_link(link, target, "f-1")
        await resume_link(link, target, "resume-1")
        await told.wait_for(Event.STARTED, 2)


async def test_commands_of_one_moment_all_come_to_their_end(link: Link) -> None:
    """Each fences the others; a worker that starts anew for the first of them fences the next."""
    async with Cluster(link.target) as target, running(link, limits=IMPATIENT) as told:
        await told.wait_for(Event.STARTED)
        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(resume_link(link, target, f"resume-{number}"))
            tasks.create_task(promote_link(link, target, "failover-1"))
        run = (await read_entries(link, target)).run
        assert run is not None
        assert not told.of(Event.STOPPED)


async def test_behind_each_fence_of_the_state_the_first_entry_says_who_it_was(link: Link) -> None:
    async with Cluster(link.target) as target:
        for _ in range(2):
            async with running(link, limits=IMPATIENT) as told:
                await told.wait_for(Event.STARTED)
        await resume_link(link, target, "resume-1")
        await promote_link(link, target, "failover-1")
        firsts = await first_entries(link, target)
    assert [kind for kind in firsts if kind != "nothing"] == ["owner"] * (len(firsts) - 1)
    assert firsts[-1] == "nothing", "the promotion's partitions were fenced behind its word"


async def first_entries(link: Link, target: Cluster) -> list[str]:
    """Per marker in the state topic the kind of the entry that stands behind it."""
    where = TopicPartition(link.state_topic, 0)
    found: list[str] = []

    def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            found.append("nothing")
        elif found[-1] == "nothing":
            found[-1] = decode_key(next(iter(decode_records(batch))).key or b"")[0]

    end = (await log_end_offsets(target, [where]))[where]
    await scan_batches(target, {where: OffsetSpan(0, end)}, visit)
    return found


@pytest.mark.parametrize(
    ("owner", "fenced", "expected"),
    [
        (None, None, False),
        (None, (7, 3), False),
        ((7, 3), None, True),
        ((7, 3), (7, 3), False),
        ((7, 2), (7, 3), False),
        ((7, 4), (7, 3), True),
        ((9, 0), (7, 3), True),
    ],
)
def test_who_came_after_a_fenced_writer(
    owner: tuple[int, int] | None, fenced: tuple[int, int] | None, expected: bool
) -> None:
    assert is_successor(Owner(Writer(*owner), "w", 1) if owner else None, fenced) is expected
