"""Logs that a test leaves open are closed with its module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.base.clock import Clock
from broker.log.config import LogConfig
from broker.log.disk import OS_DISK, Disk
from broker.log.partition_log import PartitionLog


@pytest.fixture(scope="module")
def closed_logs() -> Iterator[None]:
    opened: list[PartitionLog] = []
    open_log = PartitionLog.open

    def noted(directory: Path, config: LogConfig, clock: Clock, disk: Disk = OS_DISK) -> PartitionLog:
        opened.append(open_log(directory, config, clock, disk))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PartitionLog, "open", noted)
        yield
    for log in opened:
        if log.directory.exists():
            log.close()
