"""The canary's producer and consumer on a real broker. One cluster is both sites, so the topic is its own mirror."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics, delete_records
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, Gap, GapKind, GapStatus, LinkRun, RunState, TopicIds
from mirror.offsets.fence import fence_link
from mirror.offsets.intervals import End
from mirror.offsets.state_writer import StateLog, ensure_own_topics
from monitoring.canary.probe import CanaryProbe
from monitoring.canary.record import CanaryRecord, encode
from monitoring.canary.verdict import CanaryJudge, CanaryReport
from monitoring.errors import CanaryNotMirrored
from tests.interop.servers import FarshoreBroker

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with FarshoreBroker(Path(tmp_path_factory.mktemp("canary"))) as broker:
        yield broker.bootstrap


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def looped_link(name: str, bootstrap: str) -> Link:
    return Link(name, Site("east", bootstrap), Site("west", bootstrap), ("none",))


async def write(bootstrap: str, link: Link, *records: CanaryRecord) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for record in records:
            key, value = encode(record)
            await producer.send_and_wait(link.canary_topic, value, key=key, partition=0)
    finally:
        await producer.stop()


async def test_records_go_round(bootstrap: str) -> None:
    link = looped_link("round", bootstrap)
    judge = CanaryJudge(link.name, "me")
    latencies: list[float] = []
    probe = CanaryProbe(link, judge, now_ms, latencies.append)
    await probe.prepare()
    ticks: list[int] = []
    await probe.run(2_000, tick=lambda: ticks.append(1))
    report = judge.report()
    assert report.holds
    assert report.sent_records == report.received_records == len(latencies) == len(ticks) >= 2


async def test_runs_on_one_topic_keep_their_own_scores(bootstrap: str) -> None:
    link = looped_link("runs", bootstrap)
    judge = CanaryJudge(link.name, "me")
    probe = CanaryProbe(link, judge, now_ms)
    await probe.prepare()
    old = CanaryRecord("old", 0, now_ms())
    await write(bootstrap, link, old, old)
    await probe.run(1_000)
    await write(bootstrap, link, CanaryRecord("me", 0, now_ms()))
    other = CanaryJudge(link.name, "other")
    await CanaryProbe(link, other, now_ms).run(1_000)
    assert judge.report().holds
    assert other.report().holds


async def test_what_does_not_arrive_is_late_and_lost_once_the_map_has_passed_it(bootstrap: str) -> None:
    """No mirror runs: what one would have recorded is written by hand."""
    link = replace(looped_link("stuck", bootstrap), topic_names="prefixed")
    async with Cluster(link.target) as target:
        for topic in (link.canary_topic, link.target_topic(link.canary_topic)):
            assert not await create_topics(target, [NewTopic(topic, 1)])
        late = await short_run(link)
        assert (late.lost_records, late.late_records, late.overdue_records) == (0, late.sent_records, late.sent_records)
        assert not late.holds
        await ensure_own_topics(target, link)
        writer = (await fence_link(target, link)).writer
        log = StateLog(target, link, writer)
        end = End(source_next=1_000_000, target_next=7)
        await log.append([Checkpoint(link.canary_topic, 0, end, end.source_next, writer, 0, 0, -1, now_ms())])
        unread = await short_run(link)
        assert (unread.lost_records, unread.late_records) == (0, unread.sent_records), "seven were not looked through"
        end = End(source_next=1_000_000, target_next=0)
        await log.append([Checkpoint(link.canary_topic, 0, end, end.source_next, writer, 0, 0, -1, now_ms())])
        stands = Gap(link.canary_topic, 0, GapKind.RECREATED, 9, 0, 0, GapStatus.STOPPED, now_ms(), "another id")
        await log.append([stands])
        doubted = await short_run(link)
        assert (doubted.lost_records, doubted.late_records) == (0, doubted.sent_records), "its offsets are in doubt"
        ids = TopicIds(str(uuid.uuid4()), "")
        seen = Checkpoint(link.canary_topic, 0, end, end.source_next, writer, 0, 0, -1, now_ms())
        await log.append([replace(stands, status=GapStatus.GONE), replace(seen, topic_ids=ids)])
        another = await short_run(link)
        assert (another.lost_records, another.late_records) == (0, another.sent_records), "the topic is another one"
        await log.append([seen])
        lost = await short_run(link)
        assert (lost.lost_records, lost.late_records, lost.waiting_records) == (lost.sent_records, 0, 0)


async def short_run(link: Link) -> CanaryReport:
    """One record each second for two seconds, each late after half of one."""
    judge = CanaryJudge(link.name, uuid.uuid4().hex, deadline_ms=500)
    await CanaryProbe(link, judge, now_ms).run(2_000)
    return judge.report()


async def test_nothing_is_sent_along_a_link_whose_target_was_promoted(bootstrap: str) -> None:
    """Nobody would carry it: the promoted link's lag would grow by a record each second, and all be called late."""
    link = looped_link("promoted", bootstrap)
    judge = CanaryJudge(link.name, "me")
    arrived = asyncio.Event()
    probe = CanaryProbe(link, judge, now_ms, observe=lambda _: arrived.set())
    beats = asyncio.Queue[int]()
    async with asyncio.timeout(120), Cluster(link.target) as target:
        await probe.prepare()
        await ensure_own_topics(target, link)
        log = StateLog(target, link, (await fence_link(target, link)).writer)
        running = asyncio.create_task(probe.run(tick=lambda: beats.put_nowait(judge.report().sent_records)))
        try:
            await arrived.wait()
            await log.append([LinkRun(RunState.PROMOTED, "op", now_ms())])
            while not probe.is_promoted:
                await beats.get()
            sent = [await beats.get() for _ in range(3)][1:]
            assert sent[0] == sent[1], "beats go by, and nothing is sent"
            with pytest.raises(CanaryNotMirrored, match="west was promoted") as refused:
                await CanaryProbe(link, CanaryJudge(link.name, "other"), now_ms).prepare()
            assert refused.value.hint == f"to mirror again: farshore link resume --link {link.name}"
            await log.append([LinkRun(RunState.RUNNING, "op", now_ms())])
            while await beats.get() == sent[0]:
                continue
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_a_copy_that_arrives_while_it_runs_is_a_duplicate(bootstrap: str) -> None:
    link = looped_link("copy", bootstrap)
    judge = CanaryJudge(link.name, "me")
    arrived = asyncio.Event()
    probe = CanaryProbe(link, judge, now_ms, observe=lambda _: arrived.set())
    await probe.prepare()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(probe.run(3_000))
        async with asyncio.timeout(60):
            await arrived.wait()
        await write(bootstrap, link, CanaryRecord("me", 0, now_ms()), CanaryRecord("stranger", 7, now_ms()))
        await running
    report = judge.report()
    assert (report.duplicate_records, report.lost_records, report.holds) == (1, 0, False)


async def test_a_target_that_was_cut_and_begins_later_is_read_from_its_beginning(bootstrap: str) -> None:
    """As one that was recreated and whose retention has been there: offset 0 is out of range, too."""
    link = looped_link("cut", bootstrap)
    judge = CanaryJudge(link.name, "me")
    arrived = asyncio.Event()
    probe = CanaryProbe(link, judge, now_ms, observe=lambda _: arrived.set())
    await probe.prepare()
    await write(bootstrap, link, *(CanaryRecord("old", number, now_ms()) for number in range(3)))
    async with Cluster(link.target) as target:
        await delete_records(target, {TopicPartition(link.canary_topic, 0): 2})
    record = CanaryRecord("me", 0, now_ms())
    judge.sending(record)
    probe._position = 1_000
    reader = asyncio.create_task(probe._read_for_ever(asyncio.Event()))
    try:
        await write(bootstrap, link, record)
        async with asyncio.timeout(60):
            await arrived.wait()
    finally:
        reader.cancel()
        await asyncio.wait([reader])
