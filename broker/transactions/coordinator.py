"""The transaction coordinator: the shell around the decisions of `model`.

It keeps the transactional ids of one partition of `__transaction_state`. A decision is written there, and replicated,
before a marker follows from it: what is prepared is decided, whoever leads the partition next. Where a marker could not
be written (a full disk, an offline partition, a leader that is not known) it is tried again by the timer, with growing
pauses, and by the next coordinator; until then the transactional id answers CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import NamedTuple

from broker.base.clock import steady_ms
from broker.base.time_limits import timeout
from broker.coordination.host import CoordinatorHost
from broker.coordination.internal_log import Producer, StateLog
from broker.coordination.limits import COORDINATOR_LOAD_RECORDS_PER_TURN
from broker.errors import BrokerError, ProducerRefused
from broker.transactions.formats import read_key, read_value, tombstone, transaction_entry
from broker.transactions.limits import (
    MARKER_PATIENCE_MS,
    MARKER_RETRY_MAX_MS,
    MARKER_RETRY_MS,
    TRANSACTIONAL_ID_CHECK_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from broker.transactions.markers import Marker, Markers
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
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

log = logging.getLogger(__name__)


class MarkerRetry(NamedTuple):
    at_ms: float
    pause_ms: int


class TransactionCoordinator:
    """The transactional ids of one partition, for as long as this broker leads it. `load` once, then `run`."""

    def __init__(self, host: CoordinatorHost, log: StateLog, markers: Markers) -> None:
        self._host = host
        self._markers = markers
        self.log = log
        self.transactions: dict[str, Transaction] = {}
        self._open: set[str] = set()
        """Ids whose transaction is ongoing or prepared: what the timer looks at."""
        self._open_since_ms: dict[str, float] = {}
        """Of ongoing ones, by the steady clock."""
        self._unmarked: dict[str, set[TopicPartition]] = {}
        """Prepared ids -> the partitions whose marker is still to be written."""
        self._retries: dict[str, MarkerRetry] = {}
        """Open ids whose end failed -> when it is tried again."""
        self._attended: set[str] = set()
        """Open ids that somebody is ending right now."""
        self._earlier_deadline = asyncio.Event()

    # -- start and time --------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the partition; what is prepared is due then. Raises BrokerError, CorruptBatch, MalformedMessage."""
        values: dict[str, bytes] = {}
        taken = 0
        for batch in self.log.replay():
            for record in batch.records:
                transactional_id = read_key(record.key or b"")
                if transactional_id is None:
                    continue
                if record.value is None:
                    values.pop(transactional_id, None)
                else:
                    values[transactional_id] = record.value
            taken += len(batch.records)
            if taken >= COORDINATOR_LOAD_RECORDS_PER_TURN:
                taken = 0
                await asyncio.sleep(0)
        for number, (transactional_id, value) in enumerate(values.items(), 1):
            self._note(read_value(transactional_id, value))
            if number % COORDINATOR_LOAD_RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def end(self) -> None:
        """The leadership is over: nothing is written any more, neither decisions nor markers."""
        self.log.is_over = True

    async def run(self) -> None:
        """Abort what is open for too long, end what is decided, forget old ids; ends only by being cancelled."""
        next_check_ms = self._steady_ms() + TRANSACTIONAL_ID_CHECK_MS
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._earlier_deadline.clear()
                for transactional_id in self.due():
                    # Each by itself: one that waits for its replicas holds up no other.
                    tasks.create_task(self.attend(transactional_id))
                    await asyncio.sleep(0)
                wait_ms = min(self._next_deadline_ms(), next_check_ms) - self._steady_ms()
                try:
                    async with timeout(max(wait_ms, 0) / 1000):
                        await self._earlier_deadline.wait()
                except TimeoutError:
                    pass
                if self._steady_ms() >= next_check_ms:
                    next_check_ms = self._steady_ms() + TRANSACTIONAL_ID_CHECK_MS
                    self.expire_ids()

    def _due_ms(self, transactional_id: str) -> float:
        retry = self._retries.get(transactional_id)
        if retry is not None:
            return retry.at_ms
        current = self.transactions[transactional_id]
        return -inf if current.state.prepared else self._open_since_ms[transactional_id] + current.timeout_ms

    def _next_deadline_ms(self) -> float:
        return min((self._due_ms(id_) for id_ in self._open - self._attended), default=inf)

    def due(self) -> list[str]:
        """The ids that have to be attended to now."""
        now_ms = self._steady_ms()
        return sorted(id_ for id_ in self._open - self._attended if self._due_ms(id_) <= now_ms)

    async def attend(self, transactional_id: str) -> None:
        """Abort what is open for too long, and end what is decided."""
        if transactional_id in self._attended or transactional_id not in self._open:
            return
        with self._attending(transactional_id):
            try:
                open_ms = self._steady_ms() - self._open_since_ms.get(transactional_id, inf)
                timed_out = decide_timeout(self.transactions[transactional_id], open_ms, self._now_ms())
                if timed_out is not None:
                    self._store(timed_out)
                if self.transactions[transactional_id].state.prepared:
                    await self._complete(transactional_id)
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

    async def init_producer_id(self, ask: InitAsk) -> tuple[ErrorCode, Producer]:
        """The producer's id and epoch, after what an earlier one left open was aborted."""
        nobody = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        transactional_id = ask.transactional_id
        try:
            decision = self._decide_init(ask)
            if isinstance(decision, AbortFirst):
                if not await self._end_now(decision.prepared):
                    return ErrorCode.CONCURRENT_TRANSACTIONS, nobody
                decision = self._decide_init(ask)
            if isinstance(decision, AbortFirst):
                return ErrorCode.CONCURRENT_TRANSACTIONS, nobody
            if isinstance(decision, ErrorCode):
                return decision, nobody
            if decision is not self.transactions.get(transactional_id):
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
        if decision is not current:
            try:
                self._store(decision)
            except BrokerError as error:
                return error.error_code
        return ErrorCode.NONE

    async def end_transaction(self, transactional_id: str, producer: Producer, *, commit: bool) -> ErrorCode:
        """Commit or abort. A success once it is decided; the markers follow, mostly at once."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        current = self.transactions.get(transactional_id)
        decision = decide_end(current, *producer, commit=commit, now_ms=self._now_ms())
        if isinstance(decision, ErrorCode):
            return decision
        try:
            await self._end_now(decision)
        except BrokerError as error:
            return error.error_code
        return ErrorCode.NONE

    def awaited(self, transaction: Transaction) -> Collection[TopicPartition]:
        """The partitions of a transaction, without those that have their marker."""
        return self._unmarked.get(transaction.transactional_id, transaction.partitions)

    def check_append(self, transactional_id: str | None, producer: Producer, where: TopicPartition) -> ErrorCode:
        """May transactional records of this producer go to the partition? Plain idempotent batches need no leave."""
        return check_append(self.transactions.get(transactional_id or ""), *producer, where)

    # -- inside ----------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._host.clock.now_ms()

    def _steady_ms(self) -> float:
        """What waits goes by this one. A wall clock that was set, or another broker's, is wrong by an hour at times:
        that must neither end transactions nor keep them open. So the time of one that is loaded begins anew.
        """
        return steady_ms(self._host.clock)

    def _store(self, transaction: Transaction) -> None:
        """Raises BrokerError, with nothing changed."""
        self.log.append(transaction.transactional_id, [transaction_entry(transaction)])
        self._note(transaction)
        self._earlier_deadline.set()

    def _note(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        self.transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING or transaction.state.prepared:
            self._open.add(transactional_id)
        else:
            self._open.discard(transactional_id)
            self._retries.pop(transactional_id, None)
        if transaction.state is TransactionState.ONGOING:
            self._open_since_ms.setdefault(transactional_id, self._steady_ms())
        else:
            self._open_since_ms.pop(transactional_id, None)
        if transaction.state.prepared:
            self._unmarked[transactional_id] = set(transaction.partitions)
        else:
            self._unmarked.pop(transactional_id, None)

    @contextmanager
    def _attending(self, transactional_id: str) -> Iterator[None]:
        self._attended.add(transactional_id)
        try:
            yield
        finally:
            self._attended.discard(transactional_id)
            self._earlier_deadline.set()

    async def _end_now(self, prepared: Transaction) -> bool:
        """Store the decision and, for as long as a client may be kept waiting, end the transaction -> whether it is.

        Raises BrokerError where the decision could not be stored.
        """
        transactional_id = prepared.transactional_id
        with self._attending(transactional_id):
            self._store(prepared)
            try:
                async with timeout(MARKER_PATIENCE_MS / 1000):
                    await self._complete(transactional_id)
            except TimeoutError:
                return False
            except BrokerError as error:
                # The decision stands in the log; the timer completes it.
                self._retry_later(transactional_id, error)
                return False
        return True

    def _retry_later(self, transactional_id: str, error: BrokerError) -> None:
        earlier = self._retries.get(transactional_id)
        pause_ms = min(earlier.pause_ms * 2, MARKER_RETRY_MAX_MS) if earlier else MARKER_RETRY_MS
        self._retries[transactional_id] = MarkerRetry(self._steady_ms() + pause_ms, pause_ms)
        log.warning("transaction of %s is not ended yet, tried again in %d ms: %s", transactional_id, pause_ms, error)

    async def _complete(self, transactional_id: str) -> None:
        """Have the markers written that are missing, and store the end. Raises BrokerError, with what was written
        noted. Not before the decision is replicated: another coordinator might find the transaction open, and decide
        otherwise.
        """
        prepared = self.transactions[transactional_id]
        await self.log.replicated(transactional_id)
        self.log.check_leading()
        commit = prepared.state is TransactionState.PREPARE_COMMIT
        marker = Marker(Producer(prepared.producer_id, prepared.producer_epoch), commit, self.log.leader_epoch)
        unmarked = self._unmarked[transactional_id]
        failures: list[tuple[TopicPartition, ErrorCode]] = []
        for where, error in (await self._markers.write(marker, unmarked)).items():
            # A deleted topic needs no marker, and a partition that knows a newer epoch had this transaction ended.
            if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ProducerRefused.error_code):
                unmarked.discard(where)
            else:
                failures.append((where, error))
        if failures:
            where, error = failures[0]
            more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
            raise BrokerError(f"no marker in {where.topic}-{where.partition} ({error.name}){more}")
        self._store(complete(prepared, self._now_ms()))
