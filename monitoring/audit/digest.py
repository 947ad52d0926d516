"""Sums that two equal copies share, by partition and range of source offsets: functions from DataFrame to DataFrame.

A range's digest is {records, bytes, sums of two 64-bit hashes per record, sum of a third one}. The first two are of the
content alone, wherever it stands in the range: together 128 bits, and sums (modulo 2^64), in which a record that is
there twice, or pairs of records, do not cancel out as in an xor. The third hashes the source offset that the offset map
gives each record, too, so it proves the map and the order.

Traps that the code below steps around: `xxhash64` skips nulls, so (null, 'a') and ('a', null) would be equal; Spark 4
refuses a sum that overflows, so the halves of the hashes are summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit.lookup import Lane, lanes_of, look_up
from monitoring.audit.model import CONTENT_SEEDS, POSITION_SEED, AuditVerdict, ComparablePartition, Side

KEYS = ("topic", "partition", "range_start")
DIGESTED = ("records", "bytes", "content_1", "content_2", "ordered", "first_offset", "last_offset", "batches")
_HASHES = {"content_1": "hash_1", "content_2": "hash_2", "ordered": "hash_position"}


def align_source(records: Any, partitions: Sequence[ComparablePartition]) -> Any:
    """Adds `source_offset` (here: the offset itself) and `range_start`; drops what is not mirrored on purpose."""
    dropped = lanes_of(((p.topic, p.partition), span) for p in partitions for span in p.left_out)
    kept = records
    if dropped:
        within = {(p.topic, p.partition): p.source for p in partitions if p.left_out}
        kept = look_up(records, dropped, within).where(~F.col("is_inside")).drop("is_inside", "at")
    return _in_ranges(kept.withColumns({"source_offset": F.col("offset"), "position": F.col("offset")}))


def align_target(records: Any, partitions: Sequence[ComparablePartition]) -> Any:
    """Adds `source_offset` by the offset map, null where it has none, and `range_start`. Drops what others wrote.

    Where the map has none the range is that of the mirrored record before it.
    """
    within = {(p.topic, p.partition): p.target for p in partitions}
    dropped = lanes_of(((p.topic, p.partition), span) for p in partitions for span in p.foreign)
    kept = records
    if dropped:
        kept = look_up(records, dropped, within).where(~F.col("is_inside")).drop("is_inside", "at")
    lanes = {
        (p.topic, p.partition): [Lane(s.target_start, s.length, s.source_start) for s in p.segments] for p in partitions
    }
    found = look_up(kept, lanes, within)
    aligned = found.withColumns(
        {"source_offset": F.when(F.col("is_inside"), F.col("at")), "position": F.coalesce("at", F.lit(0))}
    )
    return _in_ranges(aligned.drop("is_inside", "at"))


def _in_ranges(aligned: Any) -> Any:
    """Ranges are the same at both sites, in each run: they begin at multiples of their width."""
    width = F.lit(limits.AUDIT_RANGE_OFFSETS)
    return aligned.withColumn("range_start", F.col("position") - F.pmod(F.col("position"), width)).drop("position")


def with_hashes(records: Any, untimed_topics: Sequence[str] = ()) -> Any:
    """Adds `hash_1`, `hash_2` (the record's content), `hash_position` (content and source offset), `hash_body` (content
    without the time) and `hash_key`.

    The content is key, value, headers in their order, and the timestamp but of `untimed_topics`.
    """
    time = F.col("timestamp_ms")
    if untimed_topics:
        time = F.when(F.col("topic").isin(list(untimed_topics)), F.lit(0)).otherwise(time)
    body = [
        F.col("key").isNull(),
        F.col("key"),
        F.col("value").isNull(),
        F.col("value"),
        *_headers(),
    ]
    first, second = CONTENT_SEEDS
    hashed = records.withColumn("hash_1", F.xxhash64(F.lit(first), time, *body))
    hashed = hashed.withColumn("hash_2", F.xxhash64(F.lit(second), time, *body))
    hashed = hashed.withColumn("hash_body", F.xxhash64(F.lit(first), *body))
    hashed = hashed.withColumn("hash_key", F.xxhash64(F.lit(first), F.col("key").isNull(), F.col("key")))
    position = F.coalesce(F.col("source_offset"), F.lit(-1))
    return hashed.withColumn("hash_position", F.xxhash64(F.lit(POSITION_SEED), position, F.col("hash_1")))


def _headers() -> list[Any]:
    """What no other list of headers has: their number, keys and values, and which values are null.

    Functions with a lambda would say the last plainly, and put an end to Spark's generated code. Joined twice, with
    another byte for null each time, two lists with other nulls differ at the first of them: what stands there has one
    byte in both, and null has not.
    """
    values = F.col("headers.value").cast("array<string>")
    joined = [F.array_join(values, ",", null) for null in "ab"]
    return [F.coalesce(F.size("headers"), F.lit(0)), F.col("headers.key"), F.col("headers.value"), *joined]


def _header_texts() -> list[Any]:
    """All keys and all values, one behind the other."""
    return [F.array_join("headers.key", ""), F.array_join(F.col("headers.value").cast("array<string>"), "")]


def size_bytes() -> Any:
    """Of a record: key, value and headers."""
    lengths = [F.octet_length("key"), F.octet_length("value"), *map(F.octet_length, _header_texts())]
    return reduce(add, [F.coalesce(length, F.lit(0)).cast("bigint") for length in lengths])


def digest(records: Any, size: Any = None) -> Any:
    """One row of KEYS and DIGESTED per range: what phase one of an audit finds out about a site. `size` is of who has
    the records' bytes no more."""
    size = size_bytes() if size is None else size
    numbers = {"records": F.count(F.lit(1)), "bytes": F.sum(size), "batches": F.lit(0).cast("bigint")}
    ends = {"first_offset": F.min("offset"), "last_offset": F.max("offset")}
    return _summed(records, _HASHES, numbers | ends).select(*KEYS, *DIGESTED)


def summed(digests: Any) -> Any:
    """One row per range of rows that are each of a part of it, as `batches.DigestRow` has them."""
    numbers = {name: F.sum(name) for name in ("records", "bytes", "batches", "unclear")}
    ends = {"first_offset": F.min("first_offset"), "last_offset": F.max("last_offset"), "why": F.min("why")}
    return _summed(digests, {name: name for name in _HASHES}, numbers | ends).select(*KEYS, *DIGESTED, "unclear", "why")


def _summed(rows: Any, hashes: Mapping[str, str], others: Mapping[str, Any]) -> Any:
    """One row per range with the sums of these hashes, and `others` as they are to be aggregated."""
    halves = [half for name, column in hashes.items() for half in _halves(name, F.col(column))]
    found = rows.groupBy(*KEYS).agg(*halves, *[column.alias(name) for name, column in others.items()])
    return found.withColumns({name: _whole(name) for name in hashes})


_LOW = (1 << 32) - 1


def _halves(name: str, hashed: Any) -> list[Any]:
    """The sum of a 64-bit hash in two parts that cannot overflow."""
    low, high = hashed.bitwiseAND(F.lit(_LOW)), F.shiftrightunsigned(hashed, 32)
    return [F.sum(low).alias(f"{name}_low"), F.sum(high).alias(f"{name}_high")]


def _whole(name: str) -> Any:
    """Both parts as the sum modulo 2^64."""
    low, high = F.col(f"{name}_low"), F.col(f"{name}_high")
    carried = (high + F.shiftrightunsigned(low, 32)).bitwiseAND(F.lit(_LOW))
    return F.shiftleft(carried, 32).bitwiseOR(low.bitwiseAND(F.lit(_LOW)))


def compare(source: Any, target: Any) -> Any:
    """Phase two: full outer join of both sites' digests, with the verdict on each range. No record is read for it."""
    sides = {Side.SOURCE: source, Side.TARGET: target}
    left, right = (
        frame.select(*KEYS, *[F.col(name).alias(f"{side}_{name}") for name in DIGESTED])
        for side, frame in sides.items()
    )
    joined = left.join(right, list(KEYS), "full_outer")
    joined = joined.fillna(0, [f"{side}_{name}" for side in sides for name in ("records", "bytes")])
    same_content = _same("records") & _same("bytes") & _same("content_1") & _same("content_2")
    verdict = (
        F.when(~same_content, AuditVerdict.DIFFERS.value)
        .when(~_same("ordered"), AuditVerdict.MOVED.value)
        .otherwise(AuditVerdict.EQUAL.value)
    )
    return joined.withColumn("verdict", verdict)


def _same(name: str) -> Any:
    return F.col(f"{Side.SOURCE}_{name}").eqNullSafe(F.col(f"{Side.TARGET}_{name}"))
