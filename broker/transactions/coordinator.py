"""The transaction coordinator: the shell around the decisions of `model`.

A decision is written to `__transaction_state` before anything else follows from it. Once a transaction is prepared its
markers are written at once, as all partitions are here; what could not be written (a full disk, an offline
partition) is tried again by the timer, with growing pauses, and after a restart; until then the transactional id
answers CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from broker.coordination.host import CoordinatorHost
from broker.coordination.internal_log import TRANSACTIONS_TOPIC, InternalLog, Producer
from broker.errors import BrokerError, ProducerRefused
from broker.transactions.formats import read_key, read_value, tombstone, transaction_entry
from broker.transactions.limits import (
    MARKER_RETRY_MAX_MS,
    MARKER_RETRY_MS,
    TRANSACTIONAL_ID_CHECK_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from broker.transactions.model import (
    AbortFirst,
    InitAsk,
    Transaction,
    TransactionState,
    check_append,
    complete,
    decide_add,
    decide_end,
    decide_init,
    decide_timeout,
)
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)

OffsetsEnd = Callable[[int, int, bool], None]
"""(partition of the offsets topic, producer id, commit): told of a marker in `__consumer_offsets`."""


class MarkerRetry(NamedTuple):
    at_ms: int
    pause_ms: int


class TransactionCoordinator:
    """All transactional ids of this broker. `load` once, after the group coordinator's; then `run`."""

    def __init__(self, host: CoordinatorHost, end_offsets: OffsetsEnd) -> None:
        self._host = host
        self._end_offsets = end_offsets
        self.log = InternalLog(host, TRANSACTIONS_TOPIC, host.config.transaction_state_log_num_partitions)
        self.transactions: dict[str, Transaction] = {}
        self._open: set[str] = set()
        """Ids whose transaction is ongoing or prepared: what the timer looks at."""
        self._unmarked: dict[str, set[TopicPartition]] = {}
        """Prepared ids -> the partitions whose marker is still to be written."""
        self._retries: dict[str, MarkerRetry] = {}
        """Open ids whose end failed -> when it is tried again."""
        self._earlier_deadline = asyncio.Event()

    # -- start and time --------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read `__transaction_state` and complete what is prepared.

        Raises BrokerError, CorruptBatch, MalformedMessage.
        """
        values: dict[str, bytes] = {}
        for batch in self.log.replay():
            for record in batch.records:
                transactional_id = read_key(record.key or b"")
                if transactional_id is None:
                    continue
                if record.value is None:
                    values.pop(transactional_id, None)
                else:
                    values[transactional_id] = record.value
        for transactional_id, value in values.items():
            self._note(read_value(transactional_id, value))
        self.tick()

    async def run(self) -> None:
        """Abort what is open for too long, retry markers, forget old ids; ends only by being cancelled."""
        next_check_ms = self._now_ms() + TRANSACTIONAL_ID_CHECK_MS
        while True:
            self._earlier_deadline.clear()
            wait_ms = min(self._next_deadline_ms(), next_check_ms) - self._now_ms()
            try:
                async with asyncio.timeout(max(wait_ms, 0) / 1000):
                    await self._earlier_deadline.wait()
            except TimeoutError:
                self.tick()
            if self._now_ms() >= next_check_ms:
                next_check_ms = self._now_ms() + TRANSACTIONAL_ID_CHECK_MS
                self.expire_ids()

    def _next_deadline_ms(self) -> float:
        retries = [retry.at_ms for retry in self._retries.values()]
        open_ones = (self.transactions[id_] for id_ in self._open - self._retries.keys())
        return min(retries + [t.deadline_ms for t in open_ones if not t.state.prepared], default=inf)

    def tick(self) -> None:
        """Do what is due now."""
        for transactional_id in sorted(self._open):
            retry = self._retries.get(transactional_id)
            if retry is not None and retry.at_ms > self._now_ms():
                continue
            try:
                current = self.transactions[transactional_id]
                timed_out = decide_timeout(current, self._now_ms())
                if timed_out is not None:
                    self._store(timed_out)
                if self.transactions[transactional_id].state.prepared:
                    self._complete(transactional_id)
            except BrokerError as error:
                # Tried again later; one broken disk must not stop the other transactions.
                self._retry_later(transactional_id, error)
            else:
                self._retries.pop(transactional_id, None)

    def expire_ids(self) -> None:
        """Forget transactional ids that were not used for a long time."""
        oldest_ms = self._now_ms() - TRANSACTIONAL_ID_EXPIRATION_MS
        for current in [t for id_, t in self.transactions.items() if id_ not in self._open]:
            if current.updated_ms < oldest_ms:
                try:
                    self.log.append(current.transactional_id, [tombstone(current.transactional_id)])
                except BrokerError as error:
                    # Tried again at the next check.
                    log.warning("transactional id %s could not be expired: %s", current.transactional_id, error)
                    continue
                del self.transactions[current.transactional_id]

    # -- requests --------------------------------------------------------------------------------------------

    def init_producer_id(self, ask: InitAsk | None) -> tuple[ErrorCode, Producer]:
        """A producer's id and epoch; `None` asks for an id without a transactional id, always a fresh one."""
        nobody = Producer(-1, -1)
        try:
            if ask is None:
                return ErrorCode.NONE, Producer(self._host.allocate_producer_id(), 0)
            decision = self._decide_init(ask)
            if isinstance(decision, AbortFirst):
                self._store(decision.prepared)
                if not self._try_complete(ask.transactional_id):
                    return ErrorCode.CONCURRENT_TRANSACTIONS, nobody
                # The abort raised the epoch: a producer that named the old one is still the one that asked.
                decision = self._decide_init(InitAsk(ask.transactional_id, ask.timeout_ms, ask.timeout_max_ms))
            if isinstance(decision, ErrorCode):
                return decision, nobody
            assert isinstance(decision, Transaction)
            if decision is not self.transactions.get(ask.transactional_id):
                self._store(decision)
            return ErrorCode.NONE, Producer(decision.producer_id, decision.producer_epoch)
        except BrokerError as error:
            return error.error_code, nobody

    def _decide_init(self, ask: InitAsk) -> ErrorCode | AbortFirst | Transaction:
        current = self.transactions.get(ask.transactional_id)
        return decide_init(current, ask, self._now_ms(), self._host.allocate_producer_id)

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> ErrorCode:
        """Open the transaction if need be and note the partitions, so that each will get a marker."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        current = self.transactions.get(transactional_id)
        decision = decide_add(current, *producer, partitions, self._now_ms())
        if isinstance(decision, ErrorCode):
            return decision
        return ErrorCode.NONE if decision is current else self._try_store(decision)

    def end(self, transactional_id: str, producer: Producer, *, commit: bool) -> ErrorCode:
        """Commit or abort. Answered once the decision is in the log; the markers follow, mostly at once."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        current = self.transactions.get(transactional_id)
        decision = decide_end(current, *producer, commit=commit, now_ms=self._now_ms())
        if isinstance(decision, ErrorCode):
            return decision
        error = self._try_store(decision)
        if error is ErrorCode.NONE:
            self._try_complete(transactional_id)
        return error

    def check_append(self, transactional_id: str | None, producer: Producer, where: TopicPartition) -> ErrorCode:
        """May transactional records of this producer go to the partition? Plain idempotent batches need no leave."""
        return check_append(self.transactions.get(transactional_id or ""), *producer, where)

    def write_marker(
        self, where: TopicPartition, producer: Producer, *, commit: bool, coordinator_epoch: int
    ) -> ErrorCode:
        """Write one marker, also at the order of another coordinator (WriteTxnMarkers)."""
        partition = self._host.partition(where.topic, where.partition)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            partition.log.write_marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                leader_epoch=partition.leader_epoch,
            )
        except BrokerError as error:
            return error.error_code
        if where.topic == OFFSETS_TOPIC:
            self._end_offsets(where.partition, producer.producer_id, commit)
        return ErrorCode.NONE

    # -- inside ----------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        # The wall clock, unlike for groups: a transaction's start is in the log and must hold after a restart.
        return self._host.clock.now_ms()

    def _store(self, transaction: Transaction) -> None:
        """Raises BrokerError, with nothing changed."""
        self.log.append(transaction.transactional_id, [transaction_entry(transaction)])
        self._note(transaction)
        self._earlier_deadline.set()

    def _try_store(self, transaction: Transaction) -> ErrorCode:
        try:
            self._store(transaction)
        except BrokerError as error:
            return error.error_code
        return ErrorCode.NONE

    def _note(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        self.transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING or transaction.state.prepared:
            self._open.add(transactional_id)
        else:
            self._open.discard(transactional_id)
            self._retries.pop(transactional_id, None)
        if transaction.state.prepared:
            self._unmarked[transactional_id] = set(transaction.partitions)
        else:
            self._unmarked.pop(transactional_id, None)

    def _try_complete(self, transactional_id: str) -> bool:
        try:
            self._complete(transactional_id)
        except BrokerError as error:
            # The decision stands in the log; the timer completes it.
            self._retry_later(transactional_id, error)
            return False
        return True

    def _retry_later(self, transactional_id: str, error: BrokerError) -> None:
        earlier = self._retries.get(transactional_id)
        pause_ms = min(earlier.pause_ms * 2, MARKER_RETRY_MAX_MS) if earlier else MARKER_RETRY_MS
        self._retries[transactional_id] = MarkerRetry(self._now_ms() + pause_ms, pause_ms)
        log.warning("transaction of %s is not ended yet, tried again in %d ms: %s", transactional_id, pause_ms, error)

    def _complete(self, transactional_id: str) -> None:
        """Write the markers that are missing and store the end. Each partition is tried, as the records of one that
        took its marker are to be read whatever became of another. Raises BrokerError, with what was written noted.
        """
        prepared = self.transactions[transactional_id]
        coordinator_epoch = self.log.leader_epoch(self.log.partition_for(transactional_id))
        commit = prepared.state is TransactionState.PREPARE_COMMIT
        producer = Producer(prepared.producer_id, prepared.producer_epoch)
        unmarked = self._unmarked[transactional_id]
        failures: list[tuple[TopicPartition, ErrorCode]] = []
        for where in sorted(unmarked):
            error = self.write_marker(where, producer, commit=commit, coordinator_epoch=coordinator_epoch)
            # A deleted topic needs no marker, and a partition that knows a newer epoch had this transaction ended.
            gone = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ProducerRefused.error_code)
            if error in gone:
                unmarked.discard(where)
            else:
                failures.append((where, error))
        if failures:
            where, error = failures[0]
            more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
            raise BrokerError(f"no marker in {where.topic}-{where.partition} ({error.name}){more}")
        self._store(complete(prepared, self._now_ms()))
