"""Reading one site through Spark's Kafka source, between offsets that were fixed before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from monitoring import limits
from monitoring.audit.locked import kafka_options
from monitoring.audit.model import ComparablePartition, FrozenSite, Side, Span
from monitoring.audit.rows import frame_of

# (Kafka topic at the site, partition) -> offsets to read.
Spans = Mapping[tuple[str, int], Span]

RECORD_SCHEMA = (
    "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)


def spans_of(partitions: tuple[ComparablePartition, ...], side: Side) -> dict[tuple[str, int], Span]:
    """What to read at one site, by the names that the topics have there."""
    if side is Side.SOURCE:
        return {(item.topic, item.partition): item.source for item in partitions if item.source.offsets}
    return {(item.target_topic, item.partition): item.target for item in partitions if item.target.offsets}


def offsets_json(spans: Spans) -> tuple[str, str, str]:
    """Spark's `assign`, `startingOffsets` and `endingOffsets`; every assigned partition has an offset in each."""
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), span in sorted(spans.items()):
        assign.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = span.start
        ends.setdefault(topic, {})[str(partition)] = span.end
    return json.dumps(assign), json.dumps(starts), json.dumps(ends)


def read_records(spark: Any, site: FrozenSite, spans: Spans, names: Mapping[str, str]) -> Any:
    """Records of `spans` as a DataFrame of RECORD_SCHEMA; `names` gives each Kafka topic the name to report.

    Aborted records and control records are not returned (read_committed). Deleted ones are passed over: who calls asks
    afterwards where the logs begin, because a record that vanished since the freeze must not look like one that was
    never there.
    """
    if not spans:
        return frame_of(spark, (), RECORD_SCHEMA)
    assign, starts, ends = offsets_json(spans)
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", site.bootstrap_servers)
        .option("assign", assign)
        .option("startingOffsets", starts)
        .option("endingOffsets", ends)
        .option("maxRecordsPerPartition", str(limits.AUDIT_TASK_OFFSETS))
        .option("failOnDataLoss", "false")
        .option("includeHeaders", "true")
        .option("groupIdPrefix", "farshore-audit")
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.max.poll.records", str(limits.AUDIT_POLL_RECORDS))
        .option("kafka.max.partition.fetch.bytes", str(limits.AUDIT_FETCH_BYTES))
        .option("kafka.request.timeout.ms", str(limits.AUDIT_KAFKA_TIMEOUT_MS))
        .option("kafka.default.api.timeout.ms", str(limits.AUDIT_KAFKA_TIMEOUT_MS))
        .options(**kafka_options(site.security))
        .load()
    )
    renamed = F.create_map(*[F.lit(text) for pair in sorted(names.items()) for text in pair])
    return raw.select(
        renamed[F.col("topic")].alias("topic"),
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        "key",
        "value",
        "headers",
    )
