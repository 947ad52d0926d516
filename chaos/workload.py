"""The load of a chaos run: numbered records written at the source, and read at the target as they come.

Unmodified aiokafka clients, whose login by Kerberos alone is ours, straight to each site: only the mirror's own way to
the source goes through the fault.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from broker.base.time_limits import timeout
from broker.client.applications import client_options
from broker.client.site import Site
from chaos.history import History, Outcome, Phase, Read, Write

POLL_MS = 200
SEND_TIMEOUT_S = 30.0


@dataclass(slots=True)
class Workload:
    """Shared by the writer and the reader of one run; `phase` is set by the scenario."""

    source: Site
    target: Site
    source_topic: str
    target_topic: str
    partitions: int
    rate_records_per_s: int
    history: History
    phase: Phase = Phase.BEFORE
    _polled: asyncio.Event = field(default_factory=asyncio.Event)

    async def polled(self) -> None:
        """Return after the reader's next poll."""
        self._polled.clear()
        await self._polled.wait()

    async def write(self, stop: asyncio.Event) -> None:
        """Write at the given rate until `stop`, then wait for the last outcomes."""
        producer = AIOKafkaProducer(
            **await client_options(self.source), enable_idempotence=True, linger_ms=0, acks="all"
        )
        await producer.start()
        try:
            async with asyncio.TaskGroup() as outcomes:
                sequence = 0
                next_s = time.monotonic()
                while not stop.is_set():
                    outcomes.create_task(self._send(producer, sequence))
                    sequence += 1
                    next_s += 1 / self.rate_records_per_s
                    await _sleep_until(next_s, stop)
        finally:
            await producer.stop()

    async def _send(self, producer: Any, sequence: int) -> None:
        partition, phase, sent_s = sequence % self.partitions, self.phase, time.monotonic()
        outcome = Outcome.ACKNOWLEDGED
        try:
            async with timeout(SEND_TIMEOUT_S):
                future = await producer.send(self.source_topic, b"%d" % sequence, partition=partition)
                await future
        except (KafkaError, TimeoutError):
            outcome = Outcome.UNKNOWN
        self.history.writes.append(Write(sequence, partition, phase, sent_s, outcome))

    async def read(self, stop: asyncio.Event) -> None:
        """Read the target topic from its start until `stop`."""
        consumer = AIOKafkaConsumer(
            **await client_options(self.target),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_uncommitted",
            fetch_max_wait_ms=POLL_MS,
        )
        await consumer.start()
        try:
            consumer.assign([TopicPartition(self.target_topic, number) for number in range(self.partitions)])
            while not stop.is_set():
                polled = await consumer.getmany(timeout_ms=POLL_MS)
                now_s = time.monotonic()
                for at, records in polled.items():
                    self.history.reads += [Read(sequence_of(record), at.partition, now_s) for record in records]
                self._polled.set()
        finally:
            await consumer.stop()

    @property
    def missing_records(self) -> int:
        """Acknowledged records that were not read yet."""
        seen = {read.sequence for read in self.history.reads}
        return sum(
            write.outcome is Outcome.ACKNOWLEDGED and write.sequence not in seen for write in self.history.writes
        )


def sequence_of(record: Any) -> int:
    """The number in the record's value; a number below zero where there is none, because the run did not write it."""
    try:
        return int(record.value)
    except (TypeError, ValueError):
        return -1 - int(record.offset)


async def _sleep_until(when_s: float, stop: asyncio.Event) -> None:
    try:
        async with timeout(max(0.0, when_s - time.monotonic())):
            await stop.wait()
    except TimeoutError:
        return
