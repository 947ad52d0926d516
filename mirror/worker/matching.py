"""The map of a partition, rebuilt by comparing what both logs hold, in order. Pure: records in, a map or a refusal out.

A mirror writes what it reads, one by one; so where neither log is compacted the next record of the target must be the
next of the source. Compaction takes records out of either. What it may have taken is passed over where there are
offsets for it, and only where it is proved in the end: a later record with its key is there, or it was a tombstone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from mirror.offsets.entries import LastRecord
from mirror.offsets.intervals import End, Interval, Piece, intervals_for

HOLE_MAX_RECORDS: Final = 100_000
"""Records of one log that are kept while the next copy is looked for: about 50 MB."""
UNPROVED_MAX_KEYS: Final = 500_000
"""Keys whose later record has not been seen yet: about 100 MB."""


class Seen(NamedTuple):
    """A record of either log: `content` and `key` are digests, of key, value and headers, and of the key (None: null).

    `is_stamped`: the broker set the timestamp, so that it says nothing of the record.
    """

    offset: int
    timestamp: int
    content: bytes
    key: bytes | None
    is_tombstone: bool
    producer_id: int
    is_stamped: bool


class Nature(NamedTuple):
    """What may be missing: in a compacted log, and before the source's start what retention took."""

    source_is_compacted: bool
    target_is_compacted: bool
    source_start: int


@dataclass(frozen=True, slots=True)
class Matched:
    """Every record of the target is a copy (or one that the source had): the map of them.

    `first` is where the map begins, `end` lies behind the last record; the source's records from there on are not at
    the target. `records` are the pairs that were seen.
    """

    intervals: tuple[Interval, ...]
    first: Interval
    end: End
    last: LastRecord
    last_timestamp_ms: int
    records: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The target is no mirror of the source: the first place that shows it, in words."""

    reason: str


class _Pair(NamedTuple):
    source: int
    target: int


_ContentKey: TypeAlias = tuple[bytes, int | None]


async def find_first(
    source: AsyncIterator[Seen], target: AsyncIterator[Seen], nature: Nature
) -> tuple[int, int] | Unmatched:
    """Source and target offset of the first pair of copies, where neither log is compacted.

    Either the target begins with a record that the source has, or, where the source has lost its beginning, the target
    has the source's first. Reads both once, and keeps nothing of it.
    """
    first_there = await anext(target, None)
    first_here = await anext(source, None)
    if first_there is None:
        return Unmatched("the target has no record")
    here, there = first_here, first_there
    passed = 0
    may_pass = nature.source_start
    while here is not None or (first_here is not None and passed < may_pass):
        if here is not None:
            if _is_copy(here, first_there):
                return here.offset, first_there.offset
            here = await anext(source, None)
        if first_here is not None and passed < may_pass:
            following = await anext(target, None)
            passed = may_pass if following is None else passed + 1
            there = following or there
            if following is not None and _is_copy(first_here, there):
                return first_here.offset, there.offset
    if nature.source_start:
        return Unmatched("the source has none of the target's records (any more), as far as they could be its own")
    return Unmatched(f"the target begins with a record, at offset {first_there.offset}, that the source does not have")


async def match(source: AsyncIterator[Seen], target: AsyncIterator[Seen], nature: Nature) -> Matched | Unmatched:
    """Pair the target's records with the source's, in order; where neither log is compacted they begin with a pair."""
    matching = _Matching(_Stream(source), _Stream(target), nature)
    while (refusal := await matching.step()) is None:
        pass
    return await matching.finish() if refusal == _DONE else refusal


_DONE: Final = Unmatched("")


class _Stream:
    """Records in order, of which some can be put back."""

    def __init__(self, records: AsyncIterator[Seen]) -> None:
        self._records = records
        self._waiting: deque[Seen] = deque()

    async def take(self) -> Seen | None:
        return self._waiting.popleft() if self._waiting else await anext(self._records, None)

    def put_back(self, records: Iterable[Seen]) -> None:
        self._waiting.extendleft(reversed(list(records)))


@dataclass(slots=True)
class _Ahead:
    """Records of both logs behind the last pair, and by content the first of each: to find the next pair."""

    sources: list[Seen] = field(default_factory=list)
    targets: list[Seen] = field(default_factory=list)
    _at_source: dict[_ContentKey, int] = field(default_factory=dict)
    _at_target: dict[_ContentKey, int] = field(default_factory=dict)

    def add_source(self, seen: Seen) -> _Pair | None:
        index = len(self.sources)
        self.sources.append(seen)
        found: list[int] = []
        for key in ((seen.content, seen.timestamp), (seen.content, None)):
            self._at_source.setdefault(key, index)
            if key in self._at_target:
                found.append(self._at_target[key])
        return _Pair(index, min(found)) if found else None

    def add_target(self, seen: Seen) -> _Pair | None:
        index, key = len(self.targets), (seen.content, None if seen.is_stamped else seen.timestamp)
        self.targets.append(seen)
        self._at_target.setdefault(key, index)
        found = self._at_source.get(key)
        return None if found is None else _Pair(found, index)


class _Expected(NamedTuple):
    offset: int
    is_tombstone: bool


@dataclass(slots=True)
class _Unproved:
    """Records of one log without a copy in the other, by key, until a later record with the key is in both."""

    site: str
    other_site: str
    by_key: dict[bytes, _Expected] = field(default_factory=dict)

    def expect(self, seen: Seen) -> Unmatched | None:
        """Note that compaction must have taken the record's copy."""
        if seen.key is None:
            what = f"the {self.site}'s record at offset {seen.offset}"
            return Unmatched(f"{what} has no copy, and no key to be compacted by")
        self.by_key[seen.key] = _Expected(seen.offset, seen.is_tombstone)
        if len(self.by_key) > UNPROVED_MAX_KEYS:
            return Unmatched(f"more than {UNPROVED_MAX_KEYS} keys have records at the {self.site} only")
        return None

    def meet(self, seen: Seen) -> None:
        """A later record that the other log has."""
        if seen.key is not None:
            self.by_key.pop(seen.key, None)

    def refusal(self) -> Unmatched | None:
        """What is still to be proved when there is no more; a tombstone goes by itself."""
        offsets = [expected.offset for expected in self.by_key.values() if not expected.is_tombstone]
        if not offsets:
            return None
        text = f"the {self.site}'s record at offset {min(offsets)} is not at the {self.other_site}"
        return Unmatched(f"{text}, nor a later one with its key: compaction did not take it")


@dataclass(slots=True)
class _Recent:
    """Contents of the last records of a kind. A record that is passed over must not be found elsewhere, too: of two
    that are the same compaction keeps the later one, so then the order is another one, or one is there twice."""

    contents: dict[_ContentKey, None] = field(default_factory=dict)

    def add(self, seen: Seen) -> None:
        self.contents[seen.content, seen.timestamp] = None
        if len(self.contents) > HOLE_MAX_RECORDS:
            del self.contents[next(iter(self.contents))]

    def __contains__(self, seen: Seen) -> bool:
        return (seen.content, seen.timestamp) in self.contents


@dataclass(slots=True)
class _Matching:
    source: _Stream
    target: _Stream
    nature: Nature
    intervals: list[Interval] = field(default_factory=list)
    end: End = field(default_factory=lambda: End(0, 0))
    first: Interval | None = None
    last: LastRecord | None = None
    last_timestamp_ms: int = -1
    records: int = 0
    only_here: _Unproved = field(default_factory=lambda: _Unproved("source", "target"))
    only_there: _Unproved = field(default_factory=lambda: _Unproved("target", "source"))
    paired: _Recent = field(default_factory=_Recent)
    skipped: _Recent = field(default_factory=_Recent)
    dropped: _Recent = field(default_factory=_Recent)

    async def step(self) -> Unmatched | None:
        """Take the next pair. None: go on; `_DONE`: the target has no more."""
        there = await self.target.take()
        if there is None:
            return _DONE
        here = await self.source.take()
        if here is not None and _is_copy(here, there):
            return self._pair(here, there)
        if not self.nature.source_is_compacted and not self.nature.target_is_compacted:
            return self._refusal(here, there)
        self.target.put_back([there])
        self.source.put_back([here] if here is not None else [])
        return await self._pass_over(here, there)

    async def _pass_over(self, here: Seen | None, there: Seen) -> Unmatched | None:
        """Look for the next pair, and pass over what lies before it in either log."""
        ahead, found = await self._look_ahead()
        if ahead is None:
            text = f"no copy was found within {HOLE_MAX_RECORDS} records of the target's offset {there.offset}"
            return Unmatched(text)
        skipped = ahead.sources[: found.source] if found is not None else []
        dropped = ahead.targets[: found.target] if found is not None else ahead.targets
        if not self._has_room(ahead, found):
            return self._refusal(here, there)
        if (skipped and not self.nature.target_is_compacted and self.last) or (
            dropped and not self.nature.source_is_compacted and not self._is_before_start(len(dropped))
        ):
            return self._refusal(here, there)
        if found is None and self.last is None:
            return Unmatched("the source has none of the target's records")
        refusal = self._expect_proof(skipped, dropped)
        self.source.put_back(ahead.sources[len(skipped) :])
        self.target.put_back(ahead.targets[len(dropped) :])
        if found is None:
            self.end = End(self.end.source_next, dropped[-1].offset + 1)
        return refusal

    async def _look_ahead(self) -> tuple[_Ahead | None, _Pair | None]:
        """(what was read, the next pair in it, if there is one); (None, None) where that would be too much to keep."""
        ahead = _Ahead()
        more_here = more_there = True
        while more_here or more_there:
            there = await self.target.take() if more_there else None
            more_there = there is not None
            if there is not None and (found := ahead.add_target(there)) is not None:
                return ahead, found
            here = await self.source.take() if more_here else None
            more_here = here is not None
            if here is not None and (found := ahead.add_source(here)) is not None:
                return ahead, found
            if max(len(ahead.sources), len(ahead.targets)) >= HOLE_MAX_RECORDS:
                return (None, None) if more_there else (ahead, None)
        return ahead, None

    def _has_room(self, ahead: _Ahead, found: _Pair | None) -> bool:
        """Whether all that is passed over could once have lain between the two pairs, in both logs."""
        if found is None:
            behind = self.last.source_offset if self.last is not None else -1
            return not ahead.sources or len(ahead.targets) < ahead.sources[0].offset - behind
        passed = found.source + found.target
        if self.last is None:  # the link may have begun anywhere
            return passed <= ahead.sources[found.source].offset
        here = ahead.sources[found.source].offset - self.last.source_offset - 1
        there = ahead.targets[found.target].offset - self.last.target_offset - 1
        return passed <= here and passed <= there

    def _is_before_start(self, count: int) -> bool:
        return self.last is None and count <= self.nature.source_start

    def _expect_proof(self, skipped: Sequence[Seen], dropped: Sequence[Seen]) -> Unmatched | None:
        if self.last is None:  # before the first pair the link may not have begun, and retention may have been
            skipped, dropped = [], [] if self._is_before_start(len(dropped)) else dropped
        for seen in skipped:
            if seen in self.paired or seen in self.dropped:
                return _twice("source", seen)
            self.skipped.add(seen)
            if (refusal := self.only_here.expect(seen)) is not None:
                return refusal
        for seen in dropped:
            if seen in self.paired or seen in self.skipped:
                return _twice("target", seen)
            self.dropped.add(seen)
            if (refusal := self.only_there.expect(seen)) is not None:
                return refusal
        return None

    def _pair(self, here: Seen, there: Seen) -> Unmatched | None:
        at = Interval(here.offset, there.offset)
        if self.first is None:
            self.first = at
            self.intervals.append(at)
        elif tuple(self.end) != tuple(at):
            for interval in intervals_for(self.end, (Piece(here.offset, 0),), there.offset):
                while self.intervals[-1].source_start >= interval.source_start:
                    self.intervals.pop()
                self.intervals.append(interval)
        self.end = End(here.offset + 1, there.offset + 1)
        self.last = LastRecord(here.offset, there.offset, there.producer_id)
        self.last_timestamp_ms = here.timestamp
        self.records += 1
        self.only_here.meet(here)
        self.only_there.meet(here)
        if not self.nature.source_is_compacted and not self.nature.target_is_compacted:
            return None
        self.paired.add(here)
        return _twice("source", here) if here in self.skipped or here in self.dropped else None

    async def finish(self) -> Matched | Unmatched:
        """All of the target was read: what was passed over must be proved by now, or by what the source has behind."""
        if self.first is None or self.last is None:
            return Unmatched("the target has no record")
        if (refusal := self.only_here.refusal()) is not None:
            return refusal
        looked_at = 0
        while self.dropped.contents and (self.only_there.by_key or looked_at < HOLE_MAX_RECORDS):
            here = await self.source.take()
            if here is None:
                break
            if here in self.dropped:
                return _twice("source", here)
            self.only_there.meet(here)
            looked_at += 1
        if (refusal := self.only_there.refusal()) is not None:
            return refusal
        return Matched(tuple(self.intervals), self.first, self.end, self.last, self.last_timestamp_ms, self.records)

    def _refusal(self, here: Seen | None, there: Seen) -> Unmatched:
        behind = f" behind offset {self.last.source_offset}" if self.last is not None else ""
        if here is None:
            return Unmatched(f"the source has no record{behind}, the target has one more at offset {there.offset}")
        text = f"the target's record at offset {there.offset} is not the source's at offset {here.offset}"
        return Unmatched(f"{text}, which comes next{behind}")


def _twice(site: str, seen: Seen) -> Unmatched:
    return Unmatched(f"the {site}'s record at offset {seen.offset} is elsewhere in the other log than in their order")


def _is_copy(here: Seen, there: Seen) -> bool:
    return here.content == there.content and (there.is_stamped or here.timestamp == there.timestamp)
