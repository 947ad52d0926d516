"""Real brokers of one cluster in this process, over the fake ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from broker.base.clock import Clock, SystemClock
from broker.broker import Broker
from broker.cluster.metadata import PartitionState
from broker.cluster.zookeeper.session import ZooKeeper
from broker.config import BrokerConfig
from broker.outside import Outside
from broker.server import Server, serving
from tests.broker.cluster.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.broker.wire_client import WireClient, connect

WAIT_S = 60


class PatientClock(SystemClock):
    """Sessions with ZooKeeper end where a test says so, and not because the machine is slow."""

    def boottime(self) -> float:
        return 0.0


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


class RunningCluster:
    """Use `running_cluster`. A broker that is started again has the same folder and other ports."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.clock = PatientClock()
        self.zookeeper = FakeZooKeeper(self.clock)
        self.servers: dict[int, Server] = {}
        self.sessions: dict[int, FakeSession] = {}
        self._folder = folder
        self._racks: Mapping[int, str] = settings.pop("racks", {})
        self.settings = settings
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopping: dict[int, asyncio.Event] = {}

    async def start(self, *node_ids: int) -> None:
        """Returns when they serve. Raises what kept one from it."""
        begun = {node_id: self._begin(node_id) for node_id in node_ids}
        for node_id, ready in begun.items():
            self.servers[node_id] = await ready

    def _begin(self, node_id: int) -> asyncio.Future[Server]:
        ready: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        stop = self._stopping[node_id] = asyncio.Event()

        async def run() -> None:
            somewhere = {} if "listeners" in self.settings else {"listen_port": 0}
            config = {"data_dir": self._folder / str(node_id), "zookeeper": "zk", **somewhere, **self.settings}
            config["rack"] = self._racks.get(node_id)
            try:
                outside = Outside(self.clock, self._session_of(node_id))
                async with serving(BrokerConfig(node_id=node_id, **config), outside) as s:
                    ready.set_result(s)
                    await stop.wait()
            except BaseException as error:  # whoever waits for the start is told
                if ready.done():
                    raise
                ready.set_exception(error)

        self._tasks[node_id] = asyncio.create_task(run())
        return ready

    def _session_of(self, node_id: int) -> Callable[[str, int, Clock, int], Awaitable[ZooKeeper]]:
        async def open_session(servers: str, timeout_ms: int, clock: Clock, connect_timeout_ms: int) -> ZooKeeper:
            self.sessions[node_id] = self.zookeeper.connect()
            return self.sessions[node_id]

        return open_session

    async def stop(self, node_id: int) -> None:
        """As an operator does."""
        del self.servers[node_id]
        self._stopping[node_id].set()
        await self._tasks.pop(node_id)

    async def kill(self, node_id: int) -> None:
        """It tells nobody, and ZooKeeper misses it at once."""
        self.servers.pop(node_id, None)
        task = self._tasks.pop(node_id)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def kill_all(self) -> None:
        for node_id in list(self._tasks):
            await self.kill(node_id)

    async def cut_power(self, *node_ids: int) -> dict[int, FakeSession]:
        """They tell nobody, and ZooKeeper keeps their sessions until a test ends these: `zookeeper.expire`."""
        for node_id in node_ids:
            self.sessions[node_id].cut()
        for node_id in node_ids:
            await self.kill(node_id)
        return {node_id: self.sessions[node_id] for node_id in node_ids}

    # -- looking ---------------------------------------------------------------------------------------------

    def broker(self, node_id: int) -> Broker:
        return self.servers[node_id].broker

    @property
    def controller(self) -> int | None:
        """As all brokers that run have been told; None while they differ."""
        told = {server.broker.view.controller for server in self.servers.values()}
        return told.pop() if len(told) == 1 else None

    def told(self, topic: str, index: int = 0) -> PartitionState | None:
        """What all brokers that run tell of a partition; None while they differ."""
        known = [server.broker.view.topics.get(topic) for server in self.servers.values()]
        states = [None if of is None or index >= len(of.partitions) else of.partitions[index] for of in known]
        return states[0] if all(state == states[0] for state in states) else None

    async def led(self, topic: str, index: int = 0, *, among: Iterable[int] | None = None) -> int:
        """The leader, when all brokers tell the same one that runs and leads."""

        def leads() -> bool:
            state = self.told(topic, index)
            if state is None or state.leader not in (self.servers.keys() if among is None else among):
                return False
            here = self.broker(state.leader).partition(topic, index)
            return here is not None and here.leading is not None

        await until(leads)
        state = self.told(topic, index)
        assert state is not None
        return state.leader

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[dict[int, WireClient]]:
        """A connection to each broker that runs."""
        async with AsyncExitStack() as stack:
            yield {
                node_id: await stack.enter_async_context(connect(server.address))
                for node_id, server in self.servers.items()
            }


@asynccontextmanager
async def running_cluster(folder: Path, *node_ids: int, **settings: Any) -> AsyncIterator[RunningCluster]:
    """`settings` are fields of BrokerConfig, and `racks` by node id."""
    cluster = RunningCluster(folder, settings)
    try:
        await cluster.start(*node_ids)
        yield cluster
    finally:
        await cluster.kill_all()
