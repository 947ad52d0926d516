"""Links that are cut into units, on brokers: who writes where, what readers say of all of them, and what is refused."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace

import pytest

from broker.client.cluster import Cluster
from broker.client.groups import commit_offsets, committed_offsets_of_groups
from broker.client.log import append
from broker.client.model import CommittedOffset
from broker.client.topics import delete_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkInvalid, OffsetDeclined
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.offsets.cutting import agree_on_units
from mirror.offsets.entries import RunState, decode_key
from mirror.offsets.operations import pause_link, promote_link, restart_link, resume_link
from mirror.offsets.state import load_link_state, read_entries
from mirror.offsets.state_writer import ensure_own_topics
from mirror.status import LinkCondition, link_status
from mirror.translation import translate_offset
from mirror.worker.events import Event
from mirror.worker.registry import registered_at
from tests.mirror.harness import (
    QUICK,
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

UNITS = 3
LIMITS = replace(QUICK, paused_poll_ms=100, fence_reason_wait_ms=2_000)


@pytest.fixture
def topic() -> str:
    return f"flights-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def link(brokers: tuple[str, str], topic: str) -> Link:
    return link_between(*brokers, [topic], groups=(f"readers-{topic}",), units=UNITS)


def partitions(topic: str, count: int = UNITS) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


async def write_all(source: Cluster, topic: str, start: int, count: int) -> None:
    for where in partitions(topic):
        await write(source, where, some_records(start, count))


async def wait_for_all(target: Cluster, topic: str, count: int) -> None:
    for where in partitions(topic):
        assert contents(await wait_for_records(target, where, count)) == contents(some_records(0, count)), where


async def test_each_unit_has_its_own_part_of_the_state_and_readers_the_union(link: Link, topic: str) -> None:
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, UNITS)
        await write_all(source, topic, 0, 20)
        async with running(link, limits=LIMITS) as told:
            await wait_for_all(target, topic, 20)
            offsets = {where: CommittedOffset(7 + where.partition) for where in partitions(topic)}
            await commit_offsets(source, link.groups[0], offsets)

            async def carried() -> bool:
                found = (await committed_offsets_of_groups(target, link.groups))[link.groups[0]]
                return isinstance(found, dict) and len(found) == UNITS

            await eventually(carried, "unit 0 to carry the group's offsets in partitions of all units")
            watch = HeartbeatWatch(target.clock)

            async def healthy() -> bool:
                status = await link_status(link, watch)
                return status.condition is LinkCondition.RUNNING and status.lag_records == 0 and not status.findings

            await eventually(healthy, "the status to be good")
        state = await load_link_state(link, target)
        found = await committed_offsets_of_groups(target, link.groups)
        for where in partitions(topic):
            there = {record.offset: record for record in await read_all(target, where)}
            here = {record.offset: record for record in await read_all(source, where)}
            for offset, record in here.items():
                at = translate_offset(link, state, topic, where.partition, offset, reverse=False).target_offset
                assert there[at][1:] == record[1:]
            committed = found[link.groups[0]]
            assert isinstance(committed, dict)
            assert there[committed[where].offset][1:] == here[7 + where.partition][1:]
        writers = set()
        for unit in link.each_unit():
            part = await read_entries(unit, target)
            own = {where for where in partitions(topic) if link.unit_of(*where) == unit.unit}
            assert part.checkpoints.keys() == own, "nothing of another unit's"
            assert part.units == UNITS
            assert part.owner is not None
            writers.add(part.owner.writer.producer_id)
            for where in own:
                assert part.checkpoints[where].writer == part.owner.writer
        assert len(writers) == UNITS
        registered = {one.producer_id: one.unit for one in await registered_at(target) if one.link == link.name}
        assert registered.keys() == writers
        assert sorted(registered.values()) == [0, 1, 2]
        assert Counter(name for name, event, _ in told.events if event is Event.STARTED) == {
            f"{link.name}/{number}": 1 for number in range(UNITS)
        }


async def test_a_pause_a_restart_and_a_promotion_are_all_units(link: Link, topic: str) -> None:
    """The operator's file may say something else by then: what counts is how the state is cut."""
    elsewhere = replace(link, units=1)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, UNITS)
        await write_all(source, topic, 0, 5)
        async with running(link, limits=LIMITS) as told:
            await wait_for_all(target, topic, 5)
            await pause_link(elsewhere, target, "pause-1")
            await told.wait_for(Event.PAUSED, UNITS)
            await write_all(source, topic, 5, 5)
            assert (await link_status(link, HeartbeatWatch(target.clock))).condition is LinkCondition.PAUSED
            await resume_link(elsewhere, target, "resume-1")
            await wait_for_all(target, topic, 10)
            await restart_link(elsewhere, target, "restart-1")
            await told.wait_for(Event.STARTED, 3 * UNITS)
            await write_all(source, topic, 10, 5)
            await wait_for_all(target, topic, 15)
            fence = await promote_link(elsewhere, target, "failover-1")
            assert not fence.left_out
            await write_all(source, topic, 15, 5)
            await told.wait_for(Event.PAUSED, 2 * UNITS)
            for unit in link.each_unit():
                run = (await read_entries(unit, target)).run
                assert run is not None
                assert (run.state, run.operation_id) == (RunState.PROMOTED, "failover-1")
            await wait_for_all(target, topic, 15)
            for where in partitions(topic):
                assert len(await read_all(target, where)) == 15


async def test_a_gap_of_one_unit_is_accepted_and_no_other_session_ends(link: Link, topic: str) -> None:
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, UNITS)
        await make_topic(target, topic, UNITS)
        occupied = partitions(topic)[1]
        await append(target, occupied, encode_batch([Record(0, 1, b"k", b"somebody else's")]))
        await write_all(source, topic, 0, 5)
        async with running(link, limits=LIMITS) as told:
            await told.wait_for(Event.PARTITION_STOPPED)
            await told.wait_for(Event.STARTED, UNITS)
            (gap,) = (await read_entries(link, target)).open_gaps().values()
            assert (gap.topic, gap.partition) == occupied
            with pytest.raises(OffsetDeclined):
                translate_offset(link, await load_link_state(link, target), *occupied, 3, reverse=False)
            await resume_link(link, target, "resume-1", [gap])
            found = await wait_for_records(target, occupied, 6)
            assert contents(found[1:]) == contents(some_records(0, 5))
            assert told.count(Event.STARTED) == UNITS


@pytest.mark.parametrize("declared", [1, 2, 4])
async def test_a_link_that_has_state_is_not_cut_anew(link: Link, topic: str, declared: int) -> None:
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, UNITS)
        await write_all(source, topic, 0, 5)
        async with running(link, limits=LIMITS):
            await wait_for_all(target, topic, 5)
        before = await read_entries(link, target)
        other = replace(link, units=declared)
        with pytest.raises(ExceptionGroup) as refused:
            async with running(other, limits=LIMITS):
                await eventually(_never, "a worker to end")
        error = refused.value.exceptions[0]
        assert isinstance(error, LinkInvalid)
        assert "of units = 3" in str(error)
        assert error.hint is not None
        assert "units = 3" in error.hint
        assert await read_entries(link, target) == before, "nothing was fenced, nothing written"


async def _never() -> bool:
    return False


async def test_a_link_of_one_unit_is_not_cut(link: Link, topic: str) -> None:
    whole = replace(link, units=1)
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, topic, UNITS)
        await write_all(source, topic, 0, 5)
        async with running(whole, limits=LIMITS):
            await wait_for_all(target, topic, 5)
        for unit in link.each_unit()[:1]:
            with pytest.raises(LinkInvalid, match="is of units = 1"):
                await agree_on_units(target, unit, await read_entries(unit, target))


async def test_the_lead_units_part_says_so_whoever_begins_first(link: Link) -> None:
    """A version that knows of no units reads that part alone, and refuses what it does not know."""
    async with Cluster(link.target) as target:
        await ensure_own_topics(target, link)
        for unit in (link.of_unit(2), link.of_unit(1), link.of_unit(0)):
            await agree_on_units(target, unit, await read_entries(unit, target))
        records = await read_all(target, TopicPartition(link.state_topic, 0))
        assert [decode_key(record.key or b"") for record in records] == [["units"]]
        assert (await read_entries(link, target)).units == UNITS
        await delete_topics(target, [link.state_topic])
