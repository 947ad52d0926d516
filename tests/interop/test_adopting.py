"""Adopting what a target holds, where real clusters wrote, aborted, compacted and marked the logs."""

from __future__ import annotations

import uuid
from pathlib import Path

from aiokafka import AIOKafkaProducer

from broker.client.cluster import Cluster
from broker.client.topics import delete_topics
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets.adoption import Adoption
from mirror.offsets.operations import adopt_partitions
from mirror.offsets.state import load_link_state, read_entries
from mirror.worker.adopting import compare_for_adoption
from mirror.worker.events import Event
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.mirror.harness import (
    contents,
    eventually,
    link_between,
    make_topic,
    read_all,
    running,
    wait_for_records,
    write,
)


def keyed(start: int, count: int) -> list[Record]:
    return [Record(at, 1_700_000_000_000 + start + at, b"k%d" % (at % 4), b"%d" % (start + at)) for at in range(count)]


async def adopt_again(link: Link, source: Cluster, target: Cluster) -> Adoption:
    """The state is deleted, the partition stops, and what is there is adopted."""
    await delete_topics(target, [link.state_topic])
    async with running(link) as told:
        await told.wait_for(Event.PARTITION_STOPPED)
        await told.wait_for(Event.STARTED)
    (gap,) = (await read_entries(link, target)).open_gaps().values()
    found = await compare_for_adoption(link, source, target, gap, lambda _read, _total: None)
    assert isinstance(found, Adoption), found
    await adopt_partitions(link, target, "op", [found])
    return found


async def test_aborted_transactions_and_markers_lie_between(kafka_39: KafkaServer, kafka_43: KafkaServer) -> None:
    where = TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)
    link = link_between(kafka_39.bootstrap, kafka_43.bootstrap, [where.topic])
    async with Cluster(link.source) as source, Cluster(link.target) as target:
        await make_topic(source, where.topic)
        producer = AIOKafkaProducer(bootstrap_servers=kafka_39.bootstrap, transactional_id=f"t-{where.topic}")
        await producer.start()
        try:
            for session in range(1, 4):
                for commit in (True, False, True):
                    await producer.begin_transaction()
                    for at in range(5):
                        await producer.send_and_wait(where.topic, b"%d %d" % (session, at), partition=0)
                    await (producer.commit_transaction() if commit else producer.abort_transaction())
                async with running(link):
                    before = await wait_for_records(target, where, 10 * session)
        finally:
            await producer.stop()
        known = (await load_link_state(link, target)).map
        end = known.mirrored_end(*where)
        assert end is not None
        found = await adopt_again(link, source, target)
        assert found.records == 30
        rebuilt = (await load_link_state(link, target)).map
        for record in before:
            assert rebuilt.to_source(*where, record.offset) == known.to_source(*where, record.offset)
        for offset in range(found.end.source_next):
            assert rebuilt.to_target(*where, offset) == known.to_target(*where, offset)
        await write(source, where, keyed(0, 5))
        async with running(link):
            after = await wait_for_records(target, where, 35)
        assert contents(after) == contents([*before, *keyed(0, 5)])


async def test_the_source_was_compacted_since(shared_broker: FarshoreBroker, tmp_path: Path) -> None:
    overrides = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100"}
    where = TopicPartition(f"flights-{uuid.uuid4().hex[:8]}", 0)
    compacting = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.0", "segment_ms": "500"}
    with KafkaServer("3.9.1", tmp_path / "kafka", overrides) as kafka:
        link = link_between(kafka.bootstrap, shared_broker.bootstrap, [where.topic])
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, where.topic, 1, **compacting)
            for start in (0, 20, 40):
                await write(source, where, keyed(start, 20))
            async with running(link):
                before = await wait_for_records(target, where, 60)
            known = (await load_link_state(link, target)).map
            rolled = 0

            async def compacted() -> bool:
                nonlocal rolled
                rolled += 1
                await write(source, where, [Record(0, 1_700_000_000_000 + 1000 * rolled, b"roll%d" % rolled, b"")])
                return len([record for record in await read_all(source, where) if record.offset < 60]) == 4

            await eventually(compacted, "the cleaner")
            left = [record for record in await read_all(source, where) if record.offset < 60]
            found = await adopt_again(link, source, target)
            assert found.records == len(left) < 60
            rebuilt = (await load_link_state(link, target)).map
            for record in left:
                assert rebuilt.to_target(*where, record.offset) == known.to_target(*where, record.offset)
            behind = [record for record in await read_all(source, where) if record.offset >= 60]
            async with running(link):
                after = await wait_for_records(target, where, 60 + len(behind))
            assert contents(after) == contents([*before, *behind])
