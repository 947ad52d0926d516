"""Sums that two equal copies share, by partition and window: functions from DataFrame to DataFrame.

A window's digest is {records, bytes, xor and sum of two 64-bit hashes per record}. The sum sees what cancels out in the
xor (a record twice), the two hashes together make 128 bits. Order inside a window does not matter to the content
fingerprint; the position fingerprint also hashes the source offset that the offset map gives each record, so it proves
the map and the order.

Traps that the code below steps around: `xxhash64` skips nulls, so (null, 'a') and ('a', null) would be equal; Spark 4
refuses a sum that overflows, so the halves of the hashes are summed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit.blocks import block_offsets
from monitoring.audit.model import CONTENT_SEEDS, POSITION_SEED, AuditVerdict, ComparablePartition, Span


def align_source(records: Any, partitions: Sequence[ComparablePartition]) -> Any:
    """Adds `source_offset` (here: the offset itself), and drops what is not mirrored on purpose."""
    kept = _without(records, [(p.topic, p.partition, span) for p in partitions for span in p.left_out])
    return kept.withColumn("source_offset", F.col("offset"))


def align_target(records: Any, partitions: Sequence[ComparablePartition]) -> Any:
    """Adds `source_offset` by the offset map, null where the map has none; drops what local writers wrote."""
    kept = _without(records, [(p.topic, p.partition, span) for p in partitions for span in p.foreign])
    rows = [
        [p.topic, p.partition, s.target_start, s.target_start + s.length, s.source_start - s.target_start]
        for p in partitions
        for s in p.segments
    ]
    if not rows:
        return kept.withColumn("source_offset", F.lit(None).cast("bigint"))
    segments, width = _blocks(records.sparkSession, rows)
    left = kept.withColumn("block", _block_of("offset", width))
    found = left.join(
        F.broadcast(segments),
        (F.col("topic") == F.col("s_topic"))
        & (F.col("partition") == F.col("s_partition"))
        & (F.col("block") == F.col("s_block"))
        & (F.col("offset") >= F.col("s_start"))
        & (F.col("offset") < F.col("s_end")),
        "left",
    )
    return found.select(*records.columns, (F.col("offset") + F.col("s_shift")).alias("source_offset"))


def _without(records: Any, spans: Sequence[tuple[str, int, Span]]) -> Any:
    if not spans:
        return records
    rows = [[topic, partition, span.start, span.end, 0] for topic, partition, span in spans]
    dropped, width = _blocks(records.sparkSession, rows)
    return records.join(
        F.broadcast(dropped),
        (F.col("topic") == F.col("s_topic"))
        & (F.col("partition") == F.col("s_partition"))
        & (_block_of("offset", width) == F.col("s_block"))
        & (F.col("offset") >= F.col("s_start"))
        & (F.col("offset") < F.col("s_end")),
        "left_anti",
    )


def _block_of(column: str, width: int) -> Any:
    """The block's number; widths are powers of two."""
    return F.shiftright(F.col(column), width.bit_length() - 1)


def _blocks(spark: Any, rows: list[list[Any]]) -> tuple[Any, int]:
    """Spans as one row per block of offsets they touch, so that the join is one of equality; and how wide blocks are.

    The rows travel as one JSON literal: a DataFrame made from Python rows would start Python workers for them.
    """
    schema = "array<struct<s_topic:string,s_partition:int,s_start:bigint,s_end:bigint,s_shift:bigint>>"
    named = [dict(zip(("s_topic", "s_partition", "s_start", "s_end", "s_shift"), row, strict=True)) for row in rows]
    spans = spark.range(1).select(F.explode(F.from_json(F.lit(json.dumps(named)), schema)).alias("s")).select("s.*")
    width = block_offsets([(row[0], row[1], row[2], row[3]) for row in rows])
    spans = spans.withColumn("s_last", F.col("s_end") - 1)
    blocks = F.sequence(_block_of("s_start", width), _block_of("s_last", width))
    return spans.withColumn("s_block", F.explode(blocks)).drop("s_last"), width


def with_windows(records: Any, window_ms: int, untimed_topics: Sequence[str]) -> Any:
    """Adds `timed` and `window_start`: the event time, or the source offset where times cannot be compared."""
    timed = ~F.col("topic").isin(list(untimed_topics)) if untimed_topics else F.lit(True)
    by_time = F.col("timestamp_ms") - F.pmod(F.col("timestamp_ms"), F.lit(window_ms))
    size = F.lit(limits.AUDIT_WINDOW_RECORDS)
    # Where the map has no source offset, -1 keeps the record in sight: window -1 is "outside the offset map".
    by_offset = F.coalesce(F.col("source_offset") - F.pmod(F.col("source_offset"), size), F.lit(-1))
    return records.withColumn("timed", timed).withColumn("window_start", F.when(timed, by_time).otherwise(by_offset))


def with_hashes(records: Any) -> Any:
    """Adds `hash_1`, `hash_2` (the record's content), `hash_position` (content and source offset), `hash_body` (content
    without the time) and `hash_key`.

    The content is key, value, headers in their order, and the timestamp where it can be compared (`timed`).
    """
    headers = F.transform(
        F.col("headers"), lambda h: F.struct(h["key"], h["value"].isNull().alias("no_value"), h["value"])
    )
    time = F.when(F.col("timed"), F.col("timestamp_ms")).otherwise(F.lit(0))
    body = [
        F.col("key").isNull(),
        F.col("key"),
        F.col("value").isNull(),
        F.col("value"),
        F.coalesce(F.size(F.col("headers")), F.lit(0)),
        headers,
    ]
    first, second = CONTENT_SEEDS
    hashed = records.withColumn("hash_1", F.xxhash64(F.lit(first), time, *body))
    hashed = hashed.withColumn("hash_2", F.xxhash64(F.lit(second), time, *body))
    hashed = hashed.withColumn("hash_body", F.xxhash64(F.lit(first), *body))
    hashed = hashed.withColumn("hash_key", F.xxhash64(F.lit(first), F.col("key").isNull(), F.col("key")))
    position = F.coalesce(F.col("source_offset"), F.lit(-1))
    return hashed.withColumn("hash_position", F.xxhash64(F.lit(POSITION_SEED), position, F.col("hash_1")))


def digest(records: Any) -> Any:
    """One row per (topic, partition, window): counts, both fingerprints, and the offsets the window lies between."""
    header_bytes = F.aggregate(
        F.coalesce(F.col("headers"), F.array()),
        F.lit(0).cast("bigint"),
        lambda total, h: (
            total + F.octet_length(h["key"]) + F.coalesce(F.octet_length(h["value"]), F.lit(0)).cast("bigint")
        ),
    )
    size = (
        F.coalesce(F.octet_length("key"), F.lit(0)).cast("bigint")
        + F.coalesce(F.octet_length("value"), F.lit(0))
        + header_bytes
    )
    return records.groupBy("topic", "partition", "window_start", "timed").agg(
        F.count(F.lit(1)).alias("records"),
        F.sum(size).alias("bytes"),
        _fingerprint("hash_1", "hash_2").alias("fingerprint"),
        _fingerprint("hash_position").alias("position"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def _fingerprint(*hashes: str) -> Any:
    """Xor and sum of each hash over the group, as one hexadecimal text."""
    low = (1 << 32) - 1
    parts = []
    for name in hashes:
        column = F.col(name)
        parts.append(F.hex(F.bit_xor(column)))
        parts.append(F.hex(F.sum(column.bitwiseAND(F.lit(low)))))
        parts.append(F.hex(F.sum(F.shiftrightunsigned(column, 32))))
    return F.concat_ws("-", *parts)


def compare(source: Any, target: Any) -> Any:
    """Full outer join of both digests, with the verdict on each window."""
    keys = ["topic", "partition", "window_start", "timed"]
    named = ["records", "bytes", "fingerprint", "position", "first_offset", "last_offset"]
    left = source.select(*keys, *[F.col(name).alias(f"source_{name}") for name in named])
    right = target.select(*keys, *[F.col(name).alias(f"target_{name}") for name in named])
    joined = left.join(right, keys, "full_outer")
    for side in ("source", "target"):
        for name in ("records", "bytes"):
            joined = joined.withColumn(f"{side}_{name}", F.coalesce(F.col(f"{side}_{name}"), F.lit(0)))
    same_content = (
        (F.col("source_records") == F.col("target_records"))
        & (F.col("source_bytes") == F.col("target_bytes"))
        & F.col("source_fingerprint").eqNullSafe(F.col("target_fingerprint"))
    )
    same_position = F.col("source_position").eqNullSafe(F.col("target_position"))
    verdict = (
        F.when(~same_content, AuditVerdict.DIFFERS.value)
        .when(~same_position, AuditVerdict.MOVED.value)
        .otherwise(AuditVerdict.EQUAL.value)
    )
    return joined.withColumn("verdict", verdict)
