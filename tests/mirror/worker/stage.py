"""Two brokers with faults between them, a link of all topics, and one partition that things happen to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.broker import Broker
from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.wire.api import ApiKey
from broker.wire.vocabulary import TopicPartition
from mirror.heartbeat import HeartbeatWatch
from mirror.link import Link
from mirror.offsets.hold_entries import HoldReason
from mirror.offsets.state import read_entries
from mirror.status import link_status
from mirror.worker.events import Event
from tests.broker.faults import SPARED, Faults, injected
from tests.broker.running import running_server
from tests.mirror.harness import (
    QUICK,
    Told,
    contents,
    eventually,
    make_topic,
    some_records,
    wait_for_records,
    write,
)

BAD, NEXT, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("gates", 0)
GOOD = (NEXT, OTHER)
BOUND_S = 180.0
LIMITS = replace(QUICK, hold_pause_ms=200, hold_refused_pause_ms=300_000)  # far beyond BOUND_S


@dataclass
class Stage:
    """Two brokers, a link of all topics, and what is in the way."""

    link: Link
    source: Cluster
    target: Cluster
    east: Faults
    west: Faults
    west_broker: Broker
    written: dict[TopicPartition, int] = field(default_factory=dict)

    async def write(self, *partitions: TopicPartition) -> None:
        for where in partitions:
            start = self.written.get(where, 0)
            await write(self.source, where, some_records(start, 10))
            self.written[where] = start + 10

    def fences(self) -> float:
        """By the transactions that were ended: each fence has one for the link's state and one for the partitions."""
        return self.west.asked[ApiKey.END_TXN] / 2

    async def wait_for(self, *partitions: TopicPartition) -> None:
        """All that was written, as it was written, and nothing twice."""
        async with asyncio.timeout(BOUND_S):
            for where in partitions:
                there = where._replace(topic=self.link.target_topic(where.topic))
                found = await wait_for_records(self.target, there, self.written[where])
                assert contents(found) == contents(some_records(0, self.written[where])), f"{where}"

    async def reason(self) -> HoldReason | None:
        """As the link's state says it, of the bad partition or its topic."""
        holds = (await read_entries(self.link, self.target)).holds
        found = holds.get(BAD) or holds.get((BAD.topic, None))
        return found.reason if found is not None else None


@asynccontextmanager
async def open_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    east, west = Faults(), Faults()
    async with running_server(tmp_path / "east") as one, running_server(tmp_path / "west") as two:
        link = Link("east-west", Site("east", one.address), Site("west", two.address), (".*",))
        with injected(monkeypatch, {one.broker: east, two.broker: west}):
            async with (
                Cluster(link.source, client_id=SPARED) as source,
                Cluster(link.target, client_id=SPARED) as target,
            ):
                await make_topic(source, "flights", 2)
                await make_topic(source, "gates")
                yield Stage(link, source, target, east, west, two.broker)


async def is_held(stage: Stage, told: Told, reason: HoldReason) -> None:
    """In the state, in an event, and in what status says of it, which goes on for the others."""

    async def there() -> bool:
        return await stage.reason() is reason

    await eventually(there, f"{reason} in the state", BOUND_S)
    held = told.of(Event.PARTITION_HELD)
    assert held, "nobody was told"
    assert {(fields["topic"], fields["partition"]) for fields in held} == {BAD}
    status = await link_status(stage.link, HeartbeatWatch(SystemClock()))
    assert [(hold.topic, hold.partition, hold.reason) for hold in status.holds or ()] == [(*BAD, reason)]
    assert {finding.topic for finding in status.findings} == {BAD.topic}
    assert {(lag.topic, lag.partition) for lag in status.partition_lags} >= set(GOOD)
