"""High watermarks on disk are Kafka's file, and what is no such file is no high watermark."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.clock import SystemClock
from broker.cluster.metadata import PartitionState
from broker.log.disk import OS_DISK
from broker.replicas.files import PartitionFiles
from broker.replication.checkpoint import FILE_NAME, HighWatermarkCheckpoint
from broker.topics.folders import PartitionFolders
from broker.wire.vocabulary import TopicPartition
from tests.broker.running import running_server
from tests.broker.wire_client import batch_of, connect

KNOWN = {TopicPartition("flights", 0): 17, TopicPartition("__consumer_offsets", 49): 0}


def test_what_is_written_is_read_in_kafkas_form(tmp_path: Path) -> None:
    checkpoint = HighWatermarkCheckpoint(tmp_path, OS_DISK)
    assert checkpoint.read() == {}
    checkpoint.write(KNOWN)
    assert (tmp_path / FILE_NAME).read_bytes() == b"0\n2\nflights 0 17\n__consumer_offsets 49 0\n"
    assert HighWatermarkCheckpoint(tmp_path, OS_DISK).read() == KNOWN


def test_it_is_written_only_when_something_changed(tmp_path: Path) -> None:
    checkpoint = HighWatermarkCheckpoint(tmp_path, OS_DISK)
    high_watermarks = dict(KNOWN)
    checkpoint.write(high_watermarks)
    os.unlink(tmp_path / FILE_NAME)
    checkpoint.write(high_watermarks)
    assert not (tmp_path / FILE_NAME).exists()
    high_watermarks[TopicPartition("flights", 0)] = 18
    checkpoint.write(high_watermarks)
    assert checkpoint.read() == high_watermarks


@pytest.mark.parametrize("data", [b"", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\nx\n", b"\xff\n"])
def test_a_torn_file_says_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    assert HighWatermarkCheckpoint(tmp_path, OS_DISK).read() == {}


async def test_a_broker_that_stops_notes_what_it_served_and_serves_no_more_when_it_starts(tmp_path: Path) -> None:
    where = TopicPartition("t", 0)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        for _ in range(5):
            await client.produce("t", batch_of("a"))
        partition = server.broker.require_partition("t", 0)
        topic = server.broker.topics["t"].state
        partition.take_state(replace(partition.state, replicas=(1, 2), isr=(1, 2)), now_ms=0)
        await client.produce("t", batch_of("a"), acks=1)
    known = HighWatermarkCheckpoint(tmp_path, OS_DISK).read()
    assert known[where] == 5
    led_elsewhere = PartitionState(2, topic.partitions[0].leader_epoch + 1, (1, 2), (1, 2))
    for noted, expected in ((5, 5), (3, 3), (9, 6)):
        files = PartitionFiles(PartitionFolders(tmp_path), SystemClock(), 1, {where: noted})
        (opened,) = files.load(topic, [(0, led_elsewhere)])
        assert (opened.log.high_watermark, opened.log.log_end_offset) == (expected, 6)
        opened.log.close()


def test_a_disk_that_fails_costs_time_after_a_restart_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    assert HighWatermarkCheckpoint(tmp_path, OS_DISK).read() == {}
