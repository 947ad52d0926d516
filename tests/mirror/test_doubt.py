"""Where an offset may mean another record than the mirrored one, everything that uses the map says so.

Partitions of one topic, each with the same ten records at both sites and one entry of the link's state: a gap of each
kind in each status, a hold of each reason, or nothing. All that translates, measures or trusts must agree about them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from failover.observing.observe import observe
from mirror.errors import OffsetDeclined, OffsetHeld
from mirror.lag import partial_lag
from mirror.link import Link
from mirror.offsets.entries import Block, Checkpoint, Gap, GapKind, GapStatus, LinkRun, Owner, RunState
from mirror.offsets.fence import Fence, fence_link
from mirror.offsets.group_entries import GroupAction
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.state import LinkState, StateReader, load_link_state
from mirror.offsets.state_writer import StateLog, StateWriter, ensure_own_topics
from mirror.offsets.wishes import WishReader
from mirror.topics.sync import sync_topics
from mirror.translation import translate_offset
from mirror.worker.ground import Ground
from mirror.worker.group_map import load_group_map
from mirror.worker.holds import Attempts, Holds
from mirror.worker.origins import Passage
from mirror.worker.plan import Rules
from mirror.worker.replicator import Outlet, Replicator
from mirror.worker.session import Session
from mirror.worker.startup import Opened
from mirror.worker.watching import load_session_map
from tests.broker.running import running_broker
from tests.mirror.harness import QUICK, make_topic, some_records, write

TOPIC = "flights"
RECORDS = 10
UNDECIDED = {GapStatus.STOPPED, GapStatus.ACCEPTED}
IN_DOUBT = {GapKind.RECREATED, GapKind.TRUNCATED_END, GapKind.TARGET_TRUNCATED, GapKind.TARGET_NOT_EMPTY}
HELD_IN_DOUBT = {HoldReason.NO_LEADER_AT_SOURCE, HoldReason.ERROR_AT_SOURCE, HoldReason.LOGS_NOT_COMPARED}
CASES: list[tuple[GapKind, GapStatus] | HoldReason | None] = [
    None, *((kind, status) for kind in GapKind for status in GapStatus), *HoldReason,
]  # fmt: skip
"""By partition."""
Doubted = set[tuple[GapKind, GapStatus] | HoldReason | None]
GAPS_IN_DOUBT: Doubted = {(kind, status) for kind in IN_DOUBT for status in UNDECIDED}
HOLDS_IN_DOUBT: Doubted = set(HELD_IN_DOUBT)


@dataclass
class Stage:
    """Both sites, and the state of a link that mirrored everything."""

    link: Link
    source: Cluster
    target: Cluster
    entries: list[Gap | Hold] = field(default_factory=list)

    async def state(self) -> LinkState:
        return await load_link_state(self.link, self.target)


def entry_of(number: int) -> Gap | Hold | None:
    case = CASES[number]
    if isinstance(case, HoldReason):
        return Hold(TOPIC, number, case, "no words", 1)
    return Gap(TOPIC, number, case[0], RECORDS, RECORDS, RECORDS, case[1], 1, "no words") if case else None


@asynccontextmanager
async def two_sites(folder: Path, partitions: int) -> AsyncIterator[Stage]:
    async with running_broker(folder / "east") as east, running_broker(folder / "west") as west:
        link = Link("east-west", Site("east", east), Site("west", west), (TOPIC,), groups=(".*",))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            for cluster in (source, target):
                await make_topic(cluster, TOPIC, partitions)
                for number in range(partitions):
                    await write(cluster, TopicPartition(TOPIC, number), some_records(0, RECORDS))
            yield Stage(link, source, target)


async def write_state(stage: Stage, numbers: range) -> None:
    """As a worker would have left it."""
    link, target = stage.link, stage.target
    await ensure_own_topics(target, link)
    writer = (await fence_link(target, link, [])).writer
    end = End(RECORDS, RECORDS)
    stage.entries = [found for number in numbers if (found := entry_of(number)) is not None]
    log = StateLog(target, link, writer)
    await log.append([Owner(writer, "worker", 1), LinkRun(RunState.RUNNING, "op", 1)])
    await log.append([Block(TOPIC, number, writer, 0, (Interval(0, 0),)) for number in numbers])
    await log.append([Checkpoint(TOPIC, n, end, RECORDS, writer, RECORDS, RECORDS, 1, 1) for n in numbers])
    await log.append(stage.entries)


async def open_session(stage: Stage) -> Session:
    """A session whose partitions stand as the entries say, without its tasks."""
    state = await stage.state()
    topics = await sync_topics(stage.link, stage.source, stage.target)
    holds = Holds(Attempts(QUICK, stage.target.clock), stage.target.clock)
    owner = state.entries.owner
    assert owner is not None
    log = StateLog(stage.target, stage.link, owner.writer)
    writer = StateWriter(log)
    outlet = Outlet(stage.link.name, writer.submit, lambda *_, **__: None, stage.target.clock)
    passage = Passage(stage.link, stage.source, stage.target)
    ground = Ground(stage.link, passage, topics.mirrored, {}, owner.writer, state.entries, {})
    fence, wishes, reader = Fence(owner.writer, {}), WishReader(stage.link, log, 0), StateReader(stage.link)
    opened = Opened(owner, writer, state.entries, topics, holds, ground, outlet, fence, wishes, reader, {})
    for at in state.map.partitions():
        where = TopicPartition(*at)
        found = PartitionMap([Interval(0, 0)], End(RECORDS, RECORDS), RECORDS)
        opened.replicators[where] = Replicator(where, where, found, Rules(owner.writer, 1 << 20), outlet, shared=False)
    session = Session(passage, (stage.source, stage.target), opened, QUICK, lambda *_, **__: None)
    for entry in stage.entries:
        if isinstance(entry, Hold):
            session.note_hold(holds.add(entry))
        elif entry.status in UNDECIDED:
            session.replicators[TopicPartition(TOPIC, entry.partition)].gap = entry
    return session


async def by_translation(stage: Stage) -> set[int]:
    found, state = set(), await stage.state()
    for number in range(len(CASES)):
        try:
            translate_offset(stage.link, state, TOPIC, number, 3, reverse=False)
        except OffsetDeclined:
            found.add(number)
    return found


async def by_group_pass(stage: Stage) -> set[int]:
    found = await load_session_map(await open_session(stage))
    untranslated = {n for n in range(len(CASES)) if found.to_target(TOPIC, n, 3) is None}
    assert all(found.why_unknown(TOPIC, n, 3) is GroupAction.HOLD_OFFSETS_IN_DOUBT for n in untranslated)
    return untranslated


async def by_failover(stage: Stage) -> set[int]:
    seen = await observe(stage.link, stage.source, stage.target, (), 1)
    return {view.partition for view in seen.partitions if not view.trusted}


async def by_failover_without_source(stage: Stage) -> set[int]:
    seen = await observe(stage.link, None, stage.target, (), 1)
    return {view.partition for view in seen.partitions if not view.trusted}


async def by_lag(stage: Stage) -> set[int]:
    report = await partial_lag(stage.link, stage.source, stage.target, await stage.state())
    return {where.partition for where in report.unknown}


async def by_reverse_link(stage: Stage) -> set[int]:
    """What the link from west to east makes of the state of this one."""
    back = replace(stage.link, name="west-east", source=stage.link.target, target=stage.link.source)
    back = replace(back, shared_targets=True, reverse_links=(replace(stage.link, shared_targets=True),))
    own = (await stage.state()).map  # the same records at the same offsets
    found = await load_group_map(back, own, (), (stage.target, stage.source), {})
    return {n for n in range(len(CASES)) if found.to_target(TOPIC, n, 3) is None}


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (by_translation, GAPS_IN_DOUBT),  # the offset is what somebody noted: the source is not asked
        (by_group_pass, GAPS_IN_DOUBT | HOLDS_IN_DOUBT),
        (by_failover, GAPS_IN_DOUBT | HOLDS_IN_DOUBT),
        (by_failover_without_source, GAPS_IN_DOUBT),
        (by_lag, GAPS_IN_DOUBT | HOLDS_IN_DOUBT),
        (by_reverse_link, GAPS_IN_DOUBT | HOLDS_IN_DOUBT),
    ],
)
async def test_what_is_in_doubt_is_so_for_everybody(
    tmp_path: Path, ask: Callable[[Stage], Awaitable[set[int]]], expected: Doubted
) -> None:
    async with two_sites(tmp_path, len(CASES)) as stage:
        await write_state(stage, range(len(CASES)))
        found = await ask(stage)
    assert {CASES[number] for number in found} == expected


async def recreate_source(stage: Stage) -> None:
    await delete_topics(stage.source, [TOPIC])
    await make_topic(stage.source, TOPIC)
    await write(stage.source, TopicPartition(TOPIC, 0), some_records(500, 2 * RECORDS))


async def recreate_target(stage: Stage) -> None:
    await delete_topics(stage.target, [TOPIC])
    await make_topic(stage.target, TOPIC)


async def delete_source(stage: Stage) -> None:
    await delete_topics(stage.source, [TOPIC])


async def touch_nothing(_stage: Stage) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [(recreate_source, None), (recreate_target, None), (delete_source, None), (touch_nothing, 3)],
)
async def test_a_pass_over_groups_sees_another_topic_before_the_watch_does(
    tmp_path: Path, change: Callable[[Stage], Awaitable[None]], expected: int | None
) -> None:
    async with two_sites(tmp_path, 1) as stage:
        await write_state(stage, range(1))
        session = await open_session(stage)
        await change(stage)
        found = await load_session_map(session)
    assert found.to_target(TOPIC, 0, 3) == expected


async def test_a_source_that_is_another_one_has_no_lag_that_is_known(tmp_path: Path) -> None:
    """Recreated with fewer records, and nobody has stopped the partition yet."""
    async with two_sites(tmp_path, 1) as stage:
        await write_state(stage, range(1))
        await delete_topics(stage.source, [TOPIC])
        await make_topic(stage.source, TOPIC)
        await write(stage.source, TopicPartition(TOPIC, 0), some_records(500, 3))
        report = await partial_lag(stage.link, stage.source, stage.target, await stage.state())
        seen = await observe(stage.link, stage.source, stage.target, (), 1)
    assert report.lags == ()
    assert "ends at 3, the mirror had read to 10" in str(report.unknown[TopicPartition(TOPIC, 0)])
    assert [view.trusted for view in seen.partitions] == [False]


async def test_what_was_held_is_told_from_what_the_source_shows_to_be_another_log(tmp_path: Path) -> None:
    """Of a promoted link nobody takes a hold away, so status does not count one; but it counts what it sees itself."""
    async with two_sites(tmp_path, len(CASES)) as stage:
        await write_state(stage, range(len(CASES)))
        before = (await partial_lag(stage.link, stage.source, stage.target, await stage.state())).unknown
        await delete_topics(stage.source, [TOPIC])
        await make_topic(stage.source, TOPIC, len(CASES))
        after = (await partial_lag(stage.link, stage.source, stage.target, await stage.state())).unknown
    held = {CASES[where.partition] for where, error in before.items() if isinstance(error, OffsetHeld)}
    assert held == HOLDS_IN_DOUBT
    assert {where.partition for where in after} == set(range(len(CASES)))
    assert not any(isinstance(error, OffsetHeld) for error in after.values())
