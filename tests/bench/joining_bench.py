"""How long a session of many partitions stands still, for all of them, when some join or leave it.

Told is the most processor time of the worker's thread between two turns of a task that asks for one all the time: what
other processes of the machine take does not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from broker.client.cluster import Cluster
from broker.client.topics import NewTopic, create_topics, delete_topics
from mirror.link import Link
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from mirror.worker.events import Event, EventSink
from mirror.worker.service import WorkerSettings, run_links

BORN: Final = "born"
TURN_S: Final = 0.001
QUIET_S: Final = 15.0
PATIENCE_S: Final = 300.0


class Stood(NamedTuple):
    """Seconds: the most that all else waited for one turn, and from what was asked for until it was done."""

    what: str
    longest_s: float
    took_s: float


class _Worker:
    """Events of a worker in this process, and the longest turn since `begin`."""

    def __init__(self) -> None:
        self.told: list[tuple[Event, Mapping[str, object]]] = []
        self._began_s = self._last_s = self._longest_s = 0.0

    def sink(self, _link: str) -> EventSink:
        def tell(event: Event, /, **fields: object) -> None:
            self.told.append((event, fields))

        return tell

    async def take_turns(self) -> None:
        while True:
            await asyncio.sleep(TURN_S)
            now_s = time.thread_time()
            self._longest_s, self._last_s = max(self._longest_s, now_s - self._last_s), now_s

    def begin(self) -> None:
        self.told.clear()
        self._began_s, self._last_s, self._longest_s = time.monotonic(), time.thread_time(), 0.0

    async def stood(self, what: str, is_over: Callable[[], bool]) -> Stood:
        """RuntimeError where it takes too long."""
        while not is_over():
            if time.monotonic() > self._began_s + PATIENCE_S:
                raise RuntimeError(f"waited {PATIENCE_S:.0f} s: {what}")
            await asyncio.sleep(TURN_S)
        return Stood(what, self._longest_s, time.monotonic() - self._began_s)

    def count(self, event: Event, topic: str) -> int:
        return sum(told is event and fields.get("topic") == topic for told, fields in self.told)


async def stood_still(link: Link, topic: str, partitions: int) -> list[Stood]:
    """What others of a session of `link` wait for when a topic is born, when `topic` is paused and resumed, and when a
    topic leaves. The link selects BORN, too.
    """
    async with _running(link) as worker, Cluster(link.source) as source, Cluster(link.target) as target:
        await asyncio.sleep(QUIET_S)
        worker.begin()
        await asyncio.sleep(QUIET_S)
        found = [await worker.stood(f"nothing joins for {QUIET_S:.0f} s", lambda: True)]
        worker.begin()
        failures = await create_topics(source, [NewTopic(BORN, 1, 1)])
        assert not failures, failures
        found.append(await worker.stood("a topic is born", lambda: worker.count(Event.PARTITION_TAKEN_IN, BORN) > 0))
        worker.begin()
        await pause_topics(link, target, "bench", [topic])
        held = await worker.stood("a pause", lambda: worker.count(Event.PARTITION_HELD, topic) == partitions)
        await asyncio.sleep(held.took_s)
        worker.begin()
        await resume_topics(link, target, [topic])
        what = f"{partitions} known ones are taken in"
        found.append(await worker.stood(what, lambda: worker.count(Event.PARTITION_TAKEN_IN, topic) == partitions))
        worker.begin()
        await delete_topics(source, [BORN])
        found.append(await worker.stood("a topic leaves", lambda: worker.count(Event.PARTITION_STOPPED, BORN) > 0))
        return found


@asynccontextmanager
async def _running(link: Link) -> AsyncIterator[_Worker]:
    """A worker whose session has taken everything in."""
    worker = _Worker()
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(worker.take_turns()),
            tasks.create_task(run_links([link], WorkerSettings(events=worker.sink))),
        ]
        worker.begin()
        await worker.stood("the link opens", lambda: any(event is Event.STARTED for event, _ in worker.told))
        before = -1
        while len(worker.told) != before:  # those that the start did not wait for
            before = len(worker.told)
            await asyncio.sleep(QUIET_S)
        try:
            yield worker
        finally:
            for task in running:
                task.cancel()
