"""How many of a source's records a link would carry, by who wrote them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker.client.cluster import Cluster
from broker.client.log import read_batches
from broker.wire.records import decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.link import Link
from mirror.offsets.state import read_entries
from mirror.origins import Verdict
from mirror.worker.on_their_way import OnTheirWay, on_their_way
from mirror.worker.origins import Passage


class CarriedCounter:
    """Counts what of the source's log the link would carry, by the registries at both sites. Raises as `look`."""

    def __init__(self, passage: Passage, source: Cluster, target: Cluster) -> None:
        self._passage = passage
        self._source = source
        self._target = target

    @classmethod
    async def look(cls, link: Link, source: Cluster, target: Cluster) -> CarriedCounter:
        """Raises ClientError, StateDamaged."""
        passage = Passage(link, source, target)
        await passage.look(target, (await read_entries(link, target)).left_to())
        return cls(passage, source, target)

    async def on_their_way(self, unshown: Collection[TopicPartition]) -> OnTheirWay:
        """Of these, of which the leader has what nobody is shown: where that may come from the target, and how much."""
        return await on_their_way(self._passage, self._source, self._target, unshown)

    async def count(
        self, where: TopicPartition, start: int, end: int, none_until: Callable[[int], None] = lambda _offset: None
    ) -> int | None:
        """Committed records in [start, end) that the link would bring to its target; None where nobody can say from
        where some of them came. What is behind the start of an open transaction is not read: who wants to know of one
        asks before. `none_until` is told, while it reads, up to which offset there is none. Raises ClientError,
        StateDamaged, CorruptBatch.
        """
        return await self._count(where, start, end, none_until, are_left_out=False)

    async def count_left_out(self, where: TopicPartition, start: int, end: int) -> int | None:
        """As `count`, of those that the link leaves out as the target has had them: not of third sites' records that it
        leaves to their own links.
        """
        return await self._count(where, start, end, lambda _offset: None, are_left_out=True)

    async def _count(
        self, where: TopicPartition, start: int, end: int, none_until: Callable[[int], None], *, are_left_out: bool
    ) -> int | None:
        judge, records = self._passage.judge(where), 0
        async for header, batch in read_batches(self._source, where, start, end, IsolationLevel.READ_COMMITTED):
            await self._passage.learn(where, batch)
            judged = judge(header)
            if judged.verdict is Verdict.UNCLEAR:
                return None
            if (judged.verdict is Verdict.LEAVE_OUT) is not are_left_out or (are_left_out and judged.left_to):
                if not records:
                    none_until(min(header.next_offset, end))
                continue
            if start <= header.base_offset and header.next_offset <= end:
                records += header.record_count
            else:
                records += sum(start <= record.offset < end for record in decode_records(batch))
        return records
