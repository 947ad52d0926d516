"""High watermarks on disk: of a topic by its id, and what is no such file is no high watermark."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from broker.base.clock import SystemClock
from broker.cluster.metadata import PartitionState, TopicState
from broker.log.disk import OS_DISK
from broker.replicas.files import PartitionFiles
from broker.replication.checkpoint import FILE_NAME, HighWatermarkCheckpoint
from broker.topics.folders import PartitionFolders
from tests.broker.running import running_server
from tests.broker.wire_client import batch_of, connect

FLIGHTS, OTHERS = UUID(int=1), UUID(int=2)
KNOWN = {(FLIGHTS, 0): 17, (OTHERS, 49): 0}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    checkpoint = HighWatermarkCheckpoint(tmp_path, OS_DISK)
    assert checkpoint.read() == {}
    checkpoint.write(KNOWN)
    assert (tmp_path / FILE_NAME).read_bytes() == f"1\n2\n{FLIGHTS} 0 17\n{OTHERS} 49 0\n".encode()
    assert HighWatermarkCheckpoint(tmp_path, OS_DISK).read() == KNOWN


def test_it_is_written_only_when_something_changed(tmp_path: Path) -> None:
    checkpoint = HighWatermarkCheckpoint(tmp_path, OS_DISK)
    high_watermarks = dict(KNOWN)
    checkpoint.write(high_watermarks)
    os.unlink(tmp_path / FILE_NAME)
    checkpoint.write(high_watermarks)
    assert not (tmp_path / FILE_NAME).exists()
    high_watermarks[FLIGHTS, 0] = 18
    checkpoint.write(high_watermarks)
    assert checkpoint.read() == high_watermarks


@pytest.mark.parametrize(
    "data", [b"", b"2\n0\n", b"1\n2\na 0 1\n", b"1\n1\na 0\n", b"1\n1\na 0 1\n", b"1\nx\n", b"\xff\n"]
)
def test_a_torn_file_says_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(data.replace(b"%b", str(FLIGHTS).encode()))
    assert HighWatermarkCheckpoint(tmp_path, OS_DISK).read() == {}


async def test_a_broker_that_stops_notes_what_it_served_and_serves_no_more_when_it_starts(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        for _ in range(5):
            await client.produce("t", batch_of("a"))
        partition = server.broker.require_partition("t", 0)
        topic = server.broker.topics["t"].state
        partition.take_state(replace(partition.state, replicas=(1, 2), isr=(1, 2)), now_ms=0)
        await client.produce("t", batch_of("a"), acks=1)
    known = HighWatermarkCheckpoint(tmp_path, OS_DISK).read()
    where = (topic.topic_id, 0)
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


def test_a_topic_that_was_made_anew_has_nothing_of_the_one_before(tmp_path: Path) -> None:
    """Nor of a file that says names alone, as earlier versions wrote it."""
    (tmp_path / FILE_NAME).write_bytes(b"0\n1\nt 0 2\n")
    assert HighWatermarkCheckpoint(tmp_path, OS_DISK).read() == {}
    state = PartitionState(2, 3, (1, 2), (1, 2))
    later = TopicState("t", OTHERS, (state,))
    folders = PartitionFolders(tmp_path)
    (made,) = PartitionFiles(folders, SystemClock(), 1, {}).make(later, {0: state})
    made.log.append(memoryview(batch_of("a")), leader_epoch=3)
    made.log.append(memoryview(batch_of("b")), leader_epoch=3)
    made.log.close()
    files = PartitionFiles(folders, SystemClock(), 1, {(FLIGHTS, 0): 2, (OTHERS, 0): 1})
    for expected in (1, 0):
        # The second time it was away meanwhile, and what was noted before the start is older than that.
        (opened,) = files.load(later, [(0, state)])
        assert opened.log.high_watermark == expected
        opened.log.close()
