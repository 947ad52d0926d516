"""Where two logs part: found by reading backwards, window by window, against logs of which it is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.errors import ReadUnfinished
from broker.client.probe import StoredBatch
from broker.wire.batch import BatchHeader, patch_log_append_time, peek
from broker.wire.errors import CorruptBatch
from broker.wire.records import Record
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.offsets.entries import LastRecord, Writer
from mirror.offsets.intervals import End, Interval, Piece, intervals_for
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.origin_entries import Way
from mirror.origins import Judgement, Verdict
from mirror.worker import parting
from mirror.worker.parting import (
    Copies,
    Parting,
    PartingSearch,
    _Copy,
    _Window,
    find_parting,
    find_partings,
    is_copy,
)
from tests.mirror.worker.histories import WHERE, AllPasses, MemoryLog, finish


@pytest.fixture(autouse=True, scope="module")
def small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parting, "FIRST_WINDOW_OFFSETS", 2)
        patch.setattr(parting, "WINDOW_MAX_OFFSETS", 4)
        yield


class StrictLog(MemoryLog):
    """As a broker: what lies outside of the log cannot be asked for."""

    def read_batches(
        self, where: TopicPartition, start: int, end: int, isolation: IsolationLevel
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        assert self.start <= start < end <= self.end
        return super().read_batches(where, start, end, isolation)


@dataclass
class Pair:
    """A source, its target, and the map; `placed` is where each record lies in both, in order."""

    source: MemoryLog = field(default_factory=StrictLog)
    target: MemoryLog = field(default_factory=StrictLog)
    map: PartitionMap = field(default_factory=PartitionMap)
    placed: list[tuple[int, int]] = field(default_factory=list)
    passage: AllPasses = field(default_factory=AllPasses)

    def mirror(self, values: list[int], copies: list[int] | None = None) -> None:
        """A batch of either; `copies` are what the target has in its place, [] for markers."""
        pieces = (Piece(self.source.end, 0),)
        end = self.map.end or End(self.source.end, self.target.end)
        if not self.map.intervals:
            self.map.intervals.put(Interval(self.source.end, self.target.end))
        found = intervals_for(end, pieces, self.target.end)
        self.placed += [(self.source.end + n, self.target.end + n) for n in range(len(values))]
        self.source.write(values)
        if copies == []:
            for _ in values:
                self.target.mark(Writer(7, 0))
        else:
            self.target.write(values if copies is None else copies, 7 + values[0])
        self.map.advance(found, End(self.source.end, self.target.end))

    def copies(self) -> Copies:
        spans = (self.target.start, self.target.end)
        logs = (self.source, self.target)
        return Copies(logs, (WHERE, WHERE), self.map, self.source.start, spans, self.passage)  # type: ignore[arg-type]

    def find(self, below: int | None = None, agreed_by_epochs: int | None = None) -> Parting:
        return finish(find_parting(self.copies(), self.source.end if below is None else below, agreed_by_epochs))

    def last(self, at: tuple[int, int]) -> LastRecord:
        writer = next(h.producer_id for h, _ in self.target.batches if h.base_offset <= at[1] < h.next_offset)
        return LastRecord(*at, writer)


def of(values: int) -> Pair:
    """So many records, each in a batch of its own, at the same offsets."""
    pair = Pair()
    for value in range(values):
        pair.mirror([value])
    return pair


@settings(max_examples=200)
@given(st.data())
def test_the_copies_agree_up_to_where_they_part(data: st.DataObject) -> None:
    """From some record on the target has others, or markers, or nothing; either log may have lost its beginning."""
    pair, value = Pair(), 0
    kind = data.draw(st.sampled_from(["unlike", "marker", "cut", "none"]))
    batches = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    parts_at = data.draw(st.integers(0, len(batches) - 1))
    for number, size in enumerate(batches):
        for log in (pair.source, pair.target):
            for _ in range(data.draw(st.sampled_from([0, 0, 1]))):
                log.mark(Writer(9, 0))
        values = list(range(value, value + size))
        value += size
        if number == parts_at:
            first = len(pair.placed)
        spoilt = {"unlike": [1000 + v for v in values], "marker": []}.get(kind) if number >= parts_at else None
        pair.mirror(values, spoilt)
    if kind == "cut":
        pair.target.cut(pair.placed[first][1])
    pair.source.delete_to(data.draw(st.integers(0, 4)))
    pair.target.delete_to(data.draw(st.integers(0, 4)))
    below = data.draw(st.integers(pair.source.start, pair.source.end))
    compared = [at for at in pair.placed if pair.source.start <= at[0] < below and pair.target.start <= at[1]]
    equal = [at for at in compared if kind == "none" or at < pair.placed[first]]
    unequal = [at[0] for at in compared if at not in equal]
    found = pair.find(below)
    assert found.position == pair.map.position
    if not equal and (not unequal or kind == "cut"):  # no copy could be looked at
        assert (found.is_compared, found.agreed_to, found.last) == (False, pair.source.start, None)
        return
    assert found.is_compared
    assert found.last == (pair.last(equal[-1]) if equal else None)
    assert found.differs_from == (unequal[0] if unequal else None)
    assert found.agreed_to == (below if not unequal else unequal[0] if equal else pair.source.start)


@pytest.mark.parametrize(("epochs", "expected"), [(None, 10), (5, 10), (4, 10), (3, 3), (0, 3)])
def test_what_epochs_put_in_doubt_is_looked_at_to_its_beginning(
    epochs: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair()
    for value in range(10):
        pair.mirror([value], [1000] if value == 3 else None)
    for at in (3, 2):  # the windows begin at 8, 4 and 0, then at 8, 6, 4, 2 and 0
        monkeypatch.setattr(parting, "WINDOW_MAX_OFFSETS", 2 * at - 2)
        found = pair.find(agreed_by_epochs=epochs)
        assert (found.agreed_to, found.differs_from) == (expected, 3 if expected == 3 else None)
        assert found.last == ((2, 2, 9) if expected == 3 else (9, 9, 16))


def test_what_cannot_be_compared_is_told_by_epochs_or_not_at_all() -> None:
    pair = of(6)
    pair.target.delete_to(4)
    pair.source.delete_to(1)
    for below, epochs, expected in ((4, None, 1), (4, 3, 3), (4, 9, 4), (1, None, 1)):
        assert pair.find(below, epochs) == Parting(expected, None, None, False, 6)


def test_one_copy_that_differs_is_enough_where_the_others_are_gone() -> None:
    pair = Pair()
    for value in range(6):
        pair.mirror([value], [1000] if value >= 4 else None)
    pair.target.delete_to(4)
    assert pair.find() == Parting(0, 4, None, True, 6)


def test_records_before_the_map_begins_are_nobodys_copies() -> None:
    pair = Pair()
    pair.source.write([50, 51])
    pair.mirror([0])
    pair.mirror([1], [1000])
    assert pair.find() == Parting(3, 3, LastRecord(2, 0, 7), True, 4)


def test_what_was_left_out_at_a_passed_gap_has_no_copy_that_differs() -> None:
    pair = of(3)
    pair.source.write([50, 51, 52])
    pair.mirror([3])
    assert pair.find(agreed_by_epochs=0) == Parting(7, None, LastRecord(6, 3, 10), True, 7)


def test_a_marker_before_equal_copies_only_says_that_a_record_was_never_mirrored() -> None:
    pair = Pair()
    for value in range(6):
        pair.mirror([value], [] if value in (1, 3) else None)
    assert pair.find(agreed_by_epochs=0) == Parting(6, None, LastRecord(5, 5, 12), True, 6)


def test_the_end_of_a_target_that_is_too_short_is_the_end_of_what_agrees() -> None:
    pair = of(6)
    pair.target.cut(4)
    assert pair.find() == Parting(4, 4, LastRecord(3, 3, 10), True, 6)
    assert pair.find(4) == Parting(4, None, LastRecord(3, 3, 10), True, 6)
    pair.target.cut(0)
    assert pair.find() == Parting(0, 0, None, False, 6)


def test_records_that_are_alike_again_do_not_hide_the_difference_before_them() -> None:
    """As when a source lost its end and some of the lost records were sent again, at the same offsets."""
    pair = Pair()
    for value in range(10):
        pair.mirror([value], [1000] if value in (5, 9) else None)
    assert pair.find() == Parting(5, 5, LastRecord(4, 4, 11), True, 10)


def test_a_target_that_stamps_its_records_holds_the_same_copies() -> None:
    pair = of(4)
    for _, batch in pair.target.batches:
        patch_log_append_time(batch, 99)
    pair.target.batches = [StoredBatch(peek(batch), batch) for _, batch in pair.target.batches]
    assert pair.find() == Parting(4, None, LastRecord(3, 3, 10), True, 4)


@pytest.mark.parametrize(("epochs", "waits"), [(None, False), (0, True)])
def test_only_so_many_wide_windows_are_in_memory_together(epochs: int | None, waits: bool) -> None:
    """Here none may be: who needs one waits for as long as the search may take, who needs none does not."""
    pair = of(10)
    copies = replace(pair.copies(), wide=asyncio.Semaphore(0))
    search = PartingSearch(copies, pair.source.end, epochs)
    (found,) = finish(find_partings({WHERE: search}, 200 if waits else None)).values()
    assert isinstance(found, ReadUnfinished if waits else Parting)


@dataclass
class Damaged(MemoryLog):
    """Its batches from this offset on cannot be read."""

    damaged_from: int = 0

    def __init__(self, log: MemoryLog, damaged_from: int) -> None:
        self.__dict__ |= log.__dict__
        self.damaged_from = damaged_from

    async def read_batches(
        self, where: TopicPartition, start: int, end: int, isolation: IsolationLevel
    ) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        async for header, batch in super().read_batches(where, start, end, isolation):
            if header.base_offset >= self.damaged_from:
                raise CorruptBatch("damaged")
            yield header, batch


@pytest.mark.parametrize("site", ["source", "target"])
def test_what_lies_before_damage_is_compared(site: str) -> None:
    pair = of(8)
    setattr(pair, site, Damaged(getattr(pair, site), 5))
    found = pair.find(agreed_by_epochs=0)
    assert found == Parting(8, None, LastRecord(4, 4, 11), True, 8)
    setattr(pair, site, Damaged(getattr(pair, site), 0))
    assert pair.find() == Parting(0, None, None, False, 8)


class LocalOnly(AllPasses):
    """Records of producer 99 are another link's, which is known once they are learned."""

    def __init__(self) -> None:
        self.learned = False

    async def learn(self, where: TopicPartition, records: memoryview) -> None:
        self.learned = True

    def judge(self, where: TopicPartition) -> Callable[[BatchHeader], Judgement]:
        assert where == WHERE

        def judged(header: BatchHeader) -> Judgement:
            is_local = self.learned and header.producer_id != 99
            return Judgement(Verdict.CARRY if is_local else Verdict.LEAVE_OUT, Way(frozenset(), frozenset()))

        return judged


def test_what_the_link_does_not_carry_is_not_compared() -> None:
    pair = of(2)
    pair.passage = LocalOnly()
    pair.source.write([40], 99)
    pair.target.write([41])
    pair.map.advance([], End(pair.source.end, pair.target.end))
    assert pair.find() == Parting(3, None, LastRecord(1, 1, 8), True, 3)
    pair.passage = AllPasses()
    assert pair.find() == Parting(2, 2, LastRecord(1, 1, 8), True, 3)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(_Copy)), unique_by=lambda seen: seen[0]), st.booleans())
def test_a_window_parts_at_the_first_difference_that_no_equal_copy_explains(
    seen: list[tuple[int, _Copy]], equal_behind: bool
) -> None:
    seen = sorted(seen)
    end = next((offset for offset, copy in seen if copy is _Copy.UNLIKE), 10)
    equal = [offset for offset, copy in seen if copy is _Copy.EQUAL and offset < end]
    explained = 10 if equal_behind and end == 10 else max(equal, default=-1)
    differs = [offset for offset, copy in seen if copy is not _Copy.EQUAL and explained < offset <= end]
    expected = (min(differs, default=None), max(equal, default=None))
    assert _Window(seen).parting(equal_behind) == expected


def test_copies_are_the_same_in_all_but_the_offset() -> None:
    one = Record(3, 5, b"k", b"v", (("h", b"x"),))
    assert is_copy(one, one._replace(offset=9), stamped=False)
    later = one._replace(timestamp=6)
    assert not is_copy(one, later, stamped=False)
    assert is_copy(one, later, stamped=True)
    for other in (
        one._replace(key=None),
        one._replace(value=b"w"),
        one._replace(headers=(("h", b"y"),)),
    ):
        assert not is_copy(one, other, stamped=False)
        assert not is_copy(one, other, stamped=True)
