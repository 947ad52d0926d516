"""Spark's Kafka source and sink, batch and streaming, against farshore's broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.servers import FarshoreBroker

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

ROWS = 5_000


def reader(spark: Any, broker: FarshoreBroker, topic: str) -> Any:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    return source.option("subscribe", topic).option("includeHeaders", "true")


def test_sink_and_source(spark: Any, shared_broker: FarshoreBroker, topic: str) -> None:
    rows = spark.range(ROWS).selectExpr("cast(id as string) key", "concat('value ', id) value")
    sink = rows.write.format("kafka").option("kafka.bootstrap.servers", shared_broker.bootstrap)
    sink.option("topic", topic).option("kafka.compression.type", "zstd").save()
    read = reader(spark, shared_broker, topic).load()
    got = read.selectExpr("cast(key as string)", "cast(value as string)", "offset", "partition").collect()
    assert {row.key: row.value for row in got} == {str(i): f"value {i}" for i in range(ROWS)}
    assert sorted(row.offset for row in got) == list(range(ROWS))
    cut = reader(spark, shared_broker, topic)
    cut = cut.option("startingOffsets", f'{{"{topic}":{{"0":10}}}}').option(
        "endingOffsets", f'{{"{topic}":{{"0":25}}}}'
    )
    assert sorted(row.offset for row in cut.load().select("offset").collect()) == list(range(10, 25))


def test_streaming_from_topic_to_topic(spark: Any, shared_broker: FarshoreBroker, topic: str, tmp_path: Path) -> None:
    copied = f"{topic}-copy"
    rows = spark.range(300).selectExpr("cast(id as string) value")
    sink = rows.write.format("kafka").option("kafka.bootstrap.servers", shared_broker.bootstrap)
    sink.option("topic", topic).save()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", shared_broker.bootstrap)
    stream = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    copy = stream.select("key", "value").writeStream.format("kafka").option("topic", copied)
    copy = copy.option("kafka.bootstrap.servers", shared_broker.bootstrap)
    copy = copy.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = copy.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    got = reader(spark, shared_broker, copied).load().selectExpr("cast(value as string) value").collect()
    assert sorted(int(row.value) for row in got) == list(range(300))
