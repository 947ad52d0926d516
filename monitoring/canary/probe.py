"""Moving the canary's records: an ordinary producer at the source, an ordinary consumer at the target.

Deliberately not farshore's own client: the canary sees what an application would see. Each site is reached as an
application there reaches it, by its bootstrap servers and the addresses that its brokers advertise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.applications import client_options
from broker.client.cluster import Cluster
from broker.client.topics import NewTopic, create_topics, describe_topics
from mirror.api import Link, LinkState, RunState, StateReader, load_partial_state
from monitoring import limits
from monitoring.canary.record import CanaryRecord, decode, encode
from monitoring.canary.verdict import CanaryJudge
from monitoring.errors import CanaryError, CanaryNotMirrored

TOPIC_CONFIGS = {"retention.ms": str(24 * 60 * limits.MINUTE_MS), "cleanup.policy": "delete"}
TOPIC_EXISTS = 36
CLIENT_ID = "farshore-canary"


class CanaryProbe:
    """One link's canary. `clock_ms` gives milliseconds since 1970, `observe` gets each latency in seconds."""

    def __init__(
        self,
        link: Link,
        judge: CanaryJudge,
        clock_ms: Callable[[], int],
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.link = link
        self.judge = judge
        self._clock_ms = clock_ms
        self._observe = observe
        self._changed = asyncio.Event()
        self._state = StateReader(link)
        self.is_promoted = False
        """Whether the target was promoted, as it was last seen: nothing is mirrored, so nothing is sent."""
        self._position: int | None = None
        """At the target: all records before it were seen."""
        # aiokafka logs each reconnection attempt; what matters of them is in the judge's counts.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    async def prepare(self) -> None:
        """Make the canary's topic at the source, and wait until the mirror has made it at the target.

        Raises CanaryNotMirrored when it does not appear, also since the link's target was promoted, and what the
        mirror's client raises for a site that is down.
        """
        topic = self.link.canary_topic
        async with Cluster(self.link.target, client_id=CLIENT_ID) as target:
            if _is_promoted(await load_partial_state(self.link, target, self._state)):
                raise CanaryNotMirrored(
                    f"nothing is mirrored along link {self.link.name}: {self.link.target.name} was promoted",
                    f"to mirror again: farshore link resume --link {self.link.name}",
                )
        async with Cluster(self.link.source, client_id=CLIENT_ID) as source:
            if topic not in await describe_topics(source, [topic]):
                wanted = NewTopic(topic, partitions=1, configs=TOPIC_CONFIGS)
                for error in (await create_topics(source, [wanted])).values():
                    if error.code != TOPIC_EXISTS:
                        raise error
        mirrored = self.link.target_topic(topic)
        async with Cluster(self.link.target, client_id=CLIENT_ID) as target:
            # Another process makes the topic: nothing can tell us but asking again.
            for _ in range(limits.CANARY_TOPIC_WAIT_MS // limits.CANARY_RETRY_MIN_MS):
                if mirrored in await describe_topics(target, [mirrored]):
                    return
                await asyncio.sleep(limits.CANARY_RETRY_MIN_MS / 1000)
        raise CanaryNotMirrored(
            f"topic {mirrored} did not appear at {self.link.target.name} in {limits.CANARY_TOPIC_WAIT_MS // 1000} s",
            f"is the link's mirror running? farshore mirror run --link {self.link.name}",
        )

    async def run(self, duration_ms: int | None = None, tick: Callable[[], None] = lambda: None) -> None:
        """Write for `duration_ms` and wait for what is under way, or for ever; `tick` is called after each record.

        Troubles of a site do not end it: they are what it is there to see. While the link's target is promoted nothing
        is written: nobody would carry it. Call `prepare` first. Raises CanaryError, with nothing written, where the
        target's topic may not be read at all.
        """
        in_place = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._read_for_ever(in_place)), group.create_task(self._look_for_ever())]
                await in_place.wait()
                async with asyncio.TaskGroup() as writers:
                    await self._write(writers, duration_ms, tick)
                await self._settle()
                for helper in helpers:
                    helper.cancel()
        except BaseExceptionGroup as group:
            for error in group.exceptions:
                if isinstance(error, CanaryError):
                    raise error from None
            raise

    async def _settle(self) -> None:
        """Until everything has arrived, is lost or is overdue."""
        while self.judge.waiting_records > self.judge.overdue_records:
            self._changed.clear()
            with suppress(TimeoutError):
                async with timeout(limits.CANARY_INTERVAL_MS / 1000):
                    await self._changed.wait()
            self.judge.expire(self._clock_ms())
        await self._look()

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(limits.CANARY_LOOK_INTERVAL_MS / 1000)
            await self._look()

    async def _look(self) -> None:
        """See whether the target was promoted; where a record is overdue, whether the mirror has gone past it."""
        try:
            async with Cluster(self.link.target, client_id=CLIENT_ID) as target:
                state = await load_partial_state(self.link, target, self._state)
            self.is_promoted = _is_promoted(state)
            if self.is_promoted:
                self.judge.strand()
            elif self.judge.overdue_records:
                await self._prove(state)
        except (FarshoreError, OSError):
            return  # nothing is known or proved: the records stay late

    async def _prove(self, state: LinkState) -> None:
        """Ask the link's map whether the mirror has gone past what is overdue. Raises FarshoreError, OSError.

        What the map says holds for what has been read to the end that it speaks of, and no further; and not where
        the source's offsets are in doubt: a position in a topic that is gone says nothing about the one that is there.
        """
        topic = self.link.canary_topic
        async with Cluster(self.link.source, client_id=CLIENT_ID) as source:
            topics = await describe_topics(source, [topic])
        if topic not in topics or (topic, 0) in state.entries.doubts(topics):
            return
        end = state.map.mirrored_end(topic, 0)
        if end is not None and self._position is not None and self._position >= end.target_next:
            self.judge.passed(end.source_next)

    async def _write(self, writers: asyncio.TaskGroup, duration_ms: int | None, tick: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        producer: Any = None
        started = loop.time()
        beats = sequence = 0
        sends: set[asyncio.Task[None]] = set()
        try:
            while duration_ms is None or (loop.time() - started) * 1000 < duration_ms:
                if producer is None and not self.is_promoted:
                    producer = await self._producer()
                if not self.is_promoted:
                    record = CanaryRecord(self.judge.run, sequence, self._clock_ms())
                    self.judge.sending(record)
                    sequence += 1
                    if producer is None:
                        self.judge.refused(record)
                    else:
                        task = writers.create_task(self._send(producer, record))
                        sends.add(task)
                        task.add_done_callback(sends.discard)
                self.judge.expire(self._clock_ms())
                tick()
                beats += 1
                pause_ms = limits.CANARY_INTERVAL_MS * beats - (loop.time() - started) * 1000
                await asyncio.sleep(max(0.0, pause_ms / 1000))
            if sends:
                await asyncio.wait(sends)
        finally:
            if producer is not None:
                await _close(producer)

    async def _producer(self) -> Any:
        """None while the source does not answer."""
        producer = AIOKafkaProducer(
            **await client_options(self.link.source),
            client_id=CLIENT_ID,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=limits.CANARY_DEADLINE_MS,
        )
        try:
            await producer.start()
        except (KafkaError, OSError):
            await _close(producer)
            return None
        return producer

    async def _send(self, producer: Any, record: CanaryRecord) -> None:
        key, value = encode(record)
        try:
            written = await producer.send_and_wait(
                self.link.canary_topic, value, key=key, partition=0, timestamp_ms=record.sent_ms
            )
        except KafkaError:
            self.judge.refused(record)
        else:
            self.judge.acknowledged(record, written.offset)

    async def _read_for_ever(self, ready: asyncio.Event) -> None:
        """Read the target's topic, again after each trouble, from where it stopped; sets `ready` when in place."""
        pause_ms, was_cut = limits.CANARY_RETRY_MIN_MS, False
        while True:
            consumer = _consumer(await client_options(self.link.target))
            try:
                await consumer.start()
                where = _assign(consumer, self.link.target_topic(self.link.canary_topic))
                if self._position is None:
                    self._position = (await consumer.end_offsets([where]))[where]
                elif was_cut:
                    self._position = (await consumer.beginning_offsets([where]))[where]
                was_cut = False
                consumer.seek(where, self._position)
                ready.set()
                pause_ms = limits.CANARY_RETRY_MIN_MS
                while True:
                    found = await consumer.getmany(where, timeout_ms=limits.CANARY_INTERVAL_MS)
                    _raise_if_cancelled()
                    for message in found.get(where, ()):
                        self._arrived(message)
                    # Not the last record's: offsets without one (a fence's marker) are passed silently.
                    self._position = await consumer.position(where)
            except OffsetOutOfRangeError:
                # The target's topic was cut or recreated: go on at its beginning; what is missing will be late.
                was_cut = True
            except (KafkaError, OSError) as error:
                if not ready.is_set() and not getattr(error, "retriable", True):
                    raise CanaryError(f"the canary cannot read at {self.link.target.name}: {error}") from error
            finally:
                await _close(consumer)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, limits.CANARY_RETRY_MAX_MS)

    def _arrived(self, message: Any) -> None:
        record = decode(message.value)
        if record is None:
            return
        latency_ms = self.judge.seen(record, self._clock_ms())
        if latency_ms is not None:
            self._observe(latency_ms / 1000)
        self._changed.set()


def _is_promoted(state: LinkState) -> bool:
    run = state.entries.run
    return run is not None and run.state is RunState.PROMOTED


def _consumer(options: dict[str, Any]) -> Any:
    return AIOKafkaConsumer(
        **options,
        client_id=CLIENT_ID,
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_wait_ms=limits.CANARY_RETRY_MIN_MS,
        request_timeout_ms=limits.CANARY_RETRY_MAX_MS,
    )


async def _close(client: Any) -> None:
    """Close one of aiokafka's clients in a limited time: while its cluster is lost it would wait for that.

    What it still had under way is given up; by now nobody waits for it.
    """
    with suppress(TimeoutError):
        async with timeout(limits.CANARY_CLOSE_MS / 1000):
            await client.stop()
    _raise_if_cancelled()


def _raise_if_cancelled() -> None:
    """aiokafka's clients may swallow a cancellation while they wait for a task of their own: end all the same."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _assign(consumer: Any, topic: str) -> Any:
    where = TopicPartition(topic, 0)
    consumer.assign([where])
    return where
