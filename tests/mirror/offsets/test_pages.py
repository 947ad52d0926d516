"""Pages say what was packed into them, through the state topic and back; a partition's intervals do as a plain list."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mirror.errors import StateDamaged
from mirror.offsets.entries import ENTRY_VERSION, decode_entry, decode_key, encode_key, encode_value
from mirror.offsets.intervals import Interval
from mirror.offsets.paged import Intervals
from mirror.offsets.pages import Page, open_page, pack_page, standing_pages
from tests.worlds import first_worlds

steps = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 20), st.integers(1, 1 << 33)),
        st.one_of(st.integers(0, 20), st.integers(0, 1 << 33)),
    ),
    max_size=60,
)
"""From interval to interval at the source and at the target; where the target has the offset gap they may be equal."""


def made(steps: list[tuple[int, int]], first: tuple[int, int] = (5, 9)) -> list[Interval]:
    begin = Interval(*first)
    return list(accumulate(steps, lambda at, step: Interval(at[0] + step[0], at[1] + step[1]), initial=begin))


def packed(intervals: list[Interval], to: int | None = None) -> Page:
    return pack_page("flights", 3, intervals, intervals[-1].source_start + 1 if to is None else to, [7, 9, 7])


def through_the_topic(page: Page) -> Page:
    found = decode_entry(decode_key(encode_key(page)), encode_value(page))
    assert isinstance(found, Page)
    return found


@given(steps, st.lists(st.integers(-3, 3), max_size=3))
def test_a_page_says_what_was_packed_into_it(steps: list[tuple[int, int]], falls: list[int]) -> None:
    """Where a target lost nothing but markers a later start has a lower offset there."""
    intervals = made([*steps, *((2, fall) for fall in falls), *steps])
    page = packed(intervals)
    assert list(map(Interval, *open_page(page))) == intervals
    assert (page.first, page.last, page.count) == (intervals[0], intervals[-1], len(intervals))
    assert page.producer_ids == (7, 9)
    assert through_the_topic(page) == page


def test_regular_transactions_cost_next_to_nothing_and_others_less_than_a_byte_each() -> None:
    regular = made([(11, 10)] * 16_383)
    irregular = made([(at % 17 + 2, at % 17 + 1) for at in (at * at * 7919 >> 3 for at in range(16_383))])
    assert len(encode_value(packed(regular))) < 400
    assert len(encode_value(packed(irregular))) < 16_384


def test_versions_without_pages_refuse_one() -> None:
    """They take no value of another version than theirs, whatever its key: so they say that a newer one wrote it."""
    assert json.loads(encode_value(packed(made([]))))["v"] > ENTRY_VERSION
    with pytest.raises(ValueError, match="newer version"):
        decode_entry(["page", "flights", 0, 0], b'{"v":3}')
    with pytest.raises(ValueError, match="newer version"):
        decode_entry(["owner"], b'{"v":2}')


@pytest.mark.parametrize(
    "damage",
    [
        {"count": 3},
        {"count": 5},
        {"last": Interval(8, 8)},
        {"widths": "B"},
        {"widths": "BH"},
        {"widths": "xy"},
        {"packed": b""},
        {"packed": b"something else"},
    ],
)
def test_a_page_that_nobody_packed_is_damage(damage: dict[str, object]) -> None:
    page = packed(made([(2, 1), (3, 2), (2, 2)]))
    broken = replace(page, **damage)  # type: ignore[arg-type]  # any field
    with pytest.raises(StateDamaged, match="flights partition 3 from source offset 5 on"):
        open_page(broken)


def test_a_page_that_another_has_taken_in_does_not_count() -> None:
    intervals = made([(2, 1)] * 9)
    whole, part, behind = packed(intervals[:8]), packed(intervals[4:8]), packed(intervals[8:])
    assert standing_pages([behind, part, whole]) == [whole, behind]
    with pytest.raises(StateDamaged):
        standing_pages([whole, packed(intervals[4:])])


class PagedIntervals(RuleBasedStateMachine):
    """Intervals against the list of them."""

    @initialize(first=st.builds(Interval, st.integers(0, 9), st.integers(0, 9)))
    def begin(self, first: Interval) -> None:
        self.first = first
        self.plain: list[Interval] = []
        self.found = Intervals()

    @rule(steps=steps)
    def grow(self, steps: list[tuple[int, int]]) -> None:
        before = self.plain[-1] if self.plain else self.first
        for interval in made(steps, before)[1:]:
            self.plain.append(interval)
            self.found.put(interval)

    @precondition(lambda self: self.found.open)
    @rule(data=st.data())
    def pack(self, data: st.DataObject) -> None:
        pages, count = data.draw(st.integers(0, len(self.found.pages))), data.draw(st.integers(1, len(self.found.open)))
        intervals = self.found.last(pages, count)
        behind = self.found.open[count].source_start if count < len(self.found.open) else intervals[-1].source_start + 5
        self.found.pack(pages, count, packed(intervals, data.draw(st.integers(intervals[-1].source_start + 1, behind))))

    @precondition(lambda self: self.plain)
    @rule(data=st.data(), gap=st.integers(-3, 3), fall=st.sampled_from([0, 0, 1, 9]))
    def put(self, data: st.DataObject, gap: int, fall: int) -> None:
        at = data.draw(st.sampled_from(self.plain))
        put = Interval(max(0, at.source_start + gap), max(0, at.target_start - fall))
        before = [interval for interval in self.plain if interval.source_start < put.source_start]
        self.plain = [Interval(source, min(target, put.target_start)) for source, target in before] + [put]
        self.found.put(put)
        assert all(page.to <= put.source_start for page in self.found.pages), "what is behind it would not count"

    @precondition(lambda self: self.plain)
    @rule(data=st.data(), gap=st.integers(-1, 1))
    def cut(self, data: st.DataObject, gap: int) -> None:
        source, target = data.draw(st.sampled_from(self.plain))[0] + gap, data.draw(st.sampled_from(self.plain))[1]
        whole = list(self.plain)
        self.plain = [interval for interval in whole if interval[0] < source and interval[1] <= target]
        before, self.found = self.found, self.found.cut(source, target)
        assert before == whole, "who cuts a copy changes nothing"

    @precondition(lambda self: self.plain)
    @rule()
    def pop(self) -> None:
        self.plain.pop()
        self.found.pop()

    @precondition(lambda self: self.plain)
    @rule(data=st.data(), gap=st.integers(-1, 1))
    def retention(self, data: st.DataObject, gap: int) -> None:
        log_start = data.draw(st.sampled_from(self.plain)).target_start + gap
        needed = max([0, *(at for at, interval in enumerate(self.plain) if interval.target_start <= log_start)])
        for left in (self.found.without_spent(log_start), self.found.copy()):
            left.drop_pages(len(left.spent_pages(log_start)))
            assert list(left) == self.plain[len(self.plain) - len(left) :]
            assert len(left) >= len(self.plain) - needed, "the interval that the first record stands in is needed"
            if left.pages:
                assert left.pages[0].count > needed - (len(self.plain) - len(left)), "a page that says nothing any more"
        self.found = self.found.without_spent(log_start)
        if not self.found.pages:
            assert len(self.found) == len(self.plain) - needed
        self.plain = list(self.found)

    @rule(offset=st.integers(-1, 300), data=st.data())
    def find(self, offset: int, data: st.DataObject) -> None:
        for near in (
            offset,
            *(start for at in data.draw(st.sampled_from([[], *[[i] for i in self.plain]])) for start in at),
        ):
            assert self.found.at_source(near) == sum(interval.source_start <= near for interval in self.plain) - 1
            assert self.found.at_target(near) == sum(interval.target_start <= near for interval in self.plain) - 1

    @invariant()
    def all_is_there(self) -> None:
        if not hasattr(self, "plain"):
            return
        assert len(self.found) == len(self.plain)
        assert list(self.found) == self.plain
        assert [self.found[at] for at in range(-len(self.plain), len(self.plain))] == 2 * self.plain
        assert self.found[2:5] == self.plain[2:5]
        assert self.found == self.plain == self.found.copy()
        for beyond in (len(self.plain), -len(self.plain) - 1):
            with pytest.raises(IndexError):
                self.found[beyond]


PagedIntervals.TestCase.settings = settings(max_examples=first_worlds(60, of=300), stateful_step_count=20)
TestPagedIntervals = PagedIntervals.TestCase
