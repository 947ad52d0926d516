"""How far a link's target is behind its source, also while no mirror runs.

Per partition, from what both clusters say now:

- `lag_offsets`: the source's last stable offset minus the next offset to be mirrored.
- `lag_records`: the records between the two. Exact, from batch headers, when they fit one fetch; otherwise the
  difference of offsets, which also counts markers and compacted records (`lag_records_estimated`).
- `lag_seconds`: how long ago, by its own timestamp, the oldest record that is not mirrored was written; 0 when all is.
  Unknown (None) where records are behind and none of them that has a timestamp could be looked at.
- `lag_span_seconds`: the newest source timestamp minus that of the oldest unmirrored record; says more than
  `lag_seconds` for records whose timestamps are not of today.
- `lag_bytes`: the size of the unmirrored batches as they are stored, 0 where they are markers alone; beyond one fetch
  estimated from their mean size; unknown (None) where none could be looked at.
- `held_by_transaction_offsets`: from the last stable offset to the log's end, where a transaction is open, else 0. No
  other number has them: nobody knows yet what of them will be records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both, split_failures
from broker.client.log import FetchLimits, fetch_each, records_of
from broker.client.model import OffsetAndTimestamp
from broker.client.offsets import list_each_offset, log_spans
from broker.client.topics import describe_each_topic, list_each_topic
from broker.wire.api import ApiKey
from broker.wire.batch import BatchHeader
from broker.wire.errors import WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import PartitionData
from broker.wire.vocabulary import LATEST, MAX_TIMESTAMP, MAX_TIMESTAMP_SINCE_VERSION, IsolationLevel, TopicPartition
from mirror.errors import OffsetDeclined, OffsetHeld
from mirror.limits import LAG_SCAN_MAX_BYTES
from mirror.link import Link
from mirror.offsets.state import LinkState, load_link_state
from mirror.topics.plan import select_topics
from mirror.topics.seen import has_legal_name


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One mirrored partition; the module says what the numbers mean.

    `mirrored_offset` is the next source offset to be mirrored, None when nothing was mirrored yet.
    """

    topic: str
    partition: int
    target_topic: str
    mirrored_offset: int | None
    source_end_offset: int
    target_end_offset: int | None
    lag_offsets: int
    lag_records: int
    lag_records_estimated: bool
    lag_bytes: int | None
    lag_bytes_estimated: bool
    lag_seconds: float | None
    lag_span_seconds: float | None
    oldest_unmirrored_timestamp_ms: int | None
    held_by_transaction_offsets: int = 0


@dataclass(frozen=True, slots=True)
class Unmirrored:
    """The headers of the first unmirrored batches. `complete`: these are all. `newest_timestamp_ms`: of the source."""

    headers: tuple[BatchHeader, ...]
    complete: bool
    newest_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Ends:
    """One partition's offsets: the first unmirrored one that is still there, and where the source ends."""

    start: int
    source_end: int
    mirrored: int | None
    target_end: int | None
    held: int = 0
    """Offsets that stand behind an open transaction."""


def measure_lag(link: Link, where: TopicPartition, ends: Ends, sample: Unmirrored | None, now_ms: int) -> PartitionLag:
    """The lag of one partition; `sample` is None when nothing is unmirrored, or could not be looked at. Pure."""
    offsets = max(0, ends.source_end - ends.start)
    headers = sample.headers if sample is not None and offsets else ()
    records, estimated = offsets, offsets > 0
    size: int | None = None if offsets else 0
    oldest: int | None = None
    if headers and sample is not None:
        covered = headers[-1].next_offset - headers[0].base_offset
        inside = min(headers[-1].next_offset, ends.source_end) - ends.start
        size_bytes = sum(header.size_bytes for header in headers)
        if sample.complete:
            ahead = max(0, ends.start - headers[0].base_offset)
            records = max(1, sum(h.record_count for h in headers if not h.is_control) - ahead)
            estimated, size = False, size_bytes
        else:
            size = round(size_bytes / max(1, covered) * offsets) if inside > 0 else size_bytes
        oldest = next((h.first_timestamp for h in headers if not h.is_control and h.first_timestamp >= 0), None)
        if sample.complete and all(header.is_control for header in headers):
            records = size = 0
    newest = sample.newest_timestamp_ms if sample is not None else None
    age_s = 0.0 if records == 0 else None if oldest is None else max(0, now_ms - oldest) / 1000
    span_s = 0.0 if records == 0 else None if oldest is None or newest is None else max(0, newest - oldest) / 1000
    return PartitionLag(
        where.topic,
        where.partition,
        link.target_topic(where.topic),
        ends.mirrored,
        ends.source_end,
        ends.target_end,
        offsets,
        records,
        estimated,
        size,
        offsets > 0 and estimated,
        age_s,
        span_s,
        oldest,
        ends.held,
    )


@dataclass(frozen=True, slots=True)
class LagReport:
    """The lags by topic and partition, and the partitions whose lag cannot be known now, and why."""

    lags: tuple[PartitionLag, ...]
    unknown: Mapping[TopicPartition, FarshoreError]


async def link_lag(link: Link, source: Cluster, target: Cluster, state: LinkState | None = None) -> list[PartitionLag]:
    """The lag of every partition that the link selects, by topic and partition.

    `state` (from `load_link_state`) is loaded here when it is not given; the older it is, the larger the lag looks.
    Raises ClientError, also for one partition whose lag cannot be known, OffsetDeclined for one that is in doubt,
    StateDamaged.
    """
    retry = source.retry()
    while (report := await partial_lag(link, source, target, state or await load_link_state(link, target))).unknown:
        first, *_ = sorted(report.unknown.values(), key=lambda error: isinstance(error, ClientError))
        if not isinstance(first, ClientError):
            raise first  # it stays so until somebody has decided
        await retry.pause(first)
    return list(report.lags)


async def partial_lag(link: Link, source: Cluster, target: Cluster, state: LinkState) -> LagReport:
    """As `link_lag`, where one partition that cannot be looked at hides no other. Raises ClientError, StateDamaged."""
    topics, hidden = await list_each_topic(source, state.entries.mirrored_topics())
    partitions = [
        TopicPartition(name, partition.partition)
        for name in select_topics(link, topics)
        for partition in topics[name].partitions
    ]
    target_ends, unasked = await _target_ends(link, target, partitions)
    unknown: dict[TopicPartition, FarshoreError] = dict(unasked)
    held_before = state.entries.only_held(topics)
    for (name, number), why in state.entries.doubts(topics).items():
        kind = OffsetHeld if (name, number) in held_before else OffsetDeclined
        unknown[TopicPartition(name, number)] = kind(f"{name}-{number}: {why}")
    unknown |= {TopicPartition(*where): error for where, error in state.unread.items()}
    untold = [TopicPartition(*where) for where in state.entries.checkpoints if where[0] in hidden]
    unknown |= {where: hidden[where.topic] for where in untold}
    log_ends, asked = await both(
        list_each_offset(source, dict.fromkeys(partitions, LATEST)),
        log_spans(source, partitions, IsolationLevel.READ_COMMITTED),
    )
    spans, failures = split_failures(asked)
    unknown |= failures
    held = await _held_offsets(source, {where: span.end for where, span in spans.items()}, log_ends)
    ends: dict[TopicPartition, Ends] = {}
    for where in partitions:
        if isinstance(unknown.get(where), OffsetHeld | None):
            end = state.map.mirrored_end(where.topic, where.partition)
            position = None if end is None else max(end.source_next, state.map.partition(*where).position)
            if position is not None and spans[where].end < position:
                text = f"the log at {link.source.name} ends at {spans[where].end}, the mirror had read to {position}"
                unknown[where] = OffsetDeclined(f"{where}: {text}")
                continue
            if where in unknown:
                continue
            start = max(position or 0, spans[where].start)
            ends[where] = Ends(start, spans[where].end, position, target_ends.get(where), held.get(where, 0))
    lagging = {where: found for where, found in ends.items() if found.source_end > found.start}
    samples = await _sample(source, lagging)
    now_ms = source.clock.now_ms()
    lags = tuple(measure_lag(link, where, found, samples.get(where), now_ms) for where, found in ends.items())
    return LagReport(lags, {where: unknown[where] for where in sorted([*partitions, *untold]) if where in unknown})


async def _held_offsets(
    source: Cluster,
    stable: Mapping[TopicPartition, int],
    log_ends: Mapping[TopicPartition, OffsetAndTimestamp | ClientError],
) -> dict[TopicPartition, int]:
    """How many stand behind an open transaction: only where the last stable offset is the same behind the log's end."""
    told, _ = split_failures(log_ends)
    behind = {where: at for where, at in stable.items() if where in told and told[where].offset > at}
    stands = await still_stable_at(source, behind) if behind else frozenset()
    return {where: told[where].offset - behind[where] for where in stands}


async def still_stable_at(source: Cluster, stable: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
    """Those whose last stable offset is where it was, as far as they say. Raises ClientError."""
    asked = await list_each_offset(source, dict.fromkeys(stable, LATEST), IsolationLevel.READ_COMMITTED)
    now, _ = split_failures(asked)
    return frozenset(where for where, end in now.items() if end.offset == stable[where])


async def _target_ends(
    link: Link, target: Cluster, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ClientError]]:
    """Log ends at the target, by source partition, without those that are not there; and which cannot be asked."""
    names = {link.target_topic(where.topic) for where in partitions if has_legal_name(link, where.topic)}
    topics, unclear = await describe_each_topic(target, names)
    found, failures = {}, {}
    for where in partitions:
        name = link.target_topic(where.topic)
        if name in unclear:
            failures[where] = unclear[name]
        elif name in topics and where.partition < len(topics[name].partitions):
            found[TopicPartition(name, where.partition)] = where
    ends, failed = split_failures(await list_each_offset(target, dict.fromkeys(found, LATEST)))
    unknown = {**failures, **{found[there]: error for there, error in failed.items()}}
    return {found[there]: end.offset for there, end in ends.items()}, unknown


async def _sample(source: Cluster, lagging: Mapping[TopicPartition, Ends]) -> dict[TopicPartition, Unmirrored]:
    headers: dict[TopicPartition, tuple[BatchHeader, ...]] = {}
    limits = FetchLimits(source.limits.fetch_max_bytes, LAG_SCAN_MAX_BYTES)
    waiting = {where: ends.start for where, ends in lagging.items()}
    while waiting:
        # One that fails, or that retention has passed since, has no sample: the next look may have one.
        answers, _ = split_failures(await fetch_each(source, waiting, limits, IsolationLevel.READ_COMMITTED))
        looked = {where: found for where, data in answers.items() if (found := _within(data, lagging[where]))}
        headers |= looked
        waiting = {where: start for where, start in waiting.items() if where in answers and where not in looked}
        if not looked:
            break
    newest = await _newest_timestamps(source, headers)
    return {
        where: Unmirrored(found, found[-1].next_offset >= lagging[where].source_end, newest.get(where))
        for where, found in headers.items()
    }


def _within(data: PartitionData, ends: Ends) -> tuple[BatchHeader, ...]:
    """Empty for what cannot be read: one damaged batch leaves its partition without a sample, and no other."""
    try:
        batches = tuple(header for header, _ in iter_fetched(records_of(data)))
    except WireError:
        return ()
    return tuple(each for each in batches if ends.start < each.next_offset and each.base_offset < ends.source_end)


async def _newest_timestamps(source: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The highest timestamp per partition; empty where the cluster is too old to be asked (before KIP-734)."""
    asked = dict.fromkeys(partitions, MAX_TIMESTAMP)
    if (await source.any_connection()).version(ApiKey.LIST_OFFSETS) < MAX_TIMESTAMP_SINCE_VERSION:
        return {}
    found, _ = split_failures(await list_each_offset(source, asked))
    return {where: newest.timestamp_ms for where, newest in found.items()}
