"""Naming the records that differ, in the ranges that differ: functions from DataFrame to DataFrame.

A record is first paired with the one that stands where the offset map says, if it is the same. What is left at either
site is paired step by step, the i-th with the i-th by offset: the same record at another place is moved, another one at
its place is changed (or retimed), then those that share all but the time, then key and time. What is left at last is
lost, duplicated (the source has such a record, too) or extra. Nothing of that is collected, however many there are.

Keys and values are cut to their beginnings before anything is shuffled: hashes stand for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit.model import Kind, Place, Side, Span
from monitoring.audit.outcome import RecordDifference

DIFFERENCES_SCHEMA = (
    "topic string, partition int, kind string, range_start bigint, source_offset bigint, target_offset bigint, "
    "source_timestamp_ms bigint, target_timestamp_ms bigint, key binary, key_bytes int, source_value binary, "
    "source_value_bytes int, target_value binary, target_value_bytes int"
)
_PLACE = ("topic", "partition")
_HASHES = ("hash_1", "hash_2")


def spans_to_open(rows: Iterable[Any], side: Side) -> list[dict[Place, Span]]:
    """The offsets at one site of the ranges that differ, by (topic, partition): each reading takes one span of each.

    There are AUDIT_SPANS_OPENED at most; nearer ones are joined, with what lies between them.
    """
    spans: dict[Place, list[Span]] = defaultdict(list)
    for row in rows:
        if (first := row[f"{side}_first_offset"]) is not None:
            spans[row["topic"], row["partition"]].append(Span(first, row[f"{side}_last_offset"] + 1))
    return readings_of(spans, limits.AUDIT_SPANS_OPENED)


def readings_of(spans: Mapping[Place, Iterable[Span]], most: int) -> list[dict[Place, Span]]:
    """Spans by partition in readings that take one of each; of a partition `most`, nearer ones are joined."""
    joined = {place: _joined(sorted(found), most) for place, found in spans.items()}
    readings = max((len(found) for found in joined.values()), default=0)
    return [{place: found[nth] for place, found in joined.items() if nth < len(found)} for nth in range(readings)]


def _joined(spans: Sequence[Span], most: int) -> list[Span]:
    """`most` at most, apart: all gaps but the widest are closed."""
    apart: list[Span] = []
    for span in spans:
        if apart and span.start <= apart[-1].end:
            apart[-1] = Span(apart[-1].start, max(apart[-1].end, span.end))
        else:
            apart.append(span)
    gaps = sorted(range(1, len(apart)), key=lambda nth: apart[nth - 1].end - apart[nth].start)
    cuts = [0, *sorted(gaps[: most - 1]), len(apart)]
    return [Span(apart[low].start, apart[high - 1].end) for low, high in pairwise(cuts)]


def name_differences(source: Any, target: Any) -> Any:
    """DataFrame of DIFFERENCES_SCHEMA and both hashes, one row for each record that differs; `source` and `target` are
    records with hashes, cut to the ranges that differ. `key` and values are their first bytes."""
    matched = _paired(_misplaced(source, target), ("hash_1", "hash_2"))
    found = [_named(_both(matched), F.lit(Kind.MOVED.value))]
    matched = _paired(_single(matched), ("position",))
    same_body = F.col("source.hash_body") == F.col("target.hash_body")
    kind = F.when(same_body, Kind.RETIMED.value).otherwise(Kind.CHANGED.value)
    found.append(_named(_both(matched), kind))
    rest = _single(matched)
    # A record that the source also has elsewhere is a duplicate of that, not a change of another one.
    duplicated = (F.col("side") == Side.TARGET.value) & F.col("at_source")
    found.append(_named(_alone(rest.where(duplicated)), F.lit(Kind.DUPLICATED.value)))
    matched = _paired(rest.where(~duplicated), ("hash_body",))
    found.append(_named(_both(matched), F.lit(Kind.RETIMED.value)))
    matched = _paired(_single(matched), ("hash_key", "timestamp_ms"))
    found.append(_named(_both(matched), F.lit(Kind.CHANGED.value)))
    lost = F.when(F.col("target").isNull(), Kind.LOST.value).otherwise(Kind.EXTRA.value)
    found.append(_named(_not_both(matched), lost))
    return union(found)


def tell_duplicates(named: Any, source: Any) -> Any:
    """Of `name_differences`, with what is extra as duplicated where `source`, records with hashes, has such a one."""
    known = source.select(*_PLACE, *_HASHES).distinct().withColumn("is_known", F.lit(True))
    told = named.join(known, [*_PLACE, *_HASHES], "left")
    is_twice = (F.col("kind") == Kind.EXTRA.value) & F.col("is_known")
    return told.withColumn("kind", F.when(is_twice, Kind.DUPLICATED.value).otherwise(F.col("kind"))).drop("is_known")


def plain(named: Any) -> Any:
    """DataFrame of DIFFERENCES_SCHEMA."""
    return named.drop(*_HASHES)


def union(frames: Sequence[Any]) -> Any:
    """All rows of DataFrames with the same columns."""
    return reduce(lambda left, right: left.unionByName(right), frames)


def _misplaced(source: Any, target: Any) -> Any:
    """Records without their equal where the map says. `at_source`: the source has the content, wherever."""
    rows = _compact(source, Side.SOURCE).unionByName(_compact(target, Side.TARGET))
    content = Window.partitionBy(*_PLACE, "hash_1", "hash_2")
    rows = rows.withColumn("at_source", F.max(F.col("side") == Side.SOURCE.value).over(content))
    # The window is finer than the one before: Spark sorts again, and does not shuffle again.
    at_place = Window.partitionBy(*_PLACE, "hash_1", "hash_2", "position")
    return rows.withColumn("equals", F.count(F.lit(1)).over(at_place)).where(F.col("equals") == 1).drop("equals")


def _compact(records: Any, side: Side) -> Any:
    return records.select(
        *_PLACE,
        F.lit(side.value).alias("side"),
        "range_start",
        "offset",
        # A place of its own where the map has none: it pairs with nothing.
        F.coalesce("source_offset", -F.col("offset") - 1).alias("position"),
        "timestamp_ms",
        "hash_1",
        "hash_2",
        "hash_body",
        "hash_key",
        _beginning("key"),
        _beginning("value"),
    )


def _beginning(column: str) -> Any:
    first = F.substring(F.col(column), 1, limits.AUDIT_PREVIEW_BYTES)
    return F.struct(first.alias("first"), F.octet_length(column).alias("bytes")).alias(column)


def _paired(rows: Any, keys: Sequence[str]) -> Any:
    """(topic, partition, source, target): rows of both sides that share the keys, the i-th with the i-th; else one.

    Computed once: what follows goes over it twice.
    """
    row = F.struct(*[name for name in rows.columns if name not in _PLACE])
    nth = F.row_number().over(Window.partitionBy(*_PLACE, *keys, "side").orderBy("offset"))
    numbered = rows.select(
        *_PLACE, *[F.col(key).alias(f"by_{key}") for key in keys], nth.alias("nth"), row.alias("row")
    )
    sides = [
        F.first(F.when(F.col("row.side") == side.value, F.col("row")), ignorenulls=True).alias(side.value)
        for side in Side
    ]
    paired = numbered.groupBy(*_PLACE, *[f"by_{key}" for key in keys], "nth").agg(*sides)
    return paired.select(*_PLACE, *[side.value for side in Side]).localCheckpoint()


def _both(matched: Any) -> Any:
    return matched.where(F.col("source").isNotNull() & F.col("target").isNotNull())


def _not_both(matched: Any) -> Any:
    return matched.where(F.col("source").isNull() | F.col("target").isNull())


def _single(matched: Any) -> Any:
    """The rows that found no partner, as rows again."""
    return _not_both(matched).select(*_PLACE, F.coalesce("source", "target").alias("row")).select(*_PLACE, "row.*")


def _alone(rows: Any) -> Any:
    """Rows of the target as pairs without a source."""
    row = F.struct(*[name for name in rows.columns if name not in _PLACE])
    return rows.select(*_PLACE, F.when(F.lit(False), row).alias("source"), row.alias("target"))


def _named(pairs: Any, kind: Any) -> Any:
    key = F.coalesce("source.key", "target.key")
    return pairs.select(
        *_PLACE,
        kind.alias("kind"),
        F.coalesce("source.range_start", "target.range_start").alias("range_start"),
        F.col("source.offset").alias("source_offset"),
        F.col("target.offset").alias("target_offset"),
        F.col("source.timestamp_ms").alias("source_timestamp_ms"),
        F.col("target.timestamp_ms").alias("target_timestamp_ms"),
        key["first"].alias("key"),
        key["bytes"].alias("key_bytes"),
        *[
            F.col(f"{side.value}.value.{part}").alias(f"{side.value}_value{suffix}")
            for side in Side
            for part, suffix in (("first", ""), ("bytes", "_bytes"))
        ],
        *[F.coalesce(f"target.{name}", f"source.{name}").alias(name) for name in _HASHES],
    )


def difference_of(row: Any) -> RecordDifference:
    """One row of `name_differences` as a value."""
    return RecordDifference(
        row["topic"],
        row["partition"],
        Kind(row["kind"]),
        row["range_start"],
        row["source_offset"],
        row["target_offset"],
        row["source_timestamp_ms"],
        row["target_timestamp_ms"],
        preview(row["key"], row["key_bytes"]),
        preview(row["source_value"], row["source_value_bytes"]),
        preview(row["target_value"], row["target_value_bytes"]),
    )


def preview(first: bytes | None, size_bytes: int | None) -> str | None:
    """The first bytes of a key or value of that size, as text where it is text, else in hexadecimal."""
    if first is None or size_bytes is None:
        return None
    cut = bytes(first)
    more = "…" if size_bytes > len(cut) else ""
    try:
        # A multi-byte character that the cut went through is no reason to call the whole text binary.
        text = cut.decode("utf-8", errors="strict" if not more else "ignore")
    except UnicodeDecodeError:
        return f"0x{cut.hex()}{more}"
    return text + more if text.isprintable() else f"0x{cut.hex()}{more}"
