"""A partition's intervals in memory: pages, which stay packed until an offset in them is asked for, and the rest."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import overload

from mirror.offsets.intervals import End, Interval
from mirror.offsets.pages import Page, open_page

_source_start = attrgetter("source_start")
_target_start = attrgetter("target_start")


class Intervals(Sequence[Interval]):
    """Sorted by source (and so by target). Reading an interval of a page raises StateDamaged where it is damaged."""

    __slots__ = ("_counts", "_open", "_pages")

    def __init__(self, open_: Iterable[Interval] = (), pages: Iterable[Page] = ()) -> None:
        self._open = list(open_)
        self._set_pages(pages)

    def _set_pages(self, pages: Iterable[Page]) -> None:
        self._pages = tuple(pages)
        self._counts: Sequence[int] = [0, *accumulate(page.count for page in self._pages)]
        """How many intervals are before each page, and before the open ones."""

    @property
    def pages(self) -> tuple[Page, ...]:
        return self._pages

    @property
    def open(self) -> Sequence[Interval]:
        """Those behind the pages."""
        return self._open

    def copy(self) -> Intervals:
        found = Intervals.__new__(Intervals)
        found._open = list(self._open)
        found._pages, found._counts = self._pages, self._counts  # never changed, only replaced
        return found

    def __len__(self) -> int:
        return self._counts[-1] + len(self._open)

    @overload
    def __getitem__(self, index: int) -> Interval: ...
    @overload
    def __getitem__(self, index: slice) -> list[Interval]: ...
    def __getitem__(self, index: int | slice) -> Interval | list[Interval]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if -len(self._open) <= index < 0:
            return self._open[index]
        if index < 0:
            index += len(self)
        if index < 0:
            raise IndexError("before the first interval")
        if index >= self._counts[-1]:
            return self._open[index - self._counts[-1]]
        at = bisect_right(self._counts, index) - 1
        page, place = self._pages[at], index - self._counts[at]
        if place == 0:
            return page.first
        if place == page.count - 1:
            return page.last
        columns = open_page(page)
        return Interval(columns.sources[place], columns.targets[place])

    def __iter__(self) -> Iterator[Interval]:
        for page in self._pages:
            yield from map(Interval, *open_page(page))
        yield from self._open

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Intervals) and self._pages == other.pages:
            return self._open == other.open
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # they change

    def at_source(self, offset: int) -> int:
        """The index of the last interval that begins at or before this source offset; -1: there is none."""
        if self._open and self._open[0].source_start <= offset:
            return self._counts[-1] + bisect_right(self._open, offset, key=_source_start) - 1
        at = bisect_right(self._pages, offset, key=lambda page: page.first.source_start) - 1
        return self._counts[at] + bisect_right(open_page(self._pages[at]).sources, offset) - 1 if at >= 0 else -1

    def at_target(self, offset: int) -> int:
        """As `at_source`, by an offset of the target's log."""
        if self._open and self._open[0].target_start <= offset:
            return self._counts[-1] + bisect_right(self._open, offset, key=_target_start) - 1
        at = bisect_right(self._pages, offset, key=lambda page: page.first.target_start) - 1
        return self._counts[at] + bisect_right(open_page(self._pages[at]).targets, offset) - 1 if at >= 0 else -1

    def put(self, interval: Interval) -> None:
        """From its source offset on only this one holds; a page that says more than what is before that is opened.

        Where a target lost nothing but markers, one before it may have a later target offset. That had no records.
        """
        while self._pages and (
            self._pages[-1].to > interval.source_start or self._pages[-1].last.target_start > interval.target_start
        ):
            self._open_last()
        while self and self[-1].source_start >= interval.source_start:
            self.pop()
        at = len(self._open) - 1
        while at >= 0 and self._open[at].target_start > interval.target_start:
            self._open[at] = Interval(self._open[at].source_start, interval.target_start)
            at -= 1
        self._open.append(interval)

    def go_on(self, intervals: Sequence[Interval], end: End) -> tuple[Interval, ...]:
        """Put the intervals of what comes behind the end. -> what holds from there on otherwise than before: where the
        target's log goes on elsewhere than at that end, an offset gap of the source right before it is moved along.

        What others write between that gap and the next record that is mirrored would count as the gap's records else.
        """
        moved = tuple(intervals)
        if moved and moved[0].source_start == end.source_next:  # what begins elsewhere landed where the end was
            target = moved[0].target_start
            for at in reversed(self._open):
                if at.target_start < end.target_next:
                    break
                if at.source_start < end.source_next and at.target_start != target:
                    moved = (Interval(at.source_start, target), *moved)
        for interval in moved:
            self.put(interval)
        return moved

    def pop(self) -> None:
        """Without the last one; a page that loses one is opened for good."""
        if not self._open:
            self._open_last()
        self._open.pop()

    def _open_last(self) -> None:
        self._open[:0] = map(Interval, *open_page(self._pages[-1]))
        self._set_pages(self._pages[:-1])

    def cut(self, source_next: int, target_to: int) -> Intervals:
        """Those that begin before the source offset, and at or before the target offset."""
        found = self.copy()
        while found and (found[-1].source_start >= source_next or found[-1].target_start > target_to):
            found._drop_last_run(source_next, target_to)
        return found

    def _drop_last_run(self, source_next: int, target_to: int) -> None:
        """At least the last one is to go; a page goes as a whole where its first is to go, too."""
        if not self._open and self._pages:
            first = self._pages[-1].first
            if first.source_start >= source_next or first.target_start > target_to:
                self._set_pages(self._pages[:-1])
                return
        if self._open:
            self._open = [at for at in self._open if at.source_start < source_next and at.target_start <= target_to]
        else:
            self.pop()

    def spent_pages(self, log_start: int) -> tuple[Page, ...]:
        """The pages, from the first on, all whose records lie before the target's `log_start`."""
        spent = 0
        for at in range(len(self._pages)):
            behind = self._counts[at + 1]
            if behind == len(self) or self[behind].target_start > log_start:
                break
            spent = at + 1
        return self._pages[:spent]

    def without_spent(self, log_start: int) -> Intervals:
        """Those whose records the target may still have, and of pages also what is in one with them."""
        found, first = self.copy(), 0
        if spent := self.spent_pages(log_start):
            found.drop_pages(len(spent))
        if not found.pages:
            while first + 1 < len(self._open) and self._open[first + 1].target_start <= log_start:
                first += 1
            found._open = self._open[first:]
        return found

    def count_open_before(self, source_offset: int) -> int:
        return bisect_left(self._open, source_offset, key=_source_start)

    def last(self, pages: int, count: int) -> list[Interval]:
        """Those of the last `pages` pages, and the first `count` open ones."""
        found: list[Interval] = []
        for page in self._pages[len(self._pages) - pages :]:
            found += map(Interval, *open_page(page))
        return found + self._open[:count]

    def pack(self, pages: int, count: int, page: Page) -> None:
        """`last(pages, count)` are in this page now."""
        self._open = self._open[count:]
        self._set_pages([*self._pages[: len(self._pages) - pages], page])

    def drop_pages(self, count: int) -> None:
        """Without the first pages."""
        self._set_pages(self._pages[count:])
