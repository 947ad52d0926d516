"""The entries that say which way batches came: written, read, found by sequence, and let go."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mirror.offsets.entries import decode_entry, decode_key, encode_key, encode_value, encode_void_key
from mirror.offsets.origin_entries import (
    OriginRun,
    OriginRuns,
    VoidOrigins,
    Way,
    find_run,
    join_runs,
    spent_origins,
)

EAST = Way(frozenset({"east"}), frozenset({"east", "north"}))
NORTH = Way(frozenset({"north"}), frozenset({"north"}))
EITHER = Way(frozenset({"east", "west"}), frozenset({"north"}))


def entry(*runs: OriginRun, writer: tuple[int, int] = (7, 2), proved: tuple[int, int] = (0, 0)) -> OriginRuns:
    return OriginRuns("flights", 3, writer, runs, *proved)


def runs_of(first: int, *lengths: int) -> list[OriginRun]:
    runs = []
    for at, length in enumerate(lengths):
        runs.append(OriginRun(first, first + length, (EAST, NORTH, EITHER)[at % 3]))
        first += length
    return runs


def test_an_entry_is_read_as_it_was_written() -> None:
    written = entry(*runs_of(40, 2, 5, 1, 9), proved=(40, 1_017))
    assert decode_entry(decode_key(encode_key(written)), encode_value(written)) == written
    assert encode_key(written) == b'["origins","flights",3,7,2,40]'
    assert encode_void_key(VoidOrigins(written)) == encode_key(written)


@given(st.integers(0, 1000), st.lists(st.tuples(st.integers(1, 9), st.sampled_from([EAST, NORTH])), min_size=1))
def test_joined_runs_say_the_same_in_fewer(first: int, lengths: list[tuple[int, Way]]) -> None:
    told = [way for length, way in lengths for _ in range(length)]
    runs, at = [], first
    for length, way in lengths:
        runs.append(OriginRun(at, at + length, way))
        at += length
    joined = join_runs(runs)
    for sequence in range(first - 2, at + 2):
        found = find_run(joined, sequence)
        expected = told[sequence - first] if first <= sequence < at else None
        assert (found.way if found else None) == expected
    assert all(before.way != after.way for before, after in pairwise(joined))


def test_what_lies_between_runs_is_not_known() -> None:
    runs = [OriginRun(0, 4, EAST), OriginRun(6, 8, NORTH)]
    assert [find_run(runs, at) is None for at in range(10)] == [0, 0, 0, 0, 1, 1, 0, 0, 1, 1]


def test_entries_go_when_retention_has_passed_their_batches() -> None:
    first = entry(*runs_of(0, 10), proved=(0, 100))
    second = entry(*runs_of(10, 10), proved=(5, 105))
    third = entry(*runs_of(20, 10), proved=(20, 125))
    after = entry(*runs_of(0, 10), writer=(7, 4), proved=(0, 140))
    known = [first, second, third, after]
    assert spent_origins(known, 99) == []
    assert spent_origins(known, 100) == [], "it says what lies before it; its own batches lie behind"
    assert spent_origins(known, 110) == [], "of the first entry's ten sequences five are behind offset 105"
    assert spent_origins(known, 125) == [first, second]
    assert spent_origins(known, 139) == [first, second]
    assert spent_origins(known, 140) == [first, second, third], "another session wrote all before its start"
    assert spent_origins([], 1_000) == []
