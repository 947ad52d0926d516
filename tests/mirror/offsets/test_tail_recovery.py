"""From a checkpoint, the blocks and the headers behind it to a position: never a record too far, never one back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mirror.offsets.entries import Block, Checkpoint, Writer
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import PartitionMap
from mirror.offsets.paged import Intervals
from mirror.offsets.recovery import SEQUENCE_MASK, OffsetRange, TailBatch, recover, step_over

OURS, OTHER = Writer(7, 4), Writer(99, 0)
START = Interval(0, 0)
CHECKPOINT = Checkpoint("flights", 0, End(10, 10), 14, OURS, 5, 100, -1, 0)
"""Mirrored to 10; the source holds nothing from 10 to 14; the next record gets sequence 5."""


def batch(base: int, count: int, sequence: int, writer: Writer = OURS, *, control: bool = False) -> TailBatch:
    return TailBatch(base, base + count - 1, writer.producer_id, writer.epoch, sequence, control)


def block(sequence: int, *intervals: tuple[int, int], writer: Writer = OURS) -> Block:
    return Block("flights", 0, writer, sequence, tuple(Interval(*at) for at in intervals))


def test_nothing_landed_so_it_goes_on_where_the_checkpoint_says() -> None:
    found = recover(Intervals([START]), [block(5, (14, 10))], CHECKPOINT, [])
    assert (found.end, found.position, found.landed_records) == (End(10, 10), 14, 0)
    assert found.intervals == (START,)


def test_what_landed_counts_and_the_block_says_which_records_it_was() -> None:
    found = recover(Intervals([START, Interval(14, 10)]), [block(5, (14, 10))], CHECKPOINT, [batch(10, 3, 5)])
    assert (found.end, found.position, found.landed_records) == (End(17, 13), 17, 3)
    assert found.intervals == (START, Interval(14, 10))


def test_a_batch_without_a_block_goes_on_without_an_offset_gap() -> None:
    found = recover(Intervals([START]), [], CHECKPOINT, [batch(10, 3, 5), batch(13, 1, 8)])
    assert (found.end, found.landed_records) == (End(14, 14), 4)
    assert found.intervals == (START,)


def test_offset_gaps_inside_of_a_batch_are_found_by_their_sequences() -> None:
    found = recover(Intervals([START]), [block(5, (14, 10), (20, 12))], CHECKPOINT, [batch(10, 4, 5)])
    assert found.intervals == (START, Interval(14, 10), Interval(20, 12))
    assert found.end == End(22, 14)


def test_where_it_landed_counts_and_not_where_it_was_meant_to() -> None:
    found = recover(Intervals([START, Interval(14, 10)]), [block(5, (14, 10))], CHECKPOINT, [batch(12, 3, 5)])
    assert found.end == End(17, 15)
    mapped = PartitionMap(list(found.intervals), found.end, found.position)
    assert [mapped.to_target(source) for source in (9, 10, 14, 16, 17)] == [9, 12, 12, 14, 15]


def test_markers_take_an_offset_and_are_nobodys_records() -> None:
    found = recover(Intervals([START]), [], CHECKPOINT, [batch(10, 1, -1, control=True), batch(11, 2, 5)])
    assert (found.end, found.landed_records, found.foreign) == (End(12, 13), 2, ())


def test_others_are_named_and_never_taken_for_ours() -> None:
    earlier = Writer(7, 3)
    tail = [batch(10, 2, 5, OTHER), batch(12, 1, 5, earlier), batch(13, 2, 5), batch(15, 1, 7, OTHER)]
    found = recover(Intervals([START]), [], CHECKPOINT, tail)
    assert found.foreign == (OffsetRange(10, 11), OffsetRange(12, 12), OffsetRange(15, 15))
    assert (found.end, found.landed_records) == (End(12, 15), 2)


def test_a_sequence_that_was_there_before_is_not_counted_again() -> None:
    found = recover(Intervals([START]), [], CHECKPOINT, [batch(10, 3, 5), batch(13, 2, 6), batch(15, 1, 4)])
    assert (found.end, found.landed_records) == (End(13, 13), 3)
    assert found.foreign == (OffsetRange(13, 14), OffsetRange(15, 15))


def test_what_lies_before_the_checkpoint_is_in_it() -> None:
    found = recover(Intervals([START]), [], CHECKPOINT, [batch(8, 2, 5), batch(10, 1, 5)])
    assert (found.end, found.landed_records, found.foreign) == (End(11, 11), 1, ())


def test_a_batch_across_the_proved_end_shows_that_the_target_was_cut() -> None:
    """It landed where the end was then, lower than what had been acknowledged; what it holds is not counted."""
    found = recover(Intervals([START]), [], CHECKPOINT, [batch(8, 4, 5), batch(12, 1, 9)])
    assert found.lost_at == 8
    assert (found.end, found.landed_records) == (CHECKPOINT.end, 0)


def test_the_blocks_of_an_earlier_writer_say_nothing_about_these_sequences() -> None:
    stale = [block(5, (60, 10), writer=Writer(7, 3)), block(5, (60, 10), writer=OTHER)]
    assert recover(Intervals([START]), stale, CHECKPOINT, [batch(10, 2, 5)]).end == End(12, 12)


def test_a_block_from_before_the_checkpoint_says_nothing_about_what_is_behind_it() -> None:
    assert recover(Intervals([START]), [block(5, (3, 3))], CHECKPOINT, [batch(10, 2, 5)]).end == End(12, 12)
    assert recover(Intervals([START]), [block(6, (3, 3))], CHECKPOINT, [batch(10, 2, 5)]).end == End(12, 12)
    assert recover(Intervals([START]), [block(4, (30, 9))], CHECKPOINT, [batch(10, 2, 5)]).end == End(12, 12)


def test_an_interval_that_never_landed_is_dropped_but_that_of_the_start_is_not() -> None:
    first = replace(CHECKPOINT, end=End(0, 0), position=0)
    assert recover(Intervals([START, Interval(4, 3)]), [], first, []).intervals == (START,)
    assert recover(Intervals([START, Interval(10, 12)]), [], CHECKPOINT, []).intervals == (START,)


def test_a_new_writer_steps_over_what_others_put_there() -> None:
    found = recover(Intervals([START]), [], CHECKPOINT, [batch(10, 2, 5), batch(12, 1, -1, control=True)])
    stepped = step_over(found, 13)
    assert stepped.end == End(12, 13)
    assert stepped.intervals == (START, Interval(12, 13))
    assert (stepped.position, stepped.landed_records) == (found.position, found.landed_records)
    assert step_over(found, 12) is found


def test_stepping_over_replaces_an_interval_that_begins_there() -> None:
    empty = recover(Intervals([START]), [], replace(CHECKPOINT, end=End(0, 0), position=0), [])
    assert step_over(empty, 2).intervals == (Interval(0, 2),)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 2)), max_size=8),
    st.integers(0, SEQUENCE_MASK),
    st.data(),
)
def test_of_any_prefix_that_landed_the_position_is_the_record_behind_it(
    sent: list[tuple[int, int, int]], sequence: int, data: st.DataObject
) -> None:
    """Batches of (offset gap at the source, records, offsets that somebody else takes before it at the target)."""
    checkpoint = replace(CHECKPOINT, sequence=sequence, position=10)
    blocks, landed, tail = [], [], []
    source, planned, target = 10, 10, 10
    durable = data.draw(st.integers(0, len(sent)))
    for at, (offset_gap, count, taken) in enumerate(sent):
        source += offset_gap
        offset = (sequence + planned - 10) & SEQUENCE_MASK
        if offset_gap:
            blocks.append(block(offset, (source, planned)))
        if at < durable:
            tail += [batch(target, taken, 0, OTHER)] if taken else []
            target += taken
            tail.append(batch(target, count, offset))
            landed += [(source + record, target + record) for record in range(count)]
            target += count
        source += count
        planned += count
    found = recover(Intervals([START]), blocks, checkpoint, tail)
    assert found.end.source_next == found.position == (landed[-1][0] + 1 if landed else 10)
    assert found.landed_records == len(landed)
    assert sum(last - first + 1 for first, last in found.foreign) == sum(taken for *_, taken in sent[:durable])
    mapped = PartitionMap(list(found.intervals), found.end, found.position)
    for here, there in landed:
        assert mapped.to_target(here) == there
        assert mapped.to_source(there) == here
    assert mapped.to_target(9) == 9
