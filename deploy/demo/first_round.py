"""Round one: real data from site to site, every offset proved, a planned switchover that loses and repeats nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

from broker.client.cluster import Cluster
from broker.client.groups import committed_offsets
from broker.client.log import read_records
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition
from deploy.demo.fleet_round import fleet_round
from deploy.demo.flights import FLIGHTS_COUNT, flights
from deploy.demo.leader_kills import LeaderKills
from deploy.demo.results import GroupContinuity, GroupProof, Progress, SiteContent, TranslationProof
from deploy.demo.stage import FLIGHTS, GROUP, LINK, PARTITIONS, Stage
from deploy.demo.traffic import Acknowledgements, GroupRead, produce, read_as_group
from deploy.errors import DemoFailed
from mirror.api import OffsetMap, load_link_state

READ_AT_EAST_RECORDS = 120_000
KILL_AT_RECORDS = {"east": FLIGHTS_COUNT // 4, "west": FLIGHTS_COUNT // 2}
"""When each site loses a broker: records written at east, records mirrored to west."""
CATCH_UP_TIMEOUT_S = 180.0
GROUP_SYNC_TIMEOUT_S = 60.0
HEALTHY_TIMEOUT = "120s"
WATCH_S = 0.5


async def first_round(stage: Stage) -> None:
    """Fill, mirror, prove, switch over, read on."""
    several = stage.brokers > 1
    with stage.step(_start_words(stage)):
        await stage.start_zookeeper()
        await stage.start_site("east")
        await stage.start_site("west")
        await stage.create_topic(FLIGHTS)
        await stage.start_mirror()
    if stage.workers > 1:
        await fleet_round(stage)
    with stage.step(f"write {FLIGHTS_COUNT:,} flights at east (zstd) while the mirror carries them to west"):
        kills = await fill(stage)
    if several:
        with stage.step("start the killed brokers again; every replica is in sync again"):
            await kills.bring_back()
    with stage.step(f"the group {GROUP} reads {READ_AT_EAST_RECORDS:,} of them at east"):
        before = await read_as_group(stage.east, FLIGHTS, GROUP, READ_AT_EAST_RECORDS)
    with stage.step("the mirror is up to date"):
        await stage.show("status", "--all", "--until", "healthy", "--timeout", HEALTHY_TIMEOUT)
    async with (
        Cluster(stage.link.source, client_id="demo") as east,
        Cluster(stage.link.target, client_id="demo") as west,
    ):
        with stage.step("every offset translates exactly, both ways, proved by content"):
            await prove_translation(stage, east, west)
        with stage.step("the group's offsets at west are those of the same records"):
            await prove_group(stage, before, east, west)
    with stage.step("farshore switchover: stop, drain, translate, move the groups, verify"):
        outcome = await stage.command("switchover", "--link", LINK, "--yes")
        if not outcome["verified"]:
            raise DemoFailed(f"the switchover was not verified: {outcome['differences']}")
    with stage.step(f"the group {GROUP} goes on at west"):
        after = await read_as_group(stage.west, FLIGHTS, GROUP, None)
        stage.result.continuity = continuity(before, after)
        if not stage.result.continuity.holds:
            raise DemoFailed(f"the group lost or repeated records: {stage.result.continuity}")


def _start_words(stage: Stage) -> str:
    sites = f"two sites of {stage.brokers} brokers each" if stage.brokers > 1 else "two sites"
    sites += ", behind TLS and logins," if stage.result.is_locked else ""
    mirror = f"{stage.workers} workers that mirror" if stage.workers > 1 else "a mirror"
    return f"start {sites} and {mirror}"


async def fill(stage: Stage) -> LeaderKills:
    """Write every flight; watch the mirror until it has them all. Where a site has brokers to spare, it loses one."""
    started_s = time.monotonic()
    acknowledgements = Acknowledgements()
    kills = LeaderKills(stage, dict(KILL_AT_RECORDS) if stage.brokers > 1 else {})
    with stage.bar("written ", FLIGHTS_COUNT) as show_written, stage.bar("mirrored", FLIGHTS_COUNT) as show_mirrored:

        async def watch() -> None:
            async with (
                Cluster(stage.link.source, client_id="demo") as east,
                Cluster(stage.link.target, client_id="demo") as west,
            ):
                while True:
                    # West first: what is there was at east before it. The producer's own count lags behind both.
                    mirrored = await records_at(west)
                    written = await records_at(east)
                    show_mirrored(mirrored)
                    stage.result.progress.append(Progress(time.monotonic() - started_s, mirrored, written))
                    if mirrored >= FLIGHTS_COUNT:
                        return
                    await kills.look(east, written, acknowledgements.records)
                    await kills.look(west, mirrored, acknowledgements.records)
                    await asyncio.sleep(WATCH_S)

        async with stage.within(CATCH_UP_TIMEOUT_S, "west had every flight"), asyncio.TaskGroup() as tasks:
            tasks.create_task(watch())
            stage.result.flights = await produce(stage.east, FLIGHTS, flights(), acknowledgements, show_written)
    stage.result.write_pause_seconds = acknowledgements.longest_pause_s
    return kills


async def records_at(site: Cluster) -> int:
    """Offsets at a site; the mirror's fence makes them, at the target, a few more than records."""
    topics = (await site.metadata([FLIGHTS])).topics
    if FLIGHTS not in topics:
        return 0
    ends = await log_end_offsets(site, [TopicPartition(FLIGHTS, number) for number in range(PARTITIONS)])
    return sum(ends.values())


async def rows_by_offset(cluster: Cluster, topic: str, partition: int) -> dict[int, int]:
    """The row number of the record at every offset of a partition."""
    at = TopicPartition(topic, partition)
    end = (await log_end_offsets(cluster, [at]))[at]
    return {
        record.offset: json.loads(record.value or b"{}")["row"] async for record in read_records(cluster, at, 0, end)
    }


async def prove_translation(stage: Stage, east: Cluster, west: Cluster) -> None:
    """Compare the records at both ends of every translation."""
    offset_map = (await load_link_state(stage.link, west)).map
    rows: dict[str, Counter[int]] = {site.site.name: Counter() for site in (east, west)}
    with stage.bar("proved", FLIGHTS_COUNT) as show:
        proved = 0
        for partition in range(PARTITIONS):
            here = await rows_by_offset(east, FLIGHTS, partition)
            there = await rows_by_offset(west, FLIGHTS, partition)
            rows[east.site.name].update(here.values())
            rows[west.site.name].update(there.values())
            proof = translation_proof(offset_map, partition, here, there)
            stage.result.translation.append(proof)
            proved += proof.offsets
            show(proved)
            if not proof.holds:
                raise DemoFailed(f"the offset map is not exact: {proof}")
    stage.result.contents = [content(site, counted) for site, counted in rows.items()]
    for found in stage.result.contents:
        if not found.holds:
            raise DemoFailed(f"records were lost or repeated: {found}")
    if proved != FLIGHTS_COUNT:
        raise DemoFailed(f"{proved} offsets were proved, not {FLIGHTS_COUNT}")


def content(site: str, rows: Counter[int]) -> SiteContent:
    """What a site has, against every flight. Pure."""
    return SiteContent(site, rows.total(), *lost_and_repeated(rows))


def lost_and_repeated(rows: Counter[int]) -> tuple[int, int]:
    """Of all flights, by row number: how many are not there, and how many are there once more. Pure."""
    return sum(row not in rows for row in range(FLIGHTS_COUNT)), rows.total() - len(rows)


def translation_proof(
    offset_map: OffsetMap, partition: int, here: dict[int, int], there: dict[int, int]
) -> TranslationProof:
    """Each source offset to the target and back, by content. Pure."""
    wrong_forward = wrong_back = 0
    for source_offset, row in here.items():
        target_offset = offset_map.to_target(FLIGHTS, partition, source_offset)
        wrong_forward += target_offset is None or there.get(target_offset) != row
        wrong_back += target_offset is None or offset_map.to_source(FLIGHTS, partition, target_offset) != source_offset
    intervals = len(offset_map.intervals(FLIGHTS, partition))
    return TranslationProof(partition, len(here), wrong_forward, wrong_back, intervals)


async def prove_group(stage: Stage, read: GroupRead, east: Cluster, west: Cluster) -> None:
    """Wait for the mirror's next group sync, then compare the record that the group would read next at each site."""
    async with stage.within(GROUP_SYNC_TIMEOUT_S, "the mirror had moved the group's offsets"):
        while True:
            committed = await _committed_at(west)
            state = await load_link_state(stage.link, west)
            wanted = {at: state.map.to_target(FLIGHTS, at, offset) for at, offset in read.committed.items()}
            if all(committed.get(at) == offset for at, offset in wanted.items()):
                break
            await asyncio.sleep(WATCH_S)
    for partition, source_offset in sorted(read.committed.items()):
        proof = GroupProof(
            partition,
            source_offset,
            committed[partition],
            await _row_at(east, partition, source_offset),
            await _row_at(west, partition, committed[partition]),
        )
        stage.result.groups.append(proof)
        if not proof.holds:
            raise DemoFailed(f"the group would read another record at west: {proof}")


async def _committed_at(cluster: Cluster) -> dict[int, int]:
    found = await committed_offsets(cluster, GROUP)
    return {at.partition: committed.offset for at, committed in found.items() if at.topic == FLIGHTS}


async def _row_at(cluster: Cluster, partition: int, offset: int) -> int | None:
    at = TopicPartition(FLIGHTS, partition)
    end = (await log_end_offsets(cluster, [at]))[at]
    async for record in read_records(cluster, at, offset, end):
        return int(json.loads(record.value or b"{}")["row"])
    return None


def continuity(before: GroupRead, after: GroupRead) -> GroupContinuity:
    """What the group read at both sites together, against every flight. Pure."""
    read = Counter(before.rows) + Counter(after.rows)
    return GroupContinuity(len(before.rows), len(after.rows), *lost_and_repeated(read))
