"""Digests of batches that nobody opens: the same where a mirror passed them through, and nowhere else.

A log is a list of batches as a broker stores them; the target's are what a mirror makes of the source's, and then what
is planted. What is said of a range is held against the records, which the test opens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.batch import patch_base_offset, patch_leader_epoch, patch_log_append_time, patch_producer, peek
from broker.wire.compression import Compression
from broker.wire.records import Record, decode_records, encode_batch
from monitoring.audit.batches import BatchDigests, BatchHash, BatchUnknown, DigestRow, View, view_of
from monitoring.audit.model import ComparablePartition, Segment, Side, Span

WIDTH = 10
START_MS = 1_357_000_000_000
SHIFT = 1_000
"""By so much each record stands further at the target."""
Batch = bytearray
Log = list[Batch]


def record(offset: int) -> Record:
    headers = (("trace", b"%d" % offset), ("none", None)) if offset % 3 == 0 else ()
    return Record(offset, START_MS + 7 * offset, b"key-%d" % offset, b"value %d" % offset, headers)


def batch_of(records: Sequence[Record], codec: Compression = Compression.NONE) -> Batch:
    """As a source stores it: of a transaction of producer 7, which was committed."""
    first = records[0].offset
    made = encode_batch(
        records,
        compression=codec,
        base_offset=first,
        last_offset=records[-1].offset,
        dense=False,
        producer_id=7,
        producer_epoch=1,
        base_sequence=first,
        transactional=True,
    )
    patch_leader_epoch(made, 3)
    return made


def log_of(*sizes: int, codec: Compression = Compression.NONE) -> Log:
    found, at = list[Batch](), 0
    for size in sizes:
        found.append(batch_of([record(at + nth) for nth in range(size)], codec))
        at += size
    return found


def passed_through(batch: Batch, shift: int = SHIFT) -> Batch:
    """As the target has it."""
    made, base = bytearray(batch), peek(batch).base_offset
    patch_producer(made, producer_id=4_000, producer_epoch=9, base_sequence=12_345)
    patch_base_offset(made, base + shift)
    patch_leader_epoch(made, 40)
    return made


def partition(source: Log, target_end: int | None = None, *segments: Segment, **more: object) -> ComparablePartition:
    end = peek(source[-1]).next_offset
    target = Span(SHIFT, SHIFT + end if target_end is None else target_end)
    whole = ComparablePartition("t", 0, "t", Span(0, end), target, segments or (Segment(SHIFT, 0, end),))
    return replace(whole, **more)  # type: ignore[arg-type]  # fields of ComparablePartition


def digests(view: View, log: Log) -> dict[int, DigestRow]:
    found = BatchDigests(view, WIDTH, BatchHash(bytes(16)))
    for batch in log:
        found.take(peek(batch), memoryview(batch))
    return {row.range_start: row for row in found.rows()}


def proved(item: ComparablePartition, source: Log, target: Log) -> set[int]:
    """The ranges of which both sites say the same; all others are to be opened."""
    here, there = digests(view_of(item, Side.SOURCE), source), digests(view_of(item, Side.TARGET), target)
    return {start for start in here.keys() & there.keys() if said(here[start]) == said(there[start])} - {
        start for rows in (here, there) for start, row in rows.items() if row.unclear
    }


def said(row: DigestRow) -> tuple[object, ...]:
    return (row.records, row.bytes, row.content_1, row.content_2, row.ordered, row.batches)


def opened(batch: Batch) -> list[Record]:
    return list(decode_records(memoryview(batch)))


def changed(batch: Batch, at: int, change: Callable[[Record], Record]) -> Batch:
    """The source's batch with another record, and all else as it was."""
    return batch_of([change(each) if nth == at else each for nth, each in enumerate(opened(batch))])


def swapped(batch: Batch) -> Batch:
    one, other, *rest = opened(batch)
    return batch_of([replace_offset(other, one.offset), replace_offset(one, other.offset), *rest])


def replace_offset(each: Record, offset: int) -> Record:
    return each._replace(offset=offset)


def as_log_append_time(batch: Batch, at_ms: int) -> Batch:
    made = bytearray(batch)
    patch_log_append_time(made, at_ms)
    return made


SOURCE = log_of(4, 10, 3, 20, 13)
ALL = {0, 10, 20, 30, 40}
HIT = {0, 10}
"""The ranges of the second batch, in which all is planted: it has the offsets from 4 to 13."""


def test_what_was_passed_through_is_proved_by_whatever_is_patched() -> None:
    for codec in Compression:
        source = log_of(4, 10, 3, 20, 13, codec=codec)
        assert proved(partition(source), source, [passed_through(batch) for batch in source]) == ALL


def test_ranges_have_their_records_and_all_bytes_once() -> None:
    item = partition(SOURCE)
    here, there = digests(view_of(item, Side.SOURCE), SOURCE), digests(view_of(item, Side.TARGET), map_log(SOURCE))
    assert {start: row.records for start, row in here.items()} == dict.fromkeys(ALL, 10)
    assert sum(row.bytes for row in here.values()) == sum(len(batch) - 61 for batch in SOURCE)
    assert {start: row.batches for start, row in here.items()} == {0: 2, 10: 3, 20: 1, 30: 2, 40: 1}
    assert [(row.first_offset, row.last_offset) for row in there.values()] == [
        (SHIFT + start, SHIFT + start + 9) for start in sorted(ALL)
    ]


def map_log(log: Log) -> Log:
    return [passed_through(batch) for batch in log]


@pytest.mark.parametrize(
    "plant",
    [
        lambda batch: changed(batch, 5, lambda each: each._replace(key=b"kez-9")),
        lambda batch: changed(batch, 5, lambda each: each._replace(key=None)),
        lambda batch: changed(batch, 5, lambda each: each._replace(value=b"walue 9")),
        lambda batch: changed(batch, 5, lambda each: each._replace(headers=(("trace", b"8"), ("none", None)))),
        lambda batch: changed(batch, 5, lambda each: each._replace(headers=(("trace", b"9"), ("none", b"")))),
        lambda batch: changed(batch, 0, lambda each: each._replace(timestamp=each.timestamp - 1)),
        lambda batch: changed(batch, 5, lambda each: each._replace(timestamp=each.timestamp + 1)),
        lambda batch: changed(batch, 9, lambda each: each._replace(timestamp=each.timestamp + 1)),
        lambda batch: batch_of([each._replace(timestamp=each.timestamp + 1) for each in opened(batch)]),
        lambda batch: batch_of(opened(batch)[:-1]),
        lambda batch: batch_of([*opened(batch), record(14)]),
        swapped,
        lambda batch: batch_of(opened(batch), Compression.ZSTD),
        lambda batch: as_log_append_time(batch, START_MS),
    ],
)
def test_a_planted_difference_leaves_the_ranges_of_its_batch_unproved(plant: Callable[[Batch], Batch]) -> None:
    target = map_log(SOURCE)
    target[1] = passed_through(plant(SOURCE[1]))
    assert proved(partition(SOURCE), SOURCE, target) == ALL - HIT


def test_lost_doubled_and_swapped_batches_leave_their_ranges_unproved() -> None:
    target = map_log(SOURCE)
    assert proved(partition(SOURCE), SOURCE, [target[0], *target[2:]]) == ALL - HIT
    assert proved(partition(SOURCE), SOURCE, [*target[:2], target[1], *target[2:]]) == ALL - HIT
    even = log_of(10, 10, 10)
    one, other, last = (bytearray(batch) for batch in even)
    patch_base_offset(one, 10)
    patch_base_offset(other, 0)
    assert proved(partition(even), even, map_log([other, one, last])) == {20}


def test_the_same_records_in_other_batches_are_for_who_opens_them() -> None:
    merged = [SOURCE[0], batch_of([*opened(SOURCE[1]), *opened(SOURCE[2])]), *SOURCE[3:]]
    assert proved(partition(SOURCE), SOURCE, map_log(merged)) == {20, 30, 40}


def test_a_batch_with_gaps_says_nothing() -> None:
    gaps = [SOURCE[0], batch_of([each for each in opened(SOURCE[1]) if each.offset != 7]), *SOURCE[2:]]
    assert proved(partition(gaps), gaps, map_log(gaps)) == ALL - HIT


def test_a_batch_that_a_reader_made_of_older_messages_says_nothing() -> None:
    """No broker has set its leader epoch."""
    made = [SOURCE[0], bytearray(SOURCE[1]), *SOURCE[2:]]
    patch_leader_epoch(made[1], -1)
    assert proved(partition(SOURCE), made, map_log(SOURCE)) == ALL - HIT


def test_what_the_map_does_not_know_leaves_the_range_before_it_unproved() -> None:
    source = log_of(10, 10, 10)
    item = partition(source, SHIFT + 31, Segment(SHIFT, 0, 10), Segment(SHIFT + 11, 10, 20))
    extra = passed_through(batch_of([record(10)]))
    target = [passed_through(source[0]), extra, *[passed_through(batch, SHIFT + 1) for batch in source[1:]]]
    # Its place is the end of the interval before it, as where records are opened.
    assert proved(item, source, target) == {0, 20}
    assert proved(item, source, [target[0], *target[2:]]) == {0, 10, 20}


def test_a_batch_that_two_intervals_share_says_nothing() -> None:
    item = partition(SOURCE, None, Segment(SHIFT, 0, 7), Segment(SHIFT + 7, 7, 43))
    assert proved(item, SOURCE, map_log(SOURCE)) == ALL - HIT


def test_where_the_map_knows_nothing_nothing_is_proved() -> None:
    item = replace(partition(SOURCE), segments=())
    assert proved(item, SOURCE, map_log(SOURCE)) == set()


def test_what_others_wrote_is_passed_over_as_a_whole_and_not_in_part() -> None:
    source = log_of(10, 10, 10)
    local, foreign = replace(partition(source), left_out=(Span(10, 20),)), (Span(SHIFT + 10, SHIFT + 15),)
    target = [passed_through(source[0]), passed_through(batch_of([record(10 + nth) for nth in range(5)]))]
    target.append(passed_through(source[2]))
    assert proved(replace(local, foreign=foreign), source, target) == {0, 20}
    assert digests(view_of(replace(local, foreign=foreign), Side.SOURCE), source).keys() == {0, 20}
    in_part = replace(partition(source), left_out=(Span(10, 15),))
    assert digests(view_of(in_part, Side.SOURCE), source)[10].unclear == 1


def test_edges_are_cut_as_records_are() -> None:
    item = replace(partition(SOURCE), source=Span(8, 45), target=Span(SHIFT + 8, SHIFT + 45))
    item = replace(item, segments=(Segment(SHIFT + 8, 8, 37),))
    assert proved(item, SOURCE, map_log(SOURCE)) == ALL
    here = digests(view_of(item, Side.SOURCE), SOURCE)
    assert {start: row.records for start, row in here.items()} == {0: 2, 10: 10, 20: 10, 30: 10, 40: 5}


def test_times_that_are_not_compared_are_not_told() -> None:
    stamped = [passed_through(as_log_append_time(batch, START_MS + 99_999)) for batch in SOURCE]
    assert proved(partition(SOURCE), SOURCE, stamped) == set()
    assert proved(replace(partition(SOURCE), timestamps_comparable=False), SOURCE, stamped) == ALL


def test_a_batch_that_reaches_behind_what_is_known_is_no_answer() -> None:
    view = view_of(partition(SOURCE), Side.TARGET).between(SHIFT, SHIFT + 13)
    with pytest.raises(BatchUnknown):
        digests(view, map_log(SOURCE)[:2])


def test_parts_of_a_view_say_together_what_the_whole_says() -> None:
    item = partition(SOURCE, SHIFT + 51, Segment(SHIFT, 0, 17), Segment(SHIFT + 18, 17, 33))
    target = [passed_through(batch, SHIFT + (nth > 2)) for nth, batch in enumerate(SOURCE)]
    whole = view_of(item, Side.TARGET)
    parts = [digests(whole.between(peek(batch).base_offset, peek(batch).next_offset), [batch]) for batch in target]
    together = digests(whole, target)
    for start, row in together.items():
        assert row.records == sum(part[start].records for part in parts if start in part)
        assert row.content_1 % 2**64 == sum(part[start].content_1 for part in parts if start in part) % 2**64
    assert proved(item, SOURCE, target) == ALL


@pytest.mark.parametrize(
    ("extra_at", "place"),
    [(0, 5_000), (500, 5_010), (900, 5_020)],
    ids=["before the first interval", "between two", "behind the last"],
)
def test_a_part_that_lies_outside_of_the_map_leaves_the_same_range_unproved_as_the_whole(
    extra_at: int, place: int
) -> None:
    """There are holes around it, so what is known of the map begins behind it, or ends before it."""
    segments = (Segment(300, 5_000, 10), Segment(700, 5_010, 10))
    item = ComparablePartition("t", 0, "t", Span(5_000, 5_020), Span(0, 1_000), segments)
    extra, whole = batch_of([record(extra_at + nth) for nth in range(5)]), view_of(item, Side.TARGET)
    for part in (whole, whole.between(extra_at, extra_at + 50)):
        assert {start: row.unclear for start, row in digests(part, [extra]).items()} == {place: 1}


def test_the_key_decides_and_the_same_key_says_the_same() -> None:
    batch = SOURCE[1]
    one, same, other = (
        BatchHash(key).of(peek(batch), memoryview(batch), 4, is_timed=True) for key in (bytes(16), bytes(16), b"k" * 16)
    )
    assert one == same != other


codecs = st.sampled_from([Compression.NONE, Compression.GZIP, Compression.ZSTD])
plants = st.sampled_from(["keep", "value", "swap", "drop", "double", "codec", "split", "time"])


@given(
    sizes=st.lists(st.integers(1, 14), min_size=1, max_size=12),
    codec=codecs,
    plant=st.lists(plants, min_size=12, max_size=12),
    skip=st.integers(0, 12),
    cut=st.integers(0, 12),
)
def test_a_range_that_is_proved_has_the_same_records(
    sizes: list[int], codec: Compression, plant: list[str], skip: int, cut: int
) -> None:
    source = log_of(*sizes, codec=codec)
    end = sum(sizes)
    inside = Span(min(skip, end - 1), max(min(skip, end - 1) + 1, end - cut))
    target = [
        passed_through(made) for batch, how in zip(source, plant, strict=False) for made in planted(batch, how, codec)
    ]
    item = ComparablePartition(
        "t",
        0,
        "t",
        inside,
        Span(inside.start + SHIFT, inside.end + SHIFT),
        (Segment(SHIFT + inside.start, inside.start, inside.offsets),),
    )
    here, there = by_range(source, inside, 0), by_range(target, inside, SHIFT)
    equal = proved(item, source, target)
    assert {start: here[start] for start in equal} == {start: there[start] for start in equal}
    untouched = [batch for batch, how in zip(source, plant, strict=False) if how == "keep"]
    if len(untouched) == len(source):
        assert equal == here.keys()


def planted(batch: Batch, how: str, codec: Compression) -> list[Batch]:
    records = opened(batch)
    match how:
        case "value":
            return [batch_of([records[0]._replace(value=b"other"), *records[1:]], codec)]
        case "time":
            return [batch_of([*records[:-1], records[-1]._replace(timestamp=1)], codec)]
        case "swap" if len(records) > 1:
            return [swapped(batch)]
        case "drop":
            return []
        case "double":
            return [batch, batch]
        case "codec":
            return [batch_of(records, Compression.LZ4)]
        case "split" if len(records) > 1:
            return [batch_of(records[:1], codec), batch_of(records[1:], codec)]
    return [batch]


def by_range(log: Log, inside: Span, shift: int) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for batch in log:
        for each in opened(batch):
            at = each.offset - shift
            if inside.start <= at < inside.end:
                found[at - at % WIDTH].append(each._replace(offset=at))
    return {start: sorted(records) for start, records in found.items()}


def test_each_byte_but_those_that_a_mirror_or_a_broker_sets_is_told() -> None:
    """All bits of the batch, one at a time: length and magic apart, without which there is no batch."""
    stored, hashed = passed_through(SOURCE[1]), BatchHash(bytes(16))

    def told(batch: Batch) -> bytes:
        return hashed.of(peek(batch), memoryview(batch), 4, is_timed=True)

    plain = told(stored)
    patched = {*range(8), *range(12, 16), *range(17, 21), *range(43, 57)}
    for at in {*range(len(stored))} - {*range(8, 12), 16}:
        for bit in range(8):
            flipped = bytearray(stored)
            flipped[at] ^= 1 << bit
            is_transactional = (at, bit) == (22, 4)
            assert (told(flipped) == plain) is (at in patched or is_transactional), (at, bit)


def test_batches_that_changed_places_within_a_range_are_told() -> None:
    even = log_of(5, 5, 10)
    one, other, last = (bytearray(batch) for batch in even)
    patch_base_offset(one, 5)
    patch_base_offset(other, 0)
    assert proved(partition(even), even, map_log([other, one, last])) == {10}
