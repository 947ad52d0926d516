"""What of a part of the state goes to other parts: whole, as it was written, in its order. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from broker.client.site import Site
from broker.wire.records import Record
from mirror.errors import StateDamaged
from mirror.link import Link
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Entry,
    Gap,
    GapKind,
    GapStatus,
    LinkRun,
    RunState,
    TopicIds,
    Writer,
    encode_key,
    encode_value,
)
from mirror.offsets.folding import Folding
from mirror.offsets.hold_entries import Hold, HoldReason
from mirror.offsets.intervals import End, Interval
from mirror.offsets.part_records import PartRecords, carried, pauses, positions, strangers, take_over
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.topic_entries import TopicIdentity, TopicPause
from mirror.offsets.unit_entries import LinkDeal

LINK = Link("east-west", Site("east", "east:9092"), Site("west", "west:9092"), ("flights", "gates"))
TWO = replace(LINK, units=2)
PINNED = replace(LINK, pins=(("flights", 1),))
WHERE = ("flights", 1)
CHECKPOINT = Checkpoint(*WHERE, End(10, 12), 14, Writer(7, 3), 0, 20, -1, 1_000, topic_ids=TopicIds("a", "b"))
HOLD = Hold(*WHERE, HoldReason.NO_LEADER_AT_TARGET, "", 1)


def block(source: int, *, partition: int = 1) -> Block:
    return Block("flights", partition, Writer(7, 3), 0, (Interval(source, source),))


def gap(at: int, kind: GapKind = GapKind.DELETED) -> Gap:
    return Gap(*WHERE, kind, at, at + 1, 0, GapStatus.PASSED, at, "")


def part(unit: int, *entries: Entry) -> PartRecords:
    found = PartRecords(unit)
    for entry in entries:
        found.apply(encode_key(entry), encode_value(entry))
    return found


def entries_of(link: Link, records: PartRecords) -> StateEntries:
    folding = Folding(link)
    for at, (key, value) in enumerate(records.values.items()):
        folding.apply(Record(at, 0, key, value))
    return folding.entries()


def moved(parts: Mapping[int, PartRecords]) -> StateEntries:
    """What the pinned partition's own part says, once all was carried there."""
    take_over(parts, carried(LINK, PINNED, parts))
    return entries_of(PINNED, parts[1])


def test_what_is_said_of_a_partition_goes_with_it_and_nothing_else() -> None:
    other = replace(CHECKPOINT, partition=0)
    acceptance = Acceptance(*WHERE, 3, GapKind.RECREATED, 1, 4, "op")
    mine: list[Entry] = [block(5), block(3), CHECKPOINT, gap(1, GapKind.RECREATED), acceptance]
    run = LinkRun(RunState.PAUSED, "op", 1)
    parts = {0: part(0, other, block(9, partition=0), run, *mine, HOLD), 1: part(1)}
    before = entries_of(LINK, parts[0])
    found = moved(parts)
    assert list(parts[1].values) == [encode_key(entry) for entry in mine], "in their order; a hold is found out anew"
    assert found.checkpoints == {WHERE: CHECKPOINT}
    assert found.blocks_of(*WHERE) == before.blocks_of(*WHERE)
    assert found.acceptances == before.acceptances
    assert (found.run, found.holds) == (None, {})
    assert {change.key for change in strangers(PINNED, parts[0])} == {encode_key(one) for one in [*mine, HOLD]}
    assert strangers(PINNED, parts[1]) == []
    assert positions(parts[0]) == [("flights", 0), WHERE]


def test_a_deletion_that_is_behind_the_position_stays_behind_it() -> None:
    outlived, not_outlived = gap(1), gap(2)
    parts = {0: part(0, outlived, CHECKPOINT, not_outlived), 1: part(1)}
    before = entries_of(LINK, parts[0])
    assert len(before.outlived) == 1
    assert moved(parts).outlived == before.outlived


def test_a_block_that_was_written_again_is_still_the_newest() -> None:
    parts = {0: part(0, block(3), block(5), block(3)), 1: part(1)}
    assert [one.key_source for one in moved(parts).blocks_of(*WHERE)] == [5, 3]


def test_a_position_of_an_older_version_takes_its_topics_id_along() -> None:
    old = replace(CHECKPOINT, topic_ids=TopicIds("", "b"))
    parts = {0: part(0, TopicIdentity("flights", "first"), old), 1: part(1, TopicIdentity("flights", "later"))}
    assert moved(parts).checkpoints[WHERE].topic_ids == TopicIds("first", "b")
    parts = {0: part(0, TopicIdentity("flights", "first"), CHECKPOINT), 1: part(1)}
    assert moved(parts).checkpoints[WHERE] == CHECKPOINT


def test_what_an_earlier_cut_left_is_not_carried() -> None:
    """Unit 1 of two has an old position of what is unit 0's."""
    stale = Checkpoint("flights", 0, End(1, 1), 1, Writer(6, 1), 0, 2, -1, 1)
    assert TWO.unit_of("flights", 0) == 0
    parts = {0: part(0, replace(stale, position=9)), 1: part(1, stale)}
    assert carried(TWO, replace(LINK, units=1), parts) == {}
    assert [change.key for change in strangers(TWO, parts[1])] == [encode_key(stale)]
    deal = LinkDeal(2)
    assert entries_of(TWO, part(1, stale, deal)).counting(1).checkpoints == {}
    assert entries_of(TWO, part(1, stale)).counting(1).checkpoints, "a link that was never cut anew has no such"


def test_the_same_topics_are_paused_in_all_parts() -> None:
    here, there, gone = (TopicPause(topic, "op", 1) for topic in ("flights", "gates", "quiet"))
    parts = {0: part(0, here), 1: part(1, there), 2: part(2, gone)}
    new = replace(LINK, units=3)
    take_over(parts, pauses(TWO, new, parts))
    for unit in range(3):
        assert entries_of(new, parts[unit]).paused == {"flights": here, "gates": there}, unit


def test_what_cannot_be_read_is_told() -> None:
    damaged = PartRecords(0, {b"[]": b"{}"})
    with pytest.raises(StateDamaged):
        list(damaged.partitions())
    with pytest.raises(StateDamaged):
        PartRecords(0, {b'["link"]': b"{}"}).run()
