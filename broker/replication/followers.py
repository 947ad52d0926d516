"""What this broker follows, and the loops that do: one for each leader, over one connection.

A loop ends with nothing that a leader or one of its partitions does: a connection that broke is opened again after a
pause, a partition that cannot be followed pauses by itself, and one whose files are damaged is offline (`Following`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from broker.base.clock import Clock, steady_ms
from broker.base.time_limits import timeout
from broker.client.errors import ClientError
from broker.limits import BYTES_PER_TURN
from broker.replication.following import Following
from broker.replication.limits import (
    FOLLOWER_BACKOFF_MAX_MS,
    FOLLOWER_BACKOFF_MS,
    FOLLOWER_PATIENCE_MS,
    FOLLOWER_REQUEST_TIMEOUT_MS,
)
from broker.replication.throttling import ReplicationQuota
from broker.topics.partition import Partition
from broker.wire.errors import WireError
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState

log = logging.getLogger(__name__)

FETCH_VERSION = 17
"""Topics by their ids (v13), and who fetches in which life (v15)."""
NUDGE_VERSION = 3
"""Of ApiVersions, which is asked where a fetch waits at the leader: it ends that wait, for requests of one connection
are answered in turn."""


class LeaderConnection(Protocol):
    """`broker.client.connection.Connection`, as far as it is used here."""

    async def request(self, message: FetchRequest, version: int, *, timeout_ms: int) -> FetchResponse: ...

    async def send(self, message: ApiVersionsRequest, version: int) -> object: ...

    def abort(self) -> None: ...


Connect = Callable[[int], Awaitable[LeaderConnection]]
"""To the broker of this node id, for nobody else. Raises ClientError."""


class _Leader:
    """`changed` is set when there is something new to follow, or less. `asked`: where an answer is waited for that was
    not nudged yet.
    """

    def __init__(self, following: Following) -> None:
        self.following = following
        self.changed = asyncio.Event()
        self.asked: LeaderConnection | None = None


class _Failing:
    """Tells once that a leader cannot be followed, when it has lasted: brokers stop and start every day."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._since_ms: float | None = None
        self._told = False

    def goes_on(self, error: Exception, now_ms: float) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms
            log.info("broker %d cannot be followed, tried again: %s", self._node_id, error)
        elif not self._told and now_ms - self._since_ms >= FOLLOWER_PATIENCE_MS:
            self._told = True
            lasted_s = (now_ms - self._since_ms) / 1000
            log.warning("broker %d cannot be followed for %.0f s now: %s", self._node_id, lasted_s, error)

    def ended(self) -> None:
        self._since_ms = None
        if self._told:
            self._told = False
            log.warning("broker %d is followed again", self._node_id)


class Followers:
    """One event loop owns it. What is followed before `run` begins is followed from then on."""

    def __init__(
        self,
        connect: Connect,
        replica: Callable[[], ReplicaState],
        clock: Clock,
        rng: random.Random,
        quota: ReplicationQuota,
    ) -> None:
        """`replica`: this broker and the epoch of its registration, as of now. `rng` spreads retries. `quota`: of what
        is held back.
        """
        self._quota = quota
        self._rng = rng
        self._connect = connect
        self._replica = replica
        self._clock = clock
        self._leaders: dict[int, _Leader] = {}
        self._leader_of: dict[tuple[UUID, int], int] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def follow(self, node_id: int, topic_id: UUID, partition: Partition) -> None:
        """From now on this broker leads the partition, in the leader epoch of its state."""
        self.forget(topic_id, partition.index)
        self._leader_of[topic_id, partition.index] = node_id
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = _Leader(Following(self._replica, self._backoff_ms, self._quota))
            if self._tasks is not None:
                self._tasks.create_task(self._follow(node_id, leader))
        leader.following.follow(topic_id, partition)
        leader.changed.set()
        if leader.asked is not None and self._tasks is not None:
            self._tasks.create_task(_nudge(leader.asked))
            leader.asked = None

    def forget(self, topic_id: UUID, index: int) -> None:
        """It is led here, by nobody, or gone."""
        node_id = self._leader_of.pop((topic_id, index), None)
        if node_id is not None:
            self._leaders[node_id].following.forget(topic_id, index)
            self._leaders[node_id].changed.set()

    async def run(self) -> None:
        """Ends only by being cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                for node_id, leader in self._leaders.items():
                    tasks.create_task(self._follow(node_id, leader))
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None

    async def _follow(self, node_id: int, leader: _Leader) -> None:
        failures = 0
        failing = _Failing(node_id)
        while True:
            while not len(leader.following):
                failing = _Failing(node_id)
                leader.changed.clear()
                await leader.changed.wait()
            try:
                connection = await self._connect(node_id)
                try:
                    while len(leader.following):
                        await self._fetch(connection, leader)
                        failures = 0
                        failing.ended()
                finally:
                    connection.abort()
                    leader.following.lost()
            except (ClientError, WireError) as error:
                failures += 1
                failing.goes_on(error, self._now_ms())
            except Exception:  # whatever it is, it concerns this leader alone, and the others are followed on
                failures += 1
                log.exception("broker %d cannot be followed, tried again", node_id)
            if failures:
                await self._clock.sleep(self._backoff_ms(failures) / 1000)

    async def _fetch(self, connection: LeaderConnection, leader: _Leader) -> None:
        """Once, or waits until there is something to ask. Raises ClientError, WireError."""
        following = leader.following
        leader.changed.clear()
        request = following.next_request(self._now_ms())
        if request is None:
            due_ms = following.due_ms(self._now_ms())
            with suppress(TimeoutError):
                async with timeout(None if due_ms is None else max(0.0, due_ms - self._now_ms()) / 1000):
                    await leader.changed.wait()
            return
        leader.asked = connection
        try:
            response = await connection.request(request, FETCH_VERSION, timeout_ms=FOLLOWER_REQUEST_TIMEOUT_MS)
        finally:
            leader.asked = None
        taken_bytes = 0
        for piece_bytes in following.take(request, response, self._now_ms()):
            taken_bytes += piece_bytes
            if taken_bytes >= BYTES_PER_TURN:
                taken_bytes = 0
                await asyncio.sleep(0)

    def _now_ms(self) -> float:
        return steady_ms(self._clock)

    def _backoff_ms(self, failures: int) -> float:
        """Doubled each time up to its limit, between half and all of it: leaders are not asked by all at once."""
        whole = min(FOLLOWER_BACKOFF_MS << min(failures - 1, 16), FOLLOWER_BACKOFF_MAX_MS)
        return whole * (0.5 + self._rng.random() / 2)


async def _nudge(connection: LeaderConnection) -> None:
    """Whose fetch does not know of a partition that is followed from now on."""
    with suppress(ClientError, WireError):  # the fetch fails with it, and the loop that waits for that is told
        await connection.send(ApiVersionsRequest(), NUDGE_VERSION)
