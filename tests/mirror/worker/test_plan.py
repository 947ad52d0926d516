"""What passes through, what is left out, what is re-encoded: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker.wire.batch import pack_header, patch_base_offset, patch_leader_epoch, peek, verify_crc
from broker.wire.compression import Compression
from broker.wire.messages.fetch import AbortedTransaction
from broker.wire.records import ControlKind, Record, control_batch, decode_records, encode_batch
from mirror.offsets.entries import GapKind, Writer
from mirror.offsets.histories import EpochStart
from mirror.offsets.intervals import End, Interval, Piece
from mirror.offsets.origin_entries import Way
from mirror.origins import Judgement, Verdict
from mirror.worker.budget import Budget, Lease
from mirror.worker.plan import Cursor, Plan, Rules, plan_batches
from tests.broker.horizon import kept_tombstone

RULES = Rules(Writer(77, 5), 1 << 20)


def batch_of(offsets: list[int], *, base: int | None = None, **more: Any) -> bytearray:
    records = [Record(offset, 1000 + offset, b"k", b"v%d" % offset) for offset in offsets]
    base_offset = offsets[0] if base is None else base
    return encode_batch(records, base_offset=base_offset, dense=False, **more)


def plan_of(
    *batches: bytearray, position: int = 0, rules: Rules = RULES, aborted: Sequence[AbortedTransaction] = ()
) -> tuple[Plan, Cursor]:
    start = Cursor(position, End(position, 100), 40)
    records = memoryview(bytearray(b"".join(batches)))
    plan = plan_batches(records, aborted, start, rules, Lease(Budget(0, 0), 0))
    assert start == Cursor(position, End(position, 100), 40), "the cursor moves when the plan is taken"
    return plan, plan.cursor


def test_until_when_the_source_keeps_a_tombstone_is_not_carried_over() -> None:
    """Kafka's cleaner at the target would go by it, and take a tombstone that came late at once."""
    plan, cursor = plan_of(kept_tombstone(3, 1000, b"k", horizon_ms=90_000), position=3)
    (made,) = plan.batches
    header = peek(made.batch)
    assert decode_records(made.batch) == [Record(0, 1000, b"k", None)]
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (0, 1000, 1000)
    assert (made.pieces, cursor.position) == ((Piece(3, 0),), 4)


def test_what_no_client_says_in_a_header_is_not_carried_over() -> None:
    batch = batch_of([0, 1], compression=Compression.ZSTD)
    header = peek(batch)
    for bit in range(6, 15):
        marked = bytearray(batch)
        pack_header(marked, header._replace(attributes=header.attributes | 1 << bit))
        plan, _ = plan_of(marked)
        assert [peek(made.batch).attributes for made in plan.batches] == [header.attributes]
        assert values(plan) == [b"v0", b"v1"]


def judging(verdicts: dict[int, Verdict]) -> Rules:
    """By producer id; the site of a batch is called as its producer id."""
    return Rules(
        Writer(77, 5),
        1 << 20,
        lambda header: Judgement(verdicts[header.producer_id], Way(frozenset({str(header.producer_id)}), frozenset())),
    )


def values(plan: Plan) -> list[bytes | None]:
    return [record.value for batch in plan.batches for record in decode_records(batch.batch)]


def test_a_closed_batch_is_patched_in_place() -> None:
    batch = batch_of([0, 1, 2], compression=Compression.ZSTD, transactional=True, producer_id=9, producer_epoch=1)
    before = bytes(batch)
    plan, cursor = plan_of(batch)
    (planned,) = plan.batches
    header = peek(planned.batch)
    verify_crc(planned.batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 40)
    assert (header.base_offset, header.partition_leader_epoch, header.is_transactional) == (0, -1, False)
    assert bytes(planned.batch[61:]) == before[61:]
    assert (planned.intervals, planned.target_base, planned.source_next) == ((), 100, 3)
    assert cursor == Cursor(3, End(3, 103), 43)


def test_a_batch_that_the_position_falls_into_loses_its_head() -> None:
    plan, cursor = plan_of(batch_of([0, 1, 2, 3]), position=2)
    assert values(plan) == [b"v2", b"v3"]
    assert plan.batches[0].intervals == ()
    assert cursor.end == End(4, 102)


def test_offset_gaps_are_closed_and_mapped() -> None:
    plan, cursor = plan_of(batch_of([1, 2, 5, 9], base=0, last_offset=9))
    (batch,) = plan.batches
    header = peek(batch.batch)
    assert (header.record_count, header.last_offset_delta) == (4, 3)
    assert batch.pieces == (Piece(1, 0), Piece(5, 2), Piece(9, 3))
    assert batch.intervals == (Interval(1, 100), Interval(5, 102), Interval(9, 103))
    assert cursor == Cursor(10, End(10, 104), 44)


def test_an_empty_batch_that_compaction_left_only_moves_the_position() -> None:
    empty = encode_batch([], base_offset=0, last_offset=4, dense=False)
    plan, cursor = plan_of(empty, batch_of([5]))
    assert values(plan) == [b"v5"]
    assert plan.batches[0].intervals == (Interval(5, 100),)
    assert cursor.position == 6


def test_broker_timestamps_stay_visible() -> None:
    plan, _ = plan_of(batch_of([0, 1], log_append_time_ms=5555))
    header = peek(plan.batches[0].batch)
    assert not header.is_log_append_time
    assert [record.timestamp for record in decode_records(plan.batches[0].batch)] == [5555, 5555]


def test_control_batches_and_aborted_transactions_are_left_out() -> None:
    def marker(kind: ControlKind, offset: int, producer_id: int) -> bytearray:
        batch = control_batch(kind, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp_ms=1)
        patch_base_offset(batch, offset)
        return batch

    plan, cursor = plan_of(
        batch_of([0, 1], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        batch_of([2], transactional=True, producer_id=2, producer_epoch=0, base_sequence=0),
        marker(ControlKind.ABORT, 3, 1),
        marker(ControlKind.COMMIT, 4, 2),
        batch_of([5], transactional=True, producer_id=1, producer_epoch=0, base_sequence=2),
        marker(ControlKind.COMMIT, 6, 1),
        aborted=[AbortedTransaction(1, 0)],
    )
    assert values(plan) == [b"v2", b"v5"]
    assert [batch.intervals for batch in plan.batches] == [(Interval(2, 100),), (Interval(5, 101),)]
    assert (cursor.position, cursor.end) == (7, End(6, 102))


def test_foreign_batches_are_left_out() -> None:
    rules = judging({-1: Verdict.CARRY, 9: Verdict.LEAVE_OUT, 8: Verdict.CARRY})
    foreign = batch_of([0, 1], producer_id=9, producer_epoch=0, base_sequence=0)
    others = batch_of([3], producer_id=8, producer_epoch=0, base_sequence=0)
    plan, cursor = plan_of(foreign, batch_of([2]), others, rules=rules)
    assert values(plan) == [b"v2", b"v3"]
    assert [batch.way.wrote for batch in plan.batches] == [{"-1"}, {"8"}]
    assert cursor.position == 4


def test_a_batch_that_may_have_come_from_the_target_stops_the_partition_before_it() -> None:
    rules = judging({-1: Verdict.CARRY, 9: Verdict.UNCLEAR})
    mixed = batch_of([1, 2], producer_id=9, producer_epoch=0, base_sequence=0)
    plan, cursor = plan_of(batch_of([0]), mixed, batch_of([3]), rules=rules)
    assert values(plan) == [b"v0"]
    assert cursor.position == 1
    assert plan.blocker is not None
    assert (plan.blocker.kind, plan.blocker.source_from, plan.blocker.source_to) == (GapKind.MIXED_ORIGINS, 1, 3)


def test_an_oversized_batch_is_split() -> None:
    batch = batch_of(list(range(40)))
    rules = Rules(Writer(77, 5), len(batch) // 3)
    plan, cursor = plan_of(batch, rules=rules)
    assert len(plan.batches) >= 3
    assert all(len(batch.batch) <= rules.max_batch_bytes for batch in plan.batches)
    assert values(plan) == [b"v%d" % offset for offset in range(40)]
    assert [o.sequence for o in plan.batches] == [40 + o.pieces[0].source_start for o in plan.batches]
    assert all(not batch.intervals for batch in plan.batches)
    assert cursor.end == End(40, 140)


def test_a_record_that_fits_nowhere_stops_before_it() -> None:
    large = encode_batch([Record(1, 1, b"k", b"v1"), Record(2, 2, b"k", bytes(100))], base_offset=1)
    plan, _ = plan_of(batch_of([0]), large, rules=Rules(Writer(1, 1), 120))
    assert values(plan) == [b"v0", b"v1"]
    assert plan.blocker is not None
    assert (plan.blocker.kind, plan.blocker.source_from, plan.blocker.source_to) == (GapKind.REFUSED_BATCH, 2, 3)


def test_what_follows_a_record_that_fits_nowhere_is_not_given_up_with_it() -> None:
    records = [Record(1, 1, b"k", bytes(100)), Record(2, 2, b"k", b"v2"), Record(3, 3, b"k", b"v3")]
    plan, _ = plan_of(batch_of([0]), encode_batch(records, base_offset=1), rules=Rules(Writer(1, 1), 120))
    assert plan.blocker is not None
    assert (plan.blocker.source_from, plan.blocker.source_to) == (1, 2)


def old_messages(magic: int, offsets: list[int]) -> bytearray:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1 << 20)
    for offset in offsets:
        builder.append(offset, 1000 + offset, b"k", b"v%d" % offset)
    return bytearray(builder.build())


@pytest.mark.parametrize(("magic", "timestamps"), [(0, [-1] * 5), (1, [1001, 1002, 1005, 1006, 1009])])
def test_messages_of_old_formats_are_batches_with_an_exact_map(magic: int, timestamps: list[int]) -> None:
    """From a log of a cluster that was upgraded in place; compaction left gaps."""
    plan, cursor = plan_of(old_messages(magic, [0, 1, 2, 5, 6, 9]), batch_of([10]), position=1)
    first, second = plan.batches
    assert values(plan) == [b"v1", b"v2", b"v5", b"v6", b"v9", b"v10"]
    assert [record.timestamp for record in decode_records(first.batch)] == timestamps
    verify_crc(first.batch)
    assert (peek(first.batch).producer_id, peek(first.batch).base_sequence) == (77, 40)
    assert first.intervals == (Interval(5, 102), Interval(9, 104))
    assert (second.target_base, second.sequence, cursor.end) == (105, 45, End(11, 106))


def test_a_damaged_message_is_one_gap_and_what_is_before_it_is_mirrored() -> None:
    """Not a gap per offset: a compressed one holds many."""
    builder = LegacyRecordBatchBuilder(magic=1, compression_type=1, batch_size=1 << 20)
    for offset in range(50):
        builder.append(offset, 1, b"k", b"v")
    wrapper = bytearray(builder.build())
    wrapper[:8] = (51).to_bytes(8, "big")
    wrapper[-1] ^= 1
    plan, cursor = plan_of(old_messages(1, [0, 1]), wrapper, old_messages(1, [52]))
    assert values(plan) == [b"v0", b"v1"]
    assert plan.blocker is not None
    assert (plan.blocker.source_from, plan.blocker.source_to, cursor.position) == (2, 52, 2)


@pytest.mark.parametrize("at", [16, 30, 65])
def test_damage_is_never_passed_on(at: int) -> None:
    damaged = batch_of([1, 2])
    damaged[at] ^= 0x40
    plan, cursor = plan_of(batch_of([0]), damaged, batch_of([3]))
    assert values(plan) == [b"v0"]
    assert plan.blocker is not None
    assert (plan.blocker.kind, plan.blocker.source_from) == (GapKind.UNREADABLE_BATCH, 1)
    assert plan.blocker.source_to > 1, "accepted, it leads on"
    assert cursor.position == 1


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=6), st.integers(0, 12))
def test_whatever_the_offset_gaps_the_plan_is_whole_and_dense(shapes: list[list[int]], position: int) -> None:
    batches, offset, expected = [], 0, []
    for gaps in shapes:
        offsets = []
        base = offset
        for gap in gaps:
            offsets.append(offset + gap)
            offset += gap + 1
        expected += [at for at in offsets if at >= position]
        batches.append(batch_of(offsets, base=base, last_offset=offset - 1))
    plan, cursor = plan_of(*batches, position=position)
    assert values(plan) == [b"v%d" % at for at in expected]
    assert cursor.sequence == 40 + len(expected)
    assert cursor.position == max(position, offset)
    target = 100
    for batch in plan.batches:
        header = peek(batch.batch)
        verify_crc(batch.batch)
        assert (header.record_count, batch.target_base) == (header.last_offset_delta + 1, target)
        target += header.record_count


def test_the_epochs_that_began_are_noted_also_where_nothing_is_mirrored() -> None:
    batches = [batch_of([0, 1]), batch_of([2, 3]), batch_of([4, 5]), batch_of([6])]
    for batch, epoch in zip(batches, (3, 3, 5, 8), strict=True):
        patch_leader_epoch(batch, epoch)
    rules = Rules(Writer(77, 5), 1 << 20)
    plan = plan_batches(
        memoryview(bytearray(b"".join(batches))), (), Cursor(3, End(3, 100), 0), rules, Lease(Budget(0, 0), 0)
    )
    assert plan.leader_epochs == [EpochStart(3, 3), EpochStart(5, 4), EpochStart(8, 6)]
    assert plan.cursor.leader_epoch == 8
