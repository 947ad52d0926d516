"""Making and removing thousands of partitions: few waits for the disk, and none of them in the event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.cluster.embedded import EmbeddedMetadataStore
from broker.errors import LogStorageError
from broker.log.disk import OsDisk
from broker.topics.errors import TopicExists, UnknownTopic
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.lone_broker import lone_broker
from tests.broker.running import running_server
from tests.broker.wire_client import batch_of, connect

MANY = 300


class WatchedDisk(OsDisk):
    """Counts the waits for the disk, and everything that is done in the thread of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.in_loop = 0
        self.files_left: int | None = None

    def _look(self) -> None:
        self.in_loop += threading.current_thread() is threading.main_thread()

    def open(self, path: Path) -> int:
        self._look()
        if self.files_left is not None:
            self.files_left -= 1
            if self.files_left < 0:
                raise OSError(24, "Too many open files")
        return super().open(path)

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        self._look()
        self.waits += durable
        super().write_file(path, data, durable=durable)

    def fsync_directory(self, directory: Path) -> None:
        self._look()
        self.waits += 1
        super().fsync_directory(directory)

    def sync_all(self) -> None:
        self._look()
        self.waits += 1
        super().sync_all()

    def replace(self, source: Path, target: Path) -> None:
        self._look()
        super().replace(source, target)


def partition_folders(folder: Path) -> int:
    return sum(path.is_dir() for path in folder.iterdir())


async def test_many_partitions_cost_one_wait_and_nothing_in_the_loop(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with lone_broker(tmp_path, disk) as broker:
        await broker.create("t", MANY)
        assert (disk.waits, disk.in_loop) == (1, 0)
        await broker.grow("t", 2 * MANY)
        assert (disk.waits, disk.in_loop) == (2, 0)
        assert len(broker.topics["t"].partitions) == partition_folders(tmp_path) == 2 * MANY
        await broker.delete("t")
        assert (disk.waits, disk.in_loop) == (2, 0)
        assert not list(tmp_path.glob("t-*")), "the name is free"
        await broker.replicas.removing.sweep()
        assert partition_folders(tmp_path) == 0


async def test_what_was_not_removed_before_a_stop_is_removed_after_the_next_start(tmp_path: Path) -> None:
    async with lone_broker(tmp_path, WatchedDisk()) as broker:
        for _ in range(2):
            await broker.create("t", 3)
            await broker.delete("t")
        assert partition_folders(tmp_path) == 6
    async with lone_broker(tmp_path, WatchedDisk()) as again:
        sweeping = asyncio.create_task(again.replicas.removing.run())
        async with asyncio.timeout(60):
            while partition_folders(tmp_path):
                await asyncio.to_thread(tmp_path.stat)
        sweeping.cancel()


async def test_a_creation_that_fails_in_its_middle_leaves_nothing(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with lone_broker(tmp_path, disk) as broker:
        disk.files_left = 20
        with pytest.raises(LogStorageError):
            await broker.create("t", 30)
        assert broker.topics == {}
        disk.files_left = None
        await broker.create("t", 30)
        assert len(broker.topics["t"].partitions) == 30


async def test_one_name_is_changed_by_one_at_a_time(tmp_path: Path) -> None:
    async with lone_broker(tmp_path, WatchedDisk()) as broker:
        first, second = await asyncio.gather(broker.create("t", MANY), broker.create("t", 2), return_exceptions=True)
        assert not isinstance(first, BaseException)
        assert isinstance(second, TopicExists)
        (deleted, grown, again) = await asyncio.gather(
            broker.delete("t"), broker.grow("t", 2 * MANY), broker.create("u", 3), return_exceptions=True
        )
        assert deleted is None
        assert isinstance(grown, UnknownTopic)
        assert not isinstance(again, BaseException)
        assert (await broker.create("t", 1)).topic_id != first.topic_id
        await broker.replicas.removing.sweep()
        assert partition_folders(tmp_path) == 4


async def test_a_client_that_goes_away_leaves_a_whole_topic(tmp_path: Path) -> None:
    async with lone_broker(tmp_path, WatchedDisk()) as broker:
        creating = asyncio.create_task(broker.create("t", MANY))
        await asyncio.sleep(0)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        with pytest.raises(TopicExists):
            await broker.create("t", 1)
        async with asyncio.timeout(60):
            while "t" not in broker.topics:
                await asyncio.sleep(0.01)
        assert len(broker.topics["t"].partitions) == MANY
    async with lone_broker(tmp_path, WatchedDisk()) as again:
        assert len(again.topics["t"].partitions) == MANY


async def test_configs_set_while_partitions_are_added_hold_for_all(tmp_path: Path) -> None:
    async with lone_broker(tmp_path, WatchedDisk()) as broker:
        await broker.create("t", 2)
        growing = asyncio.create_task(broker.grow("t", MANY))
        await asyncio.sleep(0)
        await broker.configs.alter("t", lambda _: {"retention.ms": "4711"})
        assert not growing.done()
        await growing
        found = {partition.log.config.retention_ms for partition in broker.topics["t"].partitions.values()}
        assert found == {4711}
        assert (await EmbeddedMetadataStore.open(tmp_path).topics())["t"].configs == {"retention.ms": "4711"}


async def test_others_are_served_while_partitions_are_made(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path) as server,
        connect(server.address) as maker,
        connect(server.address) as other,
    ):
        await other.create_topic("busy")
        creating = asyncio.create_task(maker.create_topic("wide", MANY))
        served = 0
        while not creating.done():
            assert (await other.produce("busy", batch_of(f"{served}"))).error_code == 0
            served += 1
        await creating
        assert served > 1
        assert (await other.fetch("busy", 0)).high_watermark == served


async def test_clients_that_ask_for_a_new_topic_at_once_all_get_it(tmp_path: Path) -> None:
    asked = MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    async with running_server(tmp_path, num_partitions=20) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(server.address)) for _ in range(8)]
        answers = await asyncio.gather(*(client.ask(asked, 9, MetadataResponse) for client in clients))
    assert [(topic.error_code, len(topic.partitions)) for answer in answers for topic in answer.topics] == [(0, 20)] * 8
