"""Files that are damaged while the broker runs take their partition offline, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.log import lookup
from broker.server import Server
from broker.wire.errors import ErrorCode
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.wire.vocabulary import MAX_TIMESTAMP
from tests.broker.running import running_server
from tests.broker.wire_client import WireClient, batch_of, connect, fetch_request, values_in

NOW_MS = 1_700_000_000_000
STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


async def fetches(server: Server, client: WireClient) -> None:
    assert (await client.fetch("broken", 0)).error_code == STORAGE_ERROR


async def asks_for_a_time(server: Server, client: WireClient) -> None:
    asked = ListOffsetsTopic("broken", [ListOffsetsPartition(0, -1, NOW_MS)])
    answer = await client.ask(ListOffsetsRequest(-1, 0, [asked]), 7, ListOffsetsResponse)
    assert answer.topics[0].partitions[0].error_code == STORAGE_ERROR


async def asks_for_the_latest_time_in_a_thread(server: Server, client: WireClient) -> None:
    """The first two segments are all that the event loop may look at."""
    asked = ListOffsetsTopic("broken", [ListOffsetsPartition(0, -1, MAX_TIMESTAMP)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "PASSED_AT_ONCE_BATCHES_MAX", 1)
        answer = await client.ask(ListOffsetsRequest(-1, 0, [asked]), 7, ListOffsetsResponse)
    assert answer.topics[0].partitions[0].error_code == STORAGE_ERROR


async def is_compacted(server: Server, client: WireClient) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    await server.broker.topic_configs.alter("broken", lambda _: configs)
    async with asyncio.timeout(60):
        while (here := server.broker.partition("broken", 0)) is not None and here.offline is None:
            await asyncio.sleep(0.01)


def open_files(folder: Path) -> list[str]:
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return [target for link in links if link.is_symlink() and str(folder) in (target := os.readlink(link))]


@pytest.mark.parametrize(
    ("finds", "segment"),
    [(fetches, 0), (asks_for_a_time, 0), (asks_for_the_latest_time_in_a_thread, 2), (is_compacted, 0)],
)
async def test_the_partition_goes_offline_and_the_others_go_on(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    finds: Callable[[Server, WireClient], Awaitable[None]],
    segment: int,
) -> None:
    caplog.set_level(logging.ERROR)
    async with running_server(tmp_path, log_cleaner_backoff_ms=10) as server, connect(server.address) as client:
        for topic in ("whole", "broken"):
            await client.create_topic(topic, segment_bytes="300")
            for number in range(8):
                await client.produce(topic, batch_of(f"{number}" + "x" * 100, key=b"k", timestamp=NOW_MS))
        damaged = sorted((tmp_path / "broken-0").glob("*.log"))[segment]
        content = damaged.read_bytes()
        os.truncate(damaged, 10)
        await finds(server, client)
        async with asyncio.timeout(60):
            while open_files(tmp_path / "broken-0"):  # what is made durable late, in its thread
                await asyncio.sleep(0.01)
        assert (await client.produce("broken", batch_of("more"))).error_code == STORAGE_ERROR
        assert (await client.fetch("broken", 7)).error_code == STORAGE_ERROR
        asked = MetadataRequest([MetadataRequestTopic(name="broken")])
        described = (await client.ask(asked, 9, MetadataResponse)).topics[0].partitions[0]
        assert (described.error_code, described.leader_id, described.offline_replicas) == (5, -1, [1])
        assert values_in(await client.fetch("whole", 7)) == ["7" + "x" * 100]
        assert (await client.produce("whole", batch_of("more"))).error_code == 0
    lines = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(lines) == 1, "once, however often it is met"
    assert "broken-0 is offline" in lines[0].getMessage()
    assert damaged.name in lines[0].getMessage()
    damaged.write_bytes(content)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert values_in(await client.fetch("broken", 7)) == ["7" + "x" * 100], "a restart looks again"
        assert (await client.produce("broken", batch_of("more", key=b"k"))).base_offset == 8


async def test_a_fetch_that_waits_is_told(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client, connect(server.address) as other:
        await client.create_topic("broken", segment_bytes="300")
        for number in range(8):
            await client.produce("broken", batch_of(f"{number}" + "x" * 100))
        os.truncate(min((tmp_path / "broken-0").glob("*.log")), 10)
        await client.send(fetch_request("broken", 8, max_wait_ms=20_000), 12)
        partition = server.broker.require_partition("broken", 0)
        async with asyncio.timeout(60):
            while not partition.waiters:
                await asyncio.sleep(0.01)
            assert (await other.fetch("broken", 0)).error_code == STORAGE_ERROR
            _, answer = await client.receive(1, 12)
        assert answer.responses[0].partitions[0].error_code == STORAGE_ERROR  # type: ignore[attr-defined]


def is_a_file(folder: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


def is_a_link_to_itself(folder: Path, patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder)


def belongs_to_another_user(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """As it is for whoever is not root."""
    stat, listdir = os.stat, os.listdir

    def refused(path: Any) -> None:
        if str(path).startswith(str(folder)) and Path(path) != folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def seen(path: Any, *args: Any, **options: Any) -> os.stat_result:
        refused(path)
        return stat(path, *args, **options)

    def listed(path: Any = ".") -> list[str]:
        refused(f"{path}/")
        return listdir(path)

    patch.setattr(os, "stat", seen)
    patch.setattr(os, "listdir", listed)


@pytest.mark.parametrize("spoilt", [is_a_file, is_a_link_to_itself, belongs_to_another_user])
async def test_a_folder_that_cannot_be_looked_into_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        for topic in ("broken", "whole"):
            await client.create_topic(topic)
            assert (await client.produce(topic, batch_of(topic))).error_code == 0
    with monkeypatch.context() as patch:
        spoilt(tmp_path / "broken-0", patch)
        async with running_server(tmp_path) as server, connect(server.address) as client:
            assert values_in(await client.fetch("whole", 0)) == ["whole"]
            assert (await client.fetch("broken", 0)).error_code == STORAGE_ERROR
