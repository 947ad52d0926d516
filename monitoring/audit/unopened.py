"""Ranges that are proved to be equal by batches which nobody opened, and what is left to be opened.

Both sites' batches are digested as they are stored (`batches.py`), in Python, by our own client (`batch_reading.py`).
That is faster than to read records where batches are large, and where the mirror passed them through. A short look at
the beginning of each partition tells whether they are and it did; where it did not, and where what follows does not
prove the most, the partition is read as if nothing of this had been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from broker.wire.vocabulary import TopicPartition
from monitoring import limits
from monitoring.audit import diff, digest
from monitoring.audit.batch_reading import UNREAD, BatchTask, digest_task, packed, split
from monitoring.audit.batches import KEY_BYTES, view_of
from monitoring.audit.locked import may_log_in_often
from monitoring.audit.model import AuditVerdict, ComparablePartition, Place, Side, Span
from monitoring.audit.phases import Sites, digest_site
from monitoring.audit.rows import frame_of
from monitoring.audit.sample import Chosen, spans_of_ranges
from monitoring.audit.session import cause_of

UNOPENED_SCHEMA = "topic string, partition int, range_start bigint, " + ", ".join(
    [*[f"{name} bigint" for name in (*digest.DIGESTED, "unclear")], "why string"]
)
Report: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Proved:
    """Digests of ranges that both sites' batches prove, and of these partitions the ranges that they do not; nothing is
    said of other partitions."""

    digests: Mapping[Side, Any]
    rest: Chosen


def is_worthwhile(partitions: Sequence[ComparablePartition]) -> bool:
    """Whether there is so much to be read that what is saved is more than what Python takes to begin."""
    return sum(item.source.offsets + item.target.offsets for item in partitions) >= limits.AUDIT_UNOPENED_MIN_OFFSETS


def prove_unopened(sites: Sites, report: Report = lambda _: None) -> Proved:
    """What both sites' batches prove of the partitions in which they prove the most."""
    looked, unread = _compared(replace(sites, partitions=[beginning(item) for item in sites.partitions]))
    told = _told(looked)
    hopeful = [item for item in sites.partitions if is_hopeful(told.get((item.topic, item.partition)))]
    compared, unread_later = _compared(replace(sites, partitions=hopeful))
    if unread := unread | unread_later:
        (topic, partition), why = min(unread.items())
        report(f"opening partitions whose batches could not be read: {len(unread)}, as {topic}/{partition}: {why}")
    kept = {place for place, found in _told(compared).items() if found.is_most}
    mine = compared.where(F.concat_ws("/", "topic", "partition").isin([f"{topic}/{nth}" for topic, nth in kept]))
    rest: dict[Place, list[int]] = {place: [] for place in kept}
    for row in mine.where(~F.col("is_proved")).select(*digest.KEYS).collect():
        rest[row["topic"], row["partition"]].append(row["range_start"])
    proved = mine.where("is_proved")
    digests = {
        side: proved.select(*digest.KEYS, *[F.col(f"{side}_{name}").alias(name) for name in digest.DIGESTED])
        for side in Side
    }
    return Proved(digests, {place: sorted(starts) for place, starts in rest.items()})


def digest_both(sites: Sites, report: Report) -> dict[Side, Any]:
    """Phase one at both sites: digests of batches where these prove a range, of records in all others."""
    proved = None
    if sites.may_stay_closed and sites.chosen is None and is_worthwhile(sites.partitions):
        proved = proved_if_any(sites, report)
    wanted = to_be_opened(sites, None if proved is None else proved.rest)
    digests = {}
    for side in Side:
        parts = [] if proved is None else [proved.digests[side]]
        if wanted:
            report(f"digesting {side.value} {sites.site(side).name}")
        digests[side] = diff.union([*parts, *[digest_site(each, side) for each in wanted]])
    return digests


def proved_if_any(sites: Sites, report: Report) -> Proved | None:
    """As `prove_unopened`; None, with a reason in the report, where nothing is proved so."""
    for site in map(sites.site, Side):
        if not may_log_in_often(site.security):
            report(f"opening all records: at site {site.name} each task of Spark's would log in anew")
            return None
    report("digesting batches of both sites as they are stored")
    try:
        return prove_unopened(sites, report)
    except (PySparkException, Py4JError) as error:
        # Workers without our code, say. What keeps Spark from a site it tells again of the records there.
        report(f"opening all records: {cause_of(error)}")
        return None


def to_be_opened(sites: Sites, rest: Chosen | None) -> list[Sites]:
    """What is left to who opens records: whole partitions, and of those in `rest` these ranges. None: all, if it be of
    no partition."""
    if rest is None:
        return [sites]
    whole = replace(sites, partitions=[item for item in sites.partitions if (item.topic, item.partition) not in rest])
    in_part = [item for item in sites.partitions if rest.get((item.topic, item.partition))]
    return [each for each in (whole, replace(sites, partitions=in_part, chosen=rest)) if each.partitions]


def digest_batches(sites: Sites, side: Side) -> Any:
    """One site's batches: a DataFrame of UNOPENED_SCHEMA, one row for each range, and one for each unread partition."""
    tasks = _tasks(sites, side)
    if not tasks:
        return frame_of(sites.spark, (), UNOPENED_SCHEMA)
    rows = sites.spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(digest_task)
    return digest.summed(sites.spark.createDataFrame(rows, UNOPENED_SCHEMA, verifySchema=False))


def _tasks(sites: Sites, side: Side) -> list[BatchTask]:
    """At least twice as many as there are cores, if there is enough to read."""
    views = [(item, view_of(item, side)) for item in sites.partitions]
    offsets = sum(view.span.offsets for _, view in views)
    least = max(limits.AUDIT_RANGE_OFFSETS, -(-offsets // (2 * sites.spark.sparkContext.defaultParallelism)))
    most = min(limits.AUDIT_TASK_OFFSETS, least)
    shares = [
        share
        for item, view in views
        for share in split(
            TopicPartition(item.topic if side is Side.SOURCE else item.target_topic, item.partition),
            view,
            most,
            limits.AUDIT_BATCH_OFFSETS,
        )
    ]
    # The same at both sites, and known to nobody before the freeze.
    key = sha256(f"{sites.frozen.link} {sites.frozen.frozen_at_ms}".encode()).digest()[:KEY_BYTES]
    return [BatchTask(sites.site(side), together, limits.AUDIT_RANGE_OFFSETS, key) for together in packed(shares, most)]


def beginning(item: ComparablePartition) -> ComparablePartition:
    """A partition's first ranges: a small share of them."""
    width = limits.AUDIT_RANGE_OFFSETS
    ranges = min(limits.AUDIT_LOOK_RANGES, item.source.offsets // (width * limits.AUDIT_LOOK_SHARE)) or 1
    first = item.source.start - item.source.start % width
    starts = range(first, first + ranges * width, width)
    cut = {}
    for side, whole in ((Side.SOURCE, item.source), (Side.TARGET, item.target)):
        spans = spans_of_ranges(item, starts, side)
        cut[side] = Span(spans[0].start, spans[-1].end) if spans else Span(whole.start, whole.start)
    return replace(item, source=cut[Side.SOURCE], target=cut[Side.TARGET])


def _compared(sites: Sites) -> tuple[Any, dict[Place, str]]:
    """Both sites' digests of batches, one row for each range, and whether these prove it. And which partitions could
    not be read so, and why."""
    digests = {side: digest_batches(sites, side).localCheckpoint() for side in Side}
    unclear = diff.union([digests[side].where("unclear > 0").select(*digest.KEYS) for side in Side]).distinct()
    unread = unclear.where(F.col("range_start") == UNREAD).select("topic", "partition")
    compared = (
        digest.compare(digests[Side.SOURCE], digests[Side.TARGET])
        .join(unclear.withColumn("is_unclear", F.lit(True)), list(digest.KEYS), "left")
        .join(unread.withColumn("is_unread", F.lit(True)), ["topic", "partition"], "left")
    )
    is_said = F.coalesce("is_unclear", "is_unread").isNull()
    is_proved = is_said & (F.col("verdict") == AuditVerdict.EQUAL.value)
    compared = compared.withColumn("is_proved", is_proved).drop("verdict", "is_unclear").localCheckpoint()
    said = diff.union([digests[side].where("why is not null").select(*digest.KEYS, "why") for side in Side])
    return compared, {(row["topic"], row["partition"]): row["why"] for row in said.collect()}


@dataclass(frozen=True, slots=True)
class Told:
    """Of a partition: ranges that have a record, of them those that are proved, and what the source has in them."""

    ranges: int
    proved: int
    batches: int
    records: int
    bytes: int
    is_unread: bool

    @property
    def is_most(self) -> bool:
        return not self.is_unread and 2 * self.proved >= self.ranges

    @property
    def is_large(self) -> bool:
        """Whether its batches are so large that it is dearer to open them."""
        return (
            self.records >= self.batches * limits.AUDIT_UNOPENED_BATCH_RECORDS
            or self.bytes >= self.batches * limits.AUDIT_UNOPENED_BATCH_BYTES
        )


def _told(compared: Any) -> dict[Place, Told]:
    sums = [F.sum(f"source_{name}").alias(name) for name in ("batches", "records", "bytes")]
    rows = compared.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("ranges"),
        F.sum(F.col("is_proved").cast("bigint")).alias("proved"),
        F.max(F.coalesce("is_unread", F.lit(False))).alias("is_unread"),
        *sums,
    )
    return {
        (row["topic"], row["partition"]): Told(
            row["ranges"], row["proved"], row["batches"] or 0, row["records"], row["bytes"], row["is_unread"]
        )
        for row in rows.collect()
    }


def is_hopeful(told: Told | None) -> bool:
    """Nothing is known of a beginning without records."""
    return told is None or (told.is_most and told.is_large)
