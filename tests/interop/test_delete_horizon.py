"""What Kafka's cleaner notes in the batches of a compacted topic is its own log's business, at either site."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.client.cluster import Cluster
from broker.client.log import read_batches
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.batch import DELETE_HORIZON_MASK
from broker.wire.records import Record, decode_records
from broker.wire.vocabulary import TopicPartition
from mirror.lag import link_lag
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.mirror.harness import eventually, link_between, make_topic, running, wait_for_records, write

WHERE = TopicPartition("flights", 0)
HOUR_MS = 3_600_000


async def marked(cluster: Cluster) -> list[bool]:
    """Per batch with tombstones only, whether the cleaner's time stands in it."""
    end = (await log_end_offsets(cluster, [WHERE]))[WHERE]
    return [
        bool(header.attributes & DELETE_HORIZON_MASK)
        async for header, batch in read_batches(cluster, WHERE, 0, end)
        if not header.is_control and all(record.value is None for record in decode_records(batch))
    ]


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
async def test_a_tombstone_that_the_source_will_drop_is_a_new_one_at_the_target(tmp_path: Path, version: str) -> None:
    written_ms = SystemClock().now_ms() - HOUR_MS
    often = {"log.cleaner.backoff.ms": "100"}
    with KafkaServer(version, tmp_path / "east", often) as kafka, FarshoreBroker(tmp_path / "west") as ours:
        link = link_between(kafka.bootstrap, ours.bootstrap, [WHERE.topic])
        async with Cluster(Site("east", kafka.bootstrap)) as source, Cluster(link.target) as target:
            configs = {"segment_ms": "1000", "min_cleanable_dirty_ratio": "0.0"}
            await make_topic(source, WHERE.topic, 1, cleanup_policy="compact", **configs)
            for number, value in enumerate((b"v", None, b"v", b"v")):  # far enough apart for a segment each
                await write(source, WHERE, [Record(0, written_ms + 5_000 * number, b"k%d" % (number // 2), value)])

            async def cleaned() -> bool:
                return await marked(source) == [True]

            await eventually(cleaned, "the cleaner to note until when it keeps the tombstone")
            (lag,) = await link_lag(link, source, target)
            assert lag.lag_seconds is not None
            assert lag.lag_seconds > 0.9 * HOUR_MS / 1000, "nothing is mirrored, and all of it is an hour old"
            async with running(link):
                found = await wait_for_records(target, WHERE, 3)
            assert found[0].timestamp == written_ms + 5_000
            assert await marked(target) == [False]
