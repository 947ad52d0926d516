"""Which fetched batches a reader of committed records sees. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from broker.wire.batch import BatchHeader
from broker.wire.buffers import Buffer
from broker.wire.messages.fetch import AbortedTransaction
from broker.wire.records import ControlKind, decode_control


class CommittedFilter:
    """Drops control batches and the batches of aborted transactions, for one partition of one fetch response.

    The broker names every aborted transaction that overlaps the fetched range, each with its first offset. A producer's
    batches from there on are aborted until its abort marker. Batches must be given in the order of the log.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] | None) -> None:
        self._coming = [(transaction.first_offset, transaction.producer_id) for transaction in aborted or ()]
        heapq.heapify(self._coming)
        self._aborted: set[int] = set()

    def drops(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether the batch has no committed records of a client. Raises CorruptBatch for an unreadable marker."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._aborted.add(heapq.heappop(self._coming)[1])
        if header.is_control:
            if header.producer_id in self._aborted and decode_control(batch).kind is ControlKind.ABORT:
                self._aborted.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted
