"""Where logs end, with what their leaders have and nobody is shown: not all replicas in sync have it yet, or fewer than
min.insync.replicas. Who writes with acks=1 was told that it is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.limits import UNSHOWN_POLL_S
from broker.client.model import OffsetAndTimestamp
from broker.client.offsets import appended_ends, list_each_offset
from broker.wire.vocabulary import LATEST, TopicPartition


class LogEnd(NamedTuple):
    """The next offset to be read, and where the leader's log ends: the same where all of it is shown, or where the
    cluster tells nobody how far the latter goes; None: not told now, as where a proxy ends the connection.
    """

    shown: int
    appended: int | None

    @property
    def has_unshown(self) -> bool:
        """As far as that is told."""
        return self.appended is not None and self.shown < self.appended


async def log_ends(
    cluster: Cluster, partitions: Iterable[TopicPartition], wait_s: float = 0.0
) -> dict[TopicPartition, LogEnd | ClientError]:
    """Of each partition, or why it cannot be told. `wait_s`: so long what is there now has time to be shown, as it
    is in milliseconds where the followers keep up; what comes meanwhile is not waited for. Where another leader has
    less than there was, that is where it ends. Raises ClientError where no broker answers.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    found: dict[TopicPartition, LogEnd | ClientError] = {}
    wanted, first = list(partitions), dict[TopicPartition, int]()
    while wanted:
        appended = await appended_ends(cluster, wanted)  # before it is asked what is shown, which may be more by then
        for where, shown in (await list_each_offset(cluster, dict.fromkeys(wanted, LATEST))).items():
            there = appended.get(where)
            if isinstance(there, OffsetAndTimestamp):
                first[where] = min(there.offset, first.get(where, there.offset))
            if isinstance(shown, ClientError):
                found[where] = shown
            elif where in first:  # also of a leader that does not tell it any more
                found[where] = LogEnd(shown.offset, max(shown.offset, first[where]))
            elif isinstance(there, ClientError) and there.retriable:
                found[where] = LogEnd(shown.offset, None)
            else:
                found[where] = LogEnd(shown.offset, shown.offset)
        wanted = [where for where in wanted if isinstance(end := found[where], LogEnd) and end.has_unshown]
        if loop.time() >= deadline:
            break
        if wanted:
            await asyncio.sleep(UNSHOWN_POLL_S)
    return found
