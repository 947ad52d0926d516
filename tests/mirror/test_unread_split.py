"""What came to a site since a link was promoted, and cannot be read, is not nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from mirror.heartbeat import HeartbeatWatch
from mirror.link_finding import LinkFindingKind
from mirror.offsets.operations import promote_link
from mirror.status import link_status
from monitoring.metrics.observation import Board
from monitoring.metrics.watch import LinkWatch
from tests.broker.faults import Faults, injected
from tests.broker.running import running_server
from tests.mirror.harness import link_between, make_topic, running, some_records, wait_for_records, write
from tests.mirror.test_split import WHERE

MIRRORED = 20


@pytest.mark.parametrize("site", ["east", "west"])
async def test_who_may_not_be_read_is_not_said_to_be_unwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    """Both sites were written to, and status had no finding, the metric a 0."""
    async with running_server(tmp_path / "east") as east, running_server(tmp_path / "west") as west:
        link = link_between(east.address, west.address, [WHERE.topic])
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, WHERE.topic, 1)
            await write(source, WHERE, some_records(0, MIRRORED))
            async with running(link):
                await wait_for_records(target, WHERE, MIRRORED)
            await promote_link(link, target, "a failover")
            await write(source, WHERE, some_records(5_000, 3))
            await write(target, WHERE, some_records(6_000, 4))
        faults = Faults(partitions={(ApiKey.FETCH, WHERE): ErrorCode.TOPIC_AUTHORIZATION_FAILED})
        with injected(monkeypatch, {(east if site == "east" else west).broker: faults}):
            found = await link_status(link, HeartbeatWatch(SystemClock()))
            watch = LinkWatch(link, Board(), SystemClock())
            sample = (await watch.look()).split
            await watch.close()
    told = [one.detail for one in found.findings if one.kind is LinkFindingKind.TROUBLE]
    assert any(f"flights-0 at {site}" in detail for detail in told)
    assert sample is not None
    assert sample.is_split is None
