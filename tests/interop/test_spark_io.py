"""Spark's Kafka source and sink, batch and streaming, against farshore's broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.client.topics import NewTopic, create_topics, delete_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.interop.brokers import KEEPS_ALL
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


def test_a_streams_checkpoint_takes_another_topic_for_its_own(
    spark: Any, shared_broker: FarshoreBroker, topic: str, tmp_path: Path
) -> None:
    """Why an audit that goes on does not rest on it (ADR 45): strict as it is, it passes over the first records of a
    topic that was made anew, and says nothing."""

    async def make(records: int) -> None:
        async with Cluster(Site("east", shared_broker.bootstrap)) as cluster:
            await delete_topics(cluster, [topic])
            assert not await create_topics(cluster, [NewTopic(topic, 1, configs=KEEPS_ALL)])
            batch = [Record(n, 1_000 + n, None, b"%d" % n, ()) for n in range(records)]
            await append(cluster, TopicPartition(topic, 0), encode_batch(batch))

    def seen() -> list[int]:
        found: list[int] = []
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", shared_broker.bootstrap)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest").option("failOnDataLoss", True)
        stream = source.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream = stream.foreachBatch(lambda rows, _: found.extend(row.offset for row in rows.collect()))
        assert stream.trigger(availableNow=True).start().awaitTermination(120)
        return sorted(found)

    asyncio.run(make(10))
    assert seen() == list(range(10))
    asyncio.run(make(15))
    assert seen() == list(range(10, 15))
