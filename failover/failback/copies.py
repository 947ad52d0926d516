"""Records that stand at both sites since a replay: in the log where they were written, and as copies at the other one.

A link from there brings the copies like any others, so that the first site has these records twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import read_records
from broker.client.offsets import log_start_offsets
from broker.wire.errors import WireError
from broker.wire.records import Record
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.errors import ReplayRefused
from failover.failback.replay import ORIGIN_HEADER
from failover.limits import COUNT_MS
from failover.losses.replayed import Ranges, inside, joined, replayed_of
from mirror.api import CarriedCounter, Link, MirrorError, StrandedTail

_NOT_TOLD = (ClientError, ReplayRefused, MirrorError, WireError, TimeoutError)


async def replayed_among(link: Link, source: Cluster, target: Cluster, tails: Sequence[StrandedTail]) -> int | None:
    """How many records of these ranges of the source were brought to the target by a replay. None: that cannot be told,
    or not in COUNT_MS.
    """
    if not tails:
        return 0
    try:
        async with timeout(COUNT_MS / 1000):
            done = await replayed_of(link, source, target, [tail.where for tail in tails])
            spans: dict[TopicPartition, Ranges] = {}
            for tail in tails:
                brought = inside(done.get(tail.where, ()), tail.first_offset, tail.end_offset)
                spans[tail.where] = joined(spans.get(tail.where, ()), brought)
            return await _records_in(link, source, target, spans)
    except _NOT_TOLD:
        return None


async def _records_in(
    link: Link, source: Cluster, target: Cluster, spans: Mapping[TopicPartition, Ranges]
) -> int | None:
    if not any(spans.values()):
        return 0
    counter, records = await CarriedCounter.look(link, source, target), 0
    for where, ranges in spans.items():
        for first, end in ranges:
            count = await counter.count(where, first, end)
            if count is None:
                return None
            records += count
    return records


async def copies_among(link: Link, source: Cluster, target: Cluster, tails: Sequence[StrandedTail]) -> int | None:
    """How many records of these ranges of the source are such copies, of records that the target has in its own log.
    None as of `replayed_among`. With prefixed names a link brings none back.
    """
    if not tails or link.topic_names != "same":
        return 0
    try:
        async with timeout(COUNT_MS / 1000):
            done = await replayed_of(link, target, source, [tail.where for tail in tails])  # the other way round
            done = {where: ranges for where, ranges in done.items() if ranges}
            starts = await log_start_offsets(target, done)
            kept = {where: inside(ranges, starts[where], ranges[-1][1]) for where, ranges in done.items()}
            copies = set[tuple[TopicPartition, int]]()
            for tail in tails:
                if ranges := kept.get(tail.where, ()):
                    span = tail.first_offset, tail.end_offset
                    async for record in read_records(source, tail.where, *span, IsolationLevel.READ_COMMITTED):
                        if inside(ranges, *_origin(record, tail.where)):
                            copies.add((tail.where, record.offset))
            return len(copies)
    except _NOT_TOLD:
        return None


def _origin(record: Record, where: TopicPartition) -> tuple[int, int]:
    """The range of this record alone where it was written; none where it is no copy of one of this partition."""
    told = dict(record.headers).get(ORIGIN_HEADER) or b""
    *_, topic, partition, offset = ["", "", "", *told.decode(errors="replace").split("/")]
    if (topic, partition) != (where.topic, str(where.partition)) or not (offset.isascii() and offset.isdecimal()):
        return 0, 0
    return int(offset), int(offset) + 1
