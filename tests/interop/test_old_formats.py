"""A Kafka 3.9 whose logs an older version wrote: upgraded in place, it keeps and answers them as they are."""

from __future__ import annotations

import struct
from pathlib import Path

from broker.client.cluster import Cluster
from broker.client.log import FetchLimits, fetch_once, records_of
from broker.client.site import Site
from broker.wire.batch import MAGIC_OFFSET
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from mirror.lag import link_lag
from mirror.offsets.state import load_link_state
from mirror.worker.events import Event
from tests.broker.wire.test_message_sets import BASE, WRITTEN_BY_KAFKA, written_by_kafka
from tests.interop.servers import FarshoreBroker, KafkaServer
from tests.mirror.harness import contents, link_between, make_topic, running, wait_for_records, write

TOPIC = "flights"
CODECS = ("none", "gzip", "snappy", "lz4")


def moved(data: bytes, by: int) -> bytes:
    """The messages with later offsets: those of the outermost are not under the CRC, and those inside are relative."""
    moved_data, position = bytearray(data), 0
    while position < len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        struct.pack_into(">q", moved_data, position, offset + by)
        position += 12 + size
    return bytes(moved_data)


def old_log(codec: str) -> tuple[bytes, list[Record]]:
    """Format 0, then 1 with the producers' times, then 1 with the broker's -> the bytes, and what they hold."""
    data = b""
    records: list[Record] = []
    for magic, found, times, text in WRITTEN_BY_KAFKA:
        if found == codec:
            by = len(records)
            data += moved(bytes.fromhex(text), by)
            records += [r._replace(offset=r.offset + by) for r in written_by_kafka(int(magic), times)]
    return data, records


async def test_logs_from_before_an_upgrade_are_mirrored_whole_and_mapped_exactly(tmp_path: Path) -> None:
    with KafkaServer("3.9.1", tmp_path / "east") as kafka, FarshoreBroker(tmp_path / "west") as ours:
        async with Cluster(Site("east", kafka.bootstrap)) as source:
            await make_topic(source, TOPIC, len(CODECS))
        kafka.stop()
        logs = [old_log(codec) for codec in CODECS]
        for partition, (data, _) in enumerate(logs):
            (tmp_path / "east" / "data" / f"{TOPIC}-{partition}" / f"{0:020}.log").write_bytes(data)
        kafka.start()
        link = link_between(kafka.bootstrap, ours.bootstrap, [TOPIC])
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            async with running(link):
                for partition, (_, records) in enumerate(logs):
                    where = TopicPartition(TOPIC, partition)
                    answer = (await fetch_once(source, {where: BASE}, FetchLimits(1 << 20, 1 << 20)))[where]
                    assert records_of(answer)[MAGIC_OFFSET] == 0, "the broker converts nothing"
                    found = await wait_for_records(target, where, len(records))
                    assert contents(found) == contents(records), CODECS[partition]
            # The next session begins by comparing the last record's copies, one of which is in an old format.
            async with running(link) as told:
                for partition, (_, records) in enumerate(logs):
                    where = TopicPartition(TOPIC, partition)
                    after = await write(source, where, [Record(0, 1_700_000_000_000, b"k", b"after the upgrade")])
                    assert after == records[-1].offset + 1
                    found = await wait_for_records(target, where, len(records) + 1)
                    assert found[-1].value == b"after the upgrade"
                assert not told.count(Event.PARTITION_STOPPED)
            found_map = (await load_link_state(link, target)).map
            for partition, (_, records) in enumerate(logs):
                copies = await wait_for_records(target, TopicPartition(TOPIC, partition), len(records) + 1)
                places = [found_map.to_target(TOPIC, partition, BASE + n) for n in range(len(copies))]
                assert places == [copy.offset for copy in copies]
            assert sum(lag.lag_records for lag in await link_lag(link, source, target)) == 0
