"""High watermarks on disk: what a broker served before its restart it serves again.

The file is as Kafka's `replication-offset-checkpoint`, but names topics by their ids: one that was made anew under the
same name has nothing of the old one's, and a high watermark that is too high shows what is not replicated. Version 1,
the number of lines, and a line `topic-id partition offset` for each partition. It need not be durable: an older high
watermark is a lower one, and a leader raises it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

from broker.log.disk import Disk

FILE_NAME: Final = "replication-offset-checkpoint"
VERSION: Final = 1
VERSION_WITH_NAMES: Final = 0
HighWatermarks: TypeAlias = Mapping[tuple[UUID, int], int]
"""By topic id and partition."""

log = logging.getLogger(__name__)


class HighWatermarkCheckpoint:
    """One writer. What is written is all that there is: a partition that is gone is left out with the next write."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._path = directory / FILE_NAME
        self._disk = disk
        self._written: HighWatermarks | None = None

    def read(self) -> dict[tuple[UUID, int], int]:
        """Nothing where there is no file, or none that can be read: high watermarks then begin at the logs' starts."""
        try:
            return parse(self._disk.read_file(self._path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read, high watermarks begin where the logs do: %s", self._path, error)
            return {}

    def write(self, high_watermarks: HighWatermarks) -> None:
        """Nothing where nothing changed. Raises OSError."""
        if high_watermarks != self._written:
            self._disk.write_file(self._path, text(high_watermarks), durable=False)
            self._written = dict(high_watermarks)


def text(high_watermarks: HighWatermarks) -> bytes:
    lines = [f"{topic_id} {index} {offset}" for (topic_id, index), offset in high_watermarks.items()]
    return ("\n".join([str(VERSION), str(len(lines)), *lines]) + "\n").encode()


def parse(data: bytes) -> dict[tuple[UUID, int], int]:
    """Nothing of a file that names topics, as it was once written: of which topic of that name it spoke is not known.
    Raises ValueError for anything but what `text` writes.
    """
    version, count, *lines = data.decode("ascii").splitlines()
    if int(version) == VERSION_WITH_NAMES:
        return {}
    if int(version) != VERSION or int(count) != len(lines):
        raise ValueError(f"version {version} with {len(lines)} of {count} lines")
    found = {}
    for line in lines:
        topic_id, index, offset = line.split(" ")
        found[UUID(topic_id), int(index)] = int(offset)
    return found
