"""High watermarks on disk: what a broker served before its restart it serves again.

The file is Kafka's `replication-offset-checkpoint`: version 0, the number of lines, and a line `topic partition offset`
for each partition. It need not be durable: an older high watermark is a lower one, and a leader raises it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.log.disk import Disk
from broker.wire.vocabulary import TopicPartition

FILE_NAME: Final = "replication-offset-checkpoint"
VERSION: Final = 0
log = logging.getLogger(__name__)


class HighWatermarkCheckpoint:
    """One writer. What is written is all that there is: a partition that is gone is left out with the next write."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._path = directory / FILE_NAME
        self._disk = disk
        self._written: Mapping[TopicPartition, int] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """Nothing where there is no file, or none that can be read: high watermarks then begin at the logs' starts."""
        try:
            return parse(self._disk.read_file(self._path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read, high watermarks begin where the logs do: %s", self._path, error)
            return {}

    def write(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Nothing where nothing changed. Raises OSError."""
        if high_watermarks != self._written:
            self._disk.write_file(self._path, text(high_watermarks), durable=False)
            self._written = dict(high_watermarks)


def text(high_watermarks: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{where.topic} {where.partition} {offset}" for where, offset in high_watermarks.items()]
    return ("\n".join([str(VERSION), str(len(lines)), *lines]) + "\n").encode()


def parse(data: bytes) -> dict[TopicPartition, int]:
    """Raises ValueError for anything but what `text` writes."""
    version, count, *lines = data.decode("ascii").splitlines()
    if int(version) != VERSION or int(count) != len(lines):
        raise ValueError(f"version {version} with {len(lines)} of {count} lines")
    found = {}
    for line in lines:
        topic, partition, offset = line.split(" ")
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found
