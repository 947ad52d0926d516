"""Which folder belongs to which partition.

flights-0/                a partition, as in Kafka: segments, indexes, and
    partition.metadata    the id of its topic, so that a recreated topic never sees the old one's records
flights-0.<id>-stray/     one that the controller does not name: what is not named was not deleted by that. Only an
                          order to delete just this topic id removes records; the metadata may have lost the topic,
                          or be an old copy of itself. Named again, it is taken in again.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from broker.errors import LogDamaged
from broker.limits import FILES_SYNCED_EACH_MAX
from broker.log import layout
from broker.log.disk import OS_DISK, Disk
from broker.wire.vocabulary import TopicPartition

PARTITION_METADATA: Final = "partition.metadata"

_PARTITION_FOLDER = re.compile(r"[a-zA-Z0-9._-]+-\d+")
_STRAY_FOLDER = re.compile(rf"(.+)-(\d+)\.([0-9a-f]{{32}}){layout.STRAY}")
_TOPIC_ID = re.compile(r"^topic_id: (\S+)$", re.MULTILINE)

log = logging.getLogger(__name__)


class Stray(NamedTuple):
    """`topic` as the folder's name has it: the end of a long one is missing there."""

    topic: str
    partition: int
    folder: Path
    size_bytes: int


class PartitionFolders:
    """The partitions' folders under `path`, the data directory, which whoever opened it keeps locked."""

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self.path = path
        self.disk = disk

    def prepare(self, topic: str, indexes: Sequence[int], topic_id: uuid.UUID) -> list[Path]:
        """The folders of new partitions, empty or with what was made under just this topic id; durable when this
        returns, by one wait for all of them where they are many. Raises OSError.
        """
        paths = [self.path / f"{topic}-{index}" for index in indexes]
        there = set(os.listdir(self.path))
        strays = _strays(there)
        missing = []
        for path, index in zip(paths, indexes, strict=True):
            if path.name in there and _topic_id_in(path) == topic_id:
                continue
            if path.name in there and (doomed := self.set_aside(path)) is not None:
                shutil.rmtree(doomed)
            if (stray := strays.get((topic_id, index))) is not None:
                self._take_in_again(stray, path)
            else:
                missing.append(path)
        one_by_one = len(missing) <= FILES_SYNCED_EACH_MAX
        text = f"version: 0\ntopic_id: {topic_id}\n".encode()
        for path in missing:
            path.mkdir()
            self.disk.write_file(path / PARTITION_METADATA, text, durable=one_by_one)
        if missing and one_by_one:
            self.disk.fsync_directory(self.path)
        elif missing:
            self.disk.sync_all()
        return paths

    def find(self, topic: str, index: int, topic_id: uuid.UUID) -> Path:
        """The folder of a partition that the metadata has. It was durable before the metadata named it: where it is
        gone, so are its records, and an empty log in its place would hide that.

        Raises LogDamaged, OSError.
        """
        path = self.path / f"{topic}-{index}"
        if not path.exists():
            stray = _strays(os.listdir(self.path)).get((topic_id, index))
            if stray is None:
                raise LogDamaged(f"{path} is gone")
            self._take_in_again(stray, path)
        if (found := _topic_id_in(path)) != topic_id:
            raise LogDamaged(f"{path / PARTITION_METADATA} names topic id {found}, the metadata {topic_id}")
        return path

    def _take_in_again(self, stray: str, path: Path) -> None:
        self.disk.replace(self.path / stray, path)
        self.disk.fsync_directory(self.path)
        log.warning("%s is taken in again as %s: the metadata has it", stray, path.name)

    def set_aside(self, path: Path) -> Path | None:
        """The folder of a partition that the metadata does not have; nothing has it open. Where it never had records it
        gets a name under which it may be removed: that. Raises OSError.
        """
        if not path.is_dir():
            raise NotADirectoryError(f"{path} is no folder")
        if not layout.holds_records(path):
            return layout.retire(path, self.disk)
        stray = self.path / _stray_name(path.name, _topic_id_in(path) or uuid.uuid4())
        if stray.exists():
            stray = self.path / _stray_name(path.name, uuid.uuid4())
        self.disk.replace(path, stray)
        log.error(
            "the metadata has no %s at this broker, and its deletion was not ordered: its records are kept, and taken "
            "in again when the metadata has it here again; after a reassignment that moved it away, and where they are "
            "not wanted: rm -r %s",
            path.name,
            stray,
        )
        return None

    def retire(self, deleted: Mapping[TopicPartition, uuid.UUID]) -> list[Path]:
        """Of partitions that are not open, what there is of just these topic ids; under its new name it may be removed.
        A folder that names no topic id may be that of a later topic, which may have it open. Raises OSError.
        """
        there = set(os.listdir(self.path))
        strays, doomed = _strays(there), []
        for where, topic_id in deleted.items():
            name = f"{where.topic}-{where.partition}"
            found = _topic_id_in(self.path / name) if name in there else None
            if found == topic_id:
                doomed.append(layout.retire(self.path / name, self.disk))
            elif name in there and found is None:
                log.error(
                    "%s stays: topic id %s is deleted, and %s does not say whose the records are; where they are not "
                    "wanted, stop the broker and remove it",
                    self.path / name,
                    topic_id,
                    PARTITION_METADATA,
                )
            if (stray := strays.get((topic_id, where.partition))) is not None:
                doomed.append(layout.retire(self.path / stray, self.disk))
        return doomed

    def existing(self) -> list[Path]:
        """Folders that hold a partition of a known topic id, and those that cannot be looked into. Raises OSError."""
        return [
            path
            for path in sorted(self.path.iterdir())
            if _PARTITION_FOLDER.fullmatch(path.name) and _may_have_metadata(path)
        ]

    def strays(self) -> list[Stray]:
        """What was set aside. Raises OSError."""
        found = [(path, _STRAY_FOLDER.fullmatch(path.name)) for path in sorted(self.path.iterdir())]
        return [Stray(name[1], int(name[2]), path, _size_bytes(path)) for path, name in found if name is not None]

    def segments(self) -> int:
        """How many segments there are: so many files are open while the broker runs. What cannot be looked into has
        none; its own opening says why. Raises OSError.
        """
        folders = [path for path in self.path.iterdir() if _PARTITION_FOLDER.fullmatch(path.name)]
        return sum(name.endswith(layout.LOG) for path in folders for name in _names_in(path))

    def set_aside_leftovers(self, kept: Collection[tuple[uuid.UUID, int]], unreadable: Collection[str]) -> list[Path]:
        """Every partition but these, by topic id and index. Topics whose metadata is `unreadable` keep what has their
        name. -> What may be removed: what never had records, and what deletions left. Raises OSError.
        """
        doomed = list(self.path.glob(f"*{layout.DELETED}"))
        for path in self.existing():
            name, _, index = path.name.rpartition("-")
            if name in unreadable:
                continue
            topic_id = _topic_id_in(path)
            if topic_id is not None and (topic_id, int(index)) not in kept:
                empty = self.set_aside(path)
                doomed += [] if empty is None else [empty]
        return doomed


def _stray_name(folder: str, topic_id: uuid.UUID) -> str:
    topic, _, index = folder.rpartition("-")
    end = f"-{index}.{topic_id.hex}{layout.STRAY}"
    return topic[: layout.NAME_CHARS_MAX - len(end)] + end


def _strays(names: Iterable[str]) -> dict[tuple[uuid.UUID, int], str]:
    found = [(name, stray) for name in names if (stray := _STRAY_FOLDER.fullmatch(name)) is not None]
    return {(uuid.UUID(stray[3]), int(stray[2])): name for name, stray in found}


def _topic_id_in(path: Path) -> uuid.UUID | None:
    try:
        found = _TOPIC_ID.search((path / PARTITION_METADATA).read_text())
        return uuid.UUID(found.group(1)) if found else None
    except (OSError, ValueError):
        return None


def _may_have_metadata(path: Path) -> bool:
    try:
        return (path / PARTITION_METADATA).exists()
    except OSError:
        return True


def _size_bytes(path: Path) -> int:
    """Of the files in it that are there, and can be looked at."""
    total = 0
    for name in _names_in(path):
        with suppress(OSError):
            total += (path / name).stat().st_size
    return total


def _names_in(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
