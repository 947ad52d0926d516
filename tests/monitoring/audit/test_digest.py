"""The digests see every difference, and nothing that is none. Records are (offset, timestamp, key, value, headers).

Each scenario is a partition of its own, and all are digested at once: a job costs the same for one as for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from monitoring import limits
from monitoring.audit import diff, digest
from monitoring.audit.model import AuditVerdict, ComparablePartition, Kind, Segment, Span
from monitoring.audit.reader import RECORD_SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

WIDTH = 2
"""Source offsets of a range."""
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

BASE: list[Row] = [
    (0, 100, b"a", b"zero", None),
    (1, 200, b"b", b"one", [("h", b"1"), ("h", None)]),
    (2, 1_100, None, b"two", None),
    (3, 1_200, b"d", None, None),
    (4, 2_000, b"e", b"four", None),
]


EQUAL, DIFFERS, MOVED = AuditVerdict.EQUAL, AuditVerdict.DIFFERS, AuditVerdict.MOVED
ALL_EQUAL = {0: EQUAL, 2: EQUAL, 4: EQUAL}
UNTIMED = "untimed"
"""A topic whose timestamps cannot be compared; the others' can."""


@dataclass(frozen=True)
class Scenario:
    """One partition at both sites, and the verdict on each of its ranges."""

    source: list[Row]
    target: list[Row]
    ranges: dict[int, AuditVerdict]
    segments: tuple[Segment, ...] = (Segment(0, 0, 1_000),)
    topic: str = "t"
    left_out: tuple[Span, ...] = ()
    foreign: tuple[Span, ...] = ()

    def partition(self, number: int) -> ComparablePartition:
        whole = Span(0, 25_000)
        timed = self.topic != UNTIMED
        return ComparablePartition(
            self.topic, number, self.topic, whole, whole, self.segments, timed, self.left_out, self.foreign
        )


def with_one_changed(at: int, row: Row) -> Scenario:
    changed = [row if index == at else kept for index, kept in enumerate(BASE)]
    return Scenario(BASE, changed, ALL_EQUAL | {at - at % WIDTH: DIFFERS})


def at_odd_time(at_ms: int, value: bytes, verdict: AuditVerdict) -> Scenario:
    return Scenario([(0, at_ms, b"a", b"zero", None)], [(0, at_ms, b"a", value, None)], {0: verdict})


def stamped_anew(count: int, verdict: AuditVerdict) -> Scenario:
    stamped: list[Row] = [(row[0], row[1] + 77_777, *row[2:]) for row in BASE[:count]]
    return Scenario(BASE, stamped, ALL_EQUAL | {4: verdict}, topic=UNTIMED)


SHIFTED: list[Row] = [(row[0] + (20_000 if row[0] >= 2 else 0), *row[1:]) for row in BASE]
SWAPPED: list[Row] = [(0, *BASE[1][1:]), (1, *BASE[0][1:]), *BASE[2:]]
SCENARIOS: dict[str, Scenario] = {
    "equal": Scenario(BASE, BASE, ALL_EQUAL),
    "a key's end is no value's beginning": with_one_changed(0, (0, 100, None, b"azero", None)),
    "nor the other way round": with_one_changed(0, (0, 100, b"azero", None, None)),
    "headers in another order": with_one_changed(1, (1, 200, b"b", b"one", [("h", None), ("h", b"1")])),
    "headers lost": with_one_changed(1, (1, 200, b"b", b"one", None)),
    "a byte that went from the value to the key": with_one_changed(
        1, (1, 200, b"bo", b"ne", [("h", b"1"), ("h", None)])
    ),
    "a key that is empty and was none": with_one_changed(2, (2, 1_100, b"", b"two", None)),
    "a value that is empty and was none": with_one_changed(3, (3, 1_200, b"d", b"", None)),
    "another time": with_one_changed(3, (3, 1_201, b"d", None, None)),
    "a loss and a duplicate in one range do not cancel": Scenario(
        BASE, [BASE[0], (1, 100, b"a", b"zero", None), *BASE[2:]], ALL_EQUAL | {0: DIFFERS}
    ),
    "two pairs that an xor would cancel": Scenario(
        [*BASE, (6, 2_500, b"x", b"x", None), (7, 2_500, b"x", b"x", None)],
        [*BASE, (6, 2_500, b"y", b"y", None), (7, 2_500, b"y", b"y", None)],
        ALL_EQUAL | {6: DIFFERS},
    ),
    "swapped records have moved": Scenario(BASE, SWAPPED, ALL_EQUAL | {0: MOVED}),
    "swapped over a border": Scenario(
        BASE,
        [BASE[0], (1, *BASE[2][1:]), (2, *BASE[1][1:]), *BASE[3:]],
        ALL_EQUAL | {0: DIFFERS, 2: DIFFERS},
    ),
    "a record that the map does not know is in the range of the one before it": Scenario(
        BASE,
        [*BASE[:3], (3, 5, b"x", b"x", None), (4, *BASE[3][1:]), (5, *BASE[4][1:])],
        ALL_EQUAL | {2: DIFFERS},
        segments=(Segment(0, 0, 3), Segment(4, 3, 2)),
    ),
    "before the first that it knows": Scenario(
        BASE[2:], [(3, 5, b"x", b"x", None), *SHIFTED[2:]], {2: DIFFERS, 4: EQUAL}, segments=(Segment(20_002, 2, 900),)
    ),
    "where it knows none at all": Scenario([], [(3, 5, b"x", b"x", None)], {0: DIFFERS}, segments=()),
    "offsets that differ as the map says": Scenario(
        BASE, SHIFTED, ALL_EQUAL, segments=(Segment(0, 0, 2), Segment(20_002, 2, 900))
    ),
    "others' records are left out on both sides": Scenario(
        [*BASE, (7, 300, b"local", b"", None)],
        [*BASE, (8, 900, b"west", b"", None)],
        ALL_EQUAL,
        left_out=(Span(7, 8),),
        foreign=(Span(8, 9),),
    ),
    "other timestamps, where a site stamps records itself": stamped_anew(5, EQUAL),
    "and there, too, a record is missed": stamped_anew(4, DIFFERS),
    **{
        f"at {at_ms} ms {verdict}": at_odd_time(at_ms, value, verdict)
        for at_ms in (-(10**13), -5, -1, 0, 1_700_000_000_000_000, 9_223_372_036_854_775)
        for value, verdict in ((b"zero", EQUAL), (b"one", DIFFERS))
    },
}


def sides(spark: Any, scenarios: Sequence[Scenario]) -> tuple[Any, Any]:
    """Both sites of all, as they are compared."""
    partitions = [scenario.partition(number) for number, scenario in enumerate(scenarios)]

    def frame(rows_of: Sequence[list[Row]]) -> Any:
        rows = [(scenarios[number].topic, number, *row) for number, rows in enumerate(rows_of) for row in rows]
        return spark.createDataFrame(rows, RECORD_SCHEMA)

    aligned = (
        digest.align_source(frame([scenario.source for scenario in scenarios]), partitions),
        digest.align_target(frame([scenario.target for scenario in scenarios]), partitions),
    )
    left, right = (digest.with_hashes(side, (UNTIMED,)) for side in aligned)
    return left, right


@pytest.fixture(scope="module", autouse=True)
def narrow_ranges() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "AUDIT_RANGE_OFFSETS", WIDTH)
        yield


@pytest.fixture(scope="module")
def verdicts(spark: Any) -> dict[str, dict[int, AuditVerdict]]:
    """Of each scenario, by its name, on each range."""
    left, right = sides(spark, list(SCENARIOS.values()))
    found: dict[str, dict[int, AuditVerdict]] = {name: {} for name in SCENARIOS}
    for row in digest.compare(digest.digest(left), digest.digest(right)).collect():
        found[list(SCENARIOS)[row["partition"]]][row["range_start"]] = row["verdict"]
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_range_is_judged_for_itself(verdicts: dict[str, dict[int, AuditVerdict]], name: str) -> None:
    assert verdicts[name] == SCENARIOS[name].ranges


def test_diff_names_the_records(spark: Any) -> None:
    target: list[Row] = [
        (0, 100, b"a", b"zero", None),
        (2, 1_100, None, b"TWO", None),
        (3, 2_700, b"d", None, None),
        (4, 2_000, b"e", b"four", None),
        (5, 2_000, b"e", b"four", None),
    ]
    left, right = sides(spark, [Scenario(BASE, target, {}, segments=(Segment(0, 0, 5),))])
    found = {row["kind"]: row for row in diff.name_differences(left, right).collect()}
    assert set(found) == {Kind.LOST, Kind.CHANGED, Kind.RETIMED, Kind.DUPLICATED}
    assert found[Kind.LOST]["source_offset"] == 1
    assert (found[Kind.CHANGED]["source_offset"], found[Kind.CHANGED]["range_start"]) == (2, 2)
    assert (found[Kind.RETIMED]["source_timestamp_ms"], found[Kind.RETIMED]["target_timestamp_ms"]) == (1_200, 2_700)
    assert (found[Kind.DUPLICATED]["target_offset"], found[Kind.DUPLICATED]["range_start"]) == (5, 4)
