"""How far a broker has seen the cluster's metadata go, over all its lives: each change of it that a controller or a
leader writes is counted in ZooKeeper, and the count goes back only where ZooKeeper was put back to an older copy.

Then leaders, ISRs and topics are those of an earlier day: who follows them cuts off records that were acknowledged
since, and no epoch says so for long, for they rise again from where they were. ZooKeeper's own count of transactions
cannot tell: it is told anew after each election of its servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from broker.base.clock import Clock
from broker.cluster.metadata_store import MetadataUnreadable
from broker.cluster.zookeeper.session import SetData, ZooKeeper
from broker.errors import BrokerError, LogStorageError
from broker.log.disk import OS_DISK, Disk

log = logging.getLogger(__name__)

FILE_NAME: Final = "zookeeper-seen"
CHANGES: Final = "/farshore/changes"
COUNTED: Final = SetData(CHANGES, b"")
"""Belongs to each transaction that changes topics or partitions: the znode's version is the count."""


class MetadataWentBack(MetadataUnreadable):
    """ZooKeeper holds an older copy of the cluster's metadata than this broker has worked with."""


class Count(NamedTuple):
    """`made` is when the znode was: one that a hand removed is another when it is made again, and counts anew."""

    cluster_id: str
    made: int
    changes: int


class Seen:
    """`folder`: where it is kept; None: in this process alone."""

    def __init__(self, folder: Path | None = None, disk: Disk = OS_DISK) -> None:
        self._path = path = None if folder is None else folder / FILE_NAME
        self._disk = disk
        self._saved: Count | None = None
        if path is not None:
            # What is not there, or cannot be read, says nothing.
            with contextlib.suppress(OSError, ValueError):
                cluster_id, made, changes = disk.read_file(path).decode().split()
                self._saved = Count(cluster_id, int(made), int(changes))
        self._newest = self._saved
        self.went_back = False
        """ZooKeeper has an older copy now, which may know this broker's session, too."""

    async def note(self, zk: ZooKeeper, cluster_id: str) -> None:
        """Raises MetadataWentBack."""
        stat = await zk.exists(CHANGES)
        if stat is None:
            return
        found, newest = Count(cluster_id, stat.czxid, stat.version), self._newest
        self.went_back = newest is not None and found[:2] == newest[:2] and found.changes < newest.changes
        if newest is not None and self.went_back:
            raise MetadataWentBack(
                f"ZooKeeper has {found.changes} changes of the metadata, and had {newest.changes} before: it was put "
                "back to an older copy",
                hint="put back what ZooKeeper had last: the brokers keep their records, and go on when it is there; "
                "no partition can be led by an older copy without loss",
            )
        self._newest = found

    async def note_on(self, zk: Callable[[], ZooKeeper], cluster_id: str, clock: Clock, every_s: float) -> None:
        """Notes and saves again and again; ends only by being cancelled."""
        while True:
            await clock.sleep(every_s)
            try:
                await self.note(zk(), cluster_id)
                await asyncio.to_thread(self.save)
            except BrokerError as error:
                log.warning("how far ZooKeeper is was not noted: %s", error)

    def save(self) -> None:
        """May run in a thread. A crash may leave an older one. Raises LogStorageError."""
        newest = self._newest
        if self._path is None or newest is None or newest == self._saved:
            return
        try:
            self._disk.write_file(
                self._path, f"{newest.cluster_id} {newest.made} {newest.changes}\n".encode(), durable=False
            )
        except OSError as error:
            raise LogStorageError(f"cannot write {self._path}: {error}") from error
        self._saved = newest
