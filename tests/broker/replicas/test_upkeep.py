"""What a broker does by time alone ends with it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.log.disk import OsDisk
from broker.outside import Outside
from broker.replicas.upkeep import Upkeep
from broker.replication.checkpoint import HighWatermarkCheckpoint
from broker.server import serving
from tests.broker.wire_client import batch_of, connect

TURNS = 100


class _HeldDisk(OsDisk):
    """Begins no file of a compaction before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.may_go_on, self.has_gone_on = threading.Event(), threading.Event(), threading.Event()

    def open(self, path: Path) -> int:
        if path.name.endswith(".cleaned"):
            self.reached.set()
            assert self.may_go_on.wait(60)
            self.has_gone_on.set()
        return super().open(path)


async def test_a_compaction_has_left_the_files_when_it_was_cancelled(tmp_path: Path) -> None:
    """The data directory is unlocked then: another broker may be in it, and compact the same segments."""
    disk = _HeldDisk()
    config = BrokerConfig(data_dir=tmp_path, listen_port=0, log_cleaner_backoff_ms=3_600_000)
    async with serving(config, Outside(disk=disk)) as server, connect(server.address) as client:
        await client.create_topic("c", segment_bytes="300", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        for number in range(16):
            await client.produce("c", batch_of(f"{number}" + "x" * 100, key=b"k"))
        checkpoint = HighWatermarkCheckpoint(tmp_path, disk)
        upkeep = Upkeep(server.broker.replicas, replace(config, log_cleaner_backoff_ms=1), checkpoint)
        compacting = asyncio.create_task(upkeep.compact())
        assert await asyncio.to_thread(disk.reached.wait, 60)
        compacting.cancel()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert not compacting.done()
        disk.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await compacting
        assert disk.has_gone_on.is_set()
        assert list((tmp_path / "c-0").glob("*.cleaned")) == []
