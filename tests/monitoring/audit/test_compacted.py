"""Compaction at either site, also in the middle of a reading, is no difference, and hides no key's latest value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from monitoring import limits
from monitoring.audit import digest
from monitoring.audit.compacted import CompactedFound, compare_compacted
from monitoring.audit.model import Kind, Side
from tests.monitoring.audit.compacting import CompactedWorld, Written

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SCHEMA = (
    "topic string, partition int, offset bigint, source_offset bigint, timestamp_ms bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, is_tail boolean"
)
SEEDS = 240
Row = tuple[int, int | None, bytes | None, bytes | None]
"""(offset, source offset, key, value)"""


def records(spark: Any, partitions: Sequence[Sequence[Row]], ends: Sequence[int]) -> Any:
    rows = [
        ("t", number, offset, source_offset, 1_000 + offset, key, value, None, offset >= ends[number])
        for number, found in enumerate(partitions)
        for offset, source_offset, key, value in found
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    ranges = frame.selectExpr("*", "coalesce(source_offset, 0) - coalesce(source_offset, 0) % 4 AS range_start")
    return digest.with_hashes(ranges).localCheckpoint()


def compared(
    spark: Any, readings: Sequence[Mapping[Side, Sequence[Sequence[Row]]]], ends: Sequence[int]
) -> CompactedFound:
    """As if the sites had been read so one after the other."""
    frames = {side: iter([records(spark, reading[side], ends) for reading in readings]) for side in Side}
    return compare_compacted(spark, lambda side: next(frames[side]), lambda _: None)


def named(found: CompactedFound) -> dict[int, list[tuple[str, int | None, int | None]]]:
    told: dict[int, list[tuple[str, int | None, int | None]]] = {}
    for row in found.differences.collect():
        told.setdefault(row["partition"], []).append((row["kind"], row["source_offset"], row["target_offset"]))
    return told


def differing(found: CompactedFound) -> set[int]:
    ranges = digest.compare(found.digests[Side.SOURCE], found.digests[Side.TARGET])
    return {row["partition"] for row in ranges.where("verdict != 'equal'").collect()}


A, B, C = b"a", b"b", b"c"
EQUAL: list[Row] = [(0, 0, A, b"1"), (1, 1, B, b"1"), (2, 2, A, b"2")]
SCENARIOS: dict[str, tuple[list[Row], list[Row], list[tuple[str, int | None, int | None]], int]] = {
    "the same": (EQUAL, EQUAL, [], 0),
    "the target is cleaned": (EQUAL, EQUAL[1:], [], 1),
    "the source is cleaned": (EQUAL[1:], EQUAL, [], 1),
    "the latest value is lost": (EQUAL, EQUAL[:2], [("lost", 2, None)], 0),
    "also where the older ones were cleaned": (EQUAL[1:], EQUAL[:2], [("lost", 2, None)], 1),
    "the only value is lost": (EQUAL, [EQUAL[0], EQUAL[2]], [("lost", 1, None)], 0),
    "the latest value is another one": (EQUAL, [*EQUAL[:2], (2, 2, A, b"x")], [("changed", 2, 2)], 0),
    "an older one that both still have is another one": (
        EQUAL,
        [(0, 0, A, b"x"), *EQUAL[1:]],
        [("changed", 0, 0)],
        0,
    ),
    "a record too many": (EQUAL, [*EQUAL, (3, None, C, b"1")], [("extra", None, 3)], 0),
    "a record too many of a key that there is": (EQUAL, [*EQUAL, (3, None, B, b"x")], [("extra", None, 3)], 0),
    "a tombstone that one site has dropped": ([*EQUAL, (3, 3, B, None)], [EQUAL[0], EQUAL[2]], [], 2),
    "and the other way round": ([EQUAL[0], EQUAL[2]], [*EQUAL, (3, 3, B, None)], [], 2),
    "a tombstone that was lost": ([*EQUAL, (3, 3, B, None)], EQUAL, [("lost", 3, None)], 0),
    "one that was lost, and has gone at the source": ([EQUAL[0], EQUAL[2]], EQUAL, [("extra", None, 1)], 0),
    "a key that was written again behind what is compared": (
        [*EQUAL, (9, 9, B, b"9")],
        [EQUAL[0], EQUAL[2], (9, None, B, b"9")],
        [],
        1,
    ),
    "or at one site only, so far": ([EQUAL[0], EQUAL[2], (9, 9, B, b"9")], EQUAL, [], 1),
    "but of another key that tells nothing": (
        [*EQUAL, (9, 9, C, b"9")],
        [EQUAL[0], EQUAL[2], (9, None, C, b"9")],
        [("lost", 1, None)],
        0,
    ),
    "records without a key are dropped": ([*EQUAL, (3, 3, None, b"x")], EQUAL, [], 1),
}


@pytest.fixture(scope="module")
def scenarios(spark: Any) -> CompactedFound:
    sides = {
        Side.SOURCE: [each[0] for each in SCENARIOS.values()],
        Side.TARGET: [each[1] for each in SCENARIOS.values()],
    }
    return compared(spark, [sides] * limits.AUDIT_COMPACTED_READINGS, [5] * len(SCENARIOS))


@pytest.fixture(scope="module")
def told(scenarios: CompactedFound) -> tuple[dict[int, list[tuple[str, int | None, int | None]]], set[int]]:
    return named(scenarios), differing(scenarios)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_compaction_may_take_is_excused_and_nothing_else(
    scenarios: CompactedFound,
    told: tuple[dict[int, list[tuple[str, int | None, int | None]]], set[int]],
    name: str,
) -> None:
    number = list(SCENARIOS).index(name)
    _, _, differences, excused = SCENARIOS[name]
    assert told[0].get(number, []) == differences
    assert (number in told[1]) == bool(differences)
    assert sum(row["count"] for row in scenarios.excused if row["partition"] == number) == excused


def row_of(record: Written) -> Row:
    value = None if record.value is None else record.value.encode()
    return record.offset, record.offset, str(record.key).encode(), value


def test_whatever_is_cleaned_while_it_is_read_there_is_no_false_alarm_and_no_latest_value_is_missed(spark: Any) -> None:
    """Each seed is a world of its own, read three times while its sites are written, mirrored and cleaned."""
    seen = [CompactedWorld(seed, limits.AUDIT_COMPACTED_READINGS) for seed in range(SEEDS)]
    readings = [
        {side: [[row_of(record) for record in world.readings[nth][side]] for world in seen] for side in Side}
        for nth in range(limits.AUDIT_COMPACTED_READINGS)
    ]
    found = compared(spark, readings, [world.span_end for world in seen])
    differences, ranges = named(found), differing(found)
    counted: Counter[str] = Counter()
    for number, world in enumerate(seen):
        fault = differences.get(number, [])
        assert (number in ranges) == bool(fault), number
        if world.must_be_named:
            counted[str(world.fault)] += 1
            is_lost = world.fault == "lost"
            expected = (Kind.LOST, world.at_fault, None if is_lost else world.at_fault)
            assert fault == [expected if is_lost else (Kind.CHANGED, *expected[1:])], number
        elif world.at_fault is None:
            counted["sound"] += 1
            assert fault == [], number
        else:
            # It was written over meanwhile: it may be named, and nothing else.
            assert {at for kind, *offsets in fault for at in offsets} <= {world.at_fault, None}, number
    assert counted["sound"] > SEEDS // 3
    assert min(counted["lost"], counted["changed"]) > SEEDS // 30
