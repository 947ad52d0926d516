"""Which span of offsets a record is in, at a price that does not grow with the number of spans.

A record meets its block of offsets by a join of equality, and finds its span among those that begin there by halving:
some comparisons in an array, all native to Spark. A join by range alone would visit every span for every record.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit.model import Place, Span
from monitoring.audit.rows import frame_of


class Lane(NamedTuple):
    """Offsets from `start` on, `length` of them, that stand for those from `value` on."""

    start: int
    length: int
    value: int


class Block(NamedTuple):
    """Offsets of the same `number` (offset // width), and the lanes that they may be in: sorted, and never empty."""

    topic: str
    partition: int
    number: int
    lanes: Sequence[Lane]


_SCHEMA = (
    "l_topic string, l_partition int, l_block bigint, "
    "l_start array<bigint>, l_length array<bigint>, l_value array<bigint>"
)


def look_up(records: Any, lanes: Mapping[Place, Sequence[Lane]], within: Mapping[Place, Span]) -> Any:
    """`records` with `is_inside` (of a lane) and `at`: what the offset stands for.

    Outside of lanes `at` is the end of the one before it, or the beginning of the first; null where there is none.

    `lanes` are sorted and apart, `within` are the offsets that are read.
    """
    width = block_offsets(within.values())
    found = list(blocks(lanes, within, width))
    if not found:
        return records.withColumns({"is_inside": F.lit(False), "at": F.lit(None).cast("bigint")})
    table = frame_of(records.sparkSession, map(_row, found), _SCHEMA)
    joined = records.withColumn("l_at", F.shiftright(F.col("offset"), width.bit_length() - 1)).join(
        F.broadcast(table),
        (F.col("topic") == F.col("l_topic"))
        & (F.col("partition") == F.col("l_partition"))
        & (F.col("l_at") == F.col("l_block")),
        "left",
    )
    joined = joined.withColumns({"l_index": F.lit(0), "l_size": F.coalesce(F.size("l_start"), F.lit(0))})
    step = 1 << (max(len(block.lanes) for block in found) - 1).bit_length()
    while step > 1:
        step //= 2
        following = F.col("l_index") + F.lit(step)
        is_behind = (following < F.col("l_size")) & (F.get("l_start", following) <= F.col("offset"))
        # Spark keeps each step apart (it is used twice), so that the expression does not double with each.
        joined = joined.withColumn("l_index", F.when(is_behind, following).otherwise(F.col("l_index")))
    length = F.get("l_length", F.col("l_index"))
    past = F.col("offset") - F.get("l_start", F.col("l_index"))
    inside = F.coalesce((past >= 0) & (past < length), F.lit(False))
    at = F.get("l_value", F.col("l_index")) + F.when(past > length, length).when(past < 0, 0).otherwise(past)
    return joined.select(*records.columns, inside.alias("is_inside"), at.alias("at"))


def block_offsets(spans: Iterable[Span]) -> int:
    """How wide blocks are: a power of two, so that few are sent to each task however long the logs are."""
    width = limits.AUDIT_BLOCK_MIN_OFFSETS
    offsets = sum(span.offsets for span in spans)
    while offsets > width * limits.AUDIT_BLOCKS_SENT:
        width *= 2
    return width


def blocks(lanes: Mapping[Place, Sequence[Lane]], within: Mapping[Place, Span], width: int) -> Iterator[Block]:
    """All blocks of `within`: each has the lane that lies before its second offset, and all that begin behind that."""
    for (topic, partition), span in sorted(within.items()):
        known = lanes.get((topic, partition), ())
        if not known or not span.offsets:
            continue
        starts = [lane.start for lane in known]
        for number in range(span.start // width, (span.end - 1) // width + 1):
            first = max(0, bisect_right(starts, number * width) - 1)
            behind = bisect_left(starts, (number + 1) * width, lo=first)
            yield Block(topic, partition, number, known[first : max(behind, first + 1)])


def lanes_of(spans: Iterable[tuple[Place, Span]]) -> dict[Place, list[Lane]]:
    """Spans that stand for nothing but themselves."""
    found: dict[Place, list[Lane]] = defaultdict(list)
    for place, span in spans:
        found[place].append(Lane(span.start, span.offsets, span.start))
    return found


def _row(block: Block) -> dict[str, Any]:
    start, length, value = (list(part) for part in zip(*block.lanes, strict=True))
    return {
        "l_topic": block.topic,
        "l_partition": block.partition,
        "l_block": block.number,
        "l_start": start,
        "l_length": length,
        "l_value": value,
    }
