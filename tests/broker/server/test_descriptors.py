"""A broker that runs out of file descriptors says so, refuses what would need them, and goes on."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from broker.base.children import module_environment
from broker.descriptors import TooFewDescriptors
from broker.limits import DESCRIPTORS_KEPT, DESCRIPTORS_KEPT_FROM_SEGMENTS
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.bombs import NOW_MS, SHAPES, bomb
from tests.broker.running import running_server
from tests.broker.wire_client import batch_of, connect, values_in

RAISED = """
import resource
from broker.descriptors import raise_soft_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
raise_soft_limit()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
assert soft == hard, (soft, hard)
"""


@contextmanager
def room_for(files: int) -> Iterator[None]:
    """Only so many more files can be opened: the limit is one of their numbers, of which earlier tests leave gaps.

    What they left to the garbage collector is closed before, and not meanwhile.
    """
    gc.collect()
    gc.disable()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    gaps = [os.open(os.devnull, os.O_RDONLY)]
    while gaps[-1] < last:
        gaps.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (gaps[-1] + files + 1, before[1]))
    try:
        yield
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for gap in gaps:
            os.close(gap)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    subprocess.run([sys.executable, "-c", RAISED], check=True, env=module_environment(), timeout=60)


async def test_more_partitions_than_there_are_descriptors_are_refused_whole(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        with room_for(DESCRIPTORS_KEPT + 30):
            request = CreateTopicsRequest([CreatableTopic("many", 60, 1)])
            refused = (await client.ask(request, 7, CreateTopicsResponse)).topics[0]
            grown = CreatePartitionsRequest([CreatePartitionsTopic("t", 60, None)], 1000)
            also = (await client.ask(grown, 3, CreatePartitionsResponse)).results[0]
            assert {refused.error_code, also.error_code} == {ErrorCode.POLICY_VIOLATION}
            assert "limit" in (refused.error_message or "")
            assert not list(tmp_path.glob("many-*")), "nothing is left of it"
            await client.create_topic("few", partitions=10)
            assert (await client.produce("t", batch_of("v"))).error_code == 0
            assert values_in(await client.fetch("t", 0)) == ["v"]


async def test_clients_do_not_take_what_logs_need(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", segment_bytes="300")
        with room_for(DESCRIPTORS_KEPT + 10):
            host, port = server.broker.advertised
            clients = [await asyncio.open_connection(host, port) for _ in range(30)]
            for number in range(8):
                assert (await client.produce("t", batch_of(f"{number}" + "x" * 100))).error_code == 0
            closed = 0
            for reader, writer in clients:
                try:
                    async with asyncio.timeout(0.05):
                        closed += not await reader.read(1)
                except TimeoutError:
                    pass
                except ConnectionError:
                    closed += 1
                writer.close()
            assert closed >= 15, "each of these sockets has two ends in this process"
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert "clients are refused" in warned[0]
    assert "ulimit" in warned[0]


async def test_segments_grow_where_new_ones_would_take_the_last_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records are taken, and there are files left for what the broker needs to live."""
    folder = tmp_path / "t-0"
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", segment_bytes="300")
        await client.create_topic("other")
        with room_for(DESCRIPTORS_KEPT_FROM_SEGMENTS + 10):
            for number in range(40):
                assert (await client.produce("t", batch_of(f"{number:02}" + "x" * 200))).error_code == 0
            assert len(list(folder.glob("*.log"))) < 15
            assert (await client.produce("other", batch_of("v"))).error_code == 0
        before = len(list(folder.glob("*.log")))
        for number in range(40, 43):
            assert (await client.produce("t", batch_of(f"{number:02}" + "x" * 200))).error_code == 0
        assert len(list(folder.glob("*.log"))) == before + 3
        read: list[str] = []
        while len(read) < 43:
            read += [value[:2] for value in values_in(await client.fetch("t", len(read)))]
        assert read == [f"{number:02}" for number in range(43)]
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    # Again where a file was free for a moment; not for each of some thirty.
    assert 1 <= len(lines) <= 10
    assert all("ulimit" in line for line in lines)


async def test_a_start_that_cannot_open_all_logs_says_how_many_it_needs(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t", partitions=50)
    with room_for(DESCRIPTORS_KEPT + 40), pytest.raises(TooFewDescriptors, match="50 files to open") as refused:
        async with running_server(tmp_path):
            pass
    assert "ulimit" in refused.value.hint
    async with running_server(tmp_path) as server:
        assert len(server.broker.topics["t"].partitions) == 50


async def test_lookups_by_time_that_wait_for_their_turn_hold_no_files(tmp_path: Path) -> None:
    """Each opens up to 16 segments once more: a thousand clients that ask at once are not to take all there are."""
    records, count = SHAPES["many records"]()
    slow = bomb(Compression.ZSTD, records, count)
    asked = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, NOW_MS)])])
    async with running_server(tmp_path) as server, connect(server.address) as client, AsyncExitStack() as stack:
        await client.create_topic("t", segment_bytes=str(len(slow) + 10))
        for _ in range(8):
            assert (await client.produce("t", slow)).error_code == 0
        others = [await stack.enter_async_context(connect(server.address)) for _ in range(10)]
        for other in others:
            await other.ask(MetadataRequest([]), 8, MetadataResponse)
        release = threading.Event()
        busy = asyncio.create_task(server.broker.openings.run_in_thread(lambda: release.wait(60)))
        before = len(os.listdir("/proc/self/fd"))
        for other in others:
            await other.send(asked, 7)
        for _ in range(50):
            await client.ask(MetadataRequest([]), 8, MetadataResponse)
        held = len(os.listdir("/proc/self/fd")) - before
        release.set()
        await busy
        for other in others:
            _, answer = await other.receive(ListOffsetsRequest.API_KEY, 7)
            assert isinstance(answer, ListOffsetsResponse)
            assert answer.topics[0].partitions[0].offset == 0
        assert held <= 8, "those of one lookup"
