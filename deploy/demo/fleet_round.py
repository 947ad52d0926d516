"""Where the mirror is a fleet: its workers share a link for each airline; one is killed, and others have its links."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.log import read_records
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics
from broker.wire.vocabulary import TopicPartition
from deploy.demo.flights import Flight, flights
from deploy.demo.results import FleetContent, Takeover
from deploy.demo.stage import AIRLINES, PARTITIONS, Stage, airline_topic
from deploy.demo.takeovers import EndsSeen, first_by_another
from deploy.demo.traffic import zstd_producer
from deploy.errors import DemoFailed

FLIGHTS_OF_ROUND = 100_000
KILL_AT_RECORDS = 50_000
BURST_RECORDS = 500
BURST_EVERY_S = 0.06
WATCH_S = 0.02
SETTLE_TIMEOUT_S = 60.0
CATCH_UP_TIMEOUT_S = 90.0
SETTLED_S = 8.0
"""A fleet shares its links out when its workers were the same for five seconds; behind that it stands still."""

Rows = Mapping[TopicPartition, Sequence[int]]


@dataclass(slots=True)
class Writing:
    """What was acknowledged, by topic: the row numbers of its flights."""

    rows: dict[str, list[int]] = field(default_factory=lambda: {airline_topic(code): [] for code in AIRLINES})

    @property
    def records(self) -> int:
        return sum(map(len, self.rows.values()))


async def fleet_round(stage: Stage) -> None:
    """Share, write, kill, see who takes over, compare every record."""
    with stage.step(f"{stage.workers} workers share a link for each of {len(AIRLINES)} airlines, through etcd"):
        await make_topics(stage)
        held = await shared_out(stage)
        for worker, links in sorted(_by_worker(held).items()):
            stage.console.print(f"  {worker}: {', '.join(links)}", highlight=False)
    writing = Writing()
    with stage.step(f"write {FLIGHTS_OF_ROUND:,} flights at east; kill -9 one worker in the middle"):
        await write_and_kill(stage, writing, held)
        for takeover in stage.result.takeovers:
            stage.console.print(
                f"  link {takeover.link}: {takeover.before} -> {takeover.after}, its first record "
                f"{takeover.seconds:.1f} s after the kill",
                highlight=False,
            )
    with stage.step("every flight is at west once, in the order of east"):
        await prove_content(stage, writing)
    with stage.step("start the killed worker again; it gets its part"):
        await stage.start_worker(stage.result.takeovers[0].before)
        await shared_out(stage)
        await stage.show("fleet", "status")


async def make_topics(stage: Stage) -> None:
    """At east, with a replica on each broker."""
    new = [NewTopic(airline_topic(code), PARTITIONS, stage.brokers, {"retention.ms": "-1"}) for code in AIRLINES]
    async with Cluster(stage.link.source, client_id="demo") as east:
        failures = await create_topics(east, new)
    if failures:
        raise DemoFailed(f"topics of airlines were not made: {failures}")


async def shared_out(stage: Stage) -> dict[str, str]:
    """Who holds which link, when every worker has some and nothing moved for a while."""
    held: dict[str, str] = {}
    since_s = time.monotonic()
    async with stage.within(SETTLE_TIMEOUT_S, "every worker had its part"):
        while True:
            now = await _held(stage)
            if now != held:
                held, since_s = now, time.monotonic()
            is_complete = len(held) > len(AIRLINES) and set(held.values()) == set(stage.mirrors)
            if is_complete and time.monotonic() - since_s > SETTLED_S:
                return held
            await asyncio.sleep(0.5)


async def _held(stage: Stage) -> dict[str, str]:
    """By etcd, through the command that an operator has."""
    said = json.loads((await stage.processes.run("fleet", "status", "-o", "json", expect=None)).stdout)
    return {link["link"]: link["holder"] for link in said["links"] if link["holder"] is not None}


def _by_worker(held: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for link, worker in sorted(held.items()):
        found.setdefault(worker, []).append(link)
    return found


async def write_and_kill(stage: Stage, writing: Writing, held: Mapping[str, str]) -> None:
    """Write to all airlines alike, lose a worker, and wait until west has as many records as were acknowledged."""
    async with Cluster(stage.link.target, client_id="demo") as west:
        async with stage.within(CATCH_UP_TIMEOUT_S, "west had the topics"):
            while not writing.rows.keys() <= (await west.metadata(list(writing.rows))).topics.keys():
                await asyncio.sleep(WATCH_S)
        ends = EndsSeen(west, _partitions(writing.rows))
        patience = stage.within(CATCH_UP_TIMEOUT_S, "west had every flight of the airlines")
        async with patience, asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(ends.watch(WATCH_S))
            writer = tasks.create_task(write(stage, writing))
            victim, killed_s = await kill_in_the_middle(stage, writing, held)
            await writer
            await _until_there(west, ends, writing)
            watching.cancel()
        now = await _held(stage)
        for code in AIRLINES:
            link = code.lower()
            if held[link] != victim:
                continue
            first_s = await first_by_another(west, ends, airline_topic(code), killed_s)
            if first_s is None:
                raise DemoFailed(f"nobody wrote to {airline_topic(code)} after {victim} was killed")
            stage.result.takeovers.append(Takeover(link, victim, now[link], first_s - killed_s))


async def kill_in_the_middle(stage: Stage, writing: Writing, held: Mapping[str, str]) -> tuple[str, float]:
    """Who has the most links is killed -> its name, and when."""
    while writing.records < KILL_AT_RECORDS:
        await asyncio.sleep(WATCH_S)
    by_worker = _by_worker(held)
    victim = max(by_worker, key=lambda worker: len(by_worker[worker]))
    await stage.processes.kill9(victim)
    killed_s = time.monotonic()
    links = ", ".join(by_worker[victim])
    stage.console.print(
        f"  kill -9: {victim}, which ran {links}, after {writing.records:,} acknowledged records", highlight=False
    )
    return victim, killed_s


async def write(stage: Stage, writing: Writing) -> None:
    """At a steady pace: what is to be seen is who carries it."""
    producer = await zstd_producer(stage.east)
    await producer.start()
    try:
        chosen = itertools.islice((each for each in flights() if _airline(each) in AIRLINES), FLIGHTS_OF_ROUND)
        while burst := list(itertools.islice(chosen, BURST_RECORDS)):
            due_s = time.monotonic() + BURST_EVERY_S
            sent = [
                await producer.send(
                    airline_topic(_airline(each)),
                    each.value,
                    partition=each.row % PARTITIONS,
                    timestamp_ms=each.timestamp_ms,
                )
                for each in burst
            ]
            await asyncio.gather(*sent)
            for each in burst:
                writing.rows[airline_topic(_airline(each))].append(each.row)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
    finally:
        await producer.stop()


def _airline(flight: Flight) -> str:
    return flight.key.decode()


async def _until_there(west: Cluster, ends: EndsSeen, writing: Writing) -> None:
    """Records, not offsets alone: each fence of a link leaves markers."""
    while True:
        if sum(ends.newest().values()) >= writing.records:
            found = await _rows(west, writing.rows)
            if sum(map(len, found.values())) >= writing.records:
                return
        await asyncio.sleep(0.5)


def _partitions(topics: Iterable[str]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]


async def _rows(cluster: Cluster, topics: Iterable[str]) -> Rows:
    ends = await log_end_offsets(cluster, _partitions(topics))
    return {
        at: [json.loads(record.value or b"{}")["row"] async for record in read_records(cluster, at, 0, end)]
        for at, end in ends.items()
    }


async def prove_content(stage: Stage, writing: Writing) -> None:
    """As a reader sees it who does not wait for transactions: aborted records would count, too."""
    found = []
    for site in (stage.link.source, stage.link.target):
        found.append(await _read_site(site, writing))
    here, there = found
    proof = content_proof(writing.rows, here, there)
    stage.result.fleet_content = proof
    stage.console.print(
        f"  {proof.records:,} records at west of {proof.acknowledged:,}: {proof.lost_records} lost, "
        f"{proof.repeated_records} repeated, {proof.reordered_partitions} partitions in another order",
        highlight=False,
    )
    if not proof.holds:
        raise DemoFailed(f"the takeover lost, repeated or reordered records: {proof}")


async def _read_site(site: Site, writing: Writing) -> Rows:
    async with Cluster(site, client_id="demo") as cluster:
        return await _rows(cluster, writing.rows)


def content_proof(acknowledged: Mapping[str, Sequence[int]], here: Rows, there: Rows) -> FleetContent:
    """What was acknowledged, against what both sites have. Pure."""
    wanted = Counter(row for rows in acknowledged.values() for row in rows)
    found = Counter(row for rows in there.values() for row in rows)
    return FleetContent(
        acknowledged=wanted.total(),
        records=found.total(),
        lost_records=(wanted - found).total(),
        repeated_records=(found - wanted).total(),
        reordered_partitions=sum(list(there[at]) != list(rows) for at, rows in here.items()),
    )
