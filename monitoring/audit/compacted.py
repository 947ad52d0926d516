"""Compacted topics: each site drops older values of a key when it likes, also while it is read.

What has to be the same is the latest value of each key (a tombstone is one, until a site drops it), and whatever both
sites still have. So a record that one site alone has is excused where compaction can have taken it at the other:

- the other site has a newer record of its key, in what is compared or behind it;
- it is a tombstone, or stands before a tombstone of its key, and the other site has nothing of the key any more;
- it has no key: a cleaner drops it.

Excused records are counted and left out. All else that differs is suspect, as a site may be cleaned in the middle of a
reading: an early segment was read as it was before, a later one as it was behind. So what is suspect is read again,
the keys' whole history up to the log's end, and differs only where it does in each reading: what a cleaner removes
after a record of a key was read, that record goes with, or before, it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit import diff, digest
from monitoring.audit.model import Side, Span
from monitoring.audit.phases import Sites
from monitoring.audit.reader import spans_of
from monitoring.audit.rows import frame_of

LATEST: Final = -1
"""As an end of a span: the log's end when Spark begins to read it."""
_PLACE: Final = ("topic", "partition")
_KEY: Final = (*_PLACE, "hash_key")
_SLIM: Final = (*_PLACE, "range_start", "offset", "source_offset", "hash_1", "hash_2", "hash_position", "hash_key")
_PREVIEWED: Final = ("timestamp_ms", "hash_body", "key", "value")


@dataclass(frozen=True, slots=True)
class CompactedFound:
    """Digests of both sites without what is excused, the records that differ, and by (topic, partition, side) how many
    records were excused."""

    digests: Mapping[Side, Any]
    differences: Any
    excused: list[Any]


def compare_compacted(spark: Any, read: Callable[[Side], Any], report: Callable[[str], None]) -> CompactedFound:
    """`read` is called again and again, as `read_to_end` of compacted partitions."""
    first = judged(*(rows_of(read(side), is_slim=True) for side in Side)).localCheckpoint()
    named = frame_of(spark, (), diff.DIFFERENCES_SCHEMA)
    confirmed = _suspects(first).select(*_KEY).distinct().localCheckpoint()
    for _ in range(limits.AUDIT_COMPACTED_READINGS - 1):
        if confirmed.isEmpty():
            break
        report("reading again: keys of compacted topics that differ")
        sides = (read(side).join(confirmed, list(_KEY), "left_semi") for side in Side)
        again = judged(*(rows_of(records, is_slim=False) for records in sides)).localCheckpoint()
        named = diff.plain(diff.name_differences(*(_kept(again, side) for side in Side))).localCheckpoint()
        confirmed = _suspects(again).select(*_KEY).distinct().localCheckpoint()
    marked = first.join(confirmed.withColumn("is_confirmed", F.lit(True)), list(_KEY), "left")
    cleared = _is_suspect() & F.col("is_confirmed").isNull()
    settled = marked.withColumn("is_excused", F.col("is_excused") | cleared).drop("is_confirmed").localCheckpoint()
    found = {side: digest.digest(_kept(settled, side), F.col("size")).localCheckpoint() for side in Side}
    rows = settled.where("is_excused AND NOT is_tail").groupBy(*_PLACE, "side").count()
    return CompactedFound(found, named, rows.collect())


def judged(source: Any, target: Any) -> Any:
    """All rows of both sites with `is_matched` (the other site has it in its place) and `is_excused`.

    Both have the columns of `rows_of`.
    """
    rows = source.withColumn("side", F.lit(Side.SOURCE.value)).unionByName(
        target.withColumn("side", F.lit(Side.TARGET.value))
    )
    # A place of its own where the map has none, behind nothing.
    rows = rows.withColumn("place", F.coalesce("source_offset", -F.col("offset") - 1))
    inside = ~F.col("is_tail")
    by_place = Window.partitionBy(*_PLACE, "place", "is_tail")
    same = Window.partitionBy(*_PLACE, "place", "is_tail", "hash_1", "hash_2")
    by_key = Window.partitionBy(*_KEY)
    latest = {side: F.max(F.when(inside & (F.col("side") == side.value), F.col("place"))).over(by_key) for side in Side}
    tombstone = {
        side: F.max(F.when(inside & F.col("is_tombstone") & (F.col("side") == side.value), F.col("place"))).over(by_key)
        for side in Side
    }
    is_source = F.col("side") == Side.SOURCE.value
    rows = rows.withColumns(
        {
            "at_place": F.count(F.lit(1)).over(by_place),
            "is_matched": inside & (F.count(F.lit(1)).over(same) == 2),
            "others_latest": F.when(is_source, latest[Side.TARGET]).otherwise(latest[Side.SOURCE]),
            "own_tombstone": F.when(is_source, tombstone[Side.SOURCE]).otherwise(tombstone[Side.TARGET]),
            "is_newer_behind": F.max("is_tail").over(by_key),
        }
    )
    is_gone_there = F.col("others_latest").isNull() & (F.col("own_tombstone") >= F.col("place"))
    may_be_dropped = (
        ~F.col("has_key") | F.col("is_newer_behind") | (F.col("others_latest") > F.col("place")) | is_gone_there
    )
    # What stands at no place of the source's was never there, so nothing has dropped it.
    is_alone = (F.col("at_place") == 1) & F.col("source_offset").isNotNull()
    is_excused = inside & is_alone & F.coalesce(may_be_dropped, F.lit(False))
    return rows.withColumn("is_excused", is_excused).drop(
        "at_place", "others_latest", "own_tombstone", "is_newer_behind", "place"
    )


def rows_of(records: Any, *, is_slim: bool) -> Any:
    """Records with hashes and `is_tail`, as `judged` takes them; `is_slim`: without keys and values."""
    made = records.withColumns(
        {"size": digest.size_bytes(), "is_tombstone": F.col("value").isNull(), "has_key": F.col("key").isNotNull()}
    )
    return made.select(*_SLIM, "size", "is_tombstone", "has_key", "is_tail", *(() if is_slim else _PREVIEWED))


def read_to_end(sites: Sites, side: Side) -> Any:
    """One site's records with hashes, up to the log's end; `is_tail` are those behind what is compared."""
    spans = spans_of(tuple(sites.partitions), side)
    records = sites.records(side, {where: Span(span.start, LATEST) for where, span in spans.items()})
    ends = frame_of(sites.spark, _ends(sites, side), "topic string, partition int, span_end bigint")
    records = records.join(F.broadcast(ends), list(_PLACE))
    return records.withColumn("is_tail", F.col("offset") >= F.col("span_end")).drop("span_end")


def _ends(sites: Sites, side: Side) -> list[dict[str, Any]]:
    return [
        {
            "topic": item.topic,
            "partition": item.partition,
            "span_end": item.source.end if side is Side.SOURCE else item.target.end,
        }
        for item in sites.partitions
    ]


def _is_suspect() -> Any:
    return ~(F.col("is_tail") | F.col("is_matched") | F.col("is_excused"))


def _suspects(rows: Any) -> Any:
    return rows.where(_is_suspect())


def _kept(rows: Any, side: Side) -> Any:
    return rows.where(~F.col("is_tail") & ~F.col("is_excused") & (F.col("side") == side.value)).drop("side")
