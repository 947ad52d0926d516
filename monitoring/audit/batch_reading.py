"""One task of Spark's at a site: its batches read by our own client, and digested as they are stored.

It runs in a Python process of Spark's, wherever that is, so it is given all that it needs. What cannot be read here,
for whatever reason, is no error of the audit: its partition is said to be unread, and left to who opens records.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from zipimport import zipimporter

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError, ReadUnfinished
from broker.client.limits import ClientLimits
from broker.client.log import read_batches
from broker.wire.errors import WireError
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from monitoring.audit.batches import BatchDigests, BatchHash, BatchUnknown, DigestRow, View
from monitoring.audit.model import FrozenSite, Span

CLIENT_ID: Final = "farshore-audit"
UNREAD: Final = -1
"""As the beginning of a range: nothing can be said of the partition."""
_LIMITS: Final = ClientLimits(retry_timeout_ms=5_000, unknown_topic_timeout_ms=1_000)
_OF_ONE: Final = (KafkaError, ReadUnfinished, WireError, BatchUnknown)
"""What says nothing of other partitions."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Share:
    """The batches of a partition that begin in `offsets`; of the first share also the one that begins before it."""

    where: TopicPartition
    view: View
    offsets: Span


@dataclass(frozen=True, slots=True)
class BatchTask:
    """What one task reads of a site, one share after the other."""

    site: FrozenSite
    shares: tuple[Share, ...]
    range_offsets: int
    key: bytes


def split(where: TopicPartition, view: View, most: int, margin: int) -> list[Share]:
    """A partition's span in shares of `most` offsets or fewer. A batch may reach `margin` offsets behind its share."""
    span = view.span
    shares = []
    for start in range(span.start, span.end, most):
        end = min(start + most, span.end)
        known = view.between(start, min(end + margin, span.end))
        shares.append(Share(where, known, Span(start, end)))
    return shares


def packed(shares: Sequence[Share], most: int) -> list[tuple[Share, ...]]:
    """What goes together: `most` offsets, or one share."""
    found: list[tuple[Share, ...]] = []
    together: list[Share] = []
    offsets = 0
    for share in shares:
        if together and offsets + share.offsets.offsets > most:
            found.append(tuple(together))
            together, offsets = [], 0
        together.append(share)
        offsets += share.offsets.offsets
    return [*found, tuple(together)] if together else found


def digest_task(task: BatchTask) -> list[DigestRow]:
    """The digests of a task. Raises nothing that a site can cause."""
    try:
        return asyncio.run(digested(task))
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """Before each task Spark has Python read again what its archives hold, for each that it imported something from:
    that is dear. What is forgotten here is not read again, and found again when it is asked for."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


async def digested(task: BatchTask) -> list[DigestRow]:
    """As `digest_task`, in a loop that runs."""
    rows: list[DigestRow] = []
    left = list(task.shares)
    try:
        async with Cluster(task.site.site(), client_id=CLIENT_ID, limits=_LIMITS) as cluster:
            while left:
                try:
                    rows += await _digest_share(cluster, left[0], task)
                except _OF_ONE as error:
                    rows += _unread(left[:1], error)
                left.pop(0)
    except ClientError as error:
        rows += _unread(left, error)
    return rows


async def _digest_share(cluster: Cluster, share: Share, task: BatchTask) -> list[DigestRow]:
    """Raises ClientError, WireError, BatchUnknown."""
    found = BatchDigests(share.view, task.range_offsets, BatchHash(task.key))
    start, end = share.offsets.start, share.offsets.end
    is_first = start == share.view.span.start
    batches = read_batches(cluster, share.where, start, end, IsolationLevel.READ_COMMITTED, is_whole=True)
    async for header, batch in batches:
        if is_first or header.base_offset >= start:
            found.take(header, batch)
    return list(found.rows())


def _unread(shares: Sequence[Share], why: Exception) -> Iterator[DigestRow]:
    for share in shares:
        _log.warning("batches of %s are not told by their digests: %s", share.where, why)
        yield DigestRow(share.view.topic, share.view.partition, UNREAD, 0, 0, 0, 0, 0, None, None, 0, 1, str(why))
