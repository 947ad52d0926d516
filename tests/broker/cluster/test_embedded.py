from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from broker.cluster import embedded
from broker.cluster.embedded import FILE_NAME, EmbeddedMetadataStore
from broker.cluster.embedded_file import Contents, Encoded, encode
from broker.cluster.metadata import Change, ChangeKind, PartitionState
from broker.cluster.metadata_store import MetadataStore, MetadataUnreadable
from broker.errors import LogStorageError
from broker.log.disk import OsDisk
from tests.broker.cluster.contract import MetadataStoreContract, Open, elected, next_change, topic
from tests.broker.running import running_server
from tests.broker.running_cluster import until
from tests.broker.wire_client import batch_of, connect, values_in


class TestEmbedded(MetadataStoreContract):
    @pytest.fixture
    def open(self, tmp_path: Path) -> Open:
        async def open() -> MetadataStore:
            return EmbeddedMetadataStore.open(tmp_path)

        return open


class FullDisk(OsDisk):
    full = False

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().write_file(path, data, durable=durable)


async def test_what_could_not_be_written_did_not_happen(tmp_path: Path) -> None:
    disk = FullDisk()
    store = EmbeddedMetadataStore.open(tmp_path, disk=disk)
    controller = await elected(store)
    made = await store.create_topic(controller, topic("flights"))
    disk.full = True
    with pytest.raises(LogStorageError):
        await store.create_topic(controller, topic("orders"))
    with pytest.raises(LogStorageError):
        await store.delete_topic(controller, made)
    assert await store.topics() == {"flights": made} == await EmbeddedMetadataStore.open(tmp_path).topics()


class WatchedDisk(OsDisk):
    """Writes when it may, and notes by which threads, and whether two are at it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[threading.Thread] = set()
        self.together = 0
        self.most_together = 0
        self.may_write = threading.Event()
        self.may_write.set()
        self.writing = threading.Event()

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        self.threads.add(threading.current_thread())
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        self.writing.set()
        assert self.may_write.wait(60)
        super().write_file(path, data, durable=durable)
        self.together -= 1


async def test_changes_are_encoded_and_written_in_a_thread_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = WatchedDisk()
    store = EmbeddedMetadataStore.open(tmp_path, disk=disk)
    disk.threads.clear()

    def noted(contents: Contents, earlier: Encoded) -> tuple[str, Encoded]:
        disk.threads.add(threading.current_thread())
        return encode(contents, earlier)

    monkeypatch.setattr(embedded, "encode", noted)
    controller = await elected(store)
    names = [f"t{number}" for number in range(20)]
    made = await asyncio.gather(*(store.create_topic(controller, topic(name)) for name in names))
    blocks = await asyncio.gather(*(store.allocate_producer_ids(1, 10) for _ in names))
    assert threading.main_thread() not in disk.threads
    assert disk.most_together == 1
    assert list(blocks) == [range(at, at + 10) for at in range(0, 200, 10)], "in the order in which they were asked for"
    read = EmbeddedMetadataStore.open(tmp_path)
    assert list((await read.topics()).values()) == list(made)
    assert await read.allocate_producer_ids(1, 1) == range(200, 201)


async def test_a_change_that_nobody_waits_for_any_more_is_made_and_told(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store = EmbeddedMetadataStore.open(tmp_path, disk=disk)
    controller = await elected(store)
    async with store.watch(ChangeKind.TOPICS) as changes:
        disk.may_write.clear()
        disk.writing.clear()
        creation = asyncio.create_task(store.create_topic(controller, topic("t")))
        await asyncio.to_thread(disk.writing.wait, 60)
        assert await store.topics() == {}, "not before it is on the disk"
        creation.cancel()
        disk.may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await creation
        assert await next_change(changes) == Change(ChangeKind.TOPICS)
    found = await store.topics()
    assert found.keys() == {"t"}
    assert await EmbeddedMetadataStore.open(tmp_path).topics() == found


async def test_a_file_from_before_the_clusters_is_read(tmp_path: Path) -> None:
    led = {"leader": 1, "leader_epoch": 4, "replicas": [1], "isr": [1]}
    topic_id = "6e9f9e0c-2d0e-4f5e-9d52-0a5a3f3c8a11"
    old = {
        "format": 1,
        "cluster_id": "gone-west",
        "next_producer_id": 2000,
        "broker_epoch": 9,
        "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": 9092, "rack": None}],
        "topics": [{"name": "t", "topic_id": topic_id, "configs": {"a": "b"}, "version": 6, "partitions": [led]}],
    }
    (tmp_path / FILE_NAME).write_text(json.dumps(old))
    store = EmbeddedMetadataStore.open(tmp_path, "gone-west")
    read = (await store.topics())["t"]
    assert str(read.topic_id) == topic_id
    assert read.partitions == (PartitionState(1, 4, (1,), (1,), version=0),)
    assert (read.configs, read.version, read.config_version) == ({"a": "b"}, 6, 0)
    assert await store.allocate_producer_ids(1, 1) == range(2000, 2001)
    assert await store.secret() == await EmbeddedMetadataStore.open(tmp_path).secret(), "written with the first change"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "topics": 3}'])
def test_a_file_that_is_not_metadata_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(MetadataUnreadable, match=FILE_NAME):
        EmbeddedMetadataStore.open(tmp_path)
    assert (tmp_path / FILE_NAME).read_text() == text


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    EmbeddedMetadataStore.open(tmp_path, "mine")
    with pytest.raises(MetadataUnreadable, match="mine"):
        EmbeddedMetadataStore.open(tmp_path, "theirs")
    assert EmbeddedMetadataStore.open(tmp_path, "mine").cluster_id == "mine"


def test_a_new_cluster_id_looks_like_kafkas(tmp_path: Path) -> None:
    assert len(EmbeddedMetadataStore.open(tmp_path).cluster_id) == 22


async def test_a_broker_whose_metadata_were_put_back_leads_above_its_own_log(tmp_path: Path) -> None:
    """A leader epoch of the older copy's day would be given out a second time, to other records."""
    file, epochs = tmp_path / FILE_NAME, list[int]()

    async def written(value: str) -> list[str]:
        async with running_server(tmp_path) as server, connect(server.address) as client:
            if value == "a":
                await client.create_topic("t")

            async def taken() -> bool:
                return (await client.produce("t", batch_of(value))).error_code == 0

            await until(taken)
            partition = server.broker.topics["t"].partitions[0]
            assert partition.leader_epoch == partition.log.leader_epoch
            epochs.append(partition.leader_epoch)
            return values_in(await client.fetch("t", 0))

    await written("a")
    older = file.read_bytes()
    await written("b")
    assert await written("c") == ["a", "b", "c"]
    file.write_bytes(older)
    assert await written("d") == ["a", "b", "c", "d"]
    assert await written("e") == ["a", "b", "c", "d", "e"]
    assert epochs == sorted(set(epochs))
