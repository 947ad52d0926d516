"""Two copies of a topic in one cluster, with differences planted in the second: written raw, with a map by hand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from monitoring.audit.model import FrozenLink, FrozenPartition, FrozenSite, Span, Step

START_MS = 1_357_000_000_000
STEP_MS = 10_000


@dataclass(frozen=True, slots=True)
class Planted:
    """One record to be written."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """A partition at both sites, and the map between them."""

    source: list[Planted]
    target: list[Planted]
    steps: tuple[Step, ...] = (Step(0, 0),)


def records(number: int, partition: int = 0) -> list[Planted]:
    """Records of all shapes: null keys and values, headers, and plain ones; one each ten seconds of event time."""
    made = []
    for index in range(number):
        key = None if index % 7 == 3 else f"key-{partition}-{index % 50}".encode()
        # aiokafka refuses a record with neither; Kafka does not.
        value = (
            None if key is not None and index % 11 == 5 else f"value {partition} {index} ".encode() * (1 + index % 5)
        )
        headers = (("trace", str(index).encode()), ("empty", b"")) if index % 3 == 0 else ()
        made.append(Planted(START_MS + index * STEP_MS, key, value, headers))
    return made


def dropped(copy: Copy, at: int) -> Copy:
    """The record at source offset `at` is missing at the target, and the map hides it."""
    return Copy(copy.source, copy.target[:at] + copy.target[at + 1 :], (*copy.steps, Step(at + 1, at)))


def doubled(copy: Copy, at: int) -> Copy:
    """The record at source offset `at` is twice at the target; the second one is outside of the map."""
    return Copy(copy.source, [*copy.target[: at + 1], *copy.target[at:]], (*copy.steps, Step(at + 1, at + 2)))


def changed(copy: Copy, at: int) -> Copy:
    target = list(copy.target)
    target[at] = replace(target[at], value=b"tampered with")
    return replace(copy, target=target)


def retimed(copy: Copy, at: int, by_ms: int) -> Copy:
    target = list(copy.target)
    target[at] = replace(target[at], timestamp_ms=target[at].timestamp_ms + by_ms)
    return replace(copy, target=target)


async def plant(bootstrap: str, copies: Sequence[Copy]) -> FrozenLink:
    """Write the copies as two topics with fresh names, and freeze them as a link with prefixed topic names."""
    topic = f"planted-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        configs = {"retention.ms": "-1"}
        await admin.create_topics(
            [NewTopic(name, len(copies), 1, topic_configs=configs) for name in (topic, f"east.{topic}")]
        )
    finally:
        await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=20, max_batch_size=262_144)
    await producer.start()
    try:
        for partition, copy in enumerate(copies):
            await _write(producer, topic, partition, copy.source)
            await _write(producer, f"east.{topic}", partition, copy.target)
    finally:
        await producer.stop()
    site = FrozenSite("east", bootstrap, None)
    partitions = tuple(
        FrozenPartition(
            topic,
            partition,
            f"east.{topic}",
            Span(0, len(copy.source)),
            Span(0, len(copy.target)),
            copy.steps,
            (len(copy.source), len(copy.target)),
        )
        for partition, copy in enumerate(copies)
    )
    return FrozenLink("east-west", site, replace(site, name="west"), START_MS, partitions)


async def _write(producer: AIOKafkaProducer, topic: str, partition: int, batch: Sequence[Planted]) -> None:
    pending: list[asyncio.Future[object]] = []
    for record in batch:
        pending.append(
            await producer.send(
                topic,
                record.value,
                key=record.key,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
        )
    await asyncio.gather(*pending)
