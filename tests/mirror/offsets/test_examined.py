"""What a look at a target's log makes of offsets that no map explains."""

from __future__ import annotations

import uuid
from pathlib import Path

from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.site import Site
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.offsets.shared import Examined, Unexplained, examine
from tests.broker.running import running_broker
from tests.mirror.harness import make_topic, write

WHERE = TopicPartition("flights", 0)


async def test_markers_and_what_was_aborted_are_passed_as_far_as_the_link_back_has_looked(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as bootstrap,
        Cluster(Site("here", bootstrap), client_id="farshore-test") as cluster,
    ):
        await make_topic(cluster, WHERE.topic, 1)
        for is_committed in (False, True, False):
            await _transaction(bootstrap, is_committed=is_committed)
        await write(cluster, WHERE, [Record(0, 1_700_000_000_000, None, b"plain")])
        end = (await log_end_offsets(cluster, [WHERE]))[WHERE]
        assert end == 10, "three transactions of two records and a marker each, and a record"
        for at, expected in (
            (Unexplained(0, 0), set()),
            (Unexplained(0, 2), {0, 1, 2}),
            (Unexplained(5, 0), {5}),
            (Unexplained(5, end), {5, 6, 7, 8}),
            (Unexplained(9, end), set()),
            (Unexplained(end, end), set()),
        ):
            examined: dict[TopicPartition, Examined] = {}
            assert await examine(cluster, {WHERE: at}, examined) is bool(expected), at
            assert examined[WHERE].without_records == expected, at


async def _transaction(bootstrap: str, *, is_committed: bool) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=str(uuid.uuid4())) as producer:
        await producer.begin_transaction()
        for value in (b"1", b"2"):
            await producer.send_and_wait(WHERE.topic, value, partition=WHERE.partition)
        await (producer.commit_transaction() if is_committed else producer.abort_transaction())
