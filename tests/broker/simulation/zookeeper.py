"""The fake ZooKeeper, far away: what is asked is carried out there, whatever became of who asked, and told later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from broker.cluster.zookeeper.errors import ConnectionLost, ZooKeeperError
from broker.cluster.zookeeper.session import Watch, WatchEvent
from tests.broker.cluster.fake_zookeeper import FakeSession
from tests.broker.controller.checked_zookeeper import CheckedZooKeeper, Judge
from tests.broker.simulation.loop import LIFE, NOBODY, Life, context_of
from tests.broker.simulation.network import Network, name_of
from tests.mirror.simulation.loop import SimulatedClock

ZOOKEEPER = "zookeeper"
WRITES = {"create", "set", "delete", "multi"}
T = TypeVar("T")


class SimZooKeeper(CheckedZooKeeper):
    def __init__(self, clock: SimulatedClock, judge: Judge, network: Network, session_timeout_ms: int) -> None:
        super().__init__(clock, judge)
        self.session_timeout_ms = session_timeout_ms
        self.network = network
        self._opened: list[SimSession] = []

    def connect(self) -> SimSession:
        self._next_session_id += 1
        session = SimSession(self, self._next_session_id, LIFE.get())
        self._sessions[session.session_id] = session
        self._opened.append(session)
        return session

    def of(self, life: Life) -> list[SimSession]:
        """Also those that are over, which the client may not know yet."""
        return [session for session in self._opened if session.life is life]

    def tick(self) -> None:
        """Who is dead or paused beats no heart."""
        now = self.clock.boottime()
        for session in list(self._sessions.values()):
            assert isinstance(session, SimSession)
            if session.reachable and not session.stands_still:
                session.heard(now)
            elif now - session.heard_at >= self.session_timeout_ms / 1000:
                self.expire(session)


class SimSession(FakeSession):
    """Its connection is in order, both ways."""

    _server: SimZooKeeper

    def __init__(self, server: SimZooKeeper, session_id: int, life: Life | None) -> None:
        super().__init__(server, session_id)
        self.life = life
        self._context = context_of(life)
        self._connection = 0
        self._asked: dict[asyncio.Future[Any], None] = {}
        self._there_s = 0.0
        self._back_s = 0.0
        if self._server.network.is_cut(name_of(life), ZOOKEEPER):
            self.cut()

    @property
    def stands_still(self) -> bool:
        return self.life is not None and (self.life.dead or self.life.paused)

    def cut(self) -> None:
        self._connection += 1
        super().cut()
        asked, self._asked = self._asked, {}
        for answer in asked:
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection to ZooKeeper broke before the answer came"))
                answer.exception()

    def _tell(self, watch: Watch, event: WatchEvent) -> None:
        self._told.append((watch, event))
        self._network.loop.call_at(self._due_back(), self._deliver_one, context=self._context)

    def _deliver_one(self) -> None:
        if self._told:
            watch, event = self._told.popleft()
            watch(event)

    @property
    def _network(self) -> Network:
        return self._server.network

    def _due_back(self) -> float:
        self._back_s = max(self._back_s, self._network.loop.time() + self._network.latency_s())
        return self._back_s

    async def _carried(self, request: str, path: str, act: Callable[[], T]) -> T:
        self._check_reachable(path)
        loop, connection = self._network.loop, self._connection
        answer: asyncio.Future[T] = loop.create_future()
        self._asked[answer] = None

        def serve() -> None:
            if not self._server.knows(self) or (connection != self._connection and request not in WRITES):
                return
            self._server.requests += 1
            self.heard_at = self._server.clock.boottime()
            try:
                told: Callable[[], None] = _set(answer, act())
            except ZooKeeperError as error:
                told = _raise(answer, error)
            if connection == self._connection:
                loop.call_at(self._due_back(), told, context=self._context)

        self._there_s = max(self._there_s, loop.time() + self._network.latency_s())
        loop.call_at(self._there_s, serve, context=NOBODY)
        try:
            return await answer
        finally:
            self._asked.pop(answer, None)

    async def close(self) -> None:
        await asyncio.sleep(self._network.latency_s())
        await super().close()


def _set(answer: asyncio.Future[T], result: T) -> Callable[[], None]:
    def told() -> None:
        if not answer.done():
            answer.set_result(result)

    return told


def _raise(answer: asyncio.Future[Any], error: Exception) -> Callable[[], None]:
    def told() -> None:
        if not answer.done():
            answer.set_exception(error)

    return told
