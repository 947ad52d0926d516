"""Transactions at a source that hold up its links: what stands behind one is not mirrored before it ends.

How long one is open is asked of its coordinator, by that one's clock: the times of its records may be those of data
that is replayed. Where no coordinator tells, they are all that is known. One that has ended at its coordinator, and not
in the log, is hanging: no time-out ends it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import side_by_side, split_failures
from broker.client.log import FetchLimits, fetch_each, records_of
from broker.client.transactions import (
    DescribedTransaction,
    TransactionInLog,
    describe_transaction,
    first_transactions,
    transactional_ids,
)
from broker.wire.errors import ErrorCode, WireError
from broker.wire.message_sets import iter_fetched
from broker.wire.messages.fetch import PartitionData
from broker.wire.vocabulary import TopicPartition
from mirror.lag import PartitionLag, still_stable_at
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, LAG_SCAN_MAX_BYTES, TRANSACTION_OPEN_MAX_MS


class TransactionFate(StrEnum):
    """What the source tells of a transaction that its log has open."""

    OPEN = "open"
    """So it is at its coordinator: its time-out ends it at the latest."""
    HANGING = "hanging"
    """Its coordinator has it ended, or not in this partition: nothing ends it but a hand."""
    UNNAMED = "unnamed"
    """No coordinator names it: it hangs, or farshore may not see whose it is."""
    UNTOLD = "untold"
    """The source could not be asked."""


@dataclass(frozen=True, slots=True)
class HoldingTransaction:
    """Where one is open for the mirror: `offsets` from `first_offset` on to the log's end stand behind it.

    `since_ms` is when it began, by its coordinator's clock where it is OPEN, else by its first record's own time; None:
    not known. `age_ms` is by the clock of who looked. `said`: the coordinator's word for it, or why nothing is told.
    """

    topic: str
    partition: int
    first_offset: int
    offsets: int
    fate: TransactionFate
    since_ms: int | None = None
    age_ms: int | None = None
    transactional_id: str = ""
    said: str = ""

    @property
    def is_long(self) -> bool:
        """A time of the future says only that the clocks differ, and what is not known is not short."""
        young = self.age_ms is not None and -CLOCK_DIFFERENCE_MAX_MS <= self.age_ms <= TRANSACTION_OPEN_MAX_MS
        return self.fate is TransactionFate.HANGING or not young


@dataclass(frozen=True, slots=True)
class _Told:
    fate: TransactionFate
    since_ms: int | None = None
    transactional_id: str = ""
    said: str = ""


def end_by_hand(bootstrap_servers: str, where: TopicPartition, first_offset: int) -> str:
    """The command that ends a transaction in one partition, and the one that says whose it is."""
    tool = f"kafka-transactions.sh --bootstrap-server {bootstrap_servers}"
    of = f"--topic {shlex.quote(where.topic)} --partition {where.partition}"
    return f"`{tool} abort {of} --start-offset {first_offset}`; `{tool} describe-producers {of}` says whose it is"


async def look_at_transactions(source: Cluster, lags: Iterable[PartitionLag]) -> tuple[HoldingTransaction, ...]:
    """What holds up the partitions behind whose last stable offset the log goes on; asks for nothing where none does.

    Raises ClientError when no broker answers.
    """
    held = {TopicPartition(lag.topic, lag.partition): lag for lag in lags if lag.held_by_transaction_offsets}
    if not held:
        return ()
    told = await _told_of(source, held)
    unsure = [where for where, one in told.items() if one.fate is not TransactionFate.OPEN]
    starts = {where: held[where].source_end_offset for where in unsure}
    times = await _first_times(source, starts)
    stands = await still_stable_at(source, starts)  # asked last: what has ended since is none
    now_ms = source.clock.now_ms()
    found = []
    for where, one in sorted(told.items()):
        if where in starts and where not in stands:
            continue
        since_ms = one.since_ms if one.fate is TransactionFate.OPEN else times.get(where)
        found.append(
            HoldingTransaction(
                *where,
                first_offset=held[where].source_end_offset,
                offsets=held[where].held_by_transaction_offsets,
                fate=one.fate,
                since_ms=since_ms,
                age_ms=None if since_ms is None else now_ms - since_ms,
                transactional_id=one.transactional_id,
                said=one.said,
            )
        )
    return tuple(found)


async def _told_of(source: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, _Told]:
    in_log, failures = split_failures(await first_transactions(source, partitions))
    told = {where: _Told(TransactionFate.UNTOLD, said=str(error)) for where, error in failures.items()}
    told |= {where: _Told(TransactionFate.UNNAMED) for where, one in in_log.items() if one is None}
    begun = {where: one for where, one in in_log.items() if one is not None}
    if not begun:
        return told
    try:
        ids = await transactional_ids(source, {one.producer_id for one in begun.values()})
    except ClientError as error:
        return told | dict.fromkeys(begun, _Told(TransactionFate.UNTOLD, said=str(error)))
    described = await _each_described(source, sorted(set(ids.values())))
    return told | {where: _fate(where, one, ids.get(one.producer_id, ""), described) for where, one in begun.items()}


def _fate(
    where: TopicPartition,
    begun: TransactionInLog,
    transactional_id: str,
    described: Mapping[str, DescribedTransaction | ClientError],
) -> _Told:
    found = described.get(transactional_id)
    if found is None:
        return _Told(TransactionFate.UNNAMED)
    if isinstance(found, ClientError):
        is_unknown = isinstance(found, KafkaError) and found.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        fate = TransactionFate.UNNAMED if is_unknown else TransactionFate.UNTOLD
        return _Told(fate, None, transactional_id, str(found))
    if found.is_open and where in found.partitions and found.producer.producer_id == begun.producer_id:
        return _Told(TransactionFate.OPEN, found.started_at_ms, transactional_id, found.state)
    return _Told(TransactionFate.HANGING, None, transactional_id, found.state)


async def _each_described(
    source: Cluster, transactional_id_list: Sequence[str]
) -> dict[str, DescribedTransaction | ClientError]:
    async def described(transactional_id: str) -> DescribedTransaction | ClientError:
        try:
            return await describe_transaction(source, transactional_id)
        except ClientError as error:
            return error

    found = await side_by_side(described(one) for one in transactional_id_list)
    return dict(zip(transactional_id_list, found, strict=True))


async def _first_times(source: Cluster, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """When the first record of each of these transactions was written, by its own time, as far as it can be read."""
    limits: Final = FetchLimits(source.limits.fetch_max_bytes, LAG_SCAN_MAX_BYTES)
    read, _ = split_failures(await fetch_each(source, starts, limits))
    times = {where: _first_time(data) for where, data in read.items()}
    return {where: at_ms for where, at_ms in times.items() if at_ms >= 0}


def _first_time(data: PartitionData) -> int:
    try:
        return next((header.first_timestamp for header, _ in iter_fetched(records_of(data))), -1)
    except WireError:
        return -1
