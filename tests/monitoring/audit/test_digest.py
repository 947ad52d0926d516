"""The digests see every difference, and nothing that is none. Records are (offset, timestamp, key, value, headers)."""

from __future__ import annotations

from typing import Any

import pytest

from monitoring.audit import diff, digest
from monitoring.audit.model import AuditVerdict, ComparablePartition, Kind, Segment, Span
from monitoring.audit.reader import RECORD_SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

WINDOW_MS = 1_000
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

BASE: list[Row] = [
    (0, 100, b"a", b"zero", None),
    (1, 200, b"b", b"one", [("h", b"1"), ("h", None)]),
    (2, 1_100, None, b"two", None),
    (3, 1_200, b"d", None, None),
    (4, 2_000, b"e", b"four", None),
]


def frame(spark: Any, rows: list[Row]) -> Any:
    named = [("t", 0, offset, at_ms, key, value, headers) for offset, at_ms, key, value, headers in rows]
    return spark.createDataFrame(named, RECORD_SCHEMA)


def sides(
    spark: Any,
    source: list[Row],
    target: list[Row],
    segments: tuple[Segment, ...] = (Segment(0, 0, 1_000),),
    untimed: tuple[str, ...] = (),
    **spans: tuple[Span, ...],
) -> tuple[Any, Any]:
    partition = ComparablePartition("t", 0, "t", Span(0, 1_000), Span(0, 1_000), segments, not untimed, **spans)
    aligned = (
        digest.align_source(frame(spark, source), [partition]),
        digest.align_target(frame(spark, target), [partition]),
    )
    left, right = (digest.with_hashes(digest.with_windows(side, WINDOW_MS, untimed)) for side in aligned)
    return left, right


def verdicts(spark: Any, source: list[Row], target: list[Row], **more: Any) -> dict[int, str]:
    left, right = sides(spark, source, target, **more)
    rows = digest.compare(digest.digest(left), digest.digest(right)).collect()
    return {row["window_start"]: row["verdict"] for row in rows}


def test_equal_is_equal(spark: Any) -> None:
    assert verdicts(spark, BASE, BASE) == {0: AuditVerdict.EQUAL, 1_000: AuditVerdict.EQUAL, 2_000: AuditVerdict.EQUAL}


@pytest.mark.parametrize(
    ("at", "row"),
    [
        (0, (0, 100, None, b"azero", None)),
        (0, (0, 100, b"azero", None, None)),
        (1, (1, 200, b"b", b"one", [("h", None), ("h", b"1")])),
        (1, (1, 200, b"b", b"one", None)),
        (1, (1, 200, b"bo", b"ne", [("h", b"1"), ("h", None)])),
        (2, (2, 1_100, b"", b"two", None)),
        (3, (3, 1_200, b"d", b"", None)),
        (3, (3, 1_201, b"d", None, None)),
    ],
)
def test_one_changed_record_changes_its_window_only(spark: Any, at: int, row: Row) -> None:
    changed = [row if index == at else kept for index, kept in enumerate(BASE)]
    window = row[1] - row[1] % WINDOW_MS
    found = verdicts(spark, BASE, changed)
    assert {start for start, verdict in found.items() if verdict != AuditVerdict.EQUAL} == {window}
    assert found[window] == AuditVerdict.DIFFERS


def test_a_loss_and_a_duplicate_in_one_window_do_not_cancel(spark: Any) -> None:
    target = [BASE[0], (1, 100, b"a", b"zero", None), *BASE[2:]]
    assert verdicts(spark, BASE, target)[0] == AuditVerdict.DIFFERS


def test_two_pairs_that_an_xor_would_cancel(spark: Any) -> None:
    extra: list[Row] = [(5, 2_500, b"x", b"x", None), (6, 2_500, b"x", b"x", None)]
    other: list[Row] = [(5, 2_500, b"y", b"y", None), (6, 2_500, b"y", b"y", None)]
    assert verdicts(spark, BASE + extra, BASE + other)[2_000] == AuditVerdict.DIFFERS


def test_swapped_records_have_moved(spark: Any) -> None:
    swapped: list[Row] = [(0, *BASE[1][1:]), (1, *BASE[0][1:]), *BASE[2:]]
    assert verdicts(spark, BASE, swapped) == {
        0: AuditVerdict.MOVED,
        1_000: AuditVerdict.EQUAL,
        2_000: AuditVerdict.EQUAL,
    }


def test_offsets_that_differ_as_the_map_says_are_equal(spark: Any) -> None:
    shifted: list[Row] = [(row[0] + (20_000 if row[0] >= 2 else 0), *row[1:]) for row in BASE]
    segments = (Segment(0, 0, 2), Segment(20_002, 2, 900))
    assert set(verdicts(spark, BASE, shifted, segments=segments).values()) == {AuditVerdict.EQUAL}


def test_others_records_are_left_out_on_both_sides(spark: Any) -> None:
    local: Row = (7, 300, b"local", b"", None)
    found = verdicts(
        spark, [*BASE, local], [*BASE, (8, 900, b"west", b"", None)], left_out=(Span(7, 8),), foreign=(Span(8, 9),)
    )
    assert set(found.values()) == {AuditVerdict.EQUAL}


def test_without_comparable_timestamps_windows_are_offsets(spark: Any) -> None:
    stamped: list[Row] = [(row[0], row[1] + 77_777, *row[2:]) for row in BASE]
    assert verdicts(spark, BASE, stamped, untimed=("t",)) == {0: AuditVerdict.EQUAL}
    assert verdicts(spark, BASE, stamped[:4], untimed=("t",)) == {0: AuditVerdict.DIFFERS}


def test_diff_names_the_records(spark: Any) -> None:
    target: list[Row] = [
        (0, 100, b"a", b"zero", None),
        (2, 1_100, None, b"TWO", None),
        (3, 2_700, b"d", None, None),
        (4, 2_000, b"e", b"four", None),
        (5, 2_000, b"e", b"four", None),
    ]
    left, right = sides(spark, BASE, target, segments=(Segment(0, 0, 5),))
    found = {row["kind"]: row for row in diff.name_differences(left, right).collect()}
    assert set(found) == {Kind.LOST, Kind.CHANGED, Kind.RETIMED, Kind.DUPLICATED}
    assert found[Kind.LOST]["source_offset"] == 1
    assert (found[Kind.CHANGED]["source_offset"], found[Kind.CHANGED]["window_start"]) == (2, 1_000)
    assert (found[Kind.RETIMED]["source_timestamp_ms"], found[Kind.RETIMED]["target_timestamp_ms"]) == (1_200, 2_700)
    assert (found[Kind.DUPLICATED]["target_offset"], found[Kind.DUPLICATED]["window_start"]) == (5, 2_000)


def test_odd_timestamps_are_compared(spark: Any) -> None:
    for at_ms in (-(10**13), -5, -1, 0, 1_700_000_000_000_000, 9_223_372_036_854_775):
        window = at_ms - at_ms % WINDOW_MS
        odd: list[Row] = [(0, at_ms, b"a", b"zero", None)]
        assert verdicts(spark, odd, odd) == {window: AuditVerdict.EQUAL}
        assert set(verdicts(spark, odd, [(0, at_ms, b"a", b"one", None)]).values()) == {AuditVerdict.DIFFERS}
