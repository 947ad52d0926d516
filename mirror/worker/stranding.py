"""What of a promoted link's source stands behind the last mirrored record: read there, batch by batch.

Counts what the link would carry if it went on: committed records, and none that came from its target. Where another
promotion has made the source the active site again since, its log up to that promotion's marker is the tail, and what
follows are new records, which are mirrored as ever. A promotion that is done again has markers behind them: where the
log ended at the first is kept in its link's state. In a partition without a marker, one that was born since say,
nothing is a tail; but where the target wrote there, too, nobody can say where the tail ends. Where the source's log is
another one than was mirrored, of an older disk say, the tail begins where they part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TypeAlias

from broker.base.time_limits import timeout_at
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.limits import UNSHOWN_WAIT_S
from broker.client.log import read_batches
from broker.client.model import Topic
from broker.client.offsets import LogSpan, log_spans
from broker.client.scan import OffsetSpan, scan_batches
from broker.client.topics import list_topics
from broker.client.unshown import log_ends
from broker.wire.batch import BatchHeader
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.link import Link
from mirror.offsets.entries import Gap, GapStatus, LinkRun, RunState
from mirror.offsets.fenced_logs import FencedLog
from mirror.offsets.promotions import is_later, promotion_of
from mirror.offsets.state import LinkState, load_link_state, read_entries
from mirror.origins import Verdict
from mirror.worker.on_their_way import OnTheirWay, on_their_way
from mirror.worker.origins import Passage
from mirror.worker.parted import PartingKind, SourceParting, partings_by
from mirror.worker.stranded_tail import StrandedTail

Report: TypeAlias = Callable[[int, int], None]
"""Is told how many of the source's offsets were read, and how many there are to read."""


class TailReader:
    """Both sites of a promoted link, looked at once. Raises ClientError, MirrorError."""

    def __init__(self, link: Link, source: Cluster, target: Cluster) -> None:
        self._declared = link
        self._source = source
        self._target = target
        self._passage = Passage(link, source, target)
        self._state: LinkState | None = None
        self._at_source: Mapping[str, Topic] = {}
        self._at_target: Mapping[str, Topic] = {}
        self._back_since: Mapping[int, Mapping[TopicPartition, FencedLog]] = {}
        self._is_order_known = True
        self._parted: dict[TopicPartition, SourceParting] = {}
        self._unshown: dict[TopicPartition, int] = {}
        """Where the source's log ends with what nobody is shown."""
        self._on_their_way = OnTheirWay({})
        self.may_be_brought: tuple[StrandedTail, ...] = ()
        """Of that: what may come from the target, by a link back, so that it is no tail."""
        self.untold_ends: tuple[TopicPartition, ...] = ()
        """Of which the source did not say how far its logs go behind what everybody is shown."""

    async def look(self) -> LinkRun | None:
        """Read the link's state and the registries -> what the link may do. What was mirrored, and is hidden from
        farshore now, may hold anything, and raises KafkaError.
        """
        entries = await read_entries(self._declared, self._target)
        await self._passage.look(self._target, entries.left_to())
        self._state = await load_link_state(self._passage.link, self._target)
        known = self._state.entries.mirrored_topics()
        self._at_source, self._at_target = await both(
            list_topics(self._source, known), list_topics(self._target, map(self.link.target_topic, known))
        )
        self._back_since = await self._promoted_since()
        partings = await partings_by(self._passage, (self._source, self._target), self._state.entries)
        self._parted = {parting.where: parting for parting in partings}
        return self._state.entries.run

    @property
    def link(self) -> Link:
        """As the registries at both sites complete it."""
        return self._passage.link

    @property
    def source_cluster_id(self) -> str:
        """As the source says it."""
        return self._source.cluster_id

    @property
    def partings(self) -> tuple[SourceParting, ...]:
        """Partitions whose source has not what was mirrored from it, or may not."""
        return tuple(self._parted.values())

    def topic_id(self, topic: str) -> str:
        """Of a source topic, "" where its cluster has no ids."""
        return str(self._at_source[topic].topic_id or "")

    async def _promoted_since(self) -> dict[int, Mapping[TopicPartition, FencedLog]]:
        """The producer ids of links back to the source whose promotion came after this link's, or may have, and where
        the source's logs ended behind that one, as far as it is kept.
        """
        assert self._state is not None
        since = {}
        for back in self.link.reverse_links:
            theirs = await read_entries(back, self._source, only=())
            if promotion_of(self._state.entries) and (promotion := promotion_of(theirs)):
                came_later = is_later(theirs, self._state.entries)
                self._is_order_known &= came_later is not None
                if came_later is not False:
                    since[back.name] = {
                        TopicPartition(back.target_topic(topic), partition): log
                        for (topic, partition), log in theirs.fenced_logs.items()
                        if log.operation_id == promotion.operation_id
                    }
        return {one.producer_id: since[one.link] for one in self._passage.at_source.registered() if one.link in since}

    async def tails(self, report: Report, until_s: float | None = None) -> tuple[StrandedTail, ...]:
        """By topic and partition, those that were left before those that nobody decided about. `until_s` of the event
        loop: what is not read by then is told as that.
        """
        assert self._state is not None
        spans = await self._spans(until_s)
        there = sum(span.end - span.start for span in spans.values())
        done = 0
        found, brought = list[StrandedTail](), list[StrandedTail]()
        for where, span in sorted(spans.items()):
            active_from: int | None = span.end
            with suppress(TimeoutError):  # then no more of it is read
                async with timeout_at(until_s):
                    active_from = await self._active_from(where, span)
            for tail in self._ranges(where, span.start, span.end if active_from is None else active_from):
                counted = await self._counted(tail, until_s)
                if counted.records == 0:
                    continue
                if not tail.left:
                    counted = replace(counted, target_wrote=await self._target_wrote(where, tail.mirrored_target_next))
                    if active_from is None:
                        counted = replace(counted, records=None, is_end_known=False)
                found.append(counted)
            if (end := self._unshown.get(where)) and (active_from is None or not self._back_since):  # else it is new
                unshown = self._undecided(where, span.end, end)
                wrote = await self._target_wrote(where, unshown.mirrored_target_next)
                is_known = active_from is not None
                unshown = replace(unshown, target_wrote=wrote, is_end_known=is_known, is_shown=False)
                is_brought = self._on_their_way.may_be(where, end - span.end)
                (brought if is_brought else found).append(unshown)
            done += span.end - span.start
            report(done, there)
        self.may_be_brought = tuple(brought)
        return tuple(found)

    async def _spans(self, until_s: float | None) -> dict[TopicPartition, LogSpan]:
        """Per selected partition of the source what lies behind the last mirrored record, or was left once; empty where
        nobody is shown it: where that ends is kept. Of a link that runs that is not asked.
        """
        wanted = [
            TopicPartition(name, partition.partition)
            for name, topic in self._at_source.items()
            if self.link.selects_topic(name) and name != self.link.canary_topic
            for partition in topic.partitions
        ]
        spans, self._unshown, self._on_their_way = {}, {}, OnTheirWay({})
        ends = await log_ends(self._source, wanted, _wait_s(until_s)) if self._is_promoted else {}
        untold = (at for at, end in ends.items() if not isinstance(end, ClientError) and end.appended is None)
        is_new = self._back_since and self._is_order_known  # whatever it is
        self.untold_ends = () if is_new else tuple(sorted(untold))
        if unshown := [at for at, end in ends.items() if not isinstance(end, ClientError) and end.has_unshown]:
            self._on_their_way = await on_their_way(self._passage, self._source, self._target, unshown)
        for where, span in (await log_spans(self._source, wanted)).items():
            if not isinstance(span, LogSpan):
                raise span
            if isinstance(end := ends.get(where), ClientError):
                raise end
            begins = min([self._position(where, span.start), *(gap.source_from for gap in self._left(where))])
            if (first := max(begins, span.start)) < span.end:
                spans[where] = LogSpan(first, span.end)
            if end is not None and end.appended is not None and max(first, span.end, end.shown) < end.appended:
                self._unshown[where] = end.appended
                spans.setdefault(where, LogSpan(max(first, span.end), max(first, span.end)))
        return spans

    def _position(self, where: TopicPartition, log_start: int) -> int:
        assert self._state is not None
        end = self._state.map.mirrored_end(*where)
        if (parting := self._parted.get(where)) and parting.is_known:
            return parting.from_offset
        return log_start if end is None else end.source_next

    def _left(self, where: TopicPartition) -> list[Gap]:
        """By offset. Where the source's log is another one than was mirrored: of that one, and not of the former."""
        assert self._state is not None
        parting = self._parted.get(where)
        left = [gap for gap in self._state.entries.left_at_source() if (gap.topic, gap.partition) == where]
        return left_in_log(left, parting if parting is not None and parting.is_known else None)

    def _ranges(self, where: TopicPartition, start: int, end: int) -> list[StrandedTail]:
        """What was left, as it was written down; of a link that does not run, also the rest up to `end`."""
        empty = StrandedTail(*where, self.link.target_topic(where.topic), 0, 0, None, None, None, True, False, -1)
        begins, ranges = max(self._position(where, start), start), []
        for gap in self._left(where):
            left = replace(empty, mirrored_target_next=gap.target_offset)
            ranges.append(replace(left, first_offset=max(gap.source_from, start), end_offset=gap.source_to))
            if gap.status is GapStatus.ACCEPTED:
                begins = max(begins, gap.source_to)
        if self._is_promoted and begins < end:
            ranges.append(self._undecided(where, begins, end))
        return ranges

    @property
    def _is_promoted(self) -> bool:
        run = None if self._state is None else self._state.entries.run
        return run is not None and run.state is RunState.PROMOTED

    def _undecided(self, where: TopicPartition, start: int, end: int) -> StrandedTail:
        assert self._state is not None
        mirrored = self._state.map.mirrored_end(*where)
        target_next = -1 if mirrored is None else mirrored.target_next
        topic = self.link.target_topic(where.topic)
        return StrandedTail(*where, topic, start, end, None, None, None, False, False, target_next)

    async def _active_from(self, where: TopicPartition, span: LogSpan) -> int | None:
        """The offset behind the last batch of a link back that was promoted since, but for those of a promotion that
        was done again; the log's end where none was.

        None where it is not known which was promoted later. Where such a link wrote nothing, the tail is no more than
        a lag if the target wrote nothing either: then the span's start; else None.
        """
        assert self._state is not None
        if not self._is_order_known:
            return None
        if not self._back_since or span.start == span.end:
            return span.end
        ends = {one: self._fenced_end(where, logs) for one, logs in self._back_since.items()}
        last = -1

        def visit(_where: TopicPartition, header: BatchHeader, _batch: memoryview) -> None:
            nonlocal last
            end = ends.get(header.producer_id, 0)
            if end is None or header.base_offset < end:
                last = max(last, header.next_offset)

        await scan_batches(self._source, {where: OffsetSpan(span.start, span.end)}, visit)
        if last >= 0:
            return last
        if kept := [end for end in ends.values() if end is not None]:
            return max(span.start, *kept)
        mirrored = self._state.map.mirrored_end(*where)
        wrote = await self._target_wrote(where, -1 if mirrored is None else mirrored.target_next)
        return None if wrote else span.start

    def _fenced_end(self, where: TopicPartition, logs: Mapping[TopicPartition, FencedLog]) -> int | None:
        """Where the source's log ended behind the fence that these are of; None: it is not kept of that log."""
        log = logs.get(where)
        return log.end if log is not None and log.topic_id and log.topic_id == self.topic_id(where.topic) else None

    async def batches(self, tail: StrandedTail) -> AsyncGenerator[tuple[BatchHeader, memoryview]]:
        """The tail's batches as they are stored, but for those that the link would leave out. The first and the last
        may reach beyond the tail. Raises CorruptBatch, too.
        """
        async with aclosing(self._judged(tail)) as judged:
            async for header, batch, is_brought in judged:
                if not is_brought:
                    yield header, batch

    async def _judged(self, tail: StrandedTail) -> AsyncGenerator[tuple[BatchHeader, memoryview, bool]]:
        """Also those that the link would leave out, as they came from the target."""
        judge = self._passage.judge(tail.where)
        span = (tail.first_offset, tail.end_offset)
        async for header, batch in read_batches(self._source, tail.where, *span, IsolationLevel.READ_COMMITTED):
            await self._passage.learn(tail.where, batch)
            yield header, batch, judge(header).verdict is Verdict.LEAVE_OUT

    async def _counted(self, tail: StrandedTail, until_s: float | None) -> StrandedTail:
        """What came from the target behind all of it is no part of it: of a tail that is left the map has nothing."""
        # Before it is read: a transaction that was open for the reading, and ended since, left out what it held.
        stable = (await log_spans(self._source, [tail.where], IsolationLevel.READ_COMMITTED))[tail.where]
        if not isinstance(stable, LogSpan):
            raise stable
        is_open = stable.end < tail.end_offset
        records, read_to, own_end = 0, tail.first_offset, tail.end_offset
        known: list[int] = []
        is_cut = _is_over(until_s)
        end = tail.first_offset if is_cut else tail.end_offset
        async with aclosing(self._judged(replace(tail, end_offset=end))) as judged:
            async for header, batch, is_brought in judged:
                read_to = min(header.next_offset, tail.end_offset)
                if is_brought and own_end == tail.end_offset and not tail.left:
                    own_end = min(header.base_offset, tail.end_offset)
                found = [] if is_brought else records_in(tail, batch)
                own_end = tail.end_offset if found else own_end
                records += len(found)
                times = [*known, *(record.timestamp for record in found if record.timestamp >= 0)]
                known = [min(times), max(times)] if times else []
                if is_cut := read_to < tail.end_offset and _is_over(until_s):
                    break
        return replace(
            tail,
            end_offset=tail.end_offset if is_open or is_cut else own_end,
            records=None if is_open or is_cut else records,
            open_from=stable.end if is_open else None,
            first_timestamp_ms=min(known, default=None),
            last_timestamp_ms=max(known, default=None),
            read_to=read_to if is_cut else None,
            records_at_least=records if is_cut else None,
        )

    async def _target_wrote(self, where: TopicPartition, mirrored_target_next: int) -> bool:
        """Whether the target has committed records behind the last mirrored one that this source did not bring."""
        there = TopicPartition(self.link.target_topic(where.topic), where.partition)
        topic = self._at_target.get(there.topic)
        if topic is None or there.partition >= len(topic.partitions):
            return False
        span = (await log_spans(self._target, [there], IsolationLevel.READ_COMMITTED))[there]
        if not isinstance(span, LogSpan):
            raise span
        links = {
            one.producer_id for one in self._passage.at_target.registered() if one.source.name == self.link.source.name
        }
        start = max(span.start, mirrored_target_next)
        async for header, _batch in read_batches(self._target, there, start, span.end, IsolationLevel.READ_COMMITTED):
            if header.producer_id not in links and header.record_count:
                return True
        return False


def _wait_s(until_s: float | None) -> float:
    left_s = UNSHOWN_WAIT_S if until_s is None else until_s - asyncio.get_running_loop().time()
    return max(0.0, min(left_s, UNSHOWN_WAIT_S))


def _is_over(until_s: float | None) -> bool:
    return until_s is not None and asyncio.get_running_loop().time() >= until_s


def left_in_log(left: Iterable[Gap], parting: SourceParting | None) -> list[Gap]:
    """Those of these decisions that are about the log that the source has now, by offset. Pure.

    Before it parts from the mirrored one it is the same. Behind that, one says it that a link has not gone on behind
    yet, and that begins where the logs part, or where another such ends: one that was made of the former log begins
    behind what that had more, and of the records that stand at its offsets now nobody decided anything.
    """
    found = sorted(left, key=lambda gap: gap.source_from)
    if parting is None:
        return found
    if parting.kind is PartingKind.OTHER_TOPIC:
        return []
    decided, end = list[Gap](), parting.from_offset
    for gap in found:
        is_behind = gap.status is GapStatus.ACCEPTED and gap.source_from <= end < gap.source_to
        if is_behind or gap.source_to <= parting.from_offset:
            decided.append(gap)
            end = max(end, gap.source_to)
    return decided


def records_in(tail: StrandedTail, batch: memoryview) -> list[Record]:
    """Those of the batch that belong to the tail."""
    return [record for record in decode_records(batch) if tail.first_offset <= record.offset < tail.end_offset]
