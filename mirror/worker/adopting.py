"""Adopting what a target already holds: both logs are read, and the link's state is made from what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from hashlib import blake2b
from typing import Final

from broker.client.cluster import Cluster
from broker.client.configs import describe_topic_configs
from broker.client.errors import KafkaError
from broker.client.offsets import LogSpan, log_spans
from broker.client.topics import describe_topics
from broker.wire.errors import CorruptBatch
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.link import Link
from mirror.offsets.adoption import Adoption
from mirror.offsets.entries import Gap, TopicIds
from mirror.worker.logs import ClusterLogs, Logs
from mirror.worker.matching import Matched, Nature, Seen, Unmatched, find_first, match
from mirror.worker.origins import Passage, read_carried

Report = Callable[[int, int], None]
"""Is told how many of the target's offsets were read, and how many there are."""
_NULL: Final = b"\xff" * 8


async def compare_for_adoption(
    link: Link, source: Cluster, target: Cluster, gap: Gap, report: Report
) -> Adoption | Unmatched:
    """Read both logs of the partition that stands at the gap, and make the map of what is at the target.

    Nothing is written. Raises ClientError, StateDamaged.
    """
    here = TopicPartition(gap.topic, gap.partition)
    there = TopicPartition(link.target_topic(gap.topic), gap.partition)
    spans = (await _span(source, here), await _span(target, there))
    ids = TopicIds(await _topic_id(source, here.topic), await _topic_id(target, there.topic))
    nature = Nature(await _is_compacted(source, here.topic), await _is_compacted(target, there.topic), spans[0].start)
    reading = _Reading(link, source, target, (here, there), spans, report)
    await reading.learn_writers()
    try:
        found = await _matched(reading, nature)
    except CorruptBatch as error:
        return Unmatched(f"a log cannot be read: {error}")
    if isinstance(found, Unmatched):
        return found
    return Adoption(
        gap=gap,
        target=there,
        intervals=found.intervals,
        first=found.first,
        end=found.end,
        last=found.last,
        records=found.records,
        topic_ids=ids,
        target_read_to=spans[1].end,
        writers=reading.writers,
        source_end_offset=spans[0].end,
        source_timestamp_ms=found.last_timestamp_ms,
    )


class _Reading:
    """The records of both logs that count, as often as they are asked for."""

    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: Cluster,
        where: tuple[TopicPartition, TopicPartition],
        spans: tuple[LogSpan, LogSpan],
        report: Report,
    ) -> None:
        self._link = link
        self._logs: tuple[Logs, Logs] = (ClusterLogs(source), ClusterLogs(target))
        self._where = where
        self._spans = spans
        self._report = report
        self._passage = Passage(link, source, target)
        self._at_target = target
        self.writers: frozenset[int] = frozenset()

    async def learn_writers(self) -> None:
        """Find out which of the target's producers are links that read from the source."""
        await self._passage.look(self._at_target)
        self._link = self._passage.link
        origin = self._link.source.name
        registered = self._passage.at_target.registered()
        self.writers = frozenset(known.producer_id for known in registered if known.source.name == origin)

    async def source(self, start: int) -> AsyncIterator[Seen]:
        """What there is to mirror from `start` on."""
        (logs, _), (where, _), (span, _) = self._logs, self._where, self._spans
        async for header, record in read_carried(self._passage, logs, where, start, span.end):
            yield _seen(record, header.producer_id, is_stamped=False)

    async def target(self, start: int) -> AsyncIterator[Seen]:
        """What was mirrored, or must have been: all records, and in a shared topic those that came from the source."""
        (_, logs), (_, where), (_, span) = self._logs, self._where, self._spans
        async for header, batch in logs.read_batches(where, start, span.end, IsolationLevel.READ_UNCOMMITTED):
            self._report(min(header.next_offset, span.end) - span.start, span.end - span.start)
            if header.is_control or (self._link.shared_targets and header.producer_id not in self.writers):
                continue
            for record in decode_records(batch):
                if start <= record.offset < span.end:
                    yield _seen(record, header.producer_id, is_stamped=header.is_log_append_time)

    @property
    def starts(self) -> tuple[int, int]:
        return self._spans[0].start, self._spans[1].start


async def _matched(reading: _Reading, nature: Nature) -> Matched | Unmatched:
    starts = reading.starts
    if not nature.source_is_compacted and not nature.target_is_compacted:
        first = await find_first(reading.source(starts[0]), reading.target(starts[1]), nature)
        if isinstance(first, Unmatched):
            return first
        starts = first
    return await match(reading.source(starts[0]), reading.target(starts[1]), nature)


def _seen(record: Record, producer_id: int, *, is_stamped: bool) -> Seen:
    content = blake2b(digest_size=16)
    for part in (record.key, record.value, *(part for name, value in record.headers for part in (name, value))):
        data = part.encode() if isinstance(part, str) else part
        content.update(_NULL if data is None else len(data).to_bytes(8, "big"))
        content.update(data or b"")
    return Seen(
        offset=record.offset,
        timestamp=record.timestamp,
        content=content.digest(),
        key=None if record.key is None else blake2b(record.key, digest_size=16).digest(),
        is_tombstone=record.value is None,
        producer_id=producer_id,
        is_stamped=is_stamped,
    )


async def _topic_id(cluster: Cluster, topic: str) -> str:
    return str((await describe_topics(cluster, [topic]))[topic].topic_id or "")


async def _span(cluster: Cluster, where: TopicPartition) -> LogSpan:
    span = (await log_spans(cluster, [where]))[where]
    if isinstance(span, LogSpan):
        return span
    raise span


async def _is_compacted(cluster: Cluster, topic: str) -> bool:
    described = (await describe_topic_configs(cluster, [topic]))[topic]
    if isinstance(described, KafkaError):
        raise described
    return "compact" in (described["cleanup.policy"].value or "")
