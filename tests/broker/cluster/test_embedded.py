from __future__ import annotations

from pathlib import Path

import pytest

from broker.cluster.embedded import FILE_NAME, EmbeddedMetadataStore
from broker.cluster.metadata_store import MetadataStore, MetadataUnreadable
from broker.errors import LogStorageError
from broker.log.disk import OsDisk
from tests.broker.cluster.contract import MetadataStoreContract, topic


class TestEmbedded(MetadataStoreContract):
    def open(self, place: Path) -> MetadataStore:
        return EmbeddedMetadataStore.open(place)


class FullDisk(OsDisk):
    full = False

    def write_file(self, path: Path, data: bytes, *, durable: bool) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().write_file(path, data, durable=durable)


def test_what_could_not_be_written_did_not_happen(tmp_path: Path) -> None:
    disk = FullDisk()
    store = EmbeddedMetadataStore.open(tmp_path, disk=disk)
    made = store.create_topic(topic("flights"))
    disk.full = True
    with pytest.raises(LogStorageError):
        store.create_topic(topic("orders"))
    with pytest.raises(LogStorageError):
        store.delete_topic(made)
    assert store.topics() == {"flights": made} == EmbeddedMetadataStore.open(tmp_path).topics()


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
