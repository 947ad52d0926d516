"""A record visits few intervals of the map, and no task gets more of them than it can hold."""

from __future__ import annotations

from monitoring import limits
from monitoring.audit.blocks import block_offsets


def dense(number: int, length: int, topic: str = "t") -> list[tuple[str, int, int, int]]:
    return [(topic, 0, length * n, length * (n + 1)) for n in range(number)]


def test_few_intervals_have_wide_blocks() -> None:
    assert block_offsets([]) == limits.AUDIT_BLOCK_MAX_OFFSETS
    assert block_offsets([("t", 0, 0, 10**9), ("t", 0, 10**9, 2 * 10**9)]) == limits.AUDIT_BLOCK_MAX_OFFSETS
    assert block_offsets(dense(4, 100)) == limits.AUDIT_BLOCK_MAX_OFFSETS


def test_many_intervals_have_narrow_ones() -> None:
    """100,000 intervals of 100 offsets: a record visits at most four, not 164."""
    assert block_offsets(dense(100_000, 100)) == 256
    assert block_offsets(dense(100_000, 1)) == limits.AUDIT_BLOCK_MIN_OFFSETS


def test_intervals_of_other_partitions_are_not_in_the_way() -> None:
    apart = [span for topic in "abcdefgh" for span in dense(4, 100, topic)]
    assert block_offsets(apart) == limits.AUDIT_BLOCK_MAX_OFFSETS


def test_long_intervals_are_not_cut_into_more_blocks_than_can_be_sent() -> None:
    spans = [*dense(1_000, 10), ("t", 0, 10_000, 10**9)]
    width = block_offsets(spans)
    assert sum((end - 1) // width - start // width + 1 for _, _, start, end in spans) <= limits.AUDIT_BLOCKS_SENT
    assert width == 1_024
