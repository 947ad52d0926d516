"""The journal's topic at the target: reading it, taking an operation on, writing under its fence.

Operations from one site to another share a transactional id: who takes one on raises its epoch, by a marker in the
topic, and whoever had it is refused at the next entry. So of two machines one carries an operation on, and no second
operation between the same sites begins beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from broker.base.ending import to_its_end
from broker.base.errors import first_of
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.log import append
from broker.client.offsets import log_spans
from broker.client.producers import ProducerIdAndEpoch, add_partitions_to_txn, end_txn, init_producer_id
from broker.client.scan import OffsetSpan, scan_records
from broker.client.topics import NewTopic, create_topics, describe_topics
from broker.wire.buffers import Buffer
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from failover.errors import FailoverError, JournalUnanswered, OperationTakenUp, OperationUnderWay
from failover.journal import GENESIS_HASH, JournalEntry, Lease, OperationLog, read_operations
from failover.limits import DRAIN_POLL_S, HEARTBEAT_S, JOURNAL_REPLICATION_FACTOR, LEASE_S, TAKEN_OVER_S
from mirror.api import check_compacted

T = TypeVar("T")

OPERATIONS_TOPIC: Final = "__farshore-operations"
WHERE: Final = TopicPartition(OPERATIONS_TOPIC, 0)
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact"}
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


async def load_operations(target: Cluster) -> dict[str, OperationLog]:
    """All operations that the target keeps, by id; none where there never was one. Raises ClientError."""
    if not await describe_topics(target, [OPERATIONS_TOPIC]):
        return {}
    span = (await log_spans(target, [WHERE]))[WHERE]
    if isinstance(span, ClientError):
        raise span
    records: list[Record] = []
    await scan_records(target, WHERE, OffsetSpan(span.start, span.end), records.append)
    return read_operations((record.key, record.value) for record in records)


def transactional_id(source: str, target: str) -> str:
    """Of operations from one site to another. No link's name has a dot, so it is no link's."""
    return f"farshore-{source}.{target}.operations"


class OperationJournal:
    """The writing end of one operation: what a step announces is at the target, replicated, before the step runs."""

    def __init__(
        self, target: Cluster, operation_id: str, who: str, writer: ProducerIdAndEpoch, log: OperationLog | None = None
    ) -> None:
        """`log`: what is there of it already."""
        self.operation_id = operation_id
        self.who = who
        self._target = target
        self._writer = writer
        self._sequence = len(log.entries) if log is not None else 0
        self._hash = log.next_hash if log is not None else GENESIS_HASH
        self._batch_sequence = 0
        self._lock = asyncio.Lock()
        self._lost: FailoverError | None = None
        self._heard_at_s = target.clock.boottime()

    @property
    def is_held(self) -> bool:
        """Whether nobody else can have taken the operation up: the lease is younger than anybody waits for."""
        is_young = self._target.clock.boottime() - self._heard_at_s < LEASE_S
        return is_young and not isinstance(self._lost, OperationTakenUp)

    async def record(self, event: str, detail: Mapping[str, Any]) -> JournalEntry:
        """Append an entry and wait for all replicas. Raises OperationTakenUp, ClientError."""
        async with self._lock:
            now_ms = self._target.clock.now_ms()
            entry = JournalEntry(self._sequence, now_ms, self.operation_id, event, detail, self._hash)
            await to_its_end(self._append_all(entry.records()))
            self._hash = entry.hash()
            self._sequence += 1
            return entry

    async def _append_all(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        for record in records:
            await self._append(record)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Says again and again who carries the operation on. Whoever cannot say so for LEASE_S is cancelled: somebody
        else may have taken it up. Raises OperationTakenUp, JournalUnanswered.
        """
        await self._renew()
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
                async with asyncio.timeout(max(0.0, self._heard_at_s + LEASE_S - self._target.clock.boottime())):
                    await self._renew()
            except TimeoutError as error:
                raise JournalUnanswered(self.operation_id, self._target.site.name) from error

    async def _renew(self) -> None:
        async with self._lock:
            asked_at_s = self._target.clock.boottime()
            lease = Lease(self.who, self._target.clock.now_ms())
            await self._append(lease.record(self.operation_id))
            self._heard_at_s = asked_at_s

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
        self._lost = JournalUnanswered(self.operation_id, self._target.site.name)
        batch = encode_batch(
            [Record(at, self._target.clock.now_ms(), *record) for at, record in enumerate(records)],
            compression=Compression.GZIP,
            producer_id=self._writer.producer_id,
            producer_epoch=self._writer.producer_epoch,
            base_sequence=self._batch_sequence,
        )
        try:
            await self._send(batch)
        except KafkaError as error:
            if error.code in FENCED:
                self._lost = OperationTakenUp(self.operation_id)
                raise self._lost from error
            raise
        self._lost = None
        self._batch_sequence += len(records)

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
    target: Cluster, sites: tuple[str, str], check: Callable[[Mapping[str, OperationLog]], T]
) -> tuple[ProducerIdAndEpoch, T]:
    """Become the one who writes of operations between these sites (source, target) -> and what `check` gave.

    `check` gets what stands there before, and once more behind the fence, and raises where it is not to be. Raises
    OperationUnderWay when somebody else does the same at the same time, ClientError.
    """
    await _ensure_topic(target)
    check(await load_operations(target))
    txn = transactional_id(*sites)
    try:
        fencing = await init_producer_id(target, txn)
        refused = await add_partitions_to_txn(target, txn, fencing, [WHERE])
        for error in refused.values():
            raise error
        await end_txn(target, txn, fencing, commit=False)
        # It succeeds when the marker is written, and only for who was not overtaken.
        writer = await init_producer_id(target, txn, fencing)
    except KafkaError as error:
        if error.code in FENCED:
            text = f"somebody else begins an operation from {sites[0]} to {sites[1]}, or takes one up, just now"
            raise OperationUnderWay(text, hint="`farshore operation list` says who") from error
        raise
    return writer, check(await load_operations(target))


async def _ensure_topic(target: Cluster) -> None:
    """Raises ClientError, also where retention would delete an operation's first entries, and the chain with them."""
    if await describe_topics(target, [OPERATIONS_TOPIC]):
        with suppress(KafkaError):  # who may not look at its configs may still move away from a lost site
            await check_compacted(target, {OPERATIONS_TOPIC: "the journals of operations"})
        return
    replication_factor = min(JOURNAL_REPLICATION_FACTOR, max(1, len(target.nodes)))
    topic = NewTopic(OPERATIONS_TOPIC, 1, replication_factor, TOPIC_CONFIGS)
    for error in (await create_topics(target, [topic])).values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
