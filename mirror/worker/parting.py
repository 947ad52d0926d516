"""The first source offset from which the target does not hold the source's records: by comparing copies, backwards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.errors import ClientError, ReadUnfinished
from broker.wire.errors import CorruptBatch
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.offsets.entries import LastRecord
from mirror.offsets.offset_map import PartitionMap
from mirror.origins import Verdict
from mirror.worker.logs import Logs
from mirror.worker.origins import Passage, read_carried

FIRST_WINDOW_OFFSETS: Final = 256
WINDOW_MAX_OFFSETS: Final = 65_536
SEARCHES_AT_ONCE: Final = 128
"""Partitions whose first windows are in memory together."""
WIDE_WINDOWS_AT_ONCE: Final = 2
"""Later windows in memory together."""


@dataclass(frozen=True, slots=True)
class Copies:
    """A source partition, its target partition, and the map that says where the copies should be.

    `logs` and `where` are (source, target), `target_log` is (start, end). What does not pass `passage` was never
    mirrored.
    """

    logs: tuple[Logs, Logs]
    where: tuple[TopicPartition, TopicPartition]
    map: PartitionMap
    source_start: int
    target_log: tuple[int, int]
    passage: Passage
    wide: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WIDE_WINDOWS_AT_ONCE))
    """Shared by the searches of one start: a wide window takes much memory."""


@dataclass(frozen=True, slots=True)
class Parting:
    """Before source offset `agreed_to` the copies agree; `last` is the last that does.

    `differs_from` is the first that does not, None where none was found. Without a copy that could be compared
    `is_compared` is False, and `agreed_to` is what else is known. `position` is how far the mirror had read.
    `is_whole`: of a source that was short once, whether it has nothing between `last` and there that the link carries.
    """

    agreed_to: int
    differs_from: int | None
    last: LastRecord | None
    is_compared: bool
    position: int
    is_whole: bool = False


class _Copy(Enum):
    EQUAL = auto()
    UNLIKE = auto()
    ABSENT = auto()
    """There is a marker, or the log does not reach so far. Before equal copies that only says: never mirrored."""


@dataclass(slots=True)
class _Window:
    """What a range of source offsets showed, in order; offsets of which nothing can be said are left out."""

    seen: list[tuple[int, _Copy]] = field(default_factory=list)
    writers: dict[int, int] = field(default_factory=dict)
    """Target offset -> producer id."""

    def parting(self, equal_behind: bool) -> tuple[int | None, int | None]:
        """(first source offset that differs, last one before it that is equal); `equal_behind`: copies behind are."""
        unlike = next((offset for offset, copy in self.seen if copy is _Copy.UNLIKE), None)
        before = [seen for seen in self.seen if unlike is None or seen[0] < unlike]
        equal = next((offset for offset, copy in reversed(before) if copy is _Copy.EQUAL), None)
        if unlike is None and equal_behind:
            return None, equal
        absent = (offset for offset, copy in before if copy is _Copy.ABSENT and (equal is None or offset > equal))
        return next(absent, unlike), equal


def is_copy(source: Record, target: Record, *, stamped: bool) -> bool:
    """Whether they are the same but for the offset; `stamped`: the target's broker sets its own timestamps."""
    if not stamped and source.timestamp != target.timestamp:
        return False
    return (source.key, source.value, source.headers) == (target.key, target.value, target.headers)


class PartingSearch(NamedTuple):
    """What `find_parting` is asked about one partition; `was_short`: its source was seen without the end of its log."""

    copies: Copies
    below: int
    agreed_by_epochs: int | None
    was_short: bool = False


async def find_partings(
    searches: Mapping[TopicPartition, PartingSearch], patience_ms: int | None
) -> dict[TopicPartition, Parting | ClientError]:
    """All of them at once; one not found in `patience_ms` (None: no limit) has ReadUnfinished. Raises StateDamaged."""
    found: dict[TopicPartition, Parting | ClientError] = {}
    faults: list[FarshoreError] = []
    turns = asyncio.Semaphore(SEARCHES_AT_ONCE)

    async def find(where: TopicPartition, search: PartingSearch) -> None:
        async with turns:
            try:
                parting = await find_parting(search.copies, search.below, search.agreed_by_epochs)
                if search.was_short and parting.differs_from is None:
                    parting = replace(parting, is_whole=await _is_whole(search.copies, parting))
                found[where] = parting
            except ClientError as error:
                found[where] = error
            except FarshoreError as fault:  # of what all share: raised below as itself, not in a group
                faults.append(fault)

    try:
        async with timeout(None if patience_ms is None else patience_ms / 1000), asyncio.TaskGroup() as tasks:
            for where, search in searches.items():
                tasks.create_task(find(where, search))
    except TimeoutError:
        pass  # who is not done yet is told below
    if faults:
        raise faults[0]
    late = (where for where in searches if where not in found)
    return found | {where: ReadUnfinished(f"{where}: its copies are still being compared") for where in late}


async def find_parting(copies: Copies, below: int, agreed_by_epochs: int | None) -> Parting:
    """Look at source offsets before `below`, from there backwards, until a window of copies agrees.

    `agreed_by_epochs`: not before everything from there on was looked at. It also is the answer where nothing can be
    compared; where that is not known either, the source's start is: what is uncertain is mirrored again. Raises
    ClientError.
    """
    intervals = copies.map.intervals
    floor = max(copies.source_start, intervals[0].source_start) if intervals else below
    high, size = min(below, _reach(copies)), FIRST_WINDOW_OFFSETS
    differs_from: int | None = high if high < below else None
    last: LastRecord | None = None
    is_compared = False
    while high > floor:
        low = max(floor, high - size)
        async with copies.wide if size > FIRST_WINDOW_OFFSETS else nullcontext():
            window = await _look(copies, low, high)
        is_compared = is_compared or bool(window.seen)
        differs, equal = window.parting(last is not None)
        if differs is not None:
            differs_from, last = differs, None
        if last is None and equal is not None:
            last = _last(copies, window, equal)
        if last is not None and differs is None and (agreed_by_epochs is None or low <= agreed_by_epochs):
            break
        high, size = low, min(4 * size, WINDOW_MAX_OFFSETS)
    if not is_compared:
        known = copies.source_start if agreed_by_epochs is None else min(agreed_by_epochs, below)
        return Parting(known, differs_from, None, False, copies.map.position)
    if differs_from is None:
        return Parting(below, None, last, True, copies.map.position)
    return Parting(
        differs_from if last is not None else copies.source_start, differs_from, last, True, copies.map.position
    )


async def _is_whole(copies: Copies, parting: Parting) -> bool:
    """Equal copies say nothing of what stands behind the last of them: markers, what came from elsewhere, or others.

    Read with what is not committed: an open transaction would hide it, and all that is behind.
    """
    where, passage = copies.where[0], copies.passage
    low = copies.source_start if parting.last is None else parting.last.source_offset + 1
    judge = passage.judge(where)
    try:
        batches = copies.logs[0].read_batches(where, low, parting.position, IsolationLevel.READ_UNCOMMITTED)
        async for header, batch in batches:
            await passage.learn(where, batch)
            if not header.is_control and judge(header).verdict is not Verdict.LEAVE_OUT:
                return False
    except CorruptBatch:
        return False
    return True


def _reach(copies: Copies) -> int:
    """The source offset from which on the target's log is too short to hold copies."""
    log_end, end = copies.target_log[1], copies.map.end
    assert end is not None
    if log_end >= end.target_next:
        return copies.map.position
    reached = copies.map.to_source(log_end)
    return copies.source_start if reached is None else reached


def _last(copies: Copies, window: _Window, source_offset: int) -> LastRecord:
    target_offset = copies.map.to_target(source_offset)
    assert target_offset is not None
    return LastRecord(source_offset, target_offset, window.writers[target_offset])


async def _look(copies: Copies, low: int, high: int) -> _Window:
    """Compare what the source has of [low, high) with its copies."""
    theirs = await _read_source(copies, low, high)
    expected: dict[int, Record] = {}
    for record in theirs:
        at = copies.map.to_target(record.offset)
        if at is not None and copies.map.to_source(at) == record.offset:  # others were left out once, at a passed gap
            expected[at] = record
    window = _Window()
    log_start, log_end = copies.target_log
    reachable = [at for at in expected if log_start <= at < log_end]
    stored: dict[int, tuple[Record, bool] | None] = {}
    if reachable:
        stored = await _read_target(copies, min(reachable), max(reachable) + 1, window)
    for at, record in expected.items():
        if at >= log_end:
            window.seen.append((record.offset, _Copy.ABSENT))
        elif at in stored:
            window.seen.append((record.offset, _compare(record, stored[at])))
    return window


def _compare(record: Record, found: tuple[Record, bool] | None) -> _Copy:
    if found is None:
        return _Copy.ABSENT
    return _Copy.EQUAL if is_copy(record, found[0], stamped=found[1]) else _Copy.UNLIKE


async def _read_source(copies: Copies, low: int, high: int) -> list[Record]:
    """The records of [low, high) that the link carries; at damage, those before it."""
    records: list[Record] = []
    try:
        async for _header, record in read_carried(copies.passage, copies.logs[0], copies.where[0], low, high):
            records.append(record)
    except CorruptBatch:
        return records
    return records


async def _read_target(copies: Copies, low: int, high: int, window: _Window) -> dict[int, tuple[Record, bool] | None]:
    """Per target offset of [low, high) its record and whether the broker stamped it; None for a marker."""
    stored: dict[int, tuple[Record, bool] | None] = {}
    try:
        batches = copies.logs[1].read_batches(copies.where[1], low, high, IsolationLevel.READ_UNCOMMITTED)
        async for header, batch in batches:
            if header.is_control:
                stored |= dict.fromkeys(range(header.base_offset, header.next_offset))
                continue
            for record in decode_records(batch):
                stored[record.offset] = (record, header.is_log_append_time)
                window.writers[record.offset] = header.producer_id
    except CorruptBatch:
        return stored
    return stored
