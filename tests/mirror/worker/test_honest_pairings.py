"""Small logs of any kind against brute force: every way to pair them is tried, and judged by what a mirror can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.offsets.intervals import Interval
from mirror.offsets.offset_map import PartitionMap
from mirror.worker import matching
from mirror.worker.matching import Matched, Nature, Seen, Unmatched, find_first, match
from tests.mirror.worker.histories import finish
from tests.mirror.worker.test_matching import _stream, adopt, record
from tests.worlds import first_worlds

Pairing = tuple[tuple[int, int], ...]
"""Indices into both logs, rising in both."""


def is_copy(here: Seen, there: Seen) -> bool:
    return here.content == there.content and (there.is_stamped or here.timestamp == there.timestamp)


def identity(seen: Seen) -> tuple[bytes, int]:
    return seen.content, seen.timestamp


@dataclass(frozen=True)
class Logs:
    source: tuple[Seen, ...]
    target: tuple[Seen, ...]
    nature: Nature

    def pairings(self, behind: Pairing = ()) -> Iterator[Pairing]:
        """All that pair copies only, and begin as this one."""
        s, t = behind[-1] if behind else (-1, -1)
        for here in range(s + 1, len(self.source)):
            for there in range(t + 1, len(self.target)):
                if is_copy(self.source[here], self.target[there]):
                    longer = (*behind, (here, there))
                    yield longer
                    yield from self.pairings(longer)

    def is_honest(self, pairing: Pairing) -> bool:
        """Whether a mirror, compaction and the source's retention can have left these logs, with these copies."""
        skipped, dropped = self._left_out(pairing)
        before = self.target[: pairing[0][1]]
        if len(before) > self.nature.source_start:
            dropped = [*before, *dropped]
        paired = [self.source[s] for s, _ in pairing]
        ahead = self.source[pairing[-1][0] + 1 :]
        if not self.nature.source_is_compacted and not self.nature.target_is_compacted and 0 not in pairing[0]:
            return False  # nothing is taken from within: one of the logs begins with a copy
        if (skipped and not self.nature.target_is_compacted) or (dropped and not self.nature.source_is_compacted):
            return False
        kinds = [{identity(seen) for seen in kind} for kind in (skipped, dropped, paired)]
        if any(one & other for one, other in combinations(kinds, 2)):
            return False
        if kinds[1] & {identity(seen) for seen in ahead}:
            return False
        at = {self.target[t].offset: self.source[s] for s, t in pairing}
        return (
            self._has_room(pairing)
            and all(_proved(seen, skipped, [p for p in paired if p.offset > seen.offset]) for seen in skipped)
            and all(
                _proved(seen, dropped, [*ahead, *(p for offset, p in at.items() if offset > seen.offset)])
                for seen in dropped
            )
        )

    def _left_out(self, pairing: Pairing) -> tuple[list[Seen], list[Seen]]:
        """Behind the first pair: the source's records without a copy up to the last pair, and the target's."""
        here, there = {s for s, _ in pairing}, {t for _, t in pairing}
        skipped = [seen for s, seen in enumerate(self.source) if min(here) < s < max(here) and s not in here]
        return skipped, [seen for t, seen in enumerate(self.target) if t > min(there) and t not in there]

    def _has_room(self, pairing: Pairing) -> bool:
        """Whether what is in one log only fits between the pairs in both, as offsets."""
        first_here, first_there = pairing[0]
        if first_there and first_here + first_there > self.source[first_here].offset:
            return False
        for (s, t), (next_s, next_t) in pairwise(pairing):
            passed = (next_s - s - 1) + (next_t - t - 1)
            if passed >= self.source[next_s].offset - self.source[s].offset:
                return False
            if passed >= self.target[next_t].offset - self.target[t].offset:
                return False
        last_here, last_there = pairing[-1]
        left = len(self.target) - last_there - 1
        following = self.source[last_here + 1 :][:1]
        return not left or all(left < seen.offset - self.source[last_here].offset for seen in following)

    def honest(self) -> list[Pairing]:
        return [pairing for pairing in self.pairings() if self.is_honest(pairing)]

    def is_told_by(self, found: Matched, pairing: Pairing) -> bool:
        """Whether the map says of every offset the first pair at or behind it, and the rest what the last pair says."""
        pairs = [(self.source[s].offset, self.target[t].offset) for s, t in pairing]
        last = self.source[pairing[-1][0]], self.target[pairing[-1][1]]
        end = (last[0].offset + 1, self.target[-1].offset + 1)
        told = PartitionMap(list(found.intervals), found.end, found.end.source_next)
        return (
            (found.first, found.end, found.records) == (Interval(*pairs[0]), end, len(pairs))
            and found.last == (last[0].offset, last[1].offset, last[1].producer_id)
            and found.last_timestamp_ms == last[0].timestamp
            and list(found.intervals) == sorted(set(found.intervals))
            and all(
                told.to_target(offset) == next((t for s, t in pairs if s >= offset), end[1])
                for offset in range(pairs[0][0], end[0] + 1)
            )
            and all(
                told.to_source(offset) == next((s for s, t in pairs if t >= offset), end[0])
                for offset in range(pairs[0][1], end[1] + 1)
            )
        )


def _proved(seen: Seen, kind: Sequence[Seen], later: Sequence[Seen]) -> bool:
    """Whether compaction can have taken the copy: of its key both logs have a later record, or a tombstone was last."""
    if seen.key is None:
        return False
    newest = [other for other in kind if other.key == seen.key][-1]
    return newest.is_tombstone or any(other.key == seen.key for other in later if other.offset >= 0)


def offsets(draw: st.DrawFn, log: Sequence[Seen], begins: int = 0) -> tuple[Seen, ...]:
    """The same records behind each other, with offsets left out here and there."""
    at, placed = begins, []
    for seen in log:
        at += draw(st.sampled_from([0, 0, 0, 1, 2]))
        placed.append(seen._replace(offset=at))
        at += 1
    return tuple(placed)


@st.composite
def logs(draw: st.DrawFn, *, distinct: bool) -> Logs:
    """A log and its copy, each of which has lost some records, and maybe has another one or another order."""
    nature = Nature(draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([0, 0, 1, 3])))
    stamped = not distinct and draw(st.booleans())
    base = []
    for number in range(draw(st.integers(1, 6))):
        content = number if distinct else draw(st.integers(0, 2))
        key = draw(st.sampled_from([None, 0, 0, 1, 1]))
        seen = record(0, content, key=key, tombstone=draw(st.integers(0, 4)) == 0)
        base.append(seen._replace(timestamp=draw(st.integers(0, 1)), producer_id=-1))
    here = list(offsets(draw, base, nature.source_start))
    lost = draw(st.sampled_from([0, 0, 1])) if len(base) > 1 else 0
    there = [seen._replace(producer_id=number) for number, seen in enumerate(offsets(draw, base[lost:]))]
    for log in (here, there):
        for _ in range(draw(st.integers(0, 2))):
            if len(log) > 1:
                del log[draw(st.integers(0, len(log) - 1))]
    match draw(st.sampled_from(["", "", "swap", "time", "again", "stranger"])):
        case "swap" if len(there) > 1:
            at = draw(st.integers(0, len(there) - 2))
            there[at], there[at + 1] = (
                there[at + 1]._replace(offset=there[at].offset),
                there[at]._replace(offset=there[at + 1].offset),
            )
        case "time":
            there[-1] = there[-1]._replace(timestamp=7)
        case "again" if not distinct:
            there.append(there[0]._replace(offset=there[-1].offset + 1))
        case "stranger":
            stranger = record(there[-1].offset + 1, 99, key=draw(st.sampled_from([None, 0])))
            there.append(stranger._replace(timestamp=0, is_tombstone=draw(st.booleans())))
    there = [seen._replace(is_stamped=stamped) for seen in there]
    return Logs(tuple(here), tuple(there), nature)


@settings(max_examples=first_worlds(200, of=600))
@given(logs(distinct=True))
def test_of_records_that_differ_all_is_adopted_that_is_honest_and_nothing_else(found: Logs) -> None:
    """A record that both have, but not in their order, may be another one of that content: then it may be refused."""
    matched = adopt(found.source, found.target, found.nature)
    honest = [set(pairing) for pairing in found.honest()]
    whole = [pairing for pairing in honest if not any(pairing < other for other in honest)]
    common = sum(any(is_copy(here, there) for here in found.source) for there in found.target)
    if any(len(pairing) == common for pairing in whole):
        assert isinstance(matched, Matched), matched
    if isinstance(matched, Matched):
        assert any(found.is_told_by(matched, tuple(sorted(pairing))) for pairing in whole)


@settings(max_examples=first_worlds(200, of=600))
@given(logs(distinct=False))
def test_of_records_that_are_like_each_other_only_what_is_honest_is_adopted(found: Logs) -> None:
    """Any of the pairings may be the one; where only one can be, and equal records are next to no others, it is."""
    matched = adopt(found.source, found.target, found.nature)
    if isinstance(matched, Matched):
        assert any(found.is_told_by(matched, pairing) for pairing in found.honest()), matched


@given(logs(distinct=False))
def test_where_nothing_is_compacted_the_nearer_of_two_beginnings_is_taken(found: Logs) -> None:
    """The target's first record is the source's, or else the source's first is the target's, behind what it lost."""
    nature = found.nature._replace(source_is_compacted=False, target_is_compacted=False)
    begun = finish(find_first(_stream(found.source, 0), _stream(found.target, 0), nature))
    ahead = [n for n, seen in enumerate(found.source) if is_copy(seen, found.target[0])]
    behind = [n for n, seen in enumerate(found.target) if is_copy(found.source[0], seen) and n <= nature.source_start]
    if not ahead and not behind:
        assert isinstance(begun, Unmatched)
    elif ahead and (not behind or ahead[0] < behind[0]):
        assert begun == (found.source[ahead[0]].offset, found.target[0].offset)
    else:
        assert begun == (found.source[0].offset, found.target[behind[0]].offset)


def test_no_record_begins_nothing() -> None:
    one = [record(0, 0)]
    for source, target in (([], one), (one, []), ([], [])):
        nature = Nature(False, False, 5)
        assert isinstance(finish(find_first(_stream(source, 0), _stream(target, 0), nature)), Unmatched)
        assert isinstance(
            finish(match(_stream(source, 0), _stream(target, 0), nature._replace(source_start=0))), Unmatched
        )
        compacted = nature._replace(source_is_compacted=True, target_is_compacted=True)
        assert isinstance(finish(match(_stream(source, 0), _stream(target, 0), compacted)), Unmatched)


def hole(length: int) -> tuple[list[Seen], list[Seen]]:
    """The source's records in the middle are not at the target; a later one has their key."""
    source = [record(at, at, key=0) for at in range(length + 2)]
    return source, [source[0], source[-1]]


def test_a_hole_is_as_long_as_what_is_kept_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "HOLE_MAX_RECORDS", 5)
    for length, fits in ((3, True), (4, True), (5, False)):
        source, target = hole(length)
        target = [*target, record(length + 2, 77, key=0), *(record(length + 3 + n, 100 + n, key=0) for n in range(9))]
        source = [*source, *target[2:]]
        found = adopt(source, target, Nature(False, True, 0))
        assert isinstance(found, Matched) is fits, (length, found)
        if isinstance(found, Unmatched):
            assert "within 5 records" in found.reason


def test_the_target_may_end_within_a_hole_that_is_too_long_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the source has behind it was not mirrored yet."""
    monkeypatch.setattr(matching, "HOLE_MAX_RECORDS", 3)
    source = [record(0, 0, key=0), *(record(at, at, key=0) for at in range(2, 12))]
    target = [record(0, 0, key=0), record(1, 1, key=0)]
    found = adopt(source, target, Nature(True, True, 0))
    assert isinstance(found, Matched)
    assert (found.end, found.records) == ((1, 2), 1)


def test_only_so_many_keys_may_be_unproved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "UNPROVED_MAX_KEYS", 2)
    for keys, fits in ((2, True), (3, False)):
        first = record(0, 0, key=9)
        passed = [record(1 + n, 1 + n, key=n) for n in range(keys)]
        again = [record(1 + keys + n, 50 + n, key=n) for n in range(keys)]
        found = adopt([first, *passed, *again], [first, *again], Nature(False, True, 0))
        assert isinstance(found, Matched) is fits
        if isinstance(found, Unmatched):
            assert "more than 2 keys have records at the source only" in found.reason


def test_what_was_seen_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a log of any length would have to be kept. The latest records are kept."""
    monkeypatch.setattr(matching, "HOLE_MAX_RECORDS", 3)
    old = record(0, 0, key=0)
    pairs = [record(at, at, key=0) for at in range(1, 5)]
    for again, fits in ((old, True), (pairs[-1], False), (pairs[-3], False)):
        target = [old, *pairs, again._replace(offset=5), record(6, 6, key=0)]
        source = [old, *pairs, record(6, 6, key=0)]
        assert isinstance(adopt(source, target, Nature(True, True, 0)), Matched) is fits


def test_what_is_behind_the_end_is_looked_at_for_proof_however_far_and_for_doubles_near_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "HOLE_MAX_RECORDS", 3)
    first, taken = record(0, 0, key=0), record(1, 1, key=1)
    others = [record(5 + n, 20 + n, key=0) for n in range(9)]
    proof = record(20, 40, key=1)
    nature = Nature(True, True, 0)
    assert isinstance(adopt([first, *others, proof], [first, taken], nature), Matched)
    assert isinstance(adopt([first, *others], [first, taken], nature), Unmatched)
    others[0] = record(5, 20, key=1)
    for at, fits in ((1, False), (2, False), (3, True)):
        again = [
            *others[:at],
            taken._replace(offset=5 + at),
            *(o._replace(offset=o.offset + 1) for o in others[at:]),
        ]
        assert isinstance(adopt([first, *again], [first, taken], nature), Matched) is fits, at


def test_a_refusal_names_the_place_that_shows_it() -> None:
    source = [record(at, at) for at in range(4)]
    reason = "the target's record at offset 2 is not the source's at offset 2, which comes next behind offset 1"
    assert adopt(source, [*source[:2], record(2, 9)], Nature(False, False, 0)) == Unmatched(reason)
    reason = "the source has no record behind offset 3, the target has one more at offset 4"
    assert adopt(source, [*source, record(4, 9)], Nature(False, False, 0)) == Unmatched(reason)
    keyed = [record(0, 0, key=0), record(1, 1, key=1), record(2, 2, key=2), record(3, 3, key=0)]
    found = adopt(keyed, [keyed[0], keyed[3]], Nature(True, True, 0))
    assert isinstance(found, Unmatched)
    assert found.reason.startswith("the source's record at offset 1 is not at the target, nor a later one")


@pytest.mark.parametrize("kind", ["source", "target", "stamps"])
def test_of_equal_records_behind_a_hole_the_first_is_the_next_pair(kind: str) -> None:
    """Both were mirrored, or the second one is still to be."""
    first, taken = record(0, 0), [record(at, at, key=0, tombstone=True) for at in (1, 2)]
    same = [record(3, 3), record(4, 3)._replace(timestamp=3)]
    copies = list(same)
    if kind == "stamps":  # the topic's timestamps came from its broker once
        copies[0] = same[0]._replace(timestamp=99, is_stamped=True)
    if kind == "source":
        found = adopt([first, *same], [first, *taken, same[0]], Nature(True, True, 0))
    else:
        found = adopt([first, *taken, *same], [first, *copies], Nature(True, True, 0))
    assert isinstance(found, Matched), found
    assert (found.records, found.end) == ((2, (4, 4)) if kind == "source" else (3, (5, 5)))


def written(log: str) -> list[Seen]:
    """A record per letter, by its content, all with one key; a dot is an offset without one."""
    found = [record(at, ord(letter), key=0) for at, letter in enumerate(log) if letter != "."]
    return [seen._replace(timestamp=0) for seen in found]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("PaBCDA", "P.BCDA"),
        ("P.BCDA", "PaBCDA"),
        ("PABCaD", "PABC.D"),
        ("PABC.D", "PABCaD"),
        ("PaBCD.Z", "P.BCDAZ"),
        ("P.BCDAZ", "PaBCD.Z"),
        ("P.Z...A", "Pa"),
    ],
)
def test_what_compaction_took_is_nowhere_else_in_the_other_log(source: str, target: str) -> None:
    """Of two records that are the same it keeps the later one: so the order is another one, or one is there twice.

    The small letter is left out of the other log; it is the same record as the capital one, or not.
    """
    for letter, kind in (("A", Unmatched), ("Q", Matched)):
        here, there = (written(log.replace("a", letter)) for log in (source, target))
        assert isinstance(adopt(here, there, Nature(True, True, 0)), kind)


@pytest.mark.parametrize(("before", "fits"), [(1, True), (2, True), (3, False)])
def test_before_a_compacted_source_starts_there_were_so_many_records(before: int, fits: bool) -> None:
    """What retention took needs no proof, nor a key; more than there were offsets for it did not take."""
    there = [record(at, 50 + at) for at in range(before)]
    source = [record(3, 3, key=0), record(4, 4, key=0)]
    target = [*there, source[0]._replace(offset=before)]
    assert isinstance(adopt(source, target, Nature(True, True, 2)), Matched) is fits
