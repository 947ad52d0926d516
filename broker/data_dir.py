"""The data directory: one broker at a time, and never partitions without their metadata.

metadata.json             the cluster's metadata (cluster/embedded.py), unless ZooKeeper has it; then
replication-offset-checkpoint    the high watermarks (replication/checkpoint.py)
meta.properties           whose partitions these are: cluster and broker, as in Kafka
zookeeper-seen            how many changes of its metadata ZooKeeper had counted (cluster/zookeeper/seen.py)
.lock                     held by flock as long as the broker runs; the kernel drops it with the process
flights-0/                a partition (topics/folders.py)
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from broker.cluster.embedded import FILE_NAME as METADATA_FILE
from broker.errors import BrokerError
from broker.log.disk import OS_DISK, Disk
from broker.topics.folders import PartitionFolders
from broker.wire.errors import ErrorCode

LOCK_FILE: Final = ".lock"
OWNER_FILE: Final = "meta.properties"


class DataDirectoryError(BrokerError):
    """The data directory cannot be used: locked by another broker, not writable, or not a broker's."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "give another data directory, or stop the broker that uses this one"


class DataDirectory:
    def __init__(self, path: Path, lock_fd: int, disk: Disk) -> None:
        """Use `open`."""
        self.path = path
        self.folders = PartitionFolders(path, disk)
        self._lock_fd = lock_fd

    @classmethod
    def open(cls, path: Path, disk: Disk = OS_DISK) -> DataDirectory:
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
        return cls(path, lock_fd, disk)

    @staticmethod
    def is_in_use(path: Path) -> bool:
        """Whether a broker runs in this directory now."""
        try:
            lock_fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock_fd)
        return False

    def close(self) -> None:
        """Unlocks. May be called again."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def check_metadata(self) -> None:
        """Refuse to start on partitions without any metadata: they would be set aside, as no topic's.

        Raises DataDirectoryError.
        """
        if not (self.path / METADATA_FILE).exists() and (found := self.folders.existing()):
            raise DataDirectoryError(
                f"data directory {self.path} holds partitions ({found[0].name}...) but no {METADATA_FILE}",
                hint=f"restore {METADATA_FILE} from a backup, or move the partitions' folders away",
            )

    @property
    def claimed(self) -> bool:
        """Whether a broker has begun here that was in a cluster."""
        return (self.path / OWNER_FILE).exists()

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Refuse to start on the partitions of another broker, or of another cluster in ZooKeeper: all would be
        set aside. A directory without partitions becomes this broker's.

        Raises DataDirectoryError.
        """
        ours = {"version": "0", "cluster.id": cluster_id, "broker.id": str(node_id)}
        lines = [f"{name}={value}" for name, value in ours.items()]
        path = self.path / OWNER_FILE
        try:
            if path.exists():
                found_lines = path.read_text(errors="replace").splitlines()
                theirs = dict(line.split("=", 1) for line in found_lines if "=" in line and not line.startswith("#"))
            elif found := self.folders.existing():
                raise DataDirectoryError(
                    f"data directory {self.path} holds partitions ({found[0].name}...) but no {OWNER_FILE}",
                    hint=self._way_to_own(lines),
                )
            else:
                self.folders.disk.write_file(path, "".join(f"{line}\n" for line in lines).encode(), durable=True)
                return
        except OSError as error:
            raise DataDirectoryError(f"data directory {self.path} cannot be used: {error}") from error
        for name in ("cluster.id", "broker.id"):
            if theirs.get(name) != ours[name]:
                raise DataDirectoryError(
                    f"data directory {self.path} belongs to {name} {theirs.get(name)}, not to {ours[name]}",
                    hint=f"check data_dir, node_id and zookeeper of this broker against {path}",
                )

    def _way_to_own(self, lines: list[str]) -> str:
        if (self.path / METADATA_FILE).exists():
            return "give an empty data directory: what was kept without ZooKeeper is brought over by a mirror"
        return (
            f"are they this broker's, write {OWNER_FILE} again, of these lines: {', '.join(lines)}; "
            "are they not, give an empty data directory: replicas are copied anew from others in sync"
        )
