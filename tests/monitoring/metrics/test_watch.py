"""A watch over sites where nothing listens."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from broker.base.clock import SystemClock
from broker.client.model import ClusterMetadata, Partition, Topic
from broker.client.site import Site
from broker.client.topics import delete_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.link_finding import LinkFindingKind
from mirror.offsets.operations import pause_link, promote_link, resume_link
from mirror.status import link_status
from monitoring.metrics.observation import Board, SplitSample
from monitoring.metrics.watch import LinkWatch, offline_partitions
from tests.broker.running import running_server
from tests.broker.wire_client import connect
from tests.failover.stage import PARTITIONS, mirrored, two_sites
from tests.mirror.harness import some_records, write
from tests.mirror.test_split import WHERE, pair
from tests.mirror.transactions import begin
from tests.ports import free_port


async def test_sites_that_are_away_are_said_and_end_nothing() -> None:
    east, west = (Site(name, f"127.0.0.1:{free_port()}") for name in ("east", "west"))
    watch = LinkWatch(Link("east-west", east, west, ("flights",)), Board(), SystemClock())
    try:
        for _ in range(2):
            seen = await watch.look()
            assert (seen.answered, seen.up, seen.error, seen.lags) == (False, False, "ClusterUnreachable", ())
            assert (seen.findings, seen.sees_all) == ({LinkFindingKind.SITE_LOST: 2}, False)
    finally:
        await watch.close()


async def test_partitions_that_nobody_leads_are_counted_at_both_sites(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("gates", partitions=3)
    shutil.rmtree(tmp_path / "gates-1")
    async with running_server(tmp_path) as server:
        east, west = (Site(name, server.address) for name in ("east", "west"))
        watch = LinkWatch(Link("east-west", east, west, ("none",)), Board(), SystemClock())
        try:
            assert (await watch.look()).partitions_offline == {"east": 1, "west": 1}
        finally:
            await watch.close()


def test_a_topic_that_a_site_cannot_describe_counts_as_one_that_nobody_leads() -> None:
    led, leaderless = Partition(0, 1, 0, (1,), (1,)), Partition(1, NO_LEADER, 0, (1,), (1,))
    topics = {"gates": Topic("gates", None, False, (led, leaderless))}
    errors = {"flights": ErrorCode.UNKNOWN_SERVER_ERROR}
    assert offline_partitions(ClusterMetadata("id", 1, {}, topics, errors)) == 2


async def as_status_says(watch: LinkWatch) -> Counter[LinkFindingKind]:
    """What the watch finds, which is what `farshore status` finds at the same time."""
    seen = await watch.look()
    status = await link_status(watch.link, HeartbeatWatch(SystemClock()))
    assert seen.findings == Counter(finding.kind for finding in status.findings)
    assert seen.sees_all == (not status.trouble)
    return Counter(seen.findings)


async def test_the_findings_are_those_of_status(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage):
        watch = LinkWatch(stage.link, Board(), SystemClock())
        try:
            assert not await as_status_says(watch)
            await pause_link(stage.link, stage.target, "pause-1")
            assert await as_status_says(watch) == {LinkFindingKind.PAUSED: 1}
            await resume_link(stage.link, stage.target, "resume-1")
            await promote_link(stage.link, stage.target, "failover-1")
            await write(stage.source, PARTITIONS[0], some_records(7_000, 5))
            found = await as_status_says(watch)
            assert found[LinkFindingKind.SOURCE_ALONE] == 1
            await delete_topics(stage.target, [stage.link.state_topic])
            assert (await as_status_says(watch))[LinkFindingKind.STATE_LOST] == 1
        finally:
            await watch.close()


async def test_a_site_that_dies_while_it_is_watched_is_lost_and_the_other_is_not(tmp_path: Path) -> None:
    port = free_port()
    async with running_server(tmp_path / "west") as west, AsyncExitStack() as stack:
        east = await stack.enter_async_context(running_server(tmp_path / "east", listen_port=port))
        watch = LinkWatch(
            Link("east-west", Site("east", east.address), Site("west", west.address), ("none",)), Board(), SystemClock()
        )
        try:
            assert (await watch.look()).findings == {LinkFindingKind.NEVER_RAN: 1}
            await stack.aclose()
            seen = await watch.look()
            assert (seen.findings, seen.sees_all) == (
                {LinkFindingKind.SITE_LOST: 1, LinkFindingKind.NEVER_RAN: 1},
                False,
            )
        finally:
            await watch.close()


async def test_both_sites_of_a_promoted_link_that_are_written_to_are_seen_with_the_records(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        watch = LinkWatch(both.link, Board(), SystemClock())
        try:
            assert (await watch.look()).split == SplitSample()
            await promote_link(both.link, both.west, "a failover")
            assert (await watch.look()).split == SplitSample(two_active=True)
            await write(both.east, WHERE, some_records(6_000, 3))
            assert (await watch.look()).split == SplitSample(two_active=True), "that is what was lost, or came late"
            await write(both.west, WHERE, some_records(5_000, 7))
            assert (await watch.look()).split == SplitSample(True, True, 3, 7)
        finally:
            await watch.close()


async def test_what_stands_behind_an_open_transaction_is_seen_beside_a_lag_of_nothing(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        await begin(stage.source, PARTITIONS[1])
        async with mirrored(stage):
            watch = LinkWatch(stage.link, Board(), SystemClock())
            try:
                lags = (await watch.look()).lags
            finally:
                await watch.close()
    assert [(lag.lag_records, lag.held_by_transaction_offsets) for lag in lags] == [(0, 0), (0, 1)]
