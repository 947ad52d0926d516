"""One transactional id as a value, and the decisions about it. No asyncio, no clock, no disk.

    Empty ──add──> Ongoing ──end──> PrepareCommit ──markers written──> CompleteCommit ──add──> Ongoing
                      └── end, timeout, fence ──> PrepareAbort ──markers written──> CompleteAbort

A prepared transaction is decided: it can only be completed, also after a restart. Sources: KIP-98, KIP-360 (a producer
that names its id and epoch may bump it), KIP-588 (error codes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from broker.transactions.limits import PRODUCER_EPOCH_MAX
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition


class TransactionState(Enum):
    """Kafka's states; the value is the number in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """Kafka's word for it, as tools show it: CompleteCommit."""
        return self.name.title().replace("_", "")

    @property
    def prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


NOBODY: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id. Times are wall-clock milliseconds, as they go into the log.

    `previous_producer_id` and `previous_epoch` are what the producer named that asked for this id and epoch: the repeat
    of its request is recognised by them, until it shows that it has the answer. Of a producer that named none, -1.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class InitAsk:
    """An InitProducerId request with a transactional id; the id and epoch are -1 for a producer that starts.

    `timeout_max_ms` is the most that the broker allows.
    """

    transactional_id: str
    timeout_ms: int
    timeout_max_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class AbortFirst:
    """The id has an open transaction: store this, complete it, and decide again."""

    prepared: Transaction


def decide_init(
    current: Transaction | None, ask: InitAsk, now_ms: int, allocate_producer_id: Callable[[], int]
) -> ErrorCode | AbortFirst | Transaction:
    """What InitProducerId does: an error, an abort to be done first, or the id with its new epoch."""
    if not ask.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < ask.timeout_ms <= ask.timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    claims = (ask.producer_id, ask.producer_epoch)
    if current is None:
        return Transaction(
            ask.transactional_id,
            allocate_producer_id(),
            0,
            ask.timeout_ms,
            updated_ms=now_ms,
            previous_epoch=ask.producer_epoch,
            previous_producer_id=ask.producer_id,
        )
    if ask.producer_id != NO_PRODUCER_ID and claims != (current.producer_id, current.producer_epoch):
        repeats = claims == (current.previous_producer_id, current.previous_epoch)
        if not repeats:
            return ErrorCode.PRODUCER_FENCED
        if current.state is TransactionState.EMPTY:
            # The answer to the same request was lost.
            return current
    if current.state.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is TransactionState.ONGOING:
        return AbortFirst(_fence(current, now_ms, claims))
    bumped = replace(
        current,
        timeout_ms=ask.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        updated_ms=now_ms,
        start_ms=NO_TIMESTAMP,
        # Only who says what it was may ask again for what it became: a new owner's answer is not for the one before it.
        previous_epoch=ask.producer_epoch,
        previous_producer_id=ask.producer_id,
    )
    if current.producer_epoch >= PRODUCER_EPOCH_MAX - 1:
        return replace(bumped, producer_id=allocate_producer_id(), producer_epoch=0)
    return replace(bumped, producer_epoch=current.producer_epoch + 1)


def _fence(current: Transaction, now_ms: int, asker: tuple[int, int] = NOBODY) -> Transaction:
    """An abort under the next epoch: its markers shut out the producer that has the transaction open. Where that one
    asked for it itself, by its id and epoch, it is known by them when the abort is done.
    """
    return replace(
        current,
        producer_epoch=min(current.producer_epoch + 1, PRODUCER_EPOCH_MAX),
        state=TransactionState.PREPARE_ABORT,
        updated_ms=now_ms,
        previous_producer_id=asker[0],
        previous_epoch=asker[1],
    )


def check_owner(current: Transaction | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    """NONE when this producer holds the transactional id now."""
    if current is None or current.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def decide_add(
    current: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    now_ms: int,
) -> ErrorCode | Transaction:
    """What AddPartitionsToTxn does: the transaction with the partitions in it; the same value when all were."""
    error = check_owner(current, producer_id, producer_epoch)
    if error is not ErrorCode.NONE:
        return error
    assert current is not None
    if current.state.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    added = frozenset(partitions)
    if current.state is TransactionState.ONGOING:
        if added <= current.partitions:
            return current
        return replace(current, partitions=current.partitions | added, updated_ms=now_ms)
    return replace(
        current,
        state=TransactionState.ONGOING,
        partitions=added,
        updated_ms=now_ms,
        start_ms=now_ms,
        # It has its answer. A repeat that comes later was given up long ago, and may not abort what was begun since.
        previous_producer_id=NO_PRODUCER_ID,
        previous_epoch=NO_PRODUCER_EPOCH,
    )


_REPEATED_END = {
    (TransactionState.COMPLETE_COMMIT, True): ErrorCode.NONE,
    (TransactionState.COMPLETE_ABORT, False): ErrorCode.NONE,
    (TransactionState.PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (TransactionState.PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
}


def decide_end(
    current: Transaction | None, producer_id: int, producer_epoch: int, *, commit: bool, now_ms: int
) -> ErrorCode | Transaction:
    """What EndTxn does: the prepared transaction, or a code; the repeat of an end that is done is a success."""
    error = check_owner(current, producer_id, producer_epoch)
    if error is not ErrorCode.NONE:
        return error
    assert current is not None
    if current.state is not TransactionState.ONGOING:
        return _REPEATED_END.get((current.state, commit), ErrorCode.INVALID_TXN_STATE)
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    return replace(current, state=state, updated_ms=now_ms)


def complete(prepared: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    committed = prepared.state is TransactionState.PREPARE_COMMIT
    return replace(
        prepared,
        state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def decide_timeout(current: Transaction, open_ms: float, now_ms: int) -> Transaction | None:
    """The abort of a transaction that was open for too long; None while it has time. `open_ms`: for how long it was, by
    a steady clock.
    """
    if current.state is not TransactionState.ONGOING or open_ms < current.timeout_ms:
        return None
    return _fence(current, now_ms)


def check_append(
    current: Transaction | None, producer_id: int, producer_epoch: int, where: TopicPartition
) -> ErrorCode:
    """May this producer append transactional records to the partition? It must have been added to the transaction."""
    error = check_owner(current, producer_id, producer_epoch)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is not ErrorCode.NONE:
        return error
    assert current is not None
    if current.state is not TransactionState.ONGOING or where not in current.partitions:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NONE
