"""How far the links back have come, looked at beside the records, and kept at the target (`mirror/offsets/returns.py`).

A failover without the source needs it. What cannot be asked or written now is tried again, and nothing waits for it.
"""

from __future__ import annotations

from uuid import UUID

from broker.base.address import AddressInvalid
from broker.base.clock import steady_ms
from broker.base.turns import in_turns
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_records
from broker.client.topics import describe_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Checkpoint, decode_entry, decode_key
from mirror.offsets.returns import FROM_THE_START, Returning, ReturnsSeen
from mirror.offsets.source_ends import load_observation
from mirror.worker.events import Event, changed_only
from mirror.worker.limits import PARTITIONS_AT_ONCE
from mirror.worker.observing import WRITTEN_MAX_BYTES_PER_S, entries_batch
from mirror.worker.session import Session

_POSITION_KEY = b'["position"'


class BackPositions:
    """Up to where a link back has come, partition by partition, as its state at the source says it."""

    def __init__(self, back: Link, source: Cluster) -> None:
        self._back = back
        self._source = source
        self._topic_id: UUID | None = None
        self._read_to: dict[TopicPartition, int] = {}
        self._ways: dict[TopicPartition, Returning] = {}

    def selects(self, topic: str) -> bool:
        return self._back.selects_topic(topic)

    def way(self, where: TopicPartition) -> Returning:
        """Of a partition of which nothing is told it has brought nothing, and may bring all."""
        return self._ways.get(where, FROM_THE_START)

    async def read_on(self) -> None:
        """From where it was read to; a state that was made anew from its start. Raises ClientError."""
        name = self._back.state_topic
        topic = (await describe_topics(self._source, [name])).get(name)
        parts = [] if topic is None else [TopicPartition(name, part.partition) for part in topic.partitions]
        ends = await log_end_offsets(self._source, parts)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id or any(ends.get(part, 0) < to for part, to in self._read_to.items()):
            self._read_to.clear()
            self._ways.clear()
            self._topic_id = topic_id
        for part in parts:
            await scan_records(self._source, part, OffsetSpan(self._read_to.get(part, 0), ends[part]), self._apply)
            self._read_to[part] = ends[part]

    def _apply(self, record: Record) -> None:
        if not (record.key or b"").startswith(_POSITION_KEY):
            return
        try:
            key = decode_key(record.key or b"")
            where = TopicPartition(str(key[1]), int(key[2]))
            self._ways.pop(where, None)
            entry = decode_entry(key, record.value) if record.value is not None else None
        except (ValueError, KeyError, TypeError, IndexError):
            return  # it tells nothing
        if isinstance(entry, Checkpoint):
            self._ways[where] = Returning(entry.end.target_next, max(entry.position, entry.end.source_next))


async def run_returns(session: Session) -> None:
    """Keep at the target what links back may have brought, where there are such. Raises nothing that a cluster does."""
    link, limits, clock = session.link, session.limits, session.target.clock
    backs = [BackPositions(back, session.source) for back in link.reverse_links]
    others = [*link.side_links, *link.round_links]
    seen, is_begun, tell = ReturnsSeen(link.state_partition), False, changed_only(session.tell)
    while limits.observe_interval_ms and (backs or others):
        size_bytes = 0
        try:
            if not is_begun:
                seen.begin((await load_observation(link, session.target)).returns)
                is_begun = True
            for back in backs:
                await back.read_on()
            await _see(session, backs, others, seen)
            size_bytes = await _write(link, session.target, seen)
        except (ClientError, AddressInvalid) as error:
            seen.write_all()
            tell(Event.ENDS_NOT_KEPT, link.ends_topic, str(error))
        pause_ms = max(limits.returns_interval_ms, 1_000 * size_bytes / WRITTEN_MAX_BYTES_PER_S)
        await clock.sleep(pause_ms / 1000)


async def _see(session: Session, backs: list[BackPositions], others: list[Link], seen: ReturnsSeen) -> None:
    now_ms = steady_ms(session.target.clock)
    ways: dict[str, list[BackPositions] | None] = {}
    async for where, replicator in in_turns(list(session.replicators.items()), PARTITIONS_AT_ONCE):
        topic = where.topic
        if topic not in ways:
            on_other_ways = any(other.selects_topic(topic) for other in others)
            ways[topic] = None if on_other_ways else [back for back in backs if back.selects(topic)]
        known, ids = ways[topic], replicator.history.topic_ids
        if known is None or len(known) > 1:
            seen.see_other_ways(where, ids)
        elif known:
            seen.see(where, known[0].way(where), replicator.position, ids, now_ms)


async def _write(link: Link, target: Cluster, seen: ReturnsSeen) -> int:
    """-> the size of what was written. Raises ClientError."""
    entries = seen.entries()
    if not entries:
        return 0
    if not await describe_topics(target, [link.ends_topic]):
        seen.write_all()  # who looks at the source's ends is about to make it
        return 0
    batch = entries_batch(entries, target.clock.now_ms())
    await append(target, TopicPartition(link.ends_topic, 0), batch)
    return len(batch)
