"""`farshore monitor run` as a service: it ends when it is told to, whatever its sites do."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.client.site import Site
from mirror.link import Link
from monitoring.metrics.service import MonitorSettings, run_monitor
from tests.interop.servers import FarshoreBroker

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
MOMENTS_S = (0.0, 0.1, 0.3, 0.6, 1.0, 1.1, 1.5, 2.0, 3.0, 5.0, 8.0)


async def test_it_ends_within_a_second_at_any_moment_after_its_sites_were_lost(tmp_path: Path) -> None:
    """One cluster is both sites, so that the canary's topic is its own mirror."""
    with FarshoreBroker(tmp_path / "both") as broker:
        link = Link("round", Site("east", broker.bootstrap), Site("west", broker.bootstrap), ("none",))
        settings = MonitorSettings((link,), Address("127.0.0.1", 0), tmp_path / "audit")
        monitors = [asyncio.create_task(run_monitor(settings, lambda _: None)) for _ in MOMENTS_S]
        await asyncio.sleep(3)  # canaries fly: the loss must find records on their way
        broker.kill9()
        lost_s = time.monotonic()
        took_s = {}
        for moment_s, monitor in zip(MOMENTS_S, monitors, strict=True):
            await asyncio.sleep(max(0.0, lost_s + moment_s - time.monotonic()))
            told_s = time.monotonic()
            monitor.cancel()
            await asyncio.wait([monitor], timeout=10)
            took_s[moment_s] = time.monotonic() - told_s if monitor.done() else float("inf")
        assert max(took_s.values()) < 5, took_s
