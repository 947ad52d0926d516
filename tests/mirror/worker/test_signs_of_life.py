"""What a worker leaves in the link's state for those who ask whether it lives."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.topics import delete_topics
from broker.wire.vocabulary import TopicPartition
from mirror.coordinator.current import Current
from mirror.coordinator.model import Meter
from mirror.errors import LinkPromoted
from mirror.heartbeat import HeartbeatWatch, judge_heartbeat
from mirror.limits import HEARTBEAT_MAX_AGE_MS, RESTARTS_IN_A_LOOP
from mirror.link import Link
from mirror.link_finding import LinkFindingKind, start_step
from mirror.offsets.entries import Owner, RunState
from mirror.offsets.operations import pause_link, promote_link, restart_link, resume_link
from mirror.offsets.state import read_entries
from mirror.offsets.taking_over import claim_link
from mirror.status import LinkCondition, LinkStatus, condition_now, link_status
from mirror.worker.events import Event
from mirror.worker.limits import WorkerLimits
from mirror.worker.service import WorkerSettings, run_link
from mirror.worker.startup import Restarts, worker_name
from monitoring.metrics.observation import Board
from monitoring.metrics.watch import LinkWatch
from tests.broker.clock import PausesAlone
from tests.broker.running import running_broker
from tests.mirror.harness import (
    QUICK,
    Later,
    Told,
    eventually,
    link_between,
    make_topic,
    read_all,
    running,
    some_records,
    wait_for_records,
    write,
)
from tests.ports import free_port


class Moved(SystemClock):
    """The machine's clock, which a test moves on."""

    by_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.by_s


class Still(SystemClock):
    """By which every session ends at the moment at which it was opened."""

    def monotonic(self) -> float:
        return 1_000.0


async def status_of(link: Link, later_ms: int = 0) -> LinkStatus:
    return await link_status(link, HeartbeatWatch(Later(later_ms)))


async def test_a_mirror_that_was_killed_is_not_running_ten_minutes_later(brokers: tuple[str, str]) -> None:
    link = link_between(*brokers, [f"nothing-{uuid.uuid4().hex[:8]}"])
    async with running(link) as told:
        await told.wait_for(Event.STARTED)
        assert (await status_of(link)).condition is LinkCondition.RUNNING
    status = await status_of(link, 600_000)
    assert status.condition is LinkCondition.SILENT
    assert [finding.next_step for finding in status.findings] == [start_step(link.name)]
    watch = LinkWatch(link, Board(), Later(600_000))
    try:
        seen = await watch.look()
    finally:
        await watch.close()
    assert (seen.answered, seen.up, seen.condition) == (True, False, "silent")


async def test_the_heartbeat_goes_on_while_nothing_moves(brokers: tuple[str, str]) -> None:
    link = link_between(*brokers, [f"nothing-{uuid.uuid4().hex[:8]}"])
    slow = replace(QUICK, topic_refresh_interval_ms=600_000, checkpoint_interval_ms=600_000)
    async with running(link, limits=slow) as told, Cluster(link.target) as target:
        await told.wait_for(Event.STARTED)
        first = await owner_of(link, target)

        async def later() -> bool:
            return (await owner_of(link, target)).at_ms > first.at_ms

        await eventually(later, "the next heartbeat")


async def test_the_heartbeat_goes_on_while_the_source_is_down(tmp_path: Path) -> None:
    """Or status would call a living worker silent, and tell to start a rival."""
    where, port = TopicPartition("flights", 0), free_port()
    async with running_broker(tmp_path / "west") as west, AsyncExitStack() as stack:
        east = await stack.enter_async_context(running_broker(tmp_path / "east", listen_port=port))
        link, far = link_between(east, west, [where.topic]), replace(QUICK, healthy_after_ms=600_000)
        async with running(link, limits=far) as told, Cluster(link.target) as target:
            await told.wait_for(Event.STARTED)
            await stack.aclose()
            await told.wait_for(Event.RESTARTING)
            for _ in range(2):
                last = await owner_of(link, target)

                async def moved(last: Owner = last) -> bool:
                    return (await owner_of(link, target)).at_ms > last.at_ms

                await eventually(moved, "a heartbeat without a source")
            assert (await owner_of(link, target)).restarts
            async with running_broker(tmp_path / "east", listen_port=port), Cluster(link.source) as source:
                await make_topic(source, where.topic)
                await write(source, where, some_records(0, 5))
                await wait_for_records(target, where, 5)
                assert told.count(Event.RESTARTING) == 1, "it waited"

                async def refuted() -> bool:
                    return not (await owner_of(link, target)).restarts

                await eventually(refuted, "the first heartbeat behind the start, which proves that the source is back")


async def test_whoever_has_a_link_says_that_it_lives_where_the_one_before_is_gone(tmp_path: Path) -> None:
    """A unit that was moved while its source is down: whoever has it now never owned it."""
    port = free_port()
    async with running_broker(tmp_path / "west") as west, AsyncExitStack() as stack:
        east = await stack.enter_async_context(running_broker(tmp_path / "east", listen_port=port))
        link = link_between(east, west, ["flights"])
        async with running(link) as told:
            await told.wait_for(Event.STARTED)
        await stack.aclose()
        async with Cluster(link.target) as target, asyncio.TaskGroup() as tasks:
            claim = await claim_link(target, link, "another", restarts=0)
            settings = WorkerSettings(QUICK, SystemClock(), (told := Told()).sink)

            async def is_here() -> bool:
                return (await owner_of(link, target)).worker == worker_name()

            run = tasks.create_task(run_link(Current(link), settings))
            lives_until = SystemClock().monotonic() + 1.2 * HEARTBEAT_MAX_AGE_MS / 1000
            while SystemClock().monotonic() < lives_until:
                await claim.log.append([replace(claim.owner, at_ms=SystemClock().now_ms())])
                assert not await is_here(), "another one may run it"
                await asyncio.sleep(1)
            await eventually(is_here, "its heartbeat")
            assert told.count(Event.RESTARTING) > 1, "it tried, and fenced nobody"
            run.cancel()


async def test_sessions_that_cannot_be_opened_are_counted_until_one_is(tmp_path: Path) -> None:
    port, meter = free_port(), Meter()
    async with running_broker(tmp_path / "east") as east:
        link = link_between(east, f"127.0.0.1:{port}", ["flights"])
        settings = WorkerSettings(QUICK, SystemClock(), Told().sink)

        async def failed() -> bool:
            return meter.failed_sessions > 0

        async def opened() -> bool:
            return meter.failed_sessions == 0

        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(run_link(Current(link), settings, meter=meter))
            await eventually(failed, "the target does not answer")
            async with running_broker(tmp_path / "west", listen_port=port):
                await eventually(opened, "it does")
                run.cancel()


async def test_sessions_that_are_opened_and_fail_are_counted_until_one_lasts(brokers: tuple[str, str]) -> None:
    link, meter, told = link_between(*brokers, [f"nothing-{uuid.uuid4().hex[:8]}"]), Meter(), Told()
    settings = WorkerSettings(replace(QUICK, healthy_after_ms=3_000), SystemClock(), told.sink)

    async def lasted() -> bool:
        return meter.short_sessions == 0

    async with Cluster(link.target) as target, asyncio.TaskGroup() as tasks:
        run = tasks.create_task(run_link(Current(link), settings, meter=meter))
        for times in (1, 2):
            await told.wait_for(Event.STARTED, times)
            await delete_topics(target, [link.state_topic])  # its next heartbeat fails
            await told.wait_for(Event.RESTARTING, times)
            assert meter.short_sessions == times
        await told.wait_for(Event.STARTED, 3)
        assert (meter.failed_sessions, meter.short_sessions) == (0, 2)
        await eventually(lasted, "the third one does")
        run.cancel()


def test_a_session_lasts_when_it_has_outlived_those_that_failed() -> None:
    limits = WorkerLimits()
    never_opened = Restarts(7, "ClientError: east does not answer")
    assert never_opened.outlived_after_ms(limits) == 0, "one that was opened is none of these"
    assert Restarts(2, "", 3_000, 2).outlived_after_ms(limits) == limits.heartbeat_interval_ms * 2
    assert Restarts(2, "", 8_000, 2).outlived_after_ms(limits) == 16_000
    assert Restarts(2, "", 29_000, 2).outlived_after_ms(limits) == limits.healthy_after_ms
    assert never_opened.after(KeyError("x"), 12_000) == Restarts(8, "KeyError: 'x'", 12_000, 1)
    after_it = Restarts(1, "", 12_000, 1).after(KeyError("x"), None)
    assert (after_it.lived_ms, after_it.opened) == (12_000, 1), "the longest"


def test_one_session_that_fell_and_those_that_could_not_be_opened_behind_it_are_no_loop() -> None:
    """It was `restarting` for 30 s more: the one that fell as its site was lost was to be outlived."""
    error, limits = KeyError("x"), WorkerLimits()
    lost = Restarts().after(error, 15_000).after(error, None).after(error, None)
    assert (lost.count, lost.end_with_opening, lost.outlived_after_ms(limits)) == (3, True, 0)
    assert lost.after(error, 1_000).outlived_after_ms(limits) == limits.healthy_after_ms


async def test_a_site_that_was_away_leaves_nothing_that_restarts_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    async with running_broker(tmp_path / "east") as east, AsyncExitStack() as stack:
        west = await stack.enter_async_context(running_broker(tmp_path / "west", listen_port=port))
        link = link_between(east, west, [f"nothing-{uuid.uuid4().hex[:8]}"])
        async with running(link) as told:
            await told.wait_for(Event.STARTED)
            await stack.aclose()
            await told.wait_for(Event.RESTARTING, RESTARTS_IN_A_LOOP)
            async with running_broker(tmp_path / "west", listen_port=port), Cluster(link.target) as target:
                await told.wait_for(Event.STARTED, 2)
                owner = await owner_of(link, target)
                assert (owner.restarts, owner.restart_reason) == (0, "")
                assert (await status_of(link)).condition is LinkCondition.RUNNING


async def test_a_link_that_restarts_in_a_loop_says_why_until_a_session_lasts(brokers: tuple[str, str]) -> None:
    """A session without its state topic ends by an error at its next heartbeat."""
    link = link_between(*brokers, [f"nothing-{uuid.uuid4().hex[:8]}"])
    lasting = replace(QUICK, heartbeat_interval_ms=2_000)
    async with running(link, limits=lasting) as told, Cluster(link.target) as target:
        for times in (1, 2):
            await told.wait_for(Event.STARTED, times)
            await delete_topics(target, [link.state_topic])
            await told.wait_for(Event.RESTARTING, times)
        await told.wait_for(Event.STARTED, 3)
        owner = await owner_of(link, target)
        assert owner.restarts == 2
        assert owner.restart_reason.endswith(str(told.of(Event.RESTARTING)[-1]["detail"]))
        status = await status_of(link)
        assert status.condition is LinkCondition.RESTARTING
        assert owner.restart_reason in status.findings[0].detail

        async def lasts() -> bool:
            return (await status_of(link)).condition is LinkCondition.RUNNING

        await eventually(lasts, "a session that lasts to say so")


async def test_a_session_that_waited_for_long_and_fell_at_once_has_not_lasted(tmp_path: Path) -> None:
    """It was one with what a session lived, so that none of a loop of these was a second one."""
    port, clock = free_port(), Moved()
    limits = replace(QUICK, healthy_after_ms=600_000, heartbeat_interval_ms=2_000)
    async with running_broker(tmp_path / "west") as west, AsyncExitStack() as stack:
        east = await stack.enter_async_context(running_broker(tmp_path / "east", listen_port=port))
        link = link_between(east, west, [f"nothing-{uuid.uuid4().hex[:8]}"])
        async with running(link, limits=limits, clock=clock) as told, Cluster(link.target) as target:
            await told.wait_for(Event.STARTED)
            await stack.aclose()
            await told.wait_for(Event.RESTARTING)

            async def waits() -> bool:
                return (await owner_of(link, target)).restarts == 1

            await eventually(waits, "a claim without a source")
            clock.by_s += limits.healthy_after_ms / 1000 + 1
            async with running_broker(tmp_path / "east", listen_port=port):
                await told.wait_for(Event.STARTED, 2)
                await delete_topics(target, [link.state_topic])  # its next heartbeat fails
                await told.wait_for(Event.STARTED, 3)
                assert (await status_of(link)).condition is LinkCondition.RESTARTING
                assert [fields["pause_ms"] for fields in told.of(Event.RESTARTING)] == [200, 400]


async def test_sessions_that_fall_as_soon_as_they_are_opened_are_a_loop(brokers: tuple[str, str]) -> None:
    link = link_between(*brokers, [f"nothing-{uuid.uuid4().hex[:8]}"])
    async with running(link, clock=Still()) as told, Cluster(link.target) as target:
        for times in range(1, RESTARTS_IN_A_LOOP + 1):
            await told.wait_for(Event.STARTED, times)
            await delete_topics(target, [link.state_topic])
            await told.wait_for(Event.RESTARTING, times)
        await told.wait_for(Event.STARTED, RESTARTS_IN_A_LOOP + 1)
        assert (await status_of(link)).condition is LinkCondition.RESTARTING


async def test_a_session_whose_opening_failed_after_long_has_not_lasted() -> None:
    link, told = link_between("127.0.0.1:1", f"127.0.0.1:{free_port()}", ["flights"]), Told()
    settings = WorkerSettings(replace(QUICK, healthy_after_ms=1_000), clock := PausesAlone(), told.sink)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(run_link(Current(link), settings))
        ended = await told.wait_for(Event.RESTARTING, 3)
        run.cancel()
    assert clock.monotonic() > 3 * settings.limits.healthy_after_ms / 1000, "each took longer than a session is to live"
    assert [fields["pause_ms"] for fields in ended] == [200, 400, 800]


async def test_a_link_that_was_paused_goes_on_with_the_smallest_pause(brokers: tuple[str, str]) -> None:
    link = link_between(*brokers, [f"nothing-{uuid.uuid4().hex[:8]}"])
    async with running(link, limits=replace(QUICK, paused_poll_ms=100)) as told, Cluster(link.target) as target:
        await told.wait_for(Event.STARTED)
        await delete_topics(target, [link.state_topic])
        await told.wait_for(Event.STARTED, 2)
        await pause_link(link, target, "pause-1")
        await told.wait_for(Event.PAUSED)
        await resume_link(link, target, "resume-1")
        await told.wait_for(Event.STARTED, 3)
        await delete_topics(target, [link.state_topic])
        ended = await told.wait_for(Event.RESTARTING, 2)
        assert [fields["pause_ms"] for fields in ended] == [200, 200]


async def test_an_operation_that_fences_a_link_is_no_running_mirror(brokers: tuple[str, str]) -> None:
    link = link_between(*brokers, [f"nothing-{uuid.uuid4().hex[:8]}"])
    async with Cluster(link.target) as target:
        await resume_link(link, target, "resume-1")
        entries = await read_entries(link, target)
    heartbeat = judge_heartbeat(entries.owner, SystemClock().now_ms())
    assert condition_now(entries, heartbeat) is LinkCondition.AWAITED
    assert (await status_of(link, 600_000)).condition is LinkCondition.SILENT


async def test_a_paused_link_keeps_its_position_and_its_lag_is_counted(brokers: tuple[str, str]) -> None:
    where = TopicPartition(f"paused-{uuid.uuid4().hex[:8]}", 0)
    link = link_between(*brokers, [where.topic])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        await write(source, where, some_records(0, 5))
        async with running(link) as told:
            await wait_for_records(target, where, 5)
            await restart_link(link, target, "restart-1")
            await told.wait_for(Event.STARTED, 2)
            await pause_link(link, target, "pause-1")
            await told.wait_for(Event.PAUSED)
            assert "pause-1" in str(told.of(Event.PAUSED)[0]["reason"])
            await restart_link(link, target, "restart-2")
            await write(source, where, some_records(5, 3))
            status = await status_of(link, 600_000)
            assert (status.condition, status.lag_records) == (LinkCondition.PAUSED, 3)
            assert [finding.kind for finding in status.findings] == [LinkFindingKind.PAUSED]
        async with running(link) as told:
            await told.wait_for(Event.PAUSED)
            assert len(await read_all(target, where)) == 5, "who starts waits, too"
            await resume_link(link, target, "resume-1")
            await wait_for_records(target, where, 8)
            assert [r.value for r in await read_all(target, where)] == [r.value for r in some_records(0, 8)]
            await promote_link(link, target, "failover-1")
            with pytest.raises(LinkPromoted):
                await pause_link(link, target, "pause-2")
            with pytest.raises(LinkPromoted):
                await restart_link(link, target, "restart-3")
            run = (await read_entries(link, target)).run
            assert run is not None
            assert (run.state, run.operation_id) == (RunState.PROMOTED, "failover-1"), "it was promoted by this one"


async def owner_of(link: Link, target: Cluster) -> Owner:
    owner = (await read_entries(link, target)).owner
    assert owner is not None
    return owner
