"""The map rebuilt from both logs is the one that the mirror had; and what is no mirror is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.offset_map import PartitionMap
from mirror.worker.matching import Matched, Nature, Seen, Unmatched, find_first, match

PLAIN = Nature(False, False, 0)
KEYS = st.integers(0, 3)


def record(offset: int, number: int, *, key: int | None = None, tombstone: bool = False) -> Seen:
    name = None if key is None else b"k%d" % key
    return Seen(offset, number, b"c%d" % number, name, tombstone, 7, False)


@dataclass
class Mirrored:
    """A source's log, what a mirror made of it, and the mirror's own map."""

    source: list[Seen] = field(default_factory=list)
    target: list[Seen] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    end: End = field(default_factory=lambda: End(0, 0))

    @property
    def map(self) -> PartitionMap:
        return PartitionMap(self.intervals, self.end, self.end.source_next)


@st.composite
def mirrored(draw: st.DrawFn, *, keyed: bool = False) -> Mirrored:
    """Steps of the source: a record, or an offset without one (aborted, a marker); of the target: a fence's marker."""
    made = Mirrored()
    begins, count = draw(st.integers(0, 4)), draw(st.integers(1, 25))
    stops = draw(st.integers(1, 25))
    source = target = 0
    for number in range(begins + count):
        source += draw(st.sampled_from([0, 0, 0, 1, 3]))
        key = draw(KEYS) if keyed else None
        seen = record(source, number, key=key, tombstone=keyed and draw(st.integers(0, 5)) == 0)
        made.source.append(seen)
        source += 1
        if not begins <= number < begins + stops:
            continue
        target += draw(st.sampled_from([0, 0, 0, 1, 2]))
        if not made.target:
            made.intervals, made.end = [Interval(seen.offset, target)], End(seen.offset, target)
        made.intervals += intervals_for(made.end, (Piece(seen.offset, 0),), target)
        made.end = End(seen.offset + 1, target + 1)
        made.target.append(seen._replace(offset=target))
        target += 1
    made.source.append(record(source, 1_000, key=0 if keyed else None))  # the last was never mirrored
    return made


async def _stream(records: Sequence[Seen], start: int) -> AsyncIterator[Seen]:
    for seen in records:
        if seen.offset >= start:
            yield seen


async def _adopt(source: Sequence[Seen], target: Sequence[Seen], nature: Nature) -> Matched | Unmatched:
    starts = (0, 0)
    if not nature.source_is_compacted and not nature.target_is_compacted:
        first = await find_first(_stream(source, 0), _stream(target, 0), nature)
        if isinstance(first, Unmatched):
            return first
        starts = first
    return await match(_stream(source, starts[0]), _stream(target, starts[1]), nature)


def adopt(source: Sequence[Seen], target: Sequence[Seen], nature: Nature = PLAIN) -> Matched | Unmatched:
    return asyncio.run(_adopt(source, target, nature))


@given(mirrored())
def test_the_map_is_the_one_that_the_mirror_had(made: Mirrored) -> None:
    found = adopt(made.source, made.target)
    assert isinstance(found, Matched), found
    assert (list(found.intervals), found.end) == (made.intervals, made.end)
    assert (found.first, found.records) == (made.intervals[0], len(made.target))
    assert tuple(found.last) == (made.end.source_next - 1, made.end.target_next - 1, 7)


@given(mirrored(), st.data())
def test_retention_may_have_taken_the_beginning_of_either_log(made: Mirrored, data: st.DataObject) -> None:
    lost_here = data.draw(st.integers(0, len(made.source) - 2))
    lost_there = data.draw(st.integers(0, len(made.target) - 1))
    source, target = made.source[lost_here:], made.target[lost_there:]
    start = source[0].offset
    found = adopt(source, target, Nature(False, False, start))
    if made.end.source_next <= start:  # nothing of it is left to compare
        assert isinstance(found, Unmatched)
        return
    assert isinstance(found, Matched), found
    true = PartitionMap(list(made.intervals), made.end, made.end.source_next)
    rebuilt = PartitionMap(list(found.intervals), found.end, found.end.source_next)
    assert found.end == made.end
    first = max(start, made.map.to_source(target[0].offset) or 0)
    for offset in range(first, made.end.source_next + 1):
        assert rebuilt.to_target(offset) == true.to_target(offset)
    for offset in range(found.first.target_start, made.end.target_next + 1):
        assert rebuilt.to_source(offset) == true.to_source(offset)


@pytest.mark.parametrize("damage", ["changed", "missing", "doubled", "reordered", "foreign"])
@pytest.mark.parametrize("compacted", [False, True])
@given(made=mirrored(keyed=True), data=st.data())
def test_what_is_no_mirror_is_refused(damage: str, compacted: bool, made: Mirrored, data: st.DataObject) -> None:
    """`compacted`: the topics may be, though here no cleaner ran."""
    assume(len(made.target) >= 3)
    at = data.draw(st.integers(1, len(made.target) - 2))
    contents = list(made.target)
    stranger = record(0, 5_000, key=9)
    if damage == "changed":
        contents[at] = stranger
    elif damage == "missing":
        del contents[at]
    elif damage == "doubled":
        contents.insert(at, contents[at])
    elif damage == "reordered":
        contents[at], contents[at + 1] = contents[at + 1], contents[at]
    else:
        contents.insert(at, stranger)
    target = [seen._replace(offset=offset) for offset, seen in enumerate(contents)]
    assert isinstance(adopt(made.source, target, Nature(compacted, compacted, 0)), Unmatched)


def compact(log: Sequence[Seen], cleaned: int, keep_tombstones: bool) -> list[Seen]:
    """As a cleaner leaves the log whose first `cleaned` records it has seen."""
    newest = {seen.key: seen.offset for seen in log[:cleaned]}
    kept = [s for s in log[:cleaned] if newest[s.key] == s.offset and (keep_tombstones or not s.is_tombstone)]
    return [*kept, *log[cleaned:]]


@given(mirrored(keyed=True), st.data())
def test_cleaners_may_have_run_on_either_side(made: Mirrored, data: st.DataObject) -> None:
    here = data.draw(st.integers(0, len(made.source) - 1))
    there = data.draw(st.integers(0, len(made.target) - 1))
    was_mirrored = made.source[here].offset < made.end.source_next  # a tombstone that is gone unseen proves nothing
    source = compact(made.source, here, not was_mirrored or data.draw(st.booleans()))
    target = compact(made.target, there, data.draw(st.booleans()))
    found = adopt(source, target, Nature(True, True, 0))
    pairs = {seen.content: seen.offset for seen in target}
    both = [seen for seen in source if seen.content in pairs]
    if not both:
        assert isinstance(found, Unmatched)
        return
    assert isinstance(found, Matched), found
    rebuilt = PartitionMap(list(found.intervals), found.end, found.end.source_next)
    assert found.records == len(both)
    for seen in both:
        assert rebuilt.to_target(seen.offset) == pairs[seen.content]
        assert rebuilt.to_source(pairs[seen.content]) == seen.offset
    assert found.end.target_next == target[-1].offset + 1
    ahead = [seen for seen in source if seen.offset >= found.end.source_next]
    assert not {seen.content for seen in ahead} & {seen.content for seen in made.target[there:]}


@given(mirrored(keyed=True), st.data())
def test_the_newest_record_of_a_key_is_not_taken_by_compaction(made: Mirrored, data: st.DataObject) -> None:
    newest = {seen.key: at for at, seen in enumerate(made.target) if not seen.is_tombstone}
    last = len(made.target) - 1
    taken = sorted(at for key, at in newest.items() if 0 < at < last)
    taken = [at for at in taken if not any(s.key == made.target[at].key for s in made.target[at + 1 :])]
    assume(taken)
    at = data.draw(st.sampled_from(taken))
    target = [seen for index, seen in enumerate(made.target) if index != at]
    assert isinstance(adopt(made.source, target, Nature(True, True, 0)), Unmatched)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.lists(st.integers(0, 1), min_size=1, max_size=12))
def test_what_is_paired_is_equal_and_in_order(ours: list[int], theirs: list[int]) -> None:
    """Also where records are like each other: then any pairs may be the ones, or none are found."""
    source = [record(at, number) for at, number in enumerate(ours)]
    target = [record(at, number) for at, number in enumerate(theirs)]
    found = adopt(source, target)
    if isinstance(found, Matched):
        begins = found.first.source_start
        assert theirs == ours[begins : begins + len(theirs)]
        assert found.end == End(begins + len(theirs), len(theirs))
    else:
        assert theirs != ours[: len(theirs)]


@pytest.mark.parametrize("count", [1, 4])
def test_retention_takes_no_more_than_the_source_had_before_its_start(count: int) -> None:
    target = [record(at, at) for at in range(6)]
    found = adopt([record(5, 5), record(6, 6)], target, Nature(False, False, 5))
    assert isinstance(found, Matched)
    assert (found.first, found.end) == (Interval(5, 5), End(6, 6))
    assert isinstance(adopt([record(5, 5), record(6, 6)], target, Nature(False, False, count)), Unmatched)


@pytest.mark.parametrize(
    ("source", "target"),
    [([0, 1], [0, 3, 5]), ([0, 5], [0, 1, 2]), ([0, 1], [0, 1])],
    ids=["not at the source", "there is room at both", "behind the last pair, not at the source"],
)
def test_compaction_takes_only_where_there_are_offsets_for_it(source: list[int], target: list[int]) -> None:
    """Between two pairs, or behind the last, the target has a record with a key that the source writes again."""
    here = [record(source[0], 0, key=0), record(source[1], 1, key=0), record(9, 2, key=0)]
    numbers = [0, 7, 1][: len(target)]
    there = [record(offset, number, key=0) for offset, number in zip(target, numbers, strict=True)]
    found = adopt(here, there, Nature(True, True, 0))
    assert isinstance(found, Matched) is (source == [0, 5])
