"""A map that is packed, grows together, is trimmed, cut and compacted, by halves too, says what a plain list says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from broker.wire.records import Record
from mirror.offsets import map_ledger
from mirror.offsets.entries import Block, Checkpoint, Gap, GapKind, GapStatus, VoidBlock, Writer
from mirror.offsets.intervals import End, Interval
from mirror.offsets.limits import (
    BLOCK_INTERVALS_MAX,
    PACKED_BLOCKS_MIN,
    PACKED_INTERVALS_MIN,
    PAGE_INTERVALS_MAX,
    PAGES_AT_ONCE,
)
from mirror.offsets.map_ledger import MapLedger, join_blocks
from mirror.offsets.paged import Intervals
from mirror.offsets.pages import Page
from mirror.offsets.recovery import SEQUENCE_MASK, TailBatch, recover
from mirror.offsets.state_writer import Change
from mirror.worker.budget import Budget, Lease
from mirror.worker.comparison import Comparison
from mirror.worker.plan import Plan, _append
from mirror.worker.recoding import _pieces
from mirror.worker.resume import open_partition
from tests.mirror.offsets.test_recovery import WHERE, Target, check_map, open_replicator, read_map, written_to
from tests.mirror.partition import Submissions
from tests.worlds import first_worlds

SOURCE_END = 1 << 40
some_batches = st.lists(st.lists(st.sampled_from([0, 0, 1, 3]), min_size=1, max_size=3), min_size=1, max_size=6)
"""Per batch, and per record in it, how many source offsets before it hold none."""


class PackedMap(RuleBasedStateMachine):
    """The model is the list of where each record landed. What is written of the state, and what is left, is drawn."""

    @initialize()
    def begin(self) -> None:
        self.target, self.budget = Target(), Budget(1 << 30, 1)
        self.source: list[int] = []
        self.open()

    def open(self) -> None:
        self.state = Submissions()
        self.replicator = open_replicator(self.target, False, SOURCE_END, 1, self.state)
        assert [here for here, _ in self.target.truth] == [at for at in self.source if at < self.replicator.position]

    def write(self, changes: list[Change], left: int) -> None:
        """All but so many of them are written; if that is not all, the worker died."""
        written = max(0, len(changes) - left)
        self.target.note(changes[:written])
        if written < len(changes):
            self.open()

    @rule(batches=some_batches, lost=st.sampled_from([0, 0, 0, 1, 3]), unknown=st.sampled_from([0, 0, 0, 1, 3]))
    def mirror(self, batches: list[list[int]], lost: int, unknown: int) -> None:
        """The last batches do not land, or nobody learns of it: then the worker died."""
        cursor = self.replicator.cursor
        offset = max(cursor.position, cursor.end.source_next)
        ahead = [[at] for at in self.source if at >= offset]
        offset = max([offset, *(at + 1 for at in self.source[-1:])])
        for skipped in batches:
            ahead.append([])
            for more in skipped:
                ahead[-1].append(offset + more)
                self.source.append(offset + more)
                offset += more + 1
        plan = Plan(replace(cursor), Lease(self.budget, 0))
        for offsets in ahead:
            records = [Record(at, 0, None, None) for at in offsets]
            _append(plan, bytearray(1), _pieces(records), len(records), 0)
        self.replicator.take(plan)
        while self.state.queue:
            self.target.note(self.state.acknowledge())
        landed = []
        for offsets in ahead[: max(0, len(ahead) - lost)]:
            sent = self.replicator.send()
            landed.append(self.target.append(len(offsets), self.replicator.writer, sent.sequence))
            self.target.truth += [(at, landed[-1] + number) for number, at in enumerate(offsets)]
        for base in landed[: max(0, len(landed) - unknown)]:
            self.replicator.acknowledge(base)
        if lost or unknown:
            self.checkpoint(0)
            self.open()

    @rule(left=st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8]))
    def checkpoint(self, left: int) -> None:
        self.write([self.replicator.checkpoint(0), *self.replicator.pack()], left)

    @rule(rounds=st.integers(2, 9), left=st.integers(0, 5))
    def go_on(self, rounds: int, left: int) -> None:
        """For a while, so that pages grow together."""
        for number in range(rounds):
            self.mirror([[1], [0, 2]][: 1 + number % 2], 0, 0)
            self.checkpoint(left if number == rounds - 1 else 0)

    @rule(part=st.floats(0, 1), left=st.sampled_from([0, 0, 1, 2]), also_dies=st.booleans())
    def retention(self, part: float, left: int, also_dies: bool) -> None:
        proved = written_to(self.target)
        self.target.log_start += int(part * (proved - self.target.log_start))
        self.write(self.replicator.tidy(self.target.log_start), left)
        if also_dies:
            self.open()

    @rule(kept=st.floats(0, 1))
    def compact(self, kept: float) -> None:
        turns = iter(range(1 << 30))
        self.target.compact(lambda: (next(turns) * 0.618) % 1 < kept)

    @rule(part=st.floats(0, 1), left=st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8]))
    def lose(self, part: float, left: int) -> None:
        """The target loses its end, an operator accepts it; what was lost is mirrored again."""
        target = self.target
        kept = [
            batch for batch in target.log if batch.last_offset < target.end - part * (target.end - target.log_start)
        ]
        target.log, target.end = kept, max([target.log_start, *(batch.last_offset + 1 for batch in kept)])
        target.truth = [(here, there) for here, there in target.truth if there < target.end]
        target.epoch += 2
        target.append(1, Writer(7, target.epoch - 1), -1, control=True)
        agreed_to = target.truth[-1][0] + 1 if target.truth else 0
        evidence = target.evidence(False, SOURCE_END)
        assert evidence.checkpoint is not None
        end = evidence.checkpoint.end
        gap = Gap(*WHERE, GapKind.TARGET_TRUNCATED, end.source_next, agreed_to, target.end, GapStatus.ACCEPTED, 0, "")
        lost = Comparison(target_lost="it lost its end", agreed_to=agreed_to)
        opening = open_partition(replace(evidence, gaps=(gap,), comparison=lost), Writer(7, target.epoch))
        assert opening.gap is None
        for written in (max(0, len(opening.changes) - left), len(opening.changes)):  # what was begun is done again
            target.note(opening.changes[:written])
            again = replace(target.evidence(False, SOURCE_END), gaps=(gap,), comparison=lost)
            opening = open_partition(again, Writer(7, target.epoch)) if written < len(opening.changes) else opening
        self.open()

    @invariant()
    def the_map_is_what_landed(self) -> None:
        if hasattr(self, "replicator"):
            check_map(self.target, read_map(self.target))
            assert len(self.target.entries().pages_of(*WHERE)) >= len(self.replicator.map.intervals.pages)


@pytest.mark.parametrize(("blocks", "intervals"), [(1, 12), (3, 40)])
def test_whatever_is_written_of_it_the_map_is_what_landed(
    blocks: int, intervals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_ledger, "PACKED_BLOCKS_MIN", blocks)
    monkeypatch.setattr(map_ledger, "PAGE_INTERVALS_MAX", intervals)
    examples = settings(max_examples=first_worlds(25, of=100), stateful_step_count=25, deadline=None)
    run_state_machine_as_test(PackedMap, settings=examples)


def packed_over_time(count: int, blocks_at_once: int = 1) -> tuple[Intervals, list[int]]:
    """The map after `count` blocks of irregular transactions -> it, and how many intervals were packed each time."""
    ledger, found, packed = MapLedger(*WHERE), Intervals(), []
    for at in range(count):
        interval = Interval(at * 12 + at % 5, at * 10 + at % 3)
        found.put(interval)
        ledger.note([Block(*WHERE, Writer(7, 0), 0, (interval,))])
        if at % blocks_at_once == 0:
            changes = ledger.pack(found, End(interval.source_start + 1, interval.target_start + 1))
            packed += [change.count for change in changes if isinstance(change, Page)]
            voided = sum(isinstance(change, VoidBlock) for change in changes)
            assert not changes or voided == PACKED_BLOCKS_MIN
    return found, packed


def test_a_map_is_few_entries_and_is_not_written_again_and_again() -> None:
    found, packed = packed_over_time(40_000)
    assert len(found) == 40_000
    assert len(found.pages) <= 40_000 // (PAGE_INTERVALS_MAX // 3) + 12
    assert max(page.count for page in found.pages) <= PAGE_INTERVALS_MAX
    assert len(found.open) < PACKED_BLOCKS_MIN
    assert sum(packed) < 12 * 40_000


def test_a_map_of_an_older_version_is_packed_some_pages_at_a_time() -> None:
    ledger, found = MapLedger(*WHERE), Intervals()
    at_once = PAGES_AT_ONCE * PAGE_INTERVALS_MAX
    for at in range(at_once + 100):
        found.put(Interval(at * 11, at * 10))
        ledger.note([Block(*WHERE, Writer(7, 0), 0, (found[-1],))])
    end = End(found[-1].source_start + 1, found[-1].target_start + 1)
    whole = list(found)
    assert sum(isinstance(change, VoidBlock) for change in ledger.pack(found, end)) == at_once
    assert sum(isinstance(change, VoidBlock) for change in ledger.pack(found, end)) == 100
    assert ledger.pack(found, end) == []
    assert found == whole


def test_what_is_not_proved_is_not_packed() -> None:
    ledger, found = MapLedger(*WHERE), Intervals()
    block = Block(*WHERE, Writer(7, 0), 0, tuple(Interval(at * 11, at * 10) for at in range(PACKED_INTERVALS_MIN)))
    for interval in block.intervals:
        found.put(interval)
    ledger.note([block])
    last = found[-1]
    assert ledger.pack(found, End(*last)) == [], "it begins there, and has no record yet"
    (page, void) = ledger.pack(found, End(last.source_start + 1, last.target_start + 1))
    assert isinstance(page, Page)
    assert (page.to, page.count) == (last.source_start + 1, PACKED_INTERVALS_MIN)
    assert void == VoidBlock(*WHERE, 0)


def test_blocks_of_one_fetch_are_one_while_their_sequences_go_with_their_offsets() -> None:
    first = Block(*WHERE, Writer(7, 2), SEQUENCE_MASK, (Interval(3, 10), Interval(9, 11)))
    in_step = Block(*WHERE, Writer(7, 2), 4, (Interval(20, 15),))
    out_of_step, of_another = replace(in_step, sequence=5), replace(in_step, writer=Writer(7, 4))
    assert join_blocks([first, in_step]) == [replace(first, intervals=(*first.intervals, *in_step.intervals))]
    assert join_blocks([first, out_of_step]) == [first, out_of_step]
    assert join_blocks([first, of_another]) == [first, of_another]
    many = [
        Block(*WHERE, Writer(7, 2), at * 10, (Interval(at * 11, at * 10),)) for at in range(BLOCK_INTERVALS_MAX + 1)
    ]
    assert [len(block.intervals) for block in join_blocks(many)] == [BLOCK_INTERVALS_MAX, 1]


def test_a_batch_that_landed_elsewhere_takes_nothing_from_those_behind_it() -> None:
    """They were written ahead in one block, and the first batch's correction has its key: without what it said of the
    second batch, a start would take that for the source's next offsets, and go on there.
    """
    writer = Writer(7, 2)
    ahead = [
        Block(*WHERE, writer, 13, (Interval(14, 99),)),
        Block(*WHERE, writer, 14, (Interval(63, 100),)),
        Block(*WHERE, writer, 23, (Interval(97, 109),)),
    ]
    ledger, stands = MapLedger(*WHERE), {}
    (joined,) = join_blocks(ahead)
    ledger.note([joined])
    stands[joined.key_source] = joined
    for block in ledger.correct(Block(*WHERE, writer, 13, (Interval(14, 127),)), 15):
        stands[block.key_source] = block
    checkpoint = Checkpoint(*WHERE, End(14, 99), 14, writer, 13, 200, -1, 0)
    tail = [TailBatch(127, 127, *writer, 13, False), TailBatch(128, 136, *writer, 14, False)]
    found = recover(Intervals(), stands.values(), checkpoint, tail)
    assert found.end == End(72, 137)
    assert Interval(63, 128) in list(found.intervals)


def test_a_start_that_is_cut_short_where_the_target_lost_its_end_leaves_every_batch_its_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(map_ledger, "PACKED_BLOCKS_MIN", 1)
    for left in range(6):
        state = PackedMap()
        state.begin()
        state.mirror([[1], [1]], 0, 0)
        state.lose(part=0.5, left=left)
        state.the_map_is_what_landed()
