"""What landed behind the last proof, where compaction of the target has taken some of it since."""

from __future__ import annotations

import pytest

from mirror.offsets.entries import Block, Checkpoint, Writer
from mirror.offsets.intervals import End, Interval
from mirror.offsets.paged import Intervals
from mirror.offsets.recovery import Recovered, TailBatch, recover

WRITER = Writer(7, 0)
OTHER = Writer(8, 0)
END = End(74, 100)


def batch(base: int, count: int, writer: Writer, sequence: int = 0, *, control: bool = False) -> TailBatch:
    return TailBatch(base, base + count - 1, writer.producer_id, writer.epoch, sequence, control)


def recovered(*tail: TailBatch) -> Recovered:
    block = Block("flights", 0, WRITER, 0, (Interval(74, 100),))
    checkpoint = Checkpoint("flights", 0, END, 74, WRITER, 0, 143, 0, 0)
    return recover(Intervals(), [block], checkpoint, tail)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param((), id="nothing is left between"),
        pytest.param((batch(120, 6, OTHER),), id="who writes there himself"),
        pytest.param((batch(120, 1, WRITER, -1, control=True),), id="a marker"),
        pytest.param((batch(120, 2, OTHER), batch(122, 1, OTHER, -1, control=True)), id="both"),
    ],
)
@pytest.mark.parametrize("left", [(), (batch(100, 10, WRITER),)], ids=["the first is gone", "one is gone"])
def test_a_batch_that_compaction_took_ends_no_tail(left: tuple[TailBatch, ...], between: tuple[TailBatch, ...]) -> None:
    """The batch at 110 was written over by the one behind it, and is gone; what stands between them is another's."""
    begins = between[-1].last_offset + 1 if between else 120
    found = recovered(*left, *between, batch(begins, 22, WRITER, 20))
    assert found.lost_at is None
    assert found.end == End(74 + 20 + 22, begins + 22)
    assert found.position == 116


def test_a_target_that_lost_a_batch_is_found_where_no_offset_is_missing_since() -> None:
    """A hole before another of ours explains nothing that is missing behind that one."""
    found = recovered(batch(105, 5, WRITER, 5), batch(110, 3, OTHER), batch(113, 22, WRITER, 20))
    assert found.lost_at == 113
    assert found.end == End(84, 110)
