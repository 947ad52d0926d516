"""Which record differs, and how: each scenario is a partition of its own, and all are looked into at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit.diff import (
    DIFFERENCES_SCHEMA,
    difference_of,
    name_differences,
    plain,
    preview,
    spans_to_open,
    tell_duplicates,
)
from monitoring.audit.digest import with_hashes
from monitoring.audit.model import Kind, Side, Span
from monitoring.audit.outcome import RecordDifference
from monitoring.audit.reader import RECORD_SCHEMA, offsets_json

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

MANY = 2 * limits.AUDIT_DIFFERENCES_LISTED_RECORDS


@dataclass(frozen=True)
class Rec:
    """One record at one site; `mapped`: the source offset that the map gives a target's."""

    offset: int
    value: bytes | None
    mapped: int | None = None
    key: bytes | None = b"k"
    at_ms: int = 1_000


Found = tuple[Kind, int | None, int | None]

SCENARIOS: dict[str, tuple[list[Rec], list[Rec], list[Found]]] = {
    "equal": ([Rec(7, b"a")], [Rec(9, b"a", 7)], []),
    "lost": ([Rec(7, b"a")], [], [(Kind.LOST, 7, None)]),
    "extra": ([], [Rec(9, b"a")], [(Kind.EXTRA, None, 9)]),
    "extra, and the source has it in a range that is equal": ([], [Rec(9, b"a")], [(Kind.DUPLICATED, None, 9)]),
    "extra where the map says": ([], [Rec(9, b"a", 7)], [(Kind.EXTRA, None, 9)]),
    "doubled outside of the map": (
        [Rec(7, b"a")],
        [Rec(3, b"a", 7), Rec(9, b"a")],
        [(Kind.DUPLICATED, None, 9)],
    ),
    "doubled, and none is where the map says": (
        [Rec(7, b"a")],
        [Rec(3, b"a"), Rec(4, b"a")],
        [(Kind.DUPLICATED, None, 4), (Kind.MOVED, 7, 3)],
    ),
    "one of several equal ones lost": (
        [Rec(5, b"a"), Rec(6, b"a"), Rec(7, b"a")],
        [Rec(5, b"a", 5), Rec(6, b"a", 7)],
        [(Kind.LOST, 6, None)],
    ),
    "one of thousands of equal ones lost": (
        [Rec(n, b"a") for n in range(MANY)],
        [Rec(n, b"a", n if n < 1_234 else n + 1) for n in range(MANY - 1)],
        [(Kind.LOST, 1_234, None)],
    ),
    "one of thousands of equal ones doubled": (
        [Rec(n, b"a") for n in range(MANY)],
        [Rec(n, b"a", n if n < 1_234 else None if n == 1_234 else n - 1) for n in range(MANY + 1)],
        [(Kind.DUPLICATED, None, 1_234)],
    ),
    "changed": ([Rec(7, b"a")], [Rec(8, b"b", 7)], [(Kind.CHANGED, 7, 8)]),
    "key changed": ([Rec(7, b"a")], [Rec(7, b"a", 7, key=None)], [(Kind.CHANGED, 7, 7)]),
    "thousands changed": (
        [Rec(n, b"a %d" % n) for n in range(MANY)],
        [Rec(n, b"b %d" % n, n) for n in range(MANY)],
        [(Kind.CHANGED, n, n) for n in range(MANY)],
    ),
    "changed where the map is shifted": ([Rec(7, b"a")], [Rec(8, b"b", 8)], [(Kind.CHANGED, 7, 8)]),
    "null is not empty": ([Rec(7, None)], [Rec(7, b"", 7)], [(Kind.CHANGED, 7, 7)]),
    "retimed": ([Rec(7, b"a")], [Rec(7, b"a", 7, at_ms=9_000)], [(Kind.RETIMED, 7, 7)]),
    "retimed outside of the map": ([Rec(7, b"a")], [Rec(9, b"a", at_ms=9_000)], [(Kind.RETIMED, 7, 9)]),
    "one lost, another one doubled": (
        [Rec(7, b"a"), Rec(3, b"b")],
        [Rec(3, b"b", 3), Rec(9, b"b")],
        [(Kind.DUPLICATED, None, 9), (Kind.LOST, 7, None)],
    ),
    "swapped": (
        [Rec(1, b"a"), Rec(2, b"b")],
        [Rec(1, b"b", 1), Rec(2, b"a", 2)],
        [(Kind.MOVED, 1, 2), (Kind.MOVED, 2, 1)],
    ),
    "lost, and the map does not know": (
        [Rec(n, b"%d" % n) for n in range(5)],
        [Rec(0, b"0", 0), Rec(1, b"2", 1), Rec(2, b"3", 2), Rec(3, b"4", 3)],
        [(Kind.LOST, 1, None), (Kind.MOVED, 2, 1), (Kind.MOVED, 3, 2), (Kind.MOVED, 4, 3)],
    ),
}
NAMES = list(SCENARIOS)


def frame(spark: Any, side: Literal[0, 1]) -> Any:
    """One site of all scenarios, as it is read: with ranges and hashes."""
    rows = [
        ("t", number, rec.offset, rec.at_ms, rec.key, rec.value, None, rec.mapped if side else rec.offset)
        for number, scenario in enumerate(SCENARIOS.values())
        for rec in scenario[side]
    ]
    records = spark.createDataFrame(rows, f"{RECORD_SCHEMA}, source_offset bigint")
    return with_hashes(records.withColumn("range_start", F.lit(0).cast("bigint")))


ELSEWHERE = "extra, and the source has it in a range that is equal"


def elsewhere(spark: Any) -> Any:
    """What the source has besides, in ranges that were not opened."""
    rows = [("t", NAMES.index(ELSEWHERE), 70_000, 1_000, b"k", b"a", None)]
    return with_hashes(spark.createDataFrame(rows, RECORD_SCHEMA).withColumn("source_offset", F.col("offset")))


@pytest.fixture(scope="module")
def found(spark: Any) -> dict[str, list[RecordDifference]]:
    named = plain(tell_duplicates(name_differences(frame(spark, 0), frame(spark, 1)), elsewhere(spark)))
    assert named.dtypes == spark.createDataFrame([], DIFFERENCES_SCHEMA).dtypes
    by_name: dict[str, list[RecordDifference]] = {name: [] for name in NAMES}
    for row in named.collect():
        by_name[NAMES[row["partition"]]].append(difference_of(row))
    return by_name


@pytest.mark.parametrize("name", NAMES)
def test_each_record_is_named_and_no_other(found: dict[str, list[RecordDifference]], name: str) -> None:
    named = [(item.kind, item.source_offset, item.target_offset) for item in found[name]]
    assert sorted(named, key=repr) == sorted(SCENARIOS[name][2], key=repr)


def test_what_is_said_of_a_record(found: dict[str, list[RecordDifference]]) -> None:
    (changed,) = found["changed"]
    assert (changed.key, changed.source_value, changed.target_value) == ("k", "a", "b")
    (retimed,) = found["retimed"]
    assert (retimed.source_timestamp_ms, retimed.target_timestamp_ms, retimed.range_start) == (1_000, 9_000, 0)
    (emptied,) = found["null is not empty"]
    assert (emptied.source_value, emptied.target_value) == (None, "")
    (extra,) = found["extra"]
    assert (extra.source_timestamp_ms, extra.source_value, extra.target_value) == (None, None, "a")


def test_values_are_cut_before_they_are_compared(spark: Any) -> None:
    """What is shuffled has their beginnings alone, however long they are."""
    rows = [("t", 0, n, 1_000, b"k", bytes([65 + n]) * 900_000, None, n) for n in range(3)]
    records = spark.createDataFrame(rows, f"{RECORD_SCHEMA}, source_offset bigint")
    hashed = with_hashes(records.withColumn("range_start", F.lit(0)))
    named = name_differences(hashed, hashed.limit(0)).collect()
    assert [(row["kind"], len(row["source_value"]), row["source_value_bytes"]) for row in named] == [
        ("lost", limits.AUDIT_PREVIEW_BYTES, 900_000)
    ] * 3
    assert difference_of(named[0]).source_value == "ABC"[named[0]["source_offset"]] * limits.AUDIT_PREVIEW_BYTES + "…"


def test_preview() -> None:
    assert preview(None, None) is None
    assert preview(b"caf\xc3\xa9", 5) == "café"
    assert preview(b"\x00\xff", 2) == "0x00ff"
    assert preview(b"x" * 120, 121) == "x" * 120 + "…"
    assert preview(("x" * 119 + "é").encode()[:120], 121) == "x" * 119 + "…"


def suspect(first: int | None, last: int | None, partition: int = 0) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "source_first_offset": first, "source_last_offset": last}


def test_only_the_differing_ranges_are_opened() -> None:
    rows = [suspect(5, 9), suspect(2, 4), suspect(70, 80), suspect(7, 8, partition=1), suspect(None, None, partition=2)]
    assert spans_to_open(rows, Side.SOURCE) == [{("t", 0): Span(2, 10), ("t", 1): Span(7, 9)}, {("t", 0): Span(70, 81)}]
    assert spans_to_open([], Side.SOURCE) == []


def test_of_many_ranges_the_nearest_are_opened_together() -> None:
    rows = [suspect(n * 100, n * 100 + 10 + n) for n in range(2 * limits.AUDIT_SPANS_OPENED)]
    readings = spans_to_open(rows, Side.SOURCE)
    spans = [span for reading in readings for span in reading.values()]
    assert len(spans) == limits.AUDIT_SPANS_OPENED
    assert all(any(span.start <= row["source_first_offset"] < span.end for span in spans) for row in rows)
    # The gaps grow smaller from record to record: the later ones were closed.
    assert spans[0] == Span(0, 11)
    assert spans[-1] == Span((limits.AUDIT_SPANS_OPENED - 1) * 100, rows[-1]["source_last_offset"] + 1)


def test_every_assigned_partition_has_both_offsets() -> None:
    assign, starts, ends = offsets_json({("a", 1): Span(3, 4), ("a", 0): Span(0, 9), ("b", 0): Span(5, 6)})
    assert json.loads(assign) == {"a": [0, 1], "b": [0]}
    assert json.loads(starts) == {"a": {"0": 0, "1": 3}, "b": {"0": 5}}
    assert json.loads(ends) == {"a": {"0": 9, "1": 4}, "b": {"0": 6}}
