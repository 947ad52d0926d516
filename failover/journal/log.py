"""The journal's topic at the target: reading it, taking an operation on, writing under its fence.

Operations from one site to another share a transactional id: who takes one on raises its epoch, by a marker in the
topic, and whoever had it is refused at the next entry. So of two machines one carries an operation on, and no second
operation between the same sites begins beside it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

from broker.base.ending import to_its_end
from broker.base.errors import first_of
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import both
from broker.client.log import append
from broker.client.model import Topic
from broker.client.offsets import LogSpan, log_spans
from broker.client.producers import ProducerIdAndEpoch, add_partitions_to_txn, end_txn, init_producer_id
from broker.client.scan import OffsetSpan, scan_batches
from broker.wire.batch import BatchHeader
from broker.wire.buffers import Buffer
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.vocabulary import TopicPartition
from failover.errors import FailoverError, JournalUnanswered, OperationTakenUp, Overtaken
from failover.journal.topic import WHERE, is_journal_there, journal_topic, make_journal
from failover.journal.values import (
    BATCH_MAX_BYTES,
    GENESIS_HASH,
    PART_MAX_BYTES,
    JournalEntry,
    Lease,
    OperationLog,
    OperationsFolding,
    hash_of,
)
from failover.limits import DRAIN_POLL_S, HEARTBEAT_S, LEASE_S, TAKEN_OVER_S

T = TypeVar("T")

FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class _LogWentBack(Exception):
    """What was read last is not what stands there."""


class OperationsReader:
    """Reads a target's operations again and again, each time on from where it stopped. Those who ask while somebody
    reads share the read that begins next, also where it fails: one behind the other would wait as long again.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._reads_begun = 0
        self._failed: tuple[int, ClientError] | None = None
        self._begin(None)

    def _begin(self, topic: Topic | None) -> None:
        self._read_whole = 0
        self._topic = topic
        self._start = 0
        self._read_to = 0
        self._last: BatchHeader | None = None
        self._folding = OperationsFolding()

    async def read(self, target: Cluster) -> dict[str, OperationLog]:
        """All that the target keeps, by id; none where there never was one. Raises ClientError."""
        asked_behind = self._reads_begun
        async with self._turn:
            if self._read_whole > asked_behind:
                return self._folding.operations()
            if self._failed is not None and self._failed[0] > asked_behind:
                raise self._failed[1].again() from self._failed[1]
            self._reads_begun += 1
            try:
                return await self._read(target)
            except ClientError as error:
                self._failed = self._reads_begun, error
                raise

    async def _read(self, target: Cluster) -> dict[str, OperationLog]:
        if self._topic is None:
            topic, span = await journal_topic(target), None
        else:  # side by side: of one that was deleted since, the end is not asked for in vain every time
            topic, span = await both(journal_topic(target), _journal_span(target))
        if topic is None:
            self._begin(None)
            self._read_whole = self._reads_begun
            return {}
        span = span if span is not None else await _journal_span(target)
        if isinstance(span, ClientError):
            raise span
        is_other = self._topic is None or topic.topic_id != self._topic.topic_id
        if is_other or span.start != self._start or not self._read_to <= span.end:
            self._begin(topic)
        with ExitStack() as unread:  # what was read by halves must not be read on from
            unread.callback(self._begin, None)
            if not await self._read_on(target, span):
                self._begin(topic)
                await self._read_on(target, span)
            unread.pop_all()
        self._start, self._read_to, self._read_whole = span.start, span.end, self._reads_begun
        return self._folding.operations()

    async def _read_on(self, target: Cluster, span: LogSpan) -> bool:
        """False: the batch that was read last is not there any more as it was. A log that lost its end, under a leader
        without it, may have grown past it since: its offsets alone say nothing.

        One that seems to have got nothing is asked for nothing, which is a round trip for each look; whoever begins an
        operation or takes one up writes before he looks for the last time.
        """
        known = self._last
        if span.end == self._read_to:
            return True

        def visit(_where: TopicPartition, header: BatchHeader, batch: memoryview) -> None:
            nonlocal known
            if known is not None:
                if header != known:
                    raise _LogWentBack
                known = None
                return
            self._last = header
            if not header.is_control:
                for record in decode_records(batch):
                    self._folding.take(record.key, record.value)

        start = span.start if known is None else known.base_offset
        try:
            await scan_batches(target, {WHERE: OffsetSpan(start, span.end)}, visit)
        except _LogWentBack:
            return False
        return known is None


async def load_operations(target: Cluster, reader: OperationsReader | None = None) -> dict[str, OperationLog]:
    """As `OperationsReader.read`; `reader`: of who asks again and again."""
    return await (reader or OperationsReader()).read(target)


async def _journal_span(target: Cluster) -> LogSpan | ClientError:
    return (await log_spans(target, [WHERE]))[WHERE]


def transactional_id(source: str, target: str) -> str:
    """Of operations from one site to another. No link's name has a dot, so it is no link's."""
    return f"farshore-{source}.{target}.operations"


class OperationJournal:
    """The writing end of one operation: what a step announces is at the target, replicated, before the step runs."""

    def __init__(
        self,
        target: Cluster,
        operation_id: str,
        who: str,
        writer: ProducerIdAndEpoch,
        between: tuple[str, str],
        log: OperationLog | None = None,
    ) -> None:
        """`between`: the sites that `writer` was claimed for, source and target; `log`: what is there of it already."""
        self.operation_id = operation_id
        self.who = who
        self._target = target
        self._writer = writer
        self._between = between
        self._sequence = len(log.entries) if log is not None else 0
        self._hash = log.next_hash if log is not None else GENESIS_HASH
        self._batch_sequence = 0
        self._begun_appends = 0
        self._lock = asyncio.Lock()
        self._lost: FailoverError | None = None
        self._heard_at_s = target.clock.boottime()
        self._renews_next = False

    @property
    def is_begun(self) -> bool:
        """Whether an entry of the operation is there, so that others know of it."""
        return self._sequence > 0

    @property
    def is_held(self) -> bool:
        """Whether nobody else can have taken the operation up: the lease is younger than anybody waits for."""
        is_young = self._target.clock.boottime() - self._heard_at_s < LEASE_S
        return is_young and not self.is_taken_up

    @property
    def is_taken_up(self) -> bool:
        """Whether the journal has said that it takes no more of this machine."""
        return isinstance(self._lost, OperationTakenUp)

    def check_held(self) -> None:
        """Raises OperationTakenUp, JournalUnanswered where somebody else may have taken the operation up by now, as far
        as this machine's clock tells. It does not wait; what must not be wrong where that stood still asks `renew`.
        """
        if not self.is_held:
            raise OperationTakenUp(self.operation_id) if self.is_taken_up else self._unanswered()

    async def while_held(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to. It is not cancelled with the caller, and cut off as soon as somebody else may have
        taken the operation up. Raises OperationTakenUp, JournalUnanswered then.
        """
        return await to_its_end(self._while_held(work))

    async def _while_held(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                self.check_held()
                await asyncio.wait([task], timeout=DRAIN_POLL_S)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        return task.result()

    def _unanswered(self) -> JournalUnanswered:
        return JournalUnanswered(self.operation_id, self._target.site.name)

    def wrote_all(self, log: OperationLog) -> bool:
        """Whether nobody else has written an entry of the operation."""
        return not log.damage and (len(log.entries), log.next_hash) == (self._sequence, self._hash)

    async def record(self, event: str, detail: Mapping[str, Any]) -> JournalEntry:
        """Append an entry and wait for all replicas. Raises OperationTakenUp, ClientError."""
        (entry,) = await self.record_all([(event, detail)])
        return entry

    async def record_all(self, noted: Iterable[tuple[str, Mapping[str, Any]]]) -> list[JournalEntry]:
        """As `record`, of several one behind the other: over a distance they take one round trip."""
        async with self._lock:
            asked_at_s = self._target.clock.boottime()
            now_ms, last_hash = self._target.clock.now_ms(), self._hash
            entries: list[JournalEntry] = []
            records = [self._lease_record()] if self._renews_next else []
            for at, (event, detail) in enumerate(noted):
                entry = JournalEntry(self._sequence + at, now_ms, self.operation_id, event, detail, last_hash)
                line = entry.line().encode()
                last_hash = hash_of(line)
                entries.append(entry)
                records += entry.records(line)
            await to_its_end(self._append_all(records, self._sequence + len(entries), last_hash))
            if self._renews_next:
                self._renews_next, self._heard_at_s = False, asked_at_s
            return entries

    async def _append_all(self, records: Sequence[tuple[bytes, bytes]], sequence: int, last_hash: str) -> None:
        """With what stands in the journal then: whoever waits for this may be cancelled, and write once more."""
        asked_at_s = self._target.clock.boottime()
        await self._append_in_parts(records)
        self._sequence, self._hash = sequence, last_hash
        self._heard_at_s = max(self._heard_at_s, asked_at_s)

    async def _append_in_parts(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """In one batch, which takes one round trip, where that is compressed to no more than one part may be."""
        length = sum(len(value) for _, value in records)
        if length <= PART_MAX_BYTES or (length <= BATCH_MAX_BYTES and len(self._batch(records)) <= PART_MAX_BYTES):
            await self._append(*records)
            return
        for record in records:
            await self._append(record)

    @asynccontextmanager
    async def kept(self, *noted: tuple[str, Mapping[str, Any]]) -> AsyncIterator[None]:
        """Says again and again who carries the operation on, at first together with what is `noted`. Whoever cannot say
        so for LEASE_S is cancelled: somebody else may have taken it up. Raises OperationTakenUp, JournalUnanswered.
        """
        self._renews_next = True
        await self.record_all(noted)
        try:
            async with asyncio.TaskGroup() as tasks:
                beating = tasks.create_task(self._beat())
                yield
                async with self._lock:  # an append that is cut off leaves it unknown what is there
                    beating.cancel()
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None

    async def _beat(self) -> None:
        while True:
            await self._target.clock.sleep(HEARTBEAT_S)
            try:
                async with timeout(max(0.0, self._heard_at_s + LEASE_S - self._target.clock.boottime())):
                    await self._renew()
            except TimeoutError as error:
                raise self._unanswered() from error

    async def renew(self) -> None:
        """Whoever takes the operation up does so behind this, whatever the clocks say, and fences later than this
        machine has: the journal takes it under this operation's epoch, or not at all. Those who ask meanwhile share
        the next append. Raises OperationTakenUp, JournalUnanswered.
        """
        try:
            await to_its_end(self._renew(self._begun_appends))
        except ClientError as error:
            raise self._unanswered() from error

    async def _renew(self, unless_behind: float = math.inf) -> None:
        async with self._lock:
            if self._begun_appends > unless_behind and self._lost is None:
                return
            asked_at_s = self._target.clock.boottime()
            await self._append(self._lease_record())
            self._heard_at_s = asked_at_s

    def _lease_record(self) -> tuple[bytes, bytes]:
        return Lease(self.who, self._target.clock.now_ms(), self._between).record(self.operation_id)

    async def forget(self, logs: Iterable[OperationLog]) -> None:
        """Take back all that stands of other operations, of each at once. Raises OperationTakenUp, ClientError."""
        async with self._lock:
            for log in logs:
                if log.keys:
                    await to_its_end(self._append(*((key, None) for key in log.keys)))

    async def _append(self, *records: tuple[bytes, bytes | None]) -> None:
        """The same batch again where it is not known to be there: by its sequence it is there once. After an end that
        leaves it unknown nothing more is written: under its sequence another batch could pass for this one.
        """
        if self._lost is not None:
            raise self._lost
        self._lost = self._unanswered()
        self._begun_appends += 1
        try:
            await self._send(self._batch(records))
        except KafkaError as error:
            if error.code in FENCED:
                self._lost = OperationTakenUp(self.operation_id)
                raise self._lost from error
            raise
        self._lost = None
        self._batch_sequence += len(records)

    def _batch(self, records: Sequence[tuple[bytes, bytes | None]]) -> Buffer:
        return encode_batch(
            [Record(at, self._target.clock.now_ms(), *record) for at, record in enumerate(records)],
            compression=Compression.GZIP,
            producer_id=self._writer.producer_id,
            producer_epoch=self._writer.producer_epoch,
            base_sequence=self._batch_sequence,
        )

    async def _send(self, batch: Buffer) -> None:
        clock = self._target.clock
        deadline_s = clock.boottime() + TAKEN_OVER_S
        while True:
            try:
                await append(self._target, WHERE, batch)
                return
            except ClientError as error:
                if not error.retriable or clock.boottime() > deadline_s:
                    raise
            await clock.sleep(DRAIN_POLL_S)


async def claim(
    target: Cluster,
    sites: tuple[str, str],
    check: Callable[[Mapping[str, OperationLog]], T],
    reader: OperationsReader | None = None,
) -> tuple[ProducerIdAndEpoch, T]:
    """Become the one who writes of operations between these sites (source, target) -> and what `check` gave.

    `check` gets what stands there before, and once more behind the fence, and raises where it is not to be. Raises
    Overtaken when somebody else does the same at the same time, ClientError. `reader`: of who asked before.
    """
    reader = reader or OperationsReader()
    # One that is being made meanwhile is empty, or read behind the fence.
    is_there, before = await both(is_journal_there(target), reader.read(target))
    check(before)
    txn = transactional_id(*sites)
    try:
        fencing, _ = await both(init_producer_id(target, txn), make_journal(target, is_there=is_there))
        refused = await add_partitions_to_txn(target, txn, fencing, [WHERE])
        for error in refused.values():
            raise error
        await end_txn(target, txn, fencing, commit=False)
        # It succeeds when the marker is written, and only for who was not overtaken.
        writer = await init_producer_id(target, txn, fencing)
    except KafkaError as error:
        if error.code in FENCED:
            raise Overtaken(*sites) from error
        raise
    return writer, check(await reader.read(target))
