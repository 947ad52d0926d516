"""What the logs of this broker need by time alone: retention, compaction, and a note of their high watermarks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from broker.base.ending import to_its_end
from broker.base.time_limits import timeout
from broker.config import BrokerConfig
from broker.errors import BrokerError
from broker.log.compaction import CompactionJob
from broker.replicas.manager import ReplicaManager
from broker.replication.checkpoint import HighWatermarkCheckpoint
from broker.replication.limits import HIGH_WATERMARK_CHECKPOINT_MS
from broker.topics.partition import Partition
from broker.wire.errors import WireError

log = logging.getLogger(__name__)

# A disk that fails here is tried again; producers are told by their own requests.
FORESEEN: Final = (BrokerError, OSError, WireError)


class Upkeep:
    """Each coroutine but a private one ends only by being cancelled."""

    def __init__(self, replicas: ReplicaManager, config: BrokerConfig, checkpoint: HighWatermarkCheckpoint) -> None:
        self._replicas = replicas
        self._config = config
        self._checkpoint = checkpoint
        self._cleaner_backoff_ms = config.log_cleaner_backoff_ms
        self._backoff_changed = asyncio.Event()

    def set_cleaner_backoff(self, backoff_ms: int) -> None:
        """The pause that lasts begins anew, if it was another one."""
        if backoff_ms != self._cleaner_backoff_ms:
            self._cleaner_backoff_ms = backoff_ms
            self._backoff_changed.set()

    def _still_here(self, partition: Partition) -> bool:
        """And online."""
        return self._replicas.partition(partition.topic, partition.index) is partition and partition.offline is None

    async def note_high_watermarks(self) -> None:
        while True:
            await asyncio.sleep(HIGH_WATERMARK_CHECKPOINT_MS / 1000)
            self.try_checkpoint()

    def try_checkpoint(self) -> None:
        noted = {
            (topic.topic_id, partition.index): partition.log.high_watermark
            for topic in self._replicas.topics.values()
            for partition in topic.partitions.values()
            if partition.offline is None
        }
        try:
            self._checkpoint.write(noted)
        except OSError as error:
            # What stands there is older, so lower: nothing is lost but time after a restart.
            log.warning("high watermarks cannot be noted: %s", error)

    async def enforce_retention(self) -> None:
        while True:
            await asyncio.sleep(self._config.log_retention_check_interval_ms / 1000)
            for partition in self._replicas.partitions():
                # Between two partitions others get their turn, and may delete a topic.
                await asyncio.sleep(0)
                if self._still_here(partition):
                    _try_retention(partition)

    async def compact(self) -> None:
        while True:
            await self._cleaner_pause()
            for partition in self._replicas.partitions():
                await asyncio.sleep(0)
                if self._still_here(partition) and partition.log.config.compacted:
                    await self._try_compaction(partition)

    async def _cleaner_pause(self) -> None:
        while True:
            self._backoff_changed.clear()
            try:
                async with timeout(self._cleaner_backoff_ms / 1000):
                    await self._backoff_changed.wait()
            except TimeoutError:
                return

    async def _try_compaction(self, partition: Partition) -> None:
        with _told("compaction", partition):
            cleaned = partition.log
            job = cleaned.begin_compaction()
            if job is None:
                return
            with cleaned.reading_apart():
                await _run(job)
            if job.unreadable:
                log.warning(
                    "compaction of %s-%d keeps %d batches that cannot be opened, the first at offset %d",
                    *(partition.topic, partition.index, len(job.unreadable), job.unreadable[0]),
                )
            if self._still_here(partition):
                partition.log.finish_compaction(job)
            else:
                job.discard()


@contextmanager
def _told(what: str, partition: Partition) -> Iterator[None]:
    """Upkeep that fails leaves the log as it was, and the next round tries again."""
    try:
        yield
    except FORESEEN as error:
        log.warning("%s of %s-%d failed: %s", what, partition.topic, partition.index, error)
    except Exception:  # upkeep of one partition must not end the broker; the next check tries again
        log.exception("%s of %s-%d failed", what, partition.topic, partition.index)


def _try_retention(partition: Partition) -> None:
    deleted = 0
    with _told("retention", partition):
        deleted = partition.log.enforce_retention()
    if deleted:
        partition.wake()


async def _run(job: CompactionJob) -> None:
    """In a thread, which has ended when this does, also where it is cancelled: once the data directory is unlocked
    another broker may work in it.
    """
    running = asyncio.ensure_future(asyncio.to_thread(job.run))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        job.stopped = True
        try:
            await to_its_end(asyncio.wait([running]))
        finally:
            running.exception()
            job.discard()
        raise
