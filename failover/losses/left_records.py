"""The records that somebody decided to leave at the source, counted by reading them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from broker.base.time_limits import timeout_at
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.wire.errors import WireError
from broker.wire.vocabulary import TopicPartition
from failover.errors import ReplayRefused
from failover.limits import COUNT_MS
from failover.losses.replayed import outside, replayed_of
from failover.losses.stranded import carried_counter
from failover.observing.sites import Sites
from failover.observing.snapshot import LeftRange
from mirror.api import Link, MirrorError


async def count_left(sites: Sites, left: Sequence[LeftRange]) -> tuple[LeftRange, ...]:
    """With their records, as far as these could be read within COUNT_MS; none of those in which there are none, or only
    such as came from the target, and nothing of what was replayed there since. Behind a look, which has completed the
    link.
    """
    if sites.source is None or not left:
        return tuple(left)
    link = sites.readers.completed.get(sites.link.name, sites.link)
    found = list(left)
    until_s = asyncio.get_running_loop().time() + COUNT_MS / 1000
    with suppress(ClientError, TimeoutError):
        async with timeout_at(until_s):
            with suppress(ClientError, ReplayRefused, WireError):  # another version wrote it, or it is damaged, say
                found = await _but_replayed(link, sites.source, sites.target, left)
            counter = await carried_counter(link, sites.source, sites.target)
            for at, one in enumerate(found if counter is not None else ()):
                assert counter is not None
                with suppress(ClientError, MirrorError, WireError):  # damaged, say: it says nothing of the others
                    where = TopicPartition(one.topic, one.partition)
                    found[at] = replace(one, records=await counter.count(where, one.first_offset, one.end_offset))
    return tuple(one for one in found if one.records != 0)


async def _but_replayed(link: Link, source: Cluster, target: Cluster, left: Sequence[LeftRange]) -> list[LeftRange]:
    replayed = await replayed_of(link, source, target, [TopicPartition(one.topic, one.partition) for one in left])
    found: list[LeftRange] = []
    for one in left:
        ranges = replayed.get(TopicPartition(one.topic, one.partition))
        if ranges is None:
            found.append(one)
            continue
        rest = outside(ranges, one.first_offset, one.end_offset)
        found += (replace(one, first_offset=at, end_offset=end, may_be_replayed=False) for at, end in rest)
    return found
