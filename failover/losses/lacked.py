"""What the target of a failover lost of its own, counted by reading what the source has of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from broker.base.time_limits import timeout_at
from broker.client.errors import ClientError
from broker.client.offsets import LogSpan, log_spans
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.limits import COUNT_MS, LACKS_IN_PART_S, SOURCE_LOOK_MS
from failover.losses.counting import count_in_turn
from failover.losses.lacked_of import with_counted, with_told
from failover.losses.stranded import carried_counter
from failover.observing.partings import lacks_within
from failover.observing.sites import Sites
from failover.observing.snapshot import Lacked, Snapshot
from mirror.api import MirrorError, SourceParting


async def find_lacked(sites: Sites, snapshot: Snapshot) -> tuple[tuple[SourceParting, ...], tuple[Lacked, ...]]:
    """What the target lacks of its own, and how much that is, as far as the source tells it, or told it before. Behind
    a look, which has completed the link. Raises ClientError for what the target does.
    """
    source, link = sites.source, sites.readers.completed.get(sites.link.name, sites.link)
    if source is None or not snapshot.is_source_there:
        return sites.lacks, sites.lacked
    within_s = SOURCE_LOOK_MS / 1000 if snapshot.source_answers else LACKS_IN_PART_S
    lacks = await lacks_within(within_s, link, source, sites.target)
    return with_told(lacks, sites.lacks), with_counted(await count_lacked(sites, lacks), sites.lacked)


async def count_lacked(sites: Sites, lacks: Iterable[SourceParting]) -> tuple[Lacked, ...]:
    """Per partition of the source. What links had mirrored there from the target is what `sites.link` leaves out; what
    cannot be read within COUNT_MS, or until a transaction has ended, is not counted, and keeps no other one from it.
    """
    found = {
        TopicPartition(one.target_topic, one.partition): Lacked(
            one.target_topic, one.partition, one.target_from if one.is_known else None, one.target_next, None
        )
        for one in lacks
    }
    with suppress(ClientError, MirrorError, TimeoutError):
        until_s = asyncio.get_running_loop().time() + COUNT_MS / 1000
        async with timeout_at(until_s):
            await _count(sites, found, until_s)
    return tuple(one for _, one in sorted(found.items()))


async def _count(sites: Sites, found: dict[TopicPartition, Lacked], until_s: float) -> None:
    """In place, until that time of the event loop. Raises ClientError, MirrorError."""
    source = sites.source
    if source is None or not found:
        return
    counter = await carried_counter(sites.link, source, sites.target)
    spans = await log_spans(source, list(found))
    stable = await log_spans(source, list(found), IsolationLevel.READ_COMMITTED)  # behind the ends: it is open still
    readable = dict[TopicPartition, Callable[[], Awaitable[int | None]]]()
    for where, one in found.items():
        span = spans.get(where)
        if one.first_offset is not None and span is not None and not isinstance(span, ClientError):
            first = min(max(one.first_offset, span.start), one.end_offset)  # what retention took is missing to nobody
            found[where] = replace(one, first_offset=first)
            to = stable.get(where)
            if counter is not None and isinstance(to, LogSpan) and to.end >= min(one.end_offset, span.end):
                readable[where] = partial(counter.count_left_out, where, first, one.end_offset)
    for where, records in (await count_in_turn(readable, until_s)).items():
        found[where] = replace(found[where], records=records)
