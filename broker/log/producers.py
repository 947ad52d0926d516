"""What a log knows about producers: idempotence (KIP-98), transactions, and the fence that a marker sets. Pure.

Per producer id: its epoch, its last five batches, the epoch of the transaction coordinator that wrote last, and the
first offset of its open transaction. The rules are those of Kafka's ProducerStateManager at 3.9:

- an older epoch is refused; a new epoch must start at sequence 0; within an epoch sequences follow on, 2^31-1 is
  followed by 0;
- an id without state may start anywhere (its records may have been deleted, or it expired);
- a repeat of one of the last five batches is a success with the first offsets (but not of what belongs to a transaction
  that has ended, nor where the log has other records: `PartitionLog.append`; there Kafka acknowledges and loses);
- a marker raises the epoch, also where the producer never wrote: from then on the old epoch is refused.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerRefused,
)
from broker.limits import PRODUCER_BATCHES_REMEMBERED, PRODUCER_ID_EXPIRATION_MS
from broker.wire.batch import BatchHeader
from broker.wire.buffers import Buffer
from broker.wire.records import Control, ControlKind, decode_control
from broker.wire.vocabulary import NO_OFFSET, NO_SEQUENCE

NO_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1


class ProducedBatch(NamedTuple):
    """One remembered batch. Timestamps in ms; offsets and sequences are inclusive."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class AbortedTransaction(NamedTuple):
    """An entry of the aborted-transaction index. `last_offset` is the abort marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(slots=True)
class ProducerState:
    producer_id: int
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = NO_EPOCH
    # When the last batch or marker was appended: what the id's expiration counts from. Not the time in the batch, which
    # Kafka takes: a copy of old records would forget its producer, and with it a fence, at the next expiration.
    last_timestamp_ms: int = -1
    transaction_first_offset: int = NO_OFFSET
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=PRODUCER_BATCHES_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def in_transaction(self) -> bool:
        return self.transaction_first_offset != NO_OFFSET


class ProducerStates:
    """All producers of one partition. One writer: the log that owns it."""

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states = {state.producer_id: state for state in states}
        # Insertion order is offset order for transactions, as each begins at the log end: the first one is the oldest.
        open_ones = sorted(
            (state.transaction_first_offset, state.producer_id)
            for state in self._states.values()
            if state.in_transaction
        )
        self._open = {producer_id: first_offset for first_offset, producer_id in open_ones}
        # Offset of the marker -> where its transaction began: ended here, perhaps not yet at the other replicas.
        self._ended: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins; None when none is open."""
        return next(iter(self._open.values()), None)

    def is_open(self, producer_id: int, offset: int) -> bool:
        """Whether what the producer wrote at `offset` belongs to its open transaction."""
        first_offset = self._open.get(producer_id)
        return first_offset is not None and first_offset <= offset

    @property
    def first_unreplicated_offset(self) -> int | None:
        """Where the oldest transaction begins whose end was not yet said to be `replicated`: another leader may end it
        differently. None when there is none.
        """
        return min(self._ended.values(), default=None)

    def replicated(self, high_watermark: int) -> None:
        """Markers before the high watermark stay, whoever leads."""
        while self._ended and (marker_offset := next(iter(self._ended))) < high_watermark:
            del self._ended[marker_offset]

    def duplicate_of(self, header: BatchHeader) -> ProducedBatch | None:
        """The remembered batch that `header` repeats exactly."""
        state = self._states.get(header.producer_id)
        if state is None or state.producer_epoch != header.producer_epoch:
            return None
        for batch in state.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        return None

    def check_batch(self, header: BatchHeader) -> None:
        """Raises ProducerRefused, OutOfOrderSequence or InvalidTransactionState for a data batch that may not be
        appended.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            return
        _check_epoch(state, header.producer_epoch)
        if header.base_sequence >= 0:
            _check_sequence(state, header)
        if state.in_transaction and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has a transaction open since offset {state.transaction_first_offset} "
                "and sent a batch outside of it"
            )

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Raises ProducerRefused or CoordinatorFenced for a marker that comes from the past."""
        state = self._states.get(producer_id)
        if state is None:
            return
        _check_epoch(state, producer_epoch)
        if coordinator_epoch < state.coordinator_epoch:
            raise CoordinatorFenced(
                f"marker of coordinator epoch {coordinator_epoch} for producer {producer_id}, "
                f"whose last marker had {state.coordinator_epoch}"
            )

    def apply(self, header: BatchHeader, read_batch: Callable[[], Buffer], now_ms: int) -> AbortedTransaction | None:
        """Notes any batch that is in the log; only a control batch is read. What it aborted, if anything.

        `now_ms` is the time of the append; a replay, which cannot know it, gives the present.
        """
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.apply_batch(header, now_ms)
            return None
        control = decode_control(read_batch())
        if control.kind in (ControlKind.ABORT, ControlKind.COMMIT):
            return self.apply_marker(header, control, now_ms)
        return None

    def apply_batch(self, header: BatchHeader, now_ms: int) -> None:
        """Notes a data batch that is in the log: after `check_batch`, or in a replay, where the log is the truth."""
        state = self._state(header.producer_id)
        if header.producer_epoch != state.producer_epoch:
            state.batches.clear()
            state.producer_epoch = header.producer_epoch
        if header.base_sequence >= 0:
            state.batches.append(
                ProducedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
        state.last_timestamp_ms = now_ms
        if header.is_transactional and not state.in_transaction:
            state.transaction_first_offset = header.base_offset
            self._open[header.producer_id] = header.base_offset

    def apply_marker(self, header: BatchHeader, marker: Control, now_ms: int) -> AbortedTransaction | None:
        """Notes a marker that is in the log; what it aborted, if anything."""
        state = self._state(header.producer_id)
        if header.producer_epoch != state.producer_epoch:
            state.batches.clear()
            state.producer_epoch = header.producer_epoch
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp_ms = now_ms
        first_offset, state.transaction_first_offset = state.transaction_first_offset, NO_OFFSET
        self._open.pop(header.producer_id, None)
        if first_offset != NO_OFFSET:
            self._ended[header.base_offset] = first_offset
        if marker.kind is not ControlKind.ABORT or first_offset == NO_OFFSET:
            return None
        unstable = self.first_unstable_offset
        stable = header.base_offset + 1 if unstable is None else unstable
        return AbortedTransaction(header.producer_id, first_offset, header.base_offset, stable)

    def expire(self, now_ms: int) -> int:
        """Forgets ids without a write for `PRODUCER_ID_EXPIRATION_MS`, unless a transaction of theirs is open; how
        many.
        """
        oldest_ms = now_ms - PRODUCER_ID_EXPIRATION_MS
        gone = [s.producer_id for s in self if s.last_timestamp_ms < oldest_ms and not s.in_transaction]
        for producer_id in gone:
            del self._states[producer_id]
        return len(gone)

    def _state(self, producer_id: int) -> ProducerState:
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = ProducerState(producer_id)
        return state


def _check_epoch(state: ProducerState, producer_epoch: int) -> None:
    if producer_epoch < state.producer_epoch:
        raise ProducerRefused(
            f"producer {state.producer_id} has epoch {state.producer_epoch} here; epoch {producer_epoch} is fenced"
        )


def _check_sequence(state: ProducerState, header: BatchHeader) -> None:
    # An epoch that is new, or that only a marker has set (no batches), begins at 0: -1 is followed by 0.
    same_epoch = header.producer_epoch == state.producer_epoch
    expected = (state.last_sequence + 1) & SEQUENCE_MAX if same_epoch else 0
    if header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {state.producer_id} epoch {header.producer_epoch} sent sequence {header.base_sequence}, "
            f"expected {expected}"
        )
