"""Real brokers in this process whose metadata is in the fake ZooKeeper, with its faults and a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.base.clock import Clock
from broker.cluster.zookeeper.errors import ZooKeeperUnreachable
from broker.cluster.zookeeper.session import ZooKeeper
from broker.config import BrokerConfig
from broker.outside import Outside
from broker.server import Server, serving
from tests.broker.clock import ManualClock
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper

PAUSE_MAX_S = 10
"""Longer than any pause between two tries; what is done by time alone, and less often, waits for a test."""
POLL_S = 0.01


class SteppingClock(ManualClock):
    """Whoever pauses lets others have their turn, and the time passes; longer sleeps end when others moved the time."""

    async def sleep(self, seconds: float) -> None:
        if seconds <= PAUSE_MAX_S:
            self.advance(int(seconds * 1000))
            await asyncio.sleep(0)
            return
        due = self.monotonic() + seconds
        while self.monotonic() < due:
            await asyncio.sleep(POLL_S)


class World:
    """A ZooKeeper, and the sessions that brokers opened."""

    def __init__(self) -> None:
        self.clock = SteppingClock()
        self.server = FakeZooKeeper(self.clock)
        self.sessions: list[FakeSession] = []
        self.unreachable = 0
        """So many tries to open a session fail from now on."""

    async def open_session(self, servers: str, timeout_ms: int, clock: Clock, connect_timeout_ms: int) -> ZooKeeper:
        if self.unreachable:
            self.unreachable -= 1
            raise ZooKeeperUnreachable("no session with ZooKeeper")
        self.sessions.append(self.server.connect())
        return self.sessions[-1]

    @asynccontextmanager
    async def broker(self, data_dir: Path, **config: Any) -> AsyncIterator[Server]:
        given = {"data_dir": data_dir, "listen_port": 0, "zookeeper": "zk:2181", **config}
        async with serving(BrokerConfig(**given), Outside(self.clock, self.open_session)) as server:
            yield server
