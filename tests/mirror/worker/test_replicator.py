"""A partition's replicator against a model: fetches, durable intervals, sends, answers and stops in any order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.wire.batch import BatchHeader, patch_leader_epoch
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.entries import Block, Checkpoint, Gap, GapKind, Writer
from mirror.offsets.histories import EpochStart
from mirror.offsets.intervals import End, Interval
from mirror.offsets.left_out import LeftOut
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.origin_entries import Way
from mirror.origins import Judgement, Verdict
from mirror.worker.budget import Budget, Lease
from mirror.worker.events import Event
from mirror.worker.history import History
from mirror.worker.plan import Blocker, Plan, ProducerBatch, Rules, plan_batches
from mirror.worker.replicator import Replicator
from tests.mirror.partition import Submissions, take

WHERE = TopicPartition("flights", 0)
START = 100
"""The target's log end when the session starts."""

source_batches = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=5)),
    min_size=1,
    max_size=4,
)
"""What one fetch brings: per batch an offset gap before it, then whether compaction left each offset its record."""


@dataclass
class OnItsWay:
    """A batch that was taken and not acknowledged."""

    offsets: list[int]
    source_next: int


def new_replicator(state: Submissions, *, shared: bool) -> Replicator:
    found = PartitionMap([Interval(0, START)], End(0, START), 0)
    return Replicator(WHERE, WHERE, found, Rules(Writer(7, 1), 1 << 20), state.outlet(), shared=shared)


def source_log(first: int, shape: list[tuple[int, list[bool]]]) -> tuple[bytearray, list[list[int]], int]:
    """A source's log from `first` on -> its bytes, the offsets of each batch that has records, and its end."""
    log, batches, offset = bytearray(), [], first
    for offset_gap, present in shape:
        base = offset + offset_gap
        offsets = [base + at for at, here in enumerate(present) if here]
        offset = base + len(present)
        records = [Record(at, 1, b"k", b"v%d" % at) for at in offsets]
        log += encode_batch(records, base_offset=base, dense=False, last_offset=offset - 1)
        if offsets:
            batches.append(offsets)
    return log, batches, offset


class ReplicatorMachine(RuleBasedStateMachine):
    """The model knows the source and the target; it asks the replicator nothing but what it checks."""

    @initialize(shared=st.booleans())
    def start(self, shared: bool) -> None:
        self.shared = shared
        self.state = Submissions()
        self.budget = Budget(1 << 20, 1)
        self.replicator = new_replicator(self.state, shared=shared)
        self.source_end = 0
        self.target_end = START
        self.proved = 0
        self.on_its_way: deque[OnItsWay] = deque()
        self.durable: set[Interval] = set()
        self.landed: deque[int] = deque()
        self.truth: dict[int, int] = {}
        self.blocked = False

    def stopped(self) -> None:
        self.on_its_way.clear()
        self.landed.clear()

    @precondition(lambda self: self.replicator.is_moving)
    @rule(shape=source_batches, damaged=st.sampled_from([False, False, False, True]))
    def take_plan(self, shape: list[tuple[int, list[bool]]], damaged: bool) -> None:
        log, batches, self.source_end = source_log(self.source_end, shape)
        if damaged:
            broken = encode_batch([Record(self.source_end, 1, b"k", b"v")], base_offset=self.source_end)
            broken[-1] ^= 0x40
            log += broken
            self.blocked = True
        lease = Lease(self.budget, len(log))
        replicator = self.replicator
        plan = plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, lease)
        assert replicator.position == self.proved, "planning alone moves nothing"
        self.on_its_way.extend(OnItsWay(offsets, offsets[-1] + 1) for offsets in batches)
        replicator.take(plan)
        lease.release()
        self.settle()

    def settle(self) -> None:
        if not self.on_its_way:
            self.proved = self.source_end

    @precondition(lambda self: self.state.queue)
    @rule()
    def intervals_durable(self) -> None:
        for change in self.state.acknowledge():
            if isinstance(change, Block):
                self.durable.update(change.intervals)

    @precondition(lambda self: self.replicator.ready)
    @rule(others=st.sampled_from([0, 0, 1, 3]))
    def send(self, others: int) -> None:
        expected = self.on_its_way[len(self.landed)]
        batch: ProducerBatch = self.replicator.send()
        assert batch.pieces[0].source_start == expected.offsets[0], "order"
        if batch.intervals and batch.target_base == self.target_end:
            assert self.durable.issuperset(batch.intervals), "a batch before its intervals"
        if self.shared:
            self.target_end += others
        self.landed.append(self.target_end)
        self.target_end += len(expected.offsets)

    @precondition(lambda self: self.replicator.may_step)
    @rule(others=st.sampled_from([0, 1, 3]))
    def others_write(self, others: int) -> None:
        assert self.shared
        self.target_end += others
        self.replicator.step_to(self.target_end)
        assert self.replicator.end.target_next == self.target_end

    @precondition(lambda self: self.landed)
    @rule()
    def acknowledge(self) -> None:
        base, batch = self.landed.popleft(), self.on_its_way.popleft()
        self.replicator.acknowledge(base)
        self.truth.update((offset, base + at) for at, offset in enumerate(batch.offsets))
        self.proved = batch.source_next
        self.settle()

    @precondition(lambda self: self.landed and not self.shared and self.replicator.gap is None)
    @rule()
    def acknowledge_behind_a_foreign_batch(self) -> None:
        self.replicator.acknowledge(self.landed[0] + 2)
        gap = self.replicator.gap
        assert gap is not None
        assert (gap.kind, gap.source_from) == (GapKind.FOREIGN_WRITER, self.replicator.end.source_next)
        self.stopped()

    @precondition(lambda self: self.replicator.gap is None)
    @rule()
    def refuse_and_stop(self) -> None:
        self.replicator.stop_at(Blocker(GapKind.REFUSED_BATCH, self.proved, self.proved + 1, "too large"))
        self.stopped()

    @rule()
    def checkpoint(self) -> None:
        written = self.replicator.checkpoint(0)
        assert written.position == self.proved
        assert written.end.source_next == max([0, *(offset + 1 for offset in self.truth)])

    @invariant()
    def position_is_proved(self) -> None:
        assert self.replicator.position == self.proved
        if self.on_its_way:
            assert self.proved <= self.on_its_way[0].offsets[0], "a position behind an unacknowledged record"

    @invariant()
    def the_map_is_exact(self) -> None:
        for source, target in self.truth.items():
            assert self.replicator.map.to_target(source) == target

    @invariant()
    def buffers_live_as_long_as_their_batches(self) -> None:
        assert self.replicator.is_idle == (not self.on_its_way)
        assert (self.replicator.buffered_bytes > 0) == bool(self.on_its_way)
        assert (self.budget.used_bytes > 0) == bool(self.on_its_way)

    @invariant()
    def a_blocker_stops_when_all_before_it_is_acknowledged(self) -> None:
        if self.blocked and not self.on_its_way:
            assert self.replicator.gap is not None
        if self.replicator.gap is not None:
            assert self.state.told == [Event.PARTITION_STOPPED]

    def teardown(self) -> None:
        if self.replicator.gap is None:
            self.refuse_and_stop()
        while self.state.queue:
            self.state.acknowledge()
        assert self.replicator.is_idle
        assert (self.budget.used_bytes, self.replicator.buffered_bytes) == (0, 0)


ReplicatorMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestReplicator = ReplicatorMachine.TestCase


def test_an_idle_partition_does_not_step_over_batches_that_were_just_planned() -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    replicator = new_replicator(state, shared=False)
    log, _, end = source_log(0, [(0, [True, True]), (0, [False, False])])
    replicator.take(plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, Lease(budget, len(log))))
    assert (replicator.cursor.position, replicator.checkpoint(0).position) == (4, 0)
    replicator.send()
    replicator.acknowledge(START)
    assert (end, replicator.checkpoint(0).position, replicator.end) == (4, 4, End(2, START + 2))


def test_what_others_wrote_is_stepped_over_where_they_may_and_nothing_is_on_its_way() -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    assert not new_replicator(Submissions(), shared=False).may_step
    replicator = new_replicator(state, shared=True)
    log, _, _ = source_log(0, [(0, [True, True])])
    replicator.take(plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, Lease(budget, len(log))))
    assert not replicator.may_step
    replicator.send()
    assert not replicator.may_step
    replicator.acknowledge(START)
    assert replicator.may_step
    replicator.step_to(START + 5)
    step = (Interval(2, START + 5),)
    assert [*state.acknowledge()] == [Block(*WHERE, Writer(7, 1), sequence=2, intervals=step)]
    written = replicator.checkpoint(0)
    assert (written.end, written.position, written.sequence) == (End(2, START + 5), 2, 2)
    assert replicator.map.to_target(1) == START + 1
    replicator.step_to(START + 4)
    assert replicator.end == End(2, START + 5), "never back"


def test_a_position_that_passes_a_record_on_its_way_is_never_written() -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    replicator = new_replicator(state, shared=False)
    log, _, _ = source_log(0, [(0, [True, True])])
    replicator.take(plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, Lease(budget, len(log))))
    replicator.map.position = 2
    with pytest.raises(AssertionError, match="position 2 passes offset 0"):
        replicator.checkpoint(0)


def test_what_is_held_says_that_nothing_follows_when_the_target_has_answered_to_all() -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    replicator = new_replicator(state, shared=False)
    take(replicator, Lease(budget, 0), [0, 1, 2])
    replicator.send()
    assert replicator.checkpoint(0).records_behind == -1
    replicator.hold(settles=True)
    held = replicator.checkpoint(0)
    assert (held.records_behind, held.marker_may_follow) == (-1, True)
    replicator.changed = False
    replicator.acknowledge(START)
    settled = replicator.checkpoint(0)
    assert (settled.records_behind, settled.marker_may_follow, settled.position) == (0, False, 3)
    assert replicator.changed, "or nobody would write it"


def test_what_may_still_land_is_not_said_to_be_nothing() -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    replicator = new_replicator(state, shared=False)
    take(replicator, Lease(budget, 0), [0, 1, 2])
    replicator.send()
    replicator.hold(settles=False)
    held = replicator.checkpoint(0)
    assert (held.records_behind, held.marker_may_follow, replicator.changed) == (-1, True, False)
    idle = new_replicator(state, shared=False)
    idle.stop_at(Blocker(GapKind.UNREADABLE_BATCH, 0, 1, "damaged"))
    assert (idle.checkpoint(0).records_behind, idle.changed) == (0, True)


def test_nothing_follows_a_stop() -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    replicator = new_replicator(state, shared=False)
    log, _, _ = source_log(0, [(1, [True, True])])
    replicator.take(plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, Lease(budget, len(log))))
    assert replicator.waiting
    replicator.stop_at(Blocker(GapKind.REFUSED_BATCH, 1, 3, "too large"))
    assert [type(change) for change in (*state.acknowledge(), *state.acknowledge())] == [Block, Gap]
    assert replicator.is_idle, "what became durable after the stop is not sent"
    assert not replicator.due.is_set()
    with pytest.raises(AssertionError, match="stands still"):
        replicator.take(Plan(replicator.cursor, Lease(budget, 0)))


@pytest.mark.parametrize("shared", [True, False])
def test_a_batch_that_lands_before_the_known_end_shows_that_the_target_lost_records(shared: bool) -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    replicator = new_replicator(state, shared=shared)
    take(replicator, Lease(budget, 0), [0, 1, 2])
    take(replicator, Lease(budget, 0), [3, 4])
    replicator.send()
    replicator.send()
    replicator.acknowledge(START)
    replicator.acknowledge(START + 1)
    assert replicator.gap is not None
    assert (replicator.gap.kind, replicator.gap.source_from) == (GapKind.TARGET_TRUNCATED, 3)


def test_what_ties_the_offsets_to_the_logs_is_in_the_checkpoint_up_to_its_position() -> None:
    state, budget = Submissions(), Budget(1 << 20, 1)
    replicator = new_replicator(state, shared=False)
    for epoch, offsets in ((2, [0, 1]), (4, [2, 3])):
        log = encode_batch([Record(at, 1, b"k", b"v") for at in offsets], base_offset=offsets[0])
        patch_leader_epoch(log, epoch)
        lease = Lease(budget, len(log))
        replicator.take(plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, lease))
    assert replicator.cursor.leader_epoch == 4
    replicator.send()
    replicator.acknowledge(START)
    checkpoint = replicator.checkpoint(0)
    assert checkpoint.leader_epochs == (EpochStart(2, 0),)
    assert checkpoint.last == (1, START + 1, 7)


def test_what_is_left_to_others_is_said_before_anything_behind_it_is_sent() -> None:
    """A batch that landed proves the position behind what was left out, whether a checkpoint came or not."""
    state, budget = Submissions(), Budget(1 << 20, 1)
    found = PartitionMap([Interval(0, START)], End(0, START), 0)
    there = frozenset({"east"})

    def judge(header: BatchHeader) -> Judgement:
        if header.base_offset >= 3:
            return Judgement(Verdict.CARRY, Way(there, there))
        return Judgement(Verdict.LEAVE_OUT, Way(there, there), left_to=there)

    replicator = Replicator(
        WHERE, WHERE, found, Rules(Writer(7, 1), 1 << 20, judge), state.outlet(), shared=True, history=History()
    )
    log, _, _ = source_log(0, [(1, [True, True]), (0, [True])])
    replicator.take(plan_batches(memoryview(log), (), replicator.cursor, replicator.rules, Lease(budget, len(log))))
    assert not replicator.ready
    (checkpoint,) = (change for change in state.acknowledge() if isinstance(change, Checkpoint))
    assert (checkpoint.position, checkpoint.left_out) == (0, (LeftOut("east", 1, 3),))
    assert len(replicator.ready) == 1
    assert replicator.checkpoint(0).left_out == (LeftOut("east", 1, 3),)


def test_epochs_that_the_source_took_back_are_forgotten() -> None:
    history = History([EpochStart(2, 0), EpochStart(5, 10)])
    history.read([EpochStart(3, 20)], 20)
    assert history.leader_epochs == [EpochStart(2, 0), EpochStart(3, 20)]
    history.read([EpochStart(3, 25), EpochStart(6, 30)], 30)
    assert history.leader_epochs == [EpochStart(2, 0), EpochStart(3, 20), EpochStart(6, 30)]
