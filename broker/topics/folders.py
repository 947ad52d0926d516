"""Which folder belongs to which partition.

flights-0/                a partition, as in Kafka: segments, indexes, and
    partition.metadata    the id of its topic, so that a recreated topic never sees the old one's records
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from broker.errors import LogDamaged
from broker.limits import FILES_SYNCED_EACH_MAX
from broker.log import layout
from broker.log.disk import OS_DISK, Disk

PARTITION_METADATA: Final = "partition.metadata"

_PARTITION_FOLDER = re.compile(r"[a-zA-Z0-9._-]+-\d+")
_TOPIC_ID = re.compile(r"^topic_id: (\S+)$", re.MULTILINE)


class PartitionFolders:
    """The partitions' folders under `path`, the data directory, which whoever opened it keeps locked."""

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self.path = path
        self.disk = disk

    def prepare(self, topic: str, indexes: Sequence[int], topic_id: uuid.UUID) -> list[Path]:
        """The folders of new partitions, empty or with what a creation of just this topic id left; durable when this
        returns, by one wait for all of them where they are many. Raises OSError.
        """
        paths = [self.path / f"{topic}-{index}" for index in indexes]
        there = set(os.listdir(self.path))
        missing = []
        for path in paths:
            if path.name in there and _topic_id_in(path) == topic_id:
                continue
            if path.name in there:
                shutil.rmtree(layout.retire(path, self.disk))
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

        Raises LogDamaged.
        """
        path = self.path / f"{topic}-{index}"
        if not path.exists():
            raise LogDamaged(f"{path} is gone")
        if (found := _topic_id_in(path)) != topic_id:
            raise LogDamaged(f"{path / PARTITION_METADATA} names topic id {found}, the metadata {topic_id}")
        return path

    def retire(self, topic: str, index: int) -> list[Path]:
        """As PartitionLog.retire, for a partition whose log is not open; nothing where it has no folder. Raises
        OSError.
        """
        path = self.path / f"{topic}-{index}"
        return [layout.retire(path, self.disk)] if path.exists() else []

    def existing(self) -> list[Path]:
        """Folders that hold a partition of a known topic id, and those that cannot be looked into. Raises OSError."""
        return [
            path
            for path in sorted(self.path.iterdir())
            if _PARTITION_FOLDER.fullmatch(path.name) and _may_have_metadata(path)
        ]

    def segments(self) -> int:
        """How many segments there are: so many files are open while the broker runs. What cannot be looked into has
        none; its own opening says why. Raises OSError.
        """
        folders = [path for path in self.path.iterdir() if _PARTITION_FOLDER.fullmatch(path.name)]
        return sum(name.endswith(layout.LOG) for path in folders for name in _names_in(path))

    def retire_leftovers(self, kept: Collection[tuple[uuid.UUID, int]], unreadable: Collection[str]) -> list[Path]:
        """What deletions have left to be removed, and every partition but these, by topic id and index: what a change
        that was cut off left, and what went elsewhere while this broker was away. Topics whose metadata is `unreadable`
        keep what has their name. Raises OSError.
        """
        doomed = list(self.path.glob(f"*{layout.DELETED}"))
        for path in self.existing():
            name, _, index = path.name.rpartition("-")
            if name in unreadable:
                continue
            if (topic_id := _topic_id_in(path)) is not None and (topic_id, int(index)) not in kept:
                doomed.append(layout.retire(path, self.disk))
        return doomed


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


def _names_in(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
