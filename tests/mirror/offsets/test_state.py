"""What was read of a link's state: the newest writing holds, a tombstone takes back."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import FrozenInstanceError, replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.model import Topic
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
    TopicIds,
    Void,
    VoidBlock,
    VoidEntry,
    Writer,
    encode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.folding import Folding
from mirror.offsets.group_entries import GroupSync, VoidGroup
from mirror.offsets.hold_entries import Hold, HoldReason, VoidHold
from mirror.offsets.intervals import End, Interval
from mirror.offsets.limits import CLOSED_GAPS_MAX, OPENED_TOGETHER
from mirror.offsets.offset_map import Where
from mirror.offsets.origin_entries import OriginRun, OriginRuns, VoidOrigins, Way
from mirror.offsets.pages import VoidPage
from mirror.offsets.state import LinkState
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.topic_entries import TopicIdentity, TopicPause, VoidPause
from tests.mirror.offsets.test_pages import packed
from tests.worlds import first_worlds

LINK = Link("east-west", Site("east", "east:9092"), Site("west", "west:9092"), ("flights",))


def folded(*changes: Entry | Void) -> StateEntries:
    folding = Folding(LINK)
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
    assert folded(entry, VoidEntry(entry)) == folded(VoidEntry(entry)) == folded()


def test_a_pause_stands_until_it_is_taken_back_and_may_come_again() -> None:
    first, second = TopicPause("flights", "pause-1", 1), TopicPause("flights", "pause-2", 2)
    assert folded(first).paused == {"flights": first}
    assert folded(first, VoidPause("gates")).paused_topics() == ("flights",)
    assert folded(first, VoidPause("flights")).paused == {}
    assert folded(first, VoidPause("flights"), second).paused == {"flights": second}


def test_so_are_groups_holds_and_origins() -> None:
    group, hold = GroupSync("readers", 5), Hold("flights", 3, HoldReason.NO_LEADER_AT_TARGET, "", 1)
    whole = replace(hold, partition=None)
    runs = OriginRuns("flights", 0, (7, 1), (OriginRun(0, 2, Way(frozenset({"north"}), frozenset())),), 0, 0)
    entries = folded(group, hold, whole, runs)
    assert entries.groups.by_group == {"readers": group}
    assert entries.holds == {("flights", 3): hold, ("flights", None): whole}
    assert entries.origins == {("flights", 0): (runs,)}
    voids: list[Void] = [VoidGroup("readers"), VoidHold("flights", 3), VoidHold("flights", None), VoidOrigins(runs)]
    gone = folded(group, hold, whole, runs, *voids)
    assert (gone.groups, gone.holds, gone.origins) == (folded().groups, {}, {})
    assert (folded(*voids).groups, folded(*voids).holds) == (folded().groups, {})


def test_doubts_are_told_in_words_also_of_a_topic_that_is_another_now() -> None:
    known, other = UUID(int=1), UUID(int=2)
    topic = Topic("flights", other, False, ())
    first = replace(CHECKPOINT, topic_ids=TopicIds(str(known), ""))
    second, third, fourth = (replace(CHECKPOINT, partition=number) for number in (1, 2, 3))
    stands = Gap("flights", 2, GapKind.RECREATED, 1, 2, 0, GapStatus.STOPPED, 1, "it is another")
    held = Hold("flights", 3, HoldReason.ERROR_AT_SOURCE, "UNKNOWN_SERVER_ERROR", 1)
    entries = folded(first, second, third, fourth, stands, held)
    marked = {
        ("flights", 2): "it stands still (recreated: it is another)",
        ("flights", 3): "it is held (error_at_source: UNKNOWN_SERVER_ERROR)",
    }
    is_other = f"the source topic's id was {known} and is {other}"
    assert entries.doubts({}) == entries.doubts({"flights": replace(topic, topic_id=None)}) == marked
    assert entries.doubts({"flights": topic}) == marked | {("flights", 0): is_other}
    assert entries.doubts({"flights": replace(topic, topic_id=known)}) == marked
    named = folded(first, second, third, fourth, stands, held, TopicIdentity("flights", str(known)))
    assert named.doubts({"flights": topic}) == marked | {("flights", n): is_other for n in (0, 1)}
    assert folded(replace(held, detail=""), fourth).doubts({}) == {("flights", 3): "it is held (error_at_source)"}


def test_the_ledger_keeps_the_newest_closed_lines_and_all_that_still_say_something() -> None:
    """Whatever time they say: a clock that was ahead would keep its own, and have the newest go in their place."""
    stopped = gap(1, GapStatus.STOPPED)
    deleted = gap(2, kind=GapKind.DELETED)
    closed = [gap(at, GapStatus.GONE if at % 2 else GapStatus.PASSED) for at in range(10, 12 + CLOSED_GAPS_MAX)]
    closed[0] = replace(closed[0], at_ms=10**15)
    closed[-1] = replace(closed[-1], at_ms=0)
    lines = [deleted, *closed, stopped]
    assert folded(CHECKPOINT, *lines).surplus_gaps() == closed[:2]
    assert folded(*lines).surplus_gaps() == [deleted, *closed[:2]]
    assert folded(*lines[:-3]).surplus_gaps() == [deleted]


def test_what_was_read_does_not_change_and_says_nothing_of_the_map() -> None:
    entries = folded(LinkRun(RunState.PROMOTED, "operation-1", 5))
    assert (entries.exists, entries.run) == (True, LinkRun(RunState.PROMOTED, "operation-1", 5))
    with pytest.raises(FrozenInstanceError):
        entries.run = None  # type: ignore[misc]  # it is frozen
    with pytest.raises(TypeError, match="map"):
        LinkState(entries)  # type: ignore[call-arg]  # the map is missing


def test_what_cannot_be_read_is_named() -> None:
    folding = Folding(LINK)
    folding.apply(Record(3, 0, b"[]", b"{}"))
    with pytest.raises(StateDamaged, match="offset 3 at west"):
        folding.entries()


TOPICS = ("flights", "fl", 'a"b')
PAGE = replace(packed([Interval(0, 1), Interval(2, 2)], 5), partition=0)


def said_of(topic: str, partition: int) -> list[Entry | Void]:
    runs = OriginRuns(topic, partition, (7, 1), (OriginRun(0, 2, Way(frozenset(), frozenset())),), 0, 0)
    first, second = (replace(block((at, at)), topic=topic, partition=partition) for at in (5, 8))
    return [
        replace(CHECKPOINT, topic=topic, partition=partition),
        replace(PAGE, topic=topic, partition=partition),
        runs,
        first,
        second,
        VoidBlock(topic, partition, 5),
        replace(gap(3), topic=topic, partition=partition),
        Hold(topic, partition, HoldReason.NO_LEADER_AT_TARGET, "", 1),
        GroupSync(f"readers of {topic}", partition),
        TopicIdentity(topic, "an-id"),
    ]


@settings(max_examples=first_worlds(20, of=100), deadline=None)
@given(st.data())
def test_what_is_read_of_some_partitions_is_what_the_whole_says_of_them(data: st.DataObject) -> None:
    """Also where more was read, and other partitions were asked for, in between."""
    everywhere = [(topic, number) for topic in TOPICS for number in (1, 11)]
    changes = data.draw(st.permutations([change for where in everywhere for change in said_of(*where)]))
    folding, whole = Folding(LINK), Folding(LINK)
    for at, change in enumerate(changes):
        key = encode_void_key(change) if isinstance(change, Void) else encode_key(change)
        record = Record(at, 0, key, None if isinstance(change, Void) else encode_value(change))
        folding.apply(record)
        whole.apply(record)
        if data.draw(st.booleans()):
            only = data.draw(st.sets(st.sampled_from(everywhere)))
            found, expected = folding.entries(only), whole.entries()
            assert found == replace(
                expected,
                blocks={where: of for where, of in expected.blocks.items() if where in only},
                pages={where: of for where, of in expected.pages.items() if where in only},
                origins={where: of for where, of in expected.origins.items() if where in only},
                checkpoints={where: of for where, of in expected.checkpoints.items() if where in only},
            )
    assert folding.entries() == whole.entries()


@pytest.mark.parametrize(("only", "is_seen"), [([("flights", 10)], False), ([("flights", 0)], True), (None, True)])
def test_damage_of_a_partition_that_is_not_asked_for_is_not_looked_at(only: list[Where] | None, is_seen: bool) -> None:
    folding = Folding(LINK)
    folding.apply(Record(0, 0, encode_key(CHECKPOINT), b"?"))
    folding.apply(Record(1, 0, encode_key(replace(CHECKPOINT, partition=10)), encode_value(CHECKPOINT)))
    with pytest.raises(StateDamaged) if is_seen else nullcontext():
        assert folding.entries(only).checkpoints.keys() == {("flights", 10)}


@pytest.mark.parametrize("damage", [b"", b"?", b"5", b"[]", b'{"v":1},{"v":1}', b'{"v":9}', b"null"])
def test_damage_among_many_entries_is_named(damage: bytes) -> None:
    folding = Folding(LINK)
    for at in range(2 * OPENED_TOGETHER):
        known = replace(CHECKPOINT, partition=at)
        folding.apply(Record(at, 0, encode_key(known), damage if at == OPENED_TOGETHER else encode_value(known)))
    with pytest.raises(StateDamaged, match=f"offset {OPENED_TOGETHER} at west"):
        folding.entries()


@pytest.mark.parametrize("asked", [None, 1, 1_500])
def test_many_entries_are_opened_in_pieces_and_no_more_than_are_asked_for(asked: int | None) -> None:
    """Whoever reads a large state holds up all else in its process for no longer than a piece takes."""
    folding, count = Folding(LINK), 2 * OPENED_TOGETHER + 1
    for at in range(count):
        known = replace(CHECKPOINT, partition=at)
        folding.apply(Record(at, 0, encode_key(known), encode_value(known)))
    only = None if asked is None else [("flights", at) for at in range(asked)]
    opened = [len(folding.checkpoints) for _ in folding.opening(only)]
    assert len(folding.checkpoints) == len(folding.entries(only).checkpoints) == (asked or count)
    assert max(after - before for before, after in zip([0, *opened], opened, strict=False)) <= OPENED_TOGETHER


def test_what_is_read_later_takes_back_what_was_read_before() -> None:
    folding = Folding(LINK)
    kept, gone, page = block((5, 9)), block((0, 1)), packed([Interval(0, 1), Interval(2, 2)], 5)
    entries: list[Entry] = [gone, kept, page]
    for entry in entries:
        folding.apply(Record(0, 0, encode_key(entry), encode_value(entry)))
    before = folding.entries()
    voids: list[Void] = [VoidBlock("flights", 0, 0), VoidPage("flights", 3, 0)]
    for void in voids:
        folding.apply(Record(0, 0, encode_void_key(void), None))
    after = folding.entries()
    assert (before.blocks_of("flights", 0), before.pages_of("flights", 3)) == ([gone, kept], [page])
    assert (after.blocks_of("flights", 0), after.pages_of("flights", 3)) == ([kept], [])
    assert before.producer_ids() == {7, 9}
    assert after.producer_ids() == {7}


def test_a_page_says_all_of_what_lies_before_its_end() -> None:
    """Blocks that a crash left there do not count, also where they begin before the page does."""
    page = replace(packed([Interval(2, 1), Interval(6, 2)], 9), partition=0)
    entries = folded(block((0, 0), (4, 4)), block((8, 3), (9, 8)), block((12, 10)), page)
    assert entries.intervals("flights", 0) == [Interval(2, 1), Interval(6, 2), Interval(9, 8), Interval(12, 10)]
