"""The judge of stated losses finds each false word, and lets true ones pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from tests.chaos_runs.loss_judgement import OnDisk, judge

WHERE = TopicPartition("t", 0)
SEEN = "2026-01-01T00:01:00+00:00"
BORN_MS = 1_767_225_600_000
"""A minute before SEEN."""
SOURCE = tuple(Record(offset, 0, None, b"%d" % offset) for offset in (0, 1, 2, 3, 5, 6, 8))
"""At 4 and 7 there are markers, and the last one's is at 9."""
DISK = OnDisk(SOURCE, 10, SOURCE[:3], {}, BORN_MS)
EXACT = {"certainty": "exact", "offsets": 7, "records": 4, "first_offset": 3, "end_offset": 10}
AT_LEAST = {"certainty": "at_least", "offsets": 3, "records": None, "first_offset": 3, "end_offset": 6}


def said(loss: dict[str, Any] | None, **total: Any) -> dict[str, Any]:
    losses = (
        [] if loss is None else [{"topic": WHERE.topic, "partition": WHERE.partition, "unclear_offsets": 0, **loss}]
    )
    offsets = 0 if loss is None else loss["offsets"] or 0
    of_all = {"offsets": offsets, "records": None, "certainty": "at_least", "seen_at": SEEN, "likely_offsets": None}
    return {"losses": losses, "loss": of_all | total}


def wrong(loss: dict[str, Any] | None, disk: OnDisk = DISK, *, lost: bool = True, **total: Any) -> list[str]:
    return judge(said(loss, **total), {WHERE: disk}, is_source_lost=lost).wrong


@pytest.mark.parametrize(
    ("loss", "disk"),
    [
        (EXACT, DISK),
        (AT_LEAST, DISK),
        (AT_LEAST | {"end_offset": 3, "offsets": 0, "records": 0}, DISK),
        ({"certainty": "unknown", "offsets": None, "records": None, "first_offset": None, "end_offset": None}, DISK),
        (EXACT | {"first_offset": 0, "offsets": 10, "records": 7}, replace(DISK, target=())),
        (EXACT | {"first_offset": 9, "offsets": 1, "records": 0}, replace(DISK, target=SOURCE)),
        (AT_LEAST, replace(DISK, source=SOURCE[3:], offsets={b"2": 2})),
    ],
)
def test_a_true_statement_is_found_to_be_true(loss: dict[str, Any], disk: OnDisk) -> None:
    assert wrong(loss, disk, lost=False) == []


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (EXACT | {"first_offset": 2}, "2 is at the target, and said to be lost"),
        (AT_LEAST | {"first_offset": 5}, "3 is lost, and said to be there"),
        (AT_LEAST | {"end_offset": 11}, "the source ends at 10"),
        (AT_LEAST | {"offsets": 8}, "more is stated than 7 offsets"),
        (EXACT | {"records": 5}, "4 records are lost there"),
        (EXACT | {"end_offset": 8, "records": 3}, "4 records are lost, 3 of them there"),
        (EXACT | {"records": None}, "exact, and not counted"),
    ],
)
def test_a_false_word_is_found(loss: dict[str, Any], text: str) -> None:
    assert any(text in found for found in wrong(loss, lost=False))


def test_what_the_target_wrote_is_not_lost_where_it_came_back() -> None:
    own = [record._replace(value=b"west-%d" % record.offset) for record in SOURCE[3:5]]
    disk = replace(DISK, source=(*SOURCE[:3], *own, *SOURCE[5:]), target=(*SOURCE[:3], *own))
    assert (disk.last_copied(), disk.lost_offsets(), [record.offset for record in disk.lost()]) == (2, 5, [6, 8])
    assert wrong(AT_LEAST | {"offsets": 1, "unclear_offsets": 2}, disk) == []
    assert "not all that was seen" in wrong(AT_LEAST | {"offsets": 1, "unclear_offsets": 1}, disk)[0]
    seen = AT_LEAST | {"end_offset": 10, "unclear_offsets": 1}
    assert wrong(seen | {"offsets": 5, "unclear_offsets": 2}, disk) == []
    assert "more is stated than 5 offsets" in wrong(seen | {"offsets": 6}, disk)[0]
    assert wrong(EXACT | {"offsets": 2, "records": 2}, disk, lost=False) == []
    assert "2 records are lost there" in wrong(EXACT | {"offsets": 4, "records": 4}, disk, lost=False)[0]


def test_a_partition_is_missing_unless_nobody_could_have_seen_it() -> None:
    assert "is missing: 4 records are lost" in wrong(None)[0]
    young = replace(DISK, born_ms=BORN_MS + 58_000)
    assert judge(said(None), {WHERE: young}, is_source_lost=True).unknowable == 1
    assert "is missing" in wrong(None, young, lost=False)[0]
    assert "no such partition" in judge(said(AT_LEAST), {}, is_source_lost=True).wrong[0]


def test_the_total_is_held_to_it_too() -> None:
    assert wrong(EXACT, lost=False, certainty="exact", records=4) == []
    assert "in all 4 records" in wrong(EXACT, lost=False, certainty="exact", records=5)[0]
    assert "in all 7 offsets" in wrong(AT_LEAST, offsets=8)[0]
    assert "nothing is exact" in wrong(EXACT, certainty="exact")[0]
    for likely, expected in ((6, False), (7, True), (None, None)):
        told = said(AT_LEAST, likely_offsets=likely)
        assert judge(told, {WHERE: DISK}, is_source_lost=True).in_likely_range is expected


def test_a_record_that_nobody_wrote_is_no_copy() -> None:
    with pytest.raises(KeyError):
        wrong(EXACT, replace(DISK, target=(Record(0, 0, None, b"whose?"),)))
