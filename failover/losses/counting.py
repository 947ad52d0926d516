"""The records of a loss, counted by reading what a source that answers still has of it, and their times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from broker.base.time_limits import timeout, timeout_at
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import both, side_by_side
from broker.client.log import read_batches
from broker.client.model import OffsetAndTimestamp
from broker.client.offsets import appended_ends, list_each_offset
from broker.wire.errors import WireError
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import LATEST, IsolationLevel, TopicPartition
from failover.limits import COUNT_MS, COUNTED_AT_ONCE
from failover.losses.statements import Certainty, PartitionLoss, with_end, with_records, with_stable_end
from failover.observing.edges import Span, first_records, last_records
from mirror.api import CarriedCounter, MirrorError

Carried: TypeAlias = Callable[[], Awaitable[CarriedCounter | None]]
"""Tells which records of a source the link would carry; None: nobody can."""
AskEach: TypeAlias = Callable[
    [Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndTimestamp | ClientError]]
]


async def count_losses(
    source: Cluster,
    losses: Iterable[PartitionLoss],
    shared: Container[TopicPartition],
    carried: Carried | None = None,
    until_s: float | None = None,
) -> tuple[PartitionLoss, ...]:
    """The statements, with their records where these could be counted within COUNT_MS, and half of the time until
    `until_s`; exact only where nothing came to the source meanwhile.

    Of `shared` partitions some records came from the target, which has them: `carried` tells which do not count, and
    without it none of these partitions is counted. What is behind the start of an open transaction is not: until it
    ends nobody can read it as committed, or not.
    """
    turns = asyncio.Semaphore(COUNTED_AT_ONCE)
    carried_turn = asyncio.Lock()
    counted: dict[TopicPartition, PartitionLoss] = {}

    async def count(where: TopicPartition, loss: PartitionLoss) -> None:
        async with turns:
            span = loss.first_offset or 0, min(stable[where], loss.end_offset or 0)
            # It went in the meantime, or is damaged there, or whose records they are was lost: not counted.
            with suppress(ClientError, WireError, MirrorError):
                if where not in shared:
                    counted[where] = with_records(loss, await count_records(source, where, *span))
                elif counter is not None:
                    async with carried_turn:
                        counted[where] = with_records(loss, await counter.count(where, *span))

    stated = {TopicPartition(loss.topic, loss.partition): loss for loss in losses}
    is_any_shared = any(loss.offsets or loss.unclear_offsets for where, loss in stated.items() if where in shared)
    counter = await carried() if carried is not None and is_any_shared else None
    stable = await _stable_ends(source, stated, until_s)
    stated = {where: with_stable_end(loss, stable.get(where)) for where, loss in stated.items()}
    with suppress(TimeoutError):
        async with counting_until(half_way(until_s)), asyncio.TaskGroup() as tasks:
            for where, loss in stated.items():
                if where in stable and _is_countable(loss, stable[where]):
                    tasks.create_task(count(where, loss))
    ends = await _appended_by_now(source, list(stated), until_s)
    ends = await _but_for_brought(source, stated, ends, shared, carried, until_s)
    return tuple(with_end(counted.get(where, loss), ends.get(where)) for where, loss in stated.items())


def _is_countable(loss: PartitionLoss, stable_end: int) -> bool:
    """Of one with unclear offsets, part of its records would say nothing of which offsets are clear."""
    return stable_end >= (loss.end_offset or 0) if loss.unclear_offsets else bool(loss.offsets)


def counted_until_s(until_s: float | None = None) -> float:
    """COUNT_MS from now, and no later than `until_s` by the clock of the running loop."""
    over_s = asyncio.get_running_loop().time() + COUNT_MS / 1000
    return over_s if until_s is None else min(over_s, until_s)


def counting_until(until_s: float | None = None) -> asyncio.Timeout:
    """As `counted_until_s`."""
    return timeout_at(counted_until_s(until_s))


def half_way(until_s: float | None) -> float | None:
    """To leave time for what is asked behind it."""
    now_s = asyncio.get_running_loop().time()
    return None if until_s is None else now_s + max(0.0, until_s - now_s) / 2


async def _appended_by_now(
    source: Cluster, wheres: list[TopicPartition], until_s: float | None = None
) -> dict[TopicPartition, int]:
    """Where these logs end, of those that are told, with what no consumer is shown since followers have not got it: who
    writes with acks=1 was told that it is there. A cluster may tell that to nobody; where it only does not answer now,
    the end is not told.
    """
    ends, appended = await both(
        ends_told(source, wheres, IsolationLevel.READ_UNCOMMITTED, until_s),
        _told(source, wheres, lambda share: appended_ends(source, share), until_s),
    )
    found = {}
    for where, end in ends.items():
        answer = appended.get(where)
        if isinstance(answer, OffsetAndTimestamp):
            found[where] = max(end, answer.offset)
        elif answer is not None and not answer.retriable:
            found[where] = end
    return found


async def _but_for_brought(
    source: Cluster,
    stated: Mapping[TopicPartition, PartitionLoss],
    ends: dict[TopicPartition, int],
    shared: Container[TopicPartition],
    carried: Carried | None,
    until_s: float | None = None,
) -> dict[TopicPartition, int]:
    """The ends; of a `shared` partition to which nothing came since but what the target has, the one that was seen."""
    seen = {where: loss.end_offset or 0 for where, loss in stated.items() if loss.certainty is Certainty.EXACT}
    grown = [where for where, end in ends.items() if where in shared and end > seen.get(where, end)]
    counter = await carried() if carried is not None and grown else None
    if counter is None:
        return ends
    stable = await ends_told(source, grown, IsolationLevel.READ_COMMITTED, until_s)
    found = dict(ends)
    with suppress(TimeoutError):
        async with counting_until(until_s):
            for where in grown:
                # Where a transaction is open, or followers have not got all, nobody can read whose it is.
                if stable.get(where, 0) >= ends[where]:
                    with suppress(ClientError, WireError, MirrorError):
                        if await counter.count(where, seen[where], ends[where]) == 0:
                            found[where] = seen[where]
    return found


async def with_present_ends(
    source: Cluster,
    losses: Sequence[PartitionLoss],
    shared: Container[TopicPartition] = (),
    carried: Carried | None = None,
) -> tuple[PartitionLoss, ...]:
    """The statements, uncounted, with what is behind the start of an open transaction told apart, and exact where the
    source has no more by now, not even what its followers have not got. `shared` and `carried` as in `count_losses`.
    """
    told = {TopicPartition(one.topic, one.partition): one for one in losses}
    exact = [at for at, one in told.items() if one.certainty is Certainty.EXACT]
    asked = [at for at in exact if told[at].offsets]
    stable, ends = await both(_stable_ends(source, {at: told[at] for at in asked}), _appended_by_now(source, exact))
    stated = {at: with_stable_end(one, stable.get(at)) if at in asked else one for at, one in told.items()}
    ends = await _but_for_brought(source, stated, ends, shared, carried)
    return tuple(with_end(one, ends.get(at)) for at, one in stated.items())


async def _stable_ends(
    source: Cluster, stated: Mapping[TopicPartition, PartitionLoss], until_s: float | None = None
) -> dict[TopicPartition, int]:
    """Where the first transaction is open, or the log ends, of those that are told. Not of a log that ends before it
    was seen to, by another leader: what it lost nobody can count, and no transaction holds it.
    """
    stable, ends = await both(
        ends_told(source, list(stated), IsolationLevel.READ_COMMITTED, until_s),
        ends_told(source, list(stated), IsolationLevel.READ_UNCOMMITTED, until_s),
    )
    return {at: end for at, end in stable.items() if at in ends and ends[at] >= (stated[at].end_offset or 0)}


async def ends_told(
    source: Cluster, wheres: list[TopicPartition], isolation: IsolationLevel, until_s: float | None = None
) -> dict[TopicPartition, int]:
    """Where these logs end, of those that are told within COUNT_MS."""
    answers = await _told(
        source, wheres, lambda share: list_each_offset(source, dict.fromkeys(share, LATEST), isolation), until_s
    )
    return {where: at.offset for where, at in answers.items() if not isinstance(at, ClientError)}


async def _told(
    source: Cluster, wheres: list[TopicPartition], ask: AskEach, until_s: float | None
) -> dict[TopicPartition, OffsetAndTimestamp | ClientError]:
    """What is answered within COUNT_MS. Each leader is asked by itself: one that hangs takes no other's answer with
    it.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | ClientError] = {}

    async def ask_leader(share: Iterable[TopicPartition]) -> None:
        with suppress(ClientError):
            found.update(await ask(share))

    with suppress(ClientError, TimeoutError):
        async with counting_until(until_s):
            await side_by_side(ask_leader(share) for share in (await source.by_leader(wheres)).values())
    return found


async def count_records(source: Cluster, where: TopicPartition, start: int, end: int) -> int:
    """Committed ones with offsets in [start, end)."""
    records = 0
    async for header, batch in read_batches(source, where, start, end, IsolationLevel.READ_COMMITTED):
        if start <= header.base_offset and header.next_offset <= end:
            records += header.record_count
        else:
            records += sum(start <= record.offset < end for record in decode_records(batch))
    return records


async def count_in_turn(
    counts: Mapping[TopicPartition, Callable[[], Awaitable[int | None]]], until_s: float
) -> dict[TopicPartition, int]:
    """One after the other, until that time of the event loop: what is counted by then. One that fails, damaged say,
    says nothing of the others, nor has one that hangs all the time that is left, but where it is the last.
    """
    loop, found = asyncio.get_running_loop(), dict[TopicPartition, int]()
    for left, (where, count) in zip(reversed(range(len(counts))), counts.items(), strict=True):
        left_s = until_s - loop.time()
        with suppress(ClientError, WireError, MirrorError, TimeoutError):
            async with timeout(left_s / 2 if left else left_s):
                if (records := await count()) is not None:
                    found[where] = records
    return found


async def with_edges(
    source: Cluster, losses: Sequence[PartitionLoss], until_s: float | None = None
) -> tuple[PartitionLoss, ...]:
    """The statements with the times of their first and last records, where these could be read within COUNT_MS."""
    spans = {
        TopicPartition(loss.topic, loss.partition): Span(loss.first_offset, loss.end_offset)
        for loss in losses
        if loss.first_offset is not None and loss.end_offset is not None
    }
    with suppress(ClientError, TimeoutError):  # the source went in the meantime: then the times cannot be known
        async with counting_until(until_s):
            firsts, lasts = await both(first_records(source, spans), last_records(source, spans))
            return tuple(
                replace(
                    loss,
                    first_timestamp_ms=_timestamp(firsts.get(TopicPartition(loss.topic, loss.partition))),
                    last_timestamp_ms=_timestamp(lasts.get(TopicPartition(loss.topic, loss.partition))),
                )
                for loss in losses
            )
    return tuple(losses)


def _timestamp(found: Record | Exception | None) -> int | None:
    return found.timestamp if isinstance(found, Record) else None
