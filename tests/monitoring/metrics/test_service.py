"""`farshore monitor run` as a service: it ends when it is told to, whatever its sites do."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from broker.base.address import Address
from broker.client.site import Site
from broker.http.settings import FaceSettings
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from monitoring.canary.verdict import CanaryJudge
from monitoring.metrics.canary import latency_histogram
from monitoring.metrics.service import MonitorSettings, _canary_for_ever, run_monitor
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server
from tests.interop.servers import FarshoreBroker
from tests.mirror.harness import eventually

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
PATIENCE_S = 20.0
"""A slow machine's; what waits for a site's answer waits longer (`request_timeout_ms`)."""
MOMENTS_S = (0.0, 0.1, 0.3, 0.6, 1.0, 1.1, 1.5, 2.0, 3.0, 5.0, 8.0)


async def test_it_ends_when_it_is_told_to_at_any_moment_after_its_sites_were_lost(tmp_path: Path) -> None:
    """One cluster is both sites, so that the canary's topic is its own mirror."""
    with FarshoreBroker(tmp_path / "both") as broker:
        link = Link("round", Site("east", broker.bootstrap), Site("west", broker.bootstrap), ("none",))
        settings = MonitorSettings((link,), FaceSettings(Address("127.0.0.1", 0)), tmp_path / "audit")
        monitors = [asyncio.create_task(run_monitor(settings, lambda _: None)) for _ in MOMENTS_S]
        await asyncio.sleep(3)  # canaries fly: the loss must find records on their way
        broker.kill9()
        lost_s = time.monotonic()
        for moment_s, monitor in zip(MOMENTS_S, monitors, strict=True):
            await asyncio.sleep(max(0.0, lost_s + moment_s - time.monotonic()))
            monitor.cancel()
            _, going_on = await asyncio.wait([monitor], timeout=PATIENCE_S)
            assert not going_on, f"told to end {moment_s} s after the loss"


async def test_a_canary_that_may_not_read_is_tried_again_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group of errors once ended the monitor of all links."""
    faults = Faults()
    async with running_server(tmp_path / "both") as server:
        link = Link("round", Site("east", server.address), Site("west", server.address), ("none",))
        judge = CanaryJudge(link.name, "me")
        faults.refuse(TopicPartition(link.canary_topic, 0), ErrorCode.TOPIC_AUTHORIZATION_FAILED, ApiKey.LIST_OFFSETS)
        with injected(monkeypatch, {server.broker: faults}):
            canary = asyncio.create_task(_canary_for_ever(link, judge, latency_histogram(CollectorRegistry())))

            async def tried_again() -> bool:
                return canary.done() or faults.asked[ApiKey.LIST_OFFSETS] >= 2

            async def flies() -> bool:
                return canary.done() or judge.report().received_records > 0

            try:
                await eventually(tried_again, "a second try")
                faults.heal()
                await eventually(flies, "its first record")
                assert not canary.done()
            finally:
                canary.cancel()
                await asyncio.wait([canary])
    assert judge.report().duplicate_records == 0
