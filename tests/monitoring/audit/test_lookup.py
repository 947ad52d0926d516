"""An offset finds its lane as if each had been looked at, and no task gets more blocks than it can hold."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from monitoring import limits
from monitoring.audit.lookup import Lane, block_offsets, blocks, look_up
from monitoring.audit.model import Place, Span

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def looked_up(lanes: Sequence[Lane], offset: int) -> tuple[bool, int | None]:
    """By looking at each: what `look_up` must say."""
    before = [lane for lane in lanes if lane.start <= offset]
    if not before:
        return False, lanes[0].value if lanes else None
    lane = before[-1]
    past = offset - lane.start
    return past < lane.length, lane.value + min(past, lane.length)


def random_lanes(rng: random.Random, end: int) -> list[Lane]:
    lanes, start, value = [], rng.randrange(20), 0
    while start < end:
        length = rng.choice((1, 1, 2, 40))
        value += length + rng.randrange(3)
        lanes.append(Lane(start, length, value))
        start += length + rng.choice((0, 0, 1, 50))
    return lanes


def test_each_offset_finds_its_lane(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_BLOCK_MIN_OFFSETS", 32)
    rng = random.Random(1)
    lanes: Mapping[Place, Sequence[Lane]] = {("t", number): random_lanes(rng, 300) for number in range(6)}
    lanes = {**lanes, ("t", 6): [], ("t", 7): [Lane(250, 10, 0)], ("t", 8): [Lane(0, 10, 5)]}
    within = {place: Span(7, 300) for place in lanes}
    rows = [(*place, offset) for place in lanes for offset in range(7, 300)]
    records = spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    found = look_up(records, lanes, within).collect()
    assert len(found) == len(rows)
    for row in found:
        known = looked_up(lanes[row["topic"], row["partition"]], row["offset"])
        assert (row["is_inside"], row["at"]) == known, row


def test_a_hundred_thousand_intervals_are_a_few_steps() -> None:
    """100,000 intervals of 100 offsets: a record finds its own among eleven."""
    lanes = {("t", 0): [Lane(100 * n, 100, 100 * n) for n in range(100_000)]}
    within = {("t", 0): Span(0, 10_000_000)}
    found = list(blocks(lanes, within, block_offsets(within.values())))
    assert max(len(block.lanes) for block in found) <= 12
    assert len(found) <= 10_000


def test_long_logs_have_wide_blocks() -> None:
    assert block_offsets([]) == block_offsets([Span(0, 10_000)]) == limits.AUDIT_BLOCK_MIN_OFFSETS
    spans = [Span(0, 10**9), Span(5, 10**9)]
    width = block_offsets(spans)
    assert sum(span.offsets for span in spans) <= width * limits.AUDIT_BLOCKS_SENT
    assert width.bit_count() == 1
