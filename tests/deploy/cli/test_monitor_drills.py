"""What the monitor's drills keep of the sites that they ask."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from broker.base.address import Address
from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.http.settings import FaceSettings
from deploy.cli.monitor import _drills
from deploy.cli.terminal import AppContext
from failover.journal.log import OperationsReader
from failover.journal.values import OperationsFolding
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from monitoring.metrics.service import MonitorSettings, run_monitor
from tests.broker.running import running_server
from tests.failover.observing.test_many_links import has_mirrored, moved_by_another
from tests.mirror.harness import eventually

EAST = Site("east", "127.0.0.1:9")


async def test_the_links_of_a_round_read_a_journal_once_and_nothing_of_it_is_kept_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor kept all operations of all sites that any link had asked for as long as it ran."""
    real, taken = OperationsFolding.take, list[tuple[bytes | None, bytes | None]]()

    def take(self: OperationsFolding, key: bytes | None, value: bytes | None) -> None:
        taken.append((key, value))
        real(self, key, value)

    async with running_server(tmp_path) as server, Cluster(Site("west", server.address)) as west:
        links = [Link(f"west-{topic}", EAST, west.site, (topic,)) for topic in ("flights", "orders")]
        for link in links:
            await has_mirrored(link, west)
        app = cast(AppContext, SimpleNamespace(links=lambda: tuple(links), state_dir=tmp_path))
        heartbeats = HeartbeatWatch(SystemClock())
        face = FaceSettings(Address("127.0.0.1", 0))
        settings = MonitorSettings(links, face, tmp_path / "audit", False, _drills(app, heartbeats), heartbeats)
        async with moved_by_another(west, links):
            monkeypatch.setattr(OperationsFolding, "take", take)
            monitor = asyncio.create_task(run_monitor(settings, lambda _: None))
            try:
                await eventually(lambda: _is_done(taken), "a round whose journals are let go")
            finally:
                monitor.cancel()
                await asyncio.wait([monitor])
    assert len(taken) == len(set(taken)), "each once, for both links"


async def _is_done(taken: Sequence[object]) -> bool:
    gc.collect()
    return bool(taken) and not any(isinstance(one, OperationsReader) for one in gc.get_objects())
