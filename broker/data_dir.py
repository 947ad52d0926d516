"""The data directory: one broker at a time, and which folder belongs to which partition.

metadata.json             the cluster's metadata (cluster/embedded.py)
.lock                     held by flock as long as the broker runs; the kernel drops it with the process
flights-0/                a partition, as in Kafka: segments, indexes, and
    partition.metadata    the id of its topic, so that a topic made again never sees the old one's records
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Final

from broker.log.disk import OS_DISK
from broker.topics.errors import DataDirectoryError

LOCK_FILE: Final = ".lock"
PARTITION_METADATA: Final = "partition.metadata"
DELETED_SUFFIX: Final = "-delete"

_PARTITION_FOLDER = re.compile(r"[a-zA-Z0-9._-]+-\d+")
_TOPIC_ID = re.compile(r"^topic_id: (\S+)$", re.MULTILINE)


class DataDirectory:
    def __init__(self, path: Path, lock_fd: int) -> None:
        """Use `open`."""
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path) -> DataDirectory:
        """Makes the directory if need be, and locks it. Raises DataDirectoryError."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock_fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DataDirectoryError(
                f"data directory {path} cannot be used: {error.strerror}", hint="give a writable directory: --data-dir"
            ) from error
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock_fd)
            raise DataDirectoryError(f"data directory {path} is in use by another broker") from error
        return cls(path, lock_fd)

    def close(self) -> None:
        """Unlocks. May be called again."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def partition_path(self, topic: str, index: int) -> Path:
        return self.path / f"{topic}-{index}"

    def prepare_partition(self, topic: str, index: int, topic_id: uuid.UUID) -> Path:
        """The folder of a partition, empty or with the log of just this topic id. Raises OSError."""
        path = self.partition_path(topic, index)
        if path.exists() and _topic_id_in(path) != topic_id:
            self.discard(path)
        if not path.exists():
            path.mkdir()
            text = f"version: 0\ntopic_id: {topic_id}\n"
            OS_DISK.write_file(path / PARTITION_METADATA, text.encode(), durable=True)
            OS_DISK.fsync_directory(self.path)
        return path

    def discard(self, path: Path) -> None:
        """Takes the folder's name away at once, then its contents. Raises OSError."""
        doomed = path.with_name(f"{uuid.uuid4().hex}{DELETED_SUFFIX}")
        path.rename(doomed)
        shutil.rmtree(doomed)

    def check_metadata(self, file_name: str) -> None:
        """Refuse to start on partitions without any metadata: they would be taken for leftovers and removed.

        Raises DataDirectoryError.
        """
        if not (self.path / file_name).exists() and (found := self._partition_folders()):
            raise DataDirectoryError(
                f"data directory {self.path} holds partitions ({found[0].name}...) but no {file_name}",
                hint=f"restore {file_name} from a backup, or move the partitions' folders away",
            )

    def remove_leftovers(self, topic_ids: set[uuid.UUID]) -> None:
        """What a crash in the middle of a deletion left behind. Raises OSError."""
        for path in self.path.glob(f"*{DELETED_SUFFIX}"):
            shutil.rmtree(path)
        for path in self._partition_folders():
            if (topic_id := _topic_id_in(path)) is not None and topic_id not in topic_ids:
                self.discard(path)

    def _partition_folders(self) -> list[Path]:
        """Folders that hold a partition of a known topic id."""
        return [
            path
            for path in sorted(self.path.iterdir())
            if _PARTITION_FOLDER.fullmatch(path.name) and (path / PARTITION_METADATA).exists()
        ]


def _topic_id_in(path: Path) -> uuid.UUID | None:
    try:
        found = _TOPIC_ID.search((path / PARTITION_METADATA).read_text())
        return uuid.UUID(found.group(1)) if found else None
    except (OSError, ValueError):
        return None
