"""Where batches come from: the registry of the mirrors' producer ids on each target cluster.

A link registers its producer id, with its source site as origin, before its first batch. A link in the other
direction leaves batches out whose origin is its own target: that is the loop cut. No header is added to any record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.topics import describe_topics
from broker.wire.batch import BatchHeader
from broker.wire.errors import WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import StateDamaged
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.state_writer import REGISTRY_CONTENT, check_compacted

REGISTRY_VERSION = 1
_REGISTRY = TopicPartition(PRODUCERS_TOPIC, 0)


class RegisteredLink(NamedTuple):
    """Whose a registered producer id is: a link's name, and the site that it reads from."""

    link: str
    origin: str


class OriginRegistry:
    """The registered producer ids of one cluster, read as far as was needed."""

    def __init__(self, cluster: Cluster, own_origin: str) -> None:
        self._cluster = cluster
        self._own_origin = own_origin
        self._writers: dict[int, RegisteredLink] = {}
        self._local: set[int] = set()
        self._read_to = 0

    def is_foreign(self, producer_id: int) -> bool:
        """Whether the batches of this producer were mirrored from the link's own target. Call `learn` first."""
        writer = self._writers.get(producer_id)
        return writer is not None and writer.origin == self._own_origin

    async def learn(self, records: memoryview) -> None:
        """Make sure that the origin of every producer in these batches is known, reading the registry if not.

        A producer id is registered before its first data batch, so one that has written data and is not there now is a
        local producer's for ever. Raises ClientError.
        """
        unknown: set[int] = set()
        with suppress(WireError):  # what is damaged is told by who reads it; nothing behind it is taken
            for header, _ in iter_fetched(records):
                producer_id = header.producer_id
                if producer_id < 0 or header.is_control:
                    continue  # a fence's marker stands before the registration that follows the fence
                if producer_id not in self._local and producer_id not in self._writers:
                    unknown.add(producer_id)
        if unknown:
            await self.refresh()
            self._local |= unknown - self._writers.keys()

    async def check_kept(self) -> None:
        """Refuse to run where retention would delete registrations: records would go round. Raises ClientError."""
        if await describe_topics(self._cluster, [PRODUCERS_TOPIC]):
            await check_compacted(self._cluster, {PRODUCERS_TOPIC: REGISTRY_CONTENT})

    async def refresh(self) -> None:
        """Read on to the registry's present end."""
        if not await describe_topics(self._cluster, [PRODUCERS_TOPIC]):
            return
        end = (await log_end_offsets(self._cluster, [_REGISTRY]))[_REGISTRY]

        def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
            if not header.is_control:
                for record in decode_records(batch):
                    self._apply(record)

        await scan_batches(self._cluster, {_REGISTRY: OffsetSpan(self._read_to, end)}, visit)
        self._read_to = max(self._read_to, end)

    def _apply(self, record: Record) -> None:
        try:
            producer_id = int(json.loads(record.key or b"")[1])
            if record.value is None:
                self._writers.pop(producer_id, None)
                return
            fields = json.loads(record.value)
            if fields["v"] != REGISTRY_VERSION:
                raise ValueError("written by a newer version")
            self._writers[producer_id] = RegisteredLink(str(fields["link"]), str(fields["origin"]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            where = f"{PRODUCERS_TOPIC} offset {record.offset} at {self._cluster.site.name}"
            raise StateDamaged(f"{where}: {error}") from error

    @property
    def writers(self) -> Mapping[int, RegisteredLink]:
        """By producer id, as far as was read."""
        return dict(self._writers)


async def register_producer(target: Cluster, link: Link, producer_id: int) -> Mapping[int, RegisteredLink]:
    """Register the link's producer id on its target if it is not there, and wait for it -> who was there before.

    Raises ClientError.
    """
    registry = OriginRegistry(target, link.target.name)
    await registry.refresh()
    before = registry.writers
    if producer_id in before:
        return before
    key = json.dumps(["producer", producer_id]).encode()
    value = json.dumps({"v": REGISTRY_VERSION, "link": link.name, "origin": link.source.name}).encode()
    batch = encode_batch([Record(0, target.clock.now_ms(), key, value)])
    await append(target, _REGISTRY, batch)
    return before
