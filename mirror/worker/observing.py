"""A worker asks its source where its logs end, apart from the records, and keeps the answers at the target.

What moves the records may stand still for many reasons, a pause among them; this goes on, over connections of its own,
so that a failover knows how much there was when the source was last seen. It costs each leader of the source a
ListOffsets request four times a second. What cannot be asked or written now is tried again, and nothing else waits for
it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final

from broker.base.address import Address, AddressInvalid
from broker.base.clock import Clock, steady_ms
from broker.client.cluster import Cluster
from broker.client.durable_topics import make_durable_topics
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.limits import ClientLimits
from broker.client.log import append
from broker.client.offsets import list_each_offset
from broker.client.topics import NewTopic, describe_topics
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import EARLIEST, LATEST, TopicPartition
from mirror.coordinator.current import Current
from mirror.link import Link
from mirror.offsets.source_ends import EndsSeen, SourceBrokers, TopicShape
from mirror.worker.events import Event, EventSink, changed_only

OBSERVER_LIMITS: Final = ClientLimits(
    connect_timeout_ms=2_000, bootstrap_timeout_ms=2_000, request_timeout_ms=5_000, retry_timeout_ms=2_000,
    delivery_timeout_ms=5_000, partition_patience_ms=500,
)  # fmt: skip
ENDS_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}
"""A failover reads it whole."""
PARTITIONS_AT_ONCE: Final = 2_000
"""Asked about in a row: more would hold up the event loop, and with it the records."""
PARTITIONS_PER_MS: Final = 10
"""A link with very many is asked about more rarely: 10,000 once a second."""
TOPICS_EVERY_MS: Final = 1_000
"""So old may be what is known of the source's topics, and a millisecond for each partition when there are more."""
ALL_EVERY_MS: Final = 60_000
"""Where logs begin is asked again, and all is written: also what a worker that hung has overwritten meanwhile."""
WRITTEN_MAX_BYTES_PER_S: Final = 64 * 1024
"""Of batches in the target's topic, as they are compressed; where there is more to say it is said more rarely."""
COMPRESSED_FROM_BYTES: Final = 1_024
TROUBLE_PAUSE_MS: Final = 1_000
"""After the source did not answer, or the target did not take what was to be written."""


class Observer:
    """Looks at one link's source while this worker `owns` it: the link runs here, or is paused."""

    def __init__(
        self,
        declared: Current[Link],
        interval_ms: int,
        clock: Clock,
        tell: EventSink,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.owns = asyncio.Event()
        self._declared = declared
        self._interval_ms = interval_ms
        self._clock = clock
        self._tell = changed_only(tell)
        self._jitter = jitter
        self._seen = EndsSeen()
        self._topics: dict[str, TopicShape] = {}
        self._topics_due_ms = self._starts_due_ms = 0.0
        self._made = False
        """The topic at the target was there at the last write."""

    @property
    def _link(self) -> Link:
        return self._declared.value

    async def run(self) -> None:
        """Until cancelled. Raises nothing that a cluster does: how old the newest look is says so."""
        client_id = f"farshore-{self._link.name}-ends"
        source = Cluster(self._link.source, client_id=client_id, limits=OBSERVER_LIMITS, clock=self._clock)
        target = Cluster(self._link.target, client_id=client_id, limits=OBSERVER_LIMITS, clock=self._clock)
        try:
            while self._interval_ms:
                await self.owns.wait()
                begun_ms = steady_ms(self._clock)
                answered = await self._look(source)
                written_bytes = await self._write(target)
                took_ms = steady_ms(self._clock) - begun_ms
                works = answered and written_bytes is not None
                await self._clock.sleep(self._pause_ms(took_ms, written_bytes or 0, works=works) / 1000)
        finally:
            await source.close()
            await target.close()

    def _pause_ms(self, took_ms: float, written_bytes: int, *, works: bool) -> float:
        partitions = sum(shape.partitions for shape in self._topics.values())
        interval_ms = max(self._interval_ms, partitions / PARTITIONS_PER_MS) * (0.9 + self._jitter() / 5)
        pause_ms = max(interval_ms - took_ms, took_ms, 1_000 * written_bytes / WRITTEN_MAX_BYTES_PER_S)
        return pause_ms if works else max(pause_ms, TROUBLE_PAUSE_MS)

    async def _look(self, source: Cluster) -> bool:
        """-> whether the source told anything."""
        asked_at_ms, asked_ms = self._clock.now_ms(), steady_ms(self._clock)
        try:
            await self._look_at_topics(source, asked_ms)
            wanted = [TopicPartition(n, at) for n, shape in self._topics.items() for at in range(shape.partitions)]
            ends = await self._ask(source, wanted, LATEST)
            starts: dict[TopicPartition, int] = {}
            if asked_ms >= self._starts_due_ms:
                starts = await self._ask(source, wanted, EARLIEST)
                self._starts_due_ms = asked_ms + ALL_EVERY_MS
                self._seen.write_all()
        except (ClientError, AddressInvalid):
            self._seen.miss(asked_at_ms)
            return False
        if wanted and not ends:
            self._seen.miss(asked_at_ms)
            return False
        self._seen.take(asked_at_ms, asked_ms, self._topics, ends, starts)
        return True

    async def _look_at_topics(self, source: Cluster, asked_ms: float) -> None:
        """Topics that are new are asked for their starts, too. Raises ClientError."""
        if asked_ms < self._topics_due_ms:
            return
        found = await source.metadata()
        addresses = sorted(str(Address(node.host, node.port)) for node in found.nodes.values())
        self._seen.take_brokers(SourceBrokers(found.cluster_id, tuple(addresses)))
        topics = {
            name: TopicShape(str(topic.topic_id or ""), len(topic.partitions))
            for name, topic in found.topics.items()
            if self._link.selects_topic(name) and name != self._link.canary_topic
        }
        for name, code in found.topic_errors.items():
            if name in self._topics and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topics[name] = self._topics[name]
        if topics != self._topics:
            self._starts_due_ms = 0.0
        self._topics = topics
        self._topics_due_ms = asked_ms + max(TOPICS_EVERY_MS, sum(shape.partitions for shape in topics.values()))

    async def _ask(self, source: Cluster, wanted: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """What is told, without what is not. Raises ClientError where no broker answers at all."""
        found: dict[TopicPartition, int] = {}
        for at in range(0, len(wanted), PARTITIONS_AT_ONCE):
            asked = dict.fromkeys(wanted[at : at + PARTITIONS_AT_ONCE], timestamp)
            told, _ = split_failures(await list_each_offset(source, asked))
            found |= {where: offset.offset for where, offset in told.items()}
        return found

    async def _write(self, target: Cluster) -> int | None:
        """-> the size of what was written, None where that failed: then all of it is written again."""
        entries = self._seen.entries()
        if not entries:
            return 0
        batch = entries_batch(entries, self._clock.now_ms())
        try:
            await self._ensure_topic(target)
            await append(target, TopicPartition(self._link.ends_topic, 0), batch)
        except (ClientError, AddressInvalid) as error:
            self._seen.write_all()
            self._made = False
            self._tell(Event.ENDS_NOT_KEPT, self._link.ends_topic, str(error))
            return None
        self._made = True
        return len(batch)

    async def _ensure_topic(self, target: Cluster) -> None:
        """Raises ClientError."""
        name = self._link.ends_topic
        if self._made or await describe_topics(target, [name]):
            return
        await make_durable_topics(target, [NewTopic(name, 1, configs=ENDS_TOPIC_CONFIGS)])


def entries_batch(entries: Iterable[tuple[bytes, bytes]], now_ms: int) -> bytearray:
    """Keys and values as they are written into a link's ends topic."""
    records = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(entries)]
    size_bytes = sum(len(record.value or b"") for record in records)
    return encode_batch(
        records, compression=Compression.GZIP if size_bytes >= COMPRESSED_FROM_BYTES else Compression.NONE
    )
