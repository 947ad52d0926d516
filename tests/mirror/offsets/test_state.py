"""What was read of a link's state: the newest writing holds, a tombstone takes back."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from broker.client.site import Site
from broker.wire.records import Record
from mirror.errors import StateDamaged
from mirror.link import Link
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Entry,
    Gap,
    GapKind,
    GapStatus,
    LinkRun,
    RunState,
    TopicIdentity,
    Void,
    VoidBlock,
    VoidEntry,
    Writer,
    encode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.intervals import End, Interval
from mirror.offsets.limits import CLOSED_GAPS_MAX
from mirror.offsets.state import LinkState, StateEntries, _Folding

LINK = Link("east-west", Site("east", "east:9092"), Site("west", "west:9092"), ("flights",))


def folded(*changes: Entry | Void) -> StateEntries:
    folding = _Folding(LINK)
    for at, change in enumerate(changes):
        if isinstance(change, Void):
            folding.apply(Record(at, 0, encode_void_key(change), None))
        else:
            folding.apply(Record(at, 0, encode_key(change), encode_value(change)))
    return folding.entries()


def block(*intervals: tuple[int, int]) -> Block:
    return Block("flights", 0, Writer(7, 1), 0, tuple(Interval(*pair) for pair in intervals))


def test_the_newest_writing_holds_where_blocks_overlap() -> None:
    entries = folded(block((0, 1), (5, 4)), block((5, 9)), block((0, 1), (5, 7)))
    assert entries.intervals("flights", 0) == [Interval(0, 1), Interval(5, 7)]
    assert [found.key_source for found in entries.blocks_of("flights", 0)] == [5, 0]


def test_a_tombstone_takes_a_block_back() -> None:
    entries = folded(block((0, 1)), block((5, 9)), VoidBlock("flights", 0, 5), VoidBlock("flights", 1, 5))
    assert entries.intervals("flights", 0) == [Interval(0, 1)]


def gap(at_ms: int, status: GapStatus = GapStatus.PASSED, kind: GapKind = GapKind.RECREATED) -> Gap:
    return Gap("flights", 0, kind, at_ms, at_ms + 1, 0, status, at_ms, "")


CHECKPOINT = Checkpoint("flights", 0, End(10, 12), 14, Writer(7, 3), 0, 20, -1, 1_000)


@pytest.mark.parametrize("entry", [CHECKPOINT, TopicIdentity("flights", "an-id"), gap(3)])
def test_what_is_gone_is_taken_back_by_its_own_key(entry: Checkpoint | TopicIdentity | Gap) -> None:
    assert folded(entry) != folded()
    assert folded(entry, VoidEntry(entry)) == folded()


def test_the_ledger_keeps_the_newest_closed_lines_and_all_that_still_say_something() -> None:
    stopped = gap(1, GapStatus.STOPPED)
    deleted = gap(2, kind=GapKind.DELETED)
    closed = [gap(at, GapStatus.GONE if at % 2 else GapStatus.PASSED) for at in range(10, 12 + CLOSED_GAPS_MAX)]
    lines = [*reversed(closed), deleted, stopped]
    assert folded(CHECKPOINT, *lines).surplus_gaps() == closed[:2]
    assert folded(*lines).surplus_gaps() == [deleted, *closed[:2]]
    assert folded(*lines[3:]).surplus_gaps() == []


def test_what_was_read_does_not_change_and_says_nothing_of_the_map() -> None:
    entries = folded(LinkRun(RunState.PROMOTED, "operation-1", 5))
    assert (entries.exists, entries.run) == (True, LinkRun(RunState.PROMOTED, "operation-1", 5))
    with pytest.raises(FrozenInstanceError):
        entries.run = None  # type: ignore[misc]  # it is frozen
    with pytest.raises(TypeError, match="map"):
        LinkState(entries)  # type: ignore[call-arg]  # the map is missing


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(StateDamaged, match="offset 3 at west"):
        _Folding(LINK).apply(Record(3, 0, b"[]", b"{}"))
