"""A source that this machine does not reach, and the link's worker does, is not dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.log import append
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.drilling.drill import AuditNote
from failover.drilling.looks import drill_link
from failover.freezing.hooks import Hooks
from failover.observing import contact
from failover.observing.contact import SiteFinding
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.intent import Intent
from failover.planning.links import enter_sites, plan_link
from failover.running.steps import Operation
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.offsets.ends_entries import ENDS_VERSION, dump_entry, ends_key
from mirror.offsets.last_looks import LastLooks
from mirror.worker.observing import entries_batch
from tests.failover.observing.test_contact import Far, mute, served
from tests.failover.stage import mirrored, now_ms, two_sites
from tests.mirror.harness import make_topic


@asynccontextmanager
async def cut_off(link: Link) -> AsyncIterator[Link]:
    """The link as a machine has it of which nothing reaches the source."""
    async with mute() as silent:
        real = link.source.bootstrap_servers
        yield replace(link, source=Site("east", silent, {real: silent}))


async def test_a_source_that_the_worker_sees_is_left_by_consent_and_with_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found dead, and the failover verified with exit code 0, while it took writes."""
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", 5_000)
    async with two_sites(tmp_path) as stage, AsyncExitStack() as stack:
        async with mirrored(stage), cut_off(stage.link) as link:
            sites = await enter_sites(stack, link, (), now_ms, looks_ahead=True)
        intent = Intent(Operation.FAILOVER, (link.name,), "east", "west", allow_data_loss=True)
        move = await plan_link(intent, sites, Hooks())
        assert move.plan.snapshot.source_finding is SiteFinding.UNREACHABLE
        assert move.plan.refusals == (GateRefusal(RefusalReason.SOURCE_SEEN_BY_WORKER, "east", link.name),)
        moved = await plan_link(replace(intent, even_if_source_partly_there=True), sites, Hooks())
        result = await stage.run(moved.plan, moved.sites)
    assert (result.verified, result.is_source_open, result.has_findings) == (True, True, True)
    assert result.seen_by == (link.name,)


@dataclass
class Breaking(Far):
    """A way that leads nowhere once it `is_broken`."""

    quiet_s: float = 0.0
    is_broken: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_broken:
            writer.close()
            return
        await super().serve(reader, writer)

    def _send(self) -> None:
        if self.is_broken:
            for before, _ in self._waiting:
                before.close()
            self._waiting.clear()
        super()._send()


@pytest.mark.parametrize("in_part", [False, True])
@pytest.mark.parametrize("is_mirrored", [True, False])
async def test_one_to_which_the_way_broke_behind_the_entering_is_dead_only_where_no_worker_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_mirrored: bool, in_part: bool
) -> None:
    """Whether one sees it was watched only while the source was entered: a failover then asked for no consent."""
    monkeypatch.setattr(contact, "SOURCE_LIMITS", replace(contact.SOURCE_LIMITS, retry_timeout_ms=3_000))
    async with two_sites(tmp_path) as stage, AsyncExitStack() as stack:
        real = stage.link.source.bootstrap_servers
        way = Breaking(real)
        address = await stack.enter_async_context(served(way))
        link = replace(stage.link, source=Site("east", address, {real: address}))
        async with mirrored(stage):
            sites = replace(await enter_sites(stack, link, (), now_ms), in_part=in_part)
            if is_mirrored:
                way.is_broken = True
                seen = await sites.look_past_source()
        if not is_mirrored:
            way.is_broken = True
            seen = await sites.look_past_source()
        again = await sites.as_found(seen).look_past_source()
    wanted = (SiteFinding.UNREACHABLE, (link.name,)) if is_mirrored else (SiteFinding.DEAD, ())
    assert (seen.source_finding, seen.seen_by) == wanted
    assert (again.source_finding, again.seen_by) == wanted, "the looks behind it, and the result, say so, too"


async def test_a_source_that_no_worker_sees_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact, "SOURCE_PROBE_MS", 3_000)
    async with two_sites(tmp_path) as stage, cut_off(stage.link) as link, AsyncExitStack() as stack:
        async with mirrored(stage):
            pass
        sites = await enter_sites(stack, link, (), now_ms, looks_ahead=True)
        assert (await sites.look_past_source()).source_finding is SiteFinding.DEAD
        assert sites.ahead is not None


async def test_only_a_look_that_began_behind_the_call_says_that_the_source_lives(tmp_path: Path) -> None:
    """The first that is written may have been answered before; no clock is asked."""

    async def seen(*looks: tuple[int, int | None]) -> bool:
        entries = [
            (ends_key("seen"), dump_entry({"v": ENDS_VERSION, "at_ms": at_ms, "unanswered_at_ms": unanswered_at_ms}))
            for at_ms, unanswered_at_ms in looks
        ]
        await append(stage.target, TopicPartition(stage.link.ends_topic, 0), entries_batch(entries, now_ms()))
        await last.read()
        return last.sees_source

    async with two_sites(tmp_path) as stage:
        last = LastLooks(stage.link, stage.target)
        await last.read()
        assert not last.sees_source, "there is no such topic yet"
        await make_topic(stage.target, stage.link.ends_topic)
        await last.read()
        assert not last.is_unsure
        assert not await seen((1_000, None))
        assert last.is_unsure, "its next word says more"
        assert not await seen((1_000, None)), "said again"
        assert not await seen((900, None)), "by a worker that hung"
        assert await seen((1_250, None))
        assert not last.is_unsure
        assert not await seen((1_250, 1_500)), "it does not answer any more"
        assert not last.is_unsure
        assert not await seen((2_000, None))
        assert await seen((2_250, None), (2_500, None))
        late = LastLooks(stage.link, stage.target)
        await late.read()
        assert not late.sees_source, "all that was before"


async def test_a_drill_says_so_of_a_site_that_is_lost_from_here_alone(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage, mirrored(stage), cut_off(stage.link) as link:
        drill = await drill_link(link, HeartbeatWatch(SystemClock()), AuditNote(), now_ms)
    kinds = [found.kind for found in drill.findings]
    assert "site_lost" in kinds
    assert RefusalReason.SOURCE_SEEN_BY_WORKER.value in kinds
