"""The first and the last committed records of many partitions, read side by side: a fetch for each leader and round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.client.cluster import Cluster
from broker.client.committed import CommittedFilter
from broker.client.errors import ClientError
from broker.client.log import FetchLimits, fetch_each, records_of
from broker.wire.batch import verify_crc
from broker.wire.errors import WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import PartitionData
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition

COMMITTED: Final = IsolationLevel.READ_COMMITTED
"""What the mirror carries, so that only that is at both sites."""
ROOM_BYTES: Final = 16 * 1024
"""For each partition of a fetch, at first: a batch mostly fits, and a thousand of them are no burden to a long way."""
GROWTH: Final = 8


class Span(NamedTuple):
    """The offsets [start, end)."""

    start: int
    end: int


@dataclass(slots=True)
class _Search:
    """A span that is read from `position` on, and the newest committed record that was found in it."""

    span: Span
    position: int
    found: Record | None = None

    def take(self, data: PartitionData, *, only_first: bool) -> bool:
        """Goes on with what was fetched -> whether that is all. Raises WireError."""
        kept = CommittedFilter(data.aborted_transactions)
        for header, batch in iter_fetched(records_of(data)):
            if header.next_offset <= self.position:
                continue
            if header.base_offset >= self.span.end:
                return True
            verify_crc(batch)
            self.position = header.next_offset
            if kept.drops(header, batch):
                continue
            for record in decode_records(batch):
                if self.span.start <= record.offset < self.span.end:
                    self.found = record
                    if only_first:
                        return True
        return self.position >= min(self.span.end, data.last_stable_offset)


Found = dict[TopicPartition, Record | ClientError | WireError | None]
"""None: there is no committed record. An error: the partition could not be read."""


async def first_records(cluster: Cluster, spans: Mapping[TopicPartition, Span]) -> Found:
    """The first committed record in each span. Raises ClientError only where no broker answers at all."""
    return await _search(cluster, spans, only_first=True)


async def last_records(cluster: Cluster, spans: Mapping[TopicPartition, Span]) -> Found:
    """The last ones: markers, offset gaps and aborted records behind them are stepped over."""
    found: Found = {where: None for where, span in spans.items() if span.start >= span.end}
    waiting = {where: Span(span.end, span.end) for where, span in spans.items() if where not in found}
    width = 1
    while waiting:
        tried = {
            where: Span(max(spans[where].start, before.start - width), before.start)
            for where, before in waiting.items()
        }
        found |= await _search(cluster, tried, only_first=False)
        waiting = {
            where: span for where, span in tried.items() if found[where] is None and span.start > spans[where].start
        }
        width *= GROWTH
    return found


async def _search(cluster: Cluster, spans: Mapping[TopicPartition, Span], *, only_first: bool) -> Found:
    found: Found = {}
    searches = {where: _Search(span, span.start) for where, span in spans.items()}
    waiting = {where: search for where, search in searches.items() if search.span.start < search.span.end}
    most, room = cluster.limits.fetch_max_bytes, ROOM_BYTES
    while waiting:
        positions = {where: search.position for where, search in waiting.items()}
        answers = await fetch_each(cluster, positions, FetchLimits(most, room), COMMITTED)
        still: dict[TopicPartition, _Search] = {}
        going: dict[TopicPartition, _Search] = {}
        for where, search in waiting.items():
            data = answers[where]
            try:
                if not isinstance(data, ClientError) and not search.take(data, only_first=only_first):
                    (still if search.position == positions[where] else going)[where] = search
                elif isinstance(data, ClientError):
                    found[where] = data
            except WireError as damaged:
                found[where] = damaged
        if still and not going and room == most:
            break  # each had its turn with all the room: nothing is there
        room = min(room * GROWTH, most) if still else room
        waiting = {**still, **going}  # who had no room goes first
    return {where: search.found for where, search in searches.items()} | found
