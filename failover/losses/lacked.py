"""What the target of a failover lost of its own, counted by reading what the source has of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from broker.client.errors import ClientError
from broker.client.offsets import log_spans
from broker.wire.errors import WireError
from broker.wire.vocabulary import TopicPartition
from failover.limits import COUNT_MS
from failover.losses.stranded import carried_counter
from failover.observing.sites import Sites
from failover.observing.snapshot import Lacked
from mirror.api import MirrorError, SourceParting


async def count_lacked(sites: Sites, lacks: Iterable[SourceParting]) -> tuple[Lacked, ...]:
    """Per partition of the source. What links had mirrored there from the target is what `sites.link` leaves out; what
    cannot be read within COUNT_MS is not counted.
    """
    found = {
        TopicPartition(one.target_topic, one.partition): Lacked(
            one.target_topic, one.partition, one.target_from if one.is_known else None, one.target_next, None
        )
        for one in lacks
    }
    with suppress(ClientError, WireError, MirrorError, TimeoutError):
        async with asyncio.timeout(COUNT_MS / 1000):
            await _count(sites, found)
    return tuple(one for _, one in sorted(found.items()))


async def _count(sites: Sites, found: dict[TopicPartition, Lacked]) -> None:
    """In place: what was counted stays where the time is over. Raises ClientError, MirrorError, CorruptBatch."""
    source = sites.source
    if source is None or not found:
        return
    counter = await carried_counter(sites.link, source, sites.target)
    spans = await log_spans(source, list(found))
    for where, one in found.items():
        span = spans.get(where)
        if one.first_offset is None or span is None or isinstance(span, ClientError):
            continue
        first = min(max(one.first_offset, span.start), one.end_offset)  # what retention took is missing to nobody
        found[where] = replace(one, first_offset=first)
        if counter is not None:
            records = await counter.count_left_out(where, first, one.end_offset)
            found[where] = replace(one, first_offset=first, records=records)
