"""What a state says of how batches came stays small, and keeps telling all that the target keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.offsets.entries import encode_key, encode_value, encode_void_key
from mirror.offsets.origin_entries import (
    OriginRun,
    OriginRuns,
    VoidOrigins,
    Way,
    add_run,
    find_run,
    join_runs,
    spent_origins,
)
from mirror.offsets.origin_ledger import MERGED_MIN, OriginLedger

WAYS = tuple(Way(frozenset({site}), frozenset({site, "north"})) for site in ("east", "south", "west"))


@dataclass
class Told:
    """A session after the other writes to a partition, and a state topic; retention takes what is old at the target.

    A batch at the target has its writer, its sequence and its way.
    """

    ledger: OriginLedger = field(default_factory=OriginLedger)
    log: list[OriginRuns | VoidOrigins] = field(default_factory=list)
    target: list[tuple[tuple[int, int], int, Way]] = field(default_factory=list)
    writer: tuple[int, int] = (7, 0)
    sequence: int = 0
    log_start: int = 0

    def send(self, ways: Sequence[int]) -> None:
        """One plan: its entry, and then its batches, of one record each."""
        runs = join_runs(OriginRun(self.sequence + at, self.sequence + at + 1, WAYS[w]) for at, w in enumerate(ways))
        entry = OriginRuns("flights", 0, self.writer, tuple(runs), self.sequence, len(self.target))
        self.ledger.add(entry)
        self.log.append(entry)
        for way in ways:
            self.target.append((self.writer, self.sequence, WAYS[way]))
            self.sequence += 1

    def tidy(self) -> None:
        self.log += self.ledger.tidy(self.log_start)

    def begin_anew(self) -> None:
        """A new session reads the state, in the order of its log, of which compaction leaves the last of each key."""
        known = self.compacted()
        spent = spent_origins(known, self.log_start)
        self.log += map(VoidOrigins, spent)
        self.ledger = OriginLedger(entry for entry in known if entry not in spent)
        self.writer, self.sequence = (7, self.writer[1] + 1), 0

    def compacted(self) -> list[OriginRuns]:
        last: dict[bytes, OriginRuns | None] = {}
        for change in self.log:
            key = encode_void_key(change) if isinstance(change, VoidOrigins) else encode_key(change)
            last.pop(key, None)
            last[key] = None if isinstance(change, VoidOrigins) else change
        return [entry for entry in last.values() if entry is not None]

    def check(self, entries: Sequence[OriginRuns | VoidOrigins]) -> None:
        """A reader of these is told of each batch that the target has."""
        runs: dict[tuple[int, int], list[OriginRun]] = {}
        for entry in entries:
            if isinstance(entry, OriginRuns):
                for run in entry.runs:
                    add_run(runs.setdefault(entry.writer, []), run)
        for writer, sequence, way in self.target[self.log_start :]:
            found = find_run(runs.get(writer, ()), sequence)
            assert found is not None, (writer, sequence)
            assert found.way == way

    def size(self) -> tuple[int, int]:
        """Entries, and their bytes."""
        found = self.compacted()
        return len(found), sum(len(encode_key(entry)) + len(encode_value(entry)) for entry in found)


steps = st.lists(
    st.one_of(
        st.lists(st.integers(0, 2), min_size=1, max_size=4),
        st.sampled_from(["tidy", "begin anew"]),
        st.integers(0, 30),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(steps)
def test_whoever_reads_the_state_is_told_of_all_that_the_target_has(taken: list[list[int] | str | int]) -> None:
    told = Told()
    for step in taken:
        if isinstance(step, list):
            for _ in range(9):
                told.send(step)
        elif isinstance(step, int):
            told.log_start = min(len(told.target), told.log_start + step)
        elif step == "tidy":
            told.tidy()
        else:
            told.begin_anew()
        told.check(told.compacted())
    told.check(told.log)
    told.check(told.log[len(told.log) // 2 :] + told.log)  # read once more from the start


@pytest.mark.parametrize(("ways", "size_max_bytes"), [([0], 5_000), ([0, 1], 30_000)])
def test_a_session_that_never_ends_keeps_the_state_small(ways: list[int], size_max_bytes: int) -> None:
    told = Told()
    for number in range(3_000):
        told.send(ways)
        told.log_start = max(0, len(told.target) - 500)
        if number % 10 == 9:
            told.tidy()
        if number % 300 == 299:
            entries, size_bytes = told.size()
            assert entries <= MERGED_MIN + 4
            assert size_bytes <= size_max_bytes
    told.check(told.compacted())


def test_what_an_earlier_session_wrote_does_not_become_later_than_this_one_s() -> None:
    """Of two sessions the later one's entries say that all of the earlier one's batches lie before its own."""
    told = Told()
    for _ in range(20):
        told.send([0])
    told.begin_anew()
    told.send([1])
    told.tidy()
    told.log_start = 20
    told.begin_anew()
    told.check(told.compacted())


def test_without_retention_one_way_is_one_entry() -> None:
    told = Told()
    for _ in range(100 * MERGED_MIN):
        told.send([1])
    told.tidy()
    (entry,) = told.compacted()
    assert entry.runs == (OriginRun(0, 100 * MERGED_MIN, WAYS[1]),)


def test_a_run_that_says_otherwise_is_left_out() -> None:
    runs = [OriginRun(0, 5, WAYS[0]), OriginRun(5, 9, WAYS[1])]
    for run in (OriginRun(3, 7, WAYS[0]), OriginRun(8, 12, WAYS[0])):
        add_run(runs, run)
    assert runs == [OriginRun(0, 5, WAYS[0]), OriginRun(5, 9, WAYS[1])]
    add_run(runs, OriginRun(9, 12, WAYS[0]))
    add_run(runs, OriginRun(7, 9, WAYS[1]))
    assert runs == [OriginRun(0, 5, WAYS[0]), OriginRun(5, 9, WAYS[1]), OriginRun(9, 12, WAYS[0])]
