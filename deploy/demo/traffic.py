"""The demo's applications: unmodified aiokafka clients that write and read, as a user's would."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from broker.client.applications import client_options
from broker.client.site import Site
from deploy.demo.flights import Flight

LINGER_MS = 20
BATCH_BYTES = 256 * 1024
REQUEST_TIMEOUT_MS = 3_000
TAKEOVER_TIMEOUT_MS = 60_000
"""Where other brokers take over from one that died; one that is alone is waited for in vain."""
SEND_WINDOW_RECORDS = 20_000
POLL_RECORDS = 5_000
POLL_MS = 500


async def zstd_producer(site: Site) -> Any:
    """An idempotent producer, acks=all, zstd."""
    return AIOKafkaProducer(
        **await client_options(site),
        compression_type="zstd",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
        request_timeout_ms=TAKEOVER_TIMEOUT_MS if len(site.servers()) > 1 else REQUEST_TIMEOUT_MS,
    )


class Acknowledgements:
    """How many there were, and the longest time between two of them."""

    def __init__(self) -> None:
        self.records = 0
        self.longest_pause_s = 0.0
        self._last_s: float | None = None

    def note(self, acknowledged: asyncio.Future[Any]) -> None:
        """As a callback of what a producer's `send` gives."""
        if acknowledged.cancelled() or acknowledged.exception() is not None:
            return
        now_s = time.monotonic()
        if self._last_s is not None:
            self.longest_pause_s = max(self.longest_pause_s, now_s - self._last_s)
        self._last_s = now_s
        self.records += 1


async def produce(
    site: Site,
    topic: str,
    records: Iterable[Flight],
    acknowledgements: Acknowledgements,
    on_sent: Callable[[int], None],
) -> int:
    """Write every record and wait for each acknowledgement; returns their number."""
    producer = await zstd_producer(site)
    await producer.start()
    sent = 0
    window: list[asyncio.Future[Any]] = []
    try:
        for flight in records:
            window.append(await producer.send(topic, flight.value, key=flight.key, timestamp_ms=flight.timestamp_ms))
            window[-1].add_done_callback(acknowledgements.note)
            if len(window) == SEND_WINDOW_RECORDS:
                await asyncio.gather(*window)
                sent += len(window)
                window.clear()
                on_sent(sent)
        await asyncio.gather(*window)
        sent += len(window)
        on_sent(sent)
    finally:
        await producer.stop()
    return sent


@dataclass(frozen=True, slots=True)
class GroupRead:
    """What one run of a group read: rows in the order of reading, and where it committed."""

    rows: list[int]
    committed: dict[int, int]


async def read_as_group(site: Site, topic: str, group: str, limit_records: int | None) -> GroupRead:
    """Read on from the group's committed offsets, at most `limit_records` (None: to the end), and commit."""
    consumer = AIOKafkaConsumer(
        topic,
        **await client_options(site),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=POLL_RECORDS,
    )
    await consumer.start()
    rows: list[int] = []
    committed: dict[int, int] = {}
    try:
        while limit_records is None or len(rows) < limit_records:
            room = POLL_RECORDS if limit_records is None else min(POLL_RECORDS, limit_records - len(rows))
            polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=room)
            for partition, records in polled.items():
                rows += [json.loads(record.value)["row"] for record in records]
                committed[partition.partition] = records[-1].offset + 1
            if not polled and await _at_end(consumer):
                break
        if committed:
            await consumer.commit({TopicPartition(topic, number): offset for number, offset in committed.items()})
    finally:
        await consumer.stop()
    return GroupRead(rows, committed)


async def _at_end(consumer: Any) -> bool:
    assigned = consumer.assignment()
    if not assigned:
        return False
    ends = await consumer.end_offsets(list(assigned))
    positions = [(partition, await consumer.position(partition)) for partition in assigned]
    return all(position >= ends[partition] for partition, position in positions)
