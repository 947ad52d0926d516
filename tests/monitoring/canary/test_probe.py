"""The canary's producer and consumer on a real broker. One cluster is both sites, so the topic is its own mirror."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from broker.client.site import Site
from mirror.link import Link
from monitoring.canary.probe import CanaryProbe
from monitoring.canary.record import CanaryRecord, encode
from monitoring.canary.verdict import CanaryJudge
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


async def test_a_restart_judges_what_was_under_way_and_a_copy_is_a_duplicate(bootstrap: str) -> None:
    link = looped_link("restart", bootstrap)
    judge = CanaryJudge(link.name, "me")
    probe = CanaryProbe(link, judge, now_ms)
    await probe.prepare()
    await write(bootstrap, link, CanaryRecord("old", 0, now_ms()), CanaryRecord("old", 1, now_ms()))
    await probe.run(1_000)
    assert judge.report().holds, "the old run's records are at the target already"
    # A second canary process starts, and finds the first one's record doubled by the mirror.
    await write(bootstrap, link, CanaryRecord("me", 0, now_ms()))
    other = CanaryJudge(link.name, "other")
    await CanaryProbe(link, other, now_ms).run(1_000)
    assert other.report().holds
    assert judge.seen(CanaryRecord("me", 0, now_ms()), now_ms()) is None
    assert judge.report().duplicate_records == 1


async def test_a_copy_that_arrives_while_it_runs_is_a_duplicate(bootstrap: str) -> None:
    link = looped_link("copy", bootstrap)
    judge = CanaryJudge(link.name, "me")
    arrived = asyncio.Event()
    probe = CanaryProbe(link, judge, now_ms, observe=lambda _: arrived.set())
    await probe.prepare()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(probe.run(3_000))
        async with asyncio.timeout(10):
            await arrived.wait()
        await write(bootstrap, link, CanaryRecord("me", 0, now_ms()), CanaryRecord("stranger", 7, now_ms()))
        await running
    report = judge.report()
    assert (report.duplicate_records, report.lost_records, report.holds) == (1, 0, False)
