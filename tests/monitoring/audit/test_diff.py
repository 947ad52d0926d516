"""Which record differs, and how: decided without Spark."""

from __future__ import annotations

import json

from monitoring.audit.diff import Instance, UnevenContent, classify, preview, windows_to_read
from monitoring.audit.model import Kind, Side, Span
from monitoring.audit.reader import offsets_json


def content(
    value: bytes | None,
    *,
    source: tuple[int, ...] = (),
    target: tuple[tuple[int, int | None], ...] = (),
    key: bytes | None = b"k",
    at_ms: int = 1_000,
) -> UnevenContent:
    """A content at the source offsets `source`, and at `target` = (target offset, source offset by the map)."""
    instances = [Instance(Side.SOURCE, offset, offset) for offset in source]
    instances += [Instance(Side.TARGET, offset, mapped) for offset, mapped in target]
    return UnevenContent("t", 0, 0, at_ms, key, value, (), len(source), len(target), tuple(instances))


def test_lost() -> None:
    (found,) = classify([content(b"a", source=(7,))])
    assert (found.kind, found.source_offset, found.target_offset) == (Kind.LOST, 7, None)


def test_extra() -> None:
    (found,) = classify([content(b"a", target=((9, None),))])
    assert (found.kind, found.source_offset, found.target_offset) == (Kind.EXTRA, None, 9)


def test_the_record_outside_the_map_is_the_duplicate() -> None:
    (found,) = classify([content(b"a", source=(7,), target=((3, 7), (9, None)))])
    assert (found.kind, found.target_offset) == (Kind.DUPLICATED, 9)


def test_without_a_map_the_later_record_is_the_duplicate() -> None:
    (found,) = classify([content(b"a", source=(7,), target=((3, None), (4, None)))])
    assert (found.kind, found.target_offset) == (Kind.DUPLICATED, 4)


def test_one_of_several_equal_records_lost() -> None:
    (found,) = classify([content(b"a", source=(5, 6, 7), target=((5, 5), (6, 7)))])
    assert (found.kind, found.source_offset) == (Kind.LOST, 6)


def test_changed_at_its_place() -> None:
    (found,) = classify([content(b"a", source=(7,)), content(b"b", target=((7, 7),))])
    assert (found.kind, found.source_offset, found.target_offset) == (Kind.CHANGED, 7, 7)
    assert (found.source_value, found.target_value) == ("a", "b")


def test_retimed_at_its_place_and_elsewhere() -> None:
    for mapped in (7, None):
        (found,) = classify(
            [content(b"a", source=(7,), at_ms=1_000), content(b"a", target=((9, mapped),), at_ms=9_000)]
        )
        assert found.kind is Kind.RETIMED
        assert (found.source_timestamp_ms, found.target_timestamp_ms) == (1_000, 9_000)


def test_changed_although_the_map_is_shifted() -> None:
    (found,) = classify([content(b"a", source=(7,)), content(b"b", target=((8, 8),))])
    assert found.kind is Kind.CHANGED


def test_a_lost_record_and_a_duplicate_of_another_stay_two_findings() -> None:
    found = classify([content(b"a", source=(7,)), content(b"b", source=(3,), target=((3, 3), (9, None)))])
    assert [item.kind for item in found] == [Kind.LOST, Kind.DUPLICATED]


def test_null_and_empty_are_not_the_same() -> None:
    (found,) = classify([content(None, source=(7,)), content(b"", target=((7, 7),))])
    assert found.kind is Kind.CHANGED
    assert (found.source_value, found.target_value) == (None, "")


def test_preview() -> None:
    assert preview(b"caf\xc3\xa9") == "café"
    assert preview(b"\x00\xff") == "0x00ff"
    assert preview(b"x" * 121) == "x" * 120 + "…"
    assert preview(("x" * 119 + "é").encode()) == "x" * 119 + "…"


def test_only_the_differing_windows_are_read_again() -> None:
    rows = [
        {"topic": "t", "partition": 0, "source_first_offset": 5, "source_last_offset": 9},
        {"topic": "t", "partition": 0, "source_first_offset": 2, "source_last_offset": 3},
        {"topic": "t", "partition": 1, "source_first_offset": None, "source_last_offset": None},
    ]
    assert windows_to_read(rows, Side.SOURCE) == {("t", 0): Span(2, 10)}


def test_every_assigned_partition_has_both_offsets() -> None:
    assign, starts, ends = offsets_json({("a", 1): Span(3, 4), ("a", 0): Span(0, 9), ("b", 0): Span(5, 6)})
    assert json.loads(assign) == {"a": [0, 1], "b": [0]}
    assert json.loads(starts) == {"a": {"0": 0, "1": 3}, "b": {"0": 5}}
    assert json.loads(ends) == {"a": {"0": 9, "1": 4}, "b": {"0": 6}}
