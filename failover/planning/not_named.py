"""Who is left behind by a move of groups by name: the link is fenced for them, too."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.first_offsets import with_first_offsets
from broker.client.offset_fetch import GroupOffsets
from broker.client.topics import list_topics
from failover.failback.waves import moved_along
from failover.limits import SOURCE_ROLE_S
from failover.observing.looking import Asking, group_names, look_at_offsets, partitions_of
from failover.observing.sites import Sites
from mirror.api import Link


async def groups_not_named(sites: Sites) -> tuple[str, ...]:
    """Those with offsets in the link's topics, also such as are pending, as far as its state knows them, or the source
    tells them in time, that were neither asked for nor moved along it before. None where all are moved. Raises
    ClientError for the target.
    """
    link, target = sites.link, sites.target
    if not sites.groups:
        return ()
    entries = await sites.readers.states.of(link).read(target)
    known = {name for name in entries.groups.by_group if link.selects_group(name)}
    if sites.source is not None:
        with suppress(ClientError, TimeoutError):
            await asyncio.wait_for(_add_reading(link, sites.source, known), SOURCE_ROLE_S)
    before = moved_along(link.name, entries.run, await sites.readers.operations.read(target))
    return () if before.is_all else tuple(sorted(known - before.names - set(sites.groups)))


async def _add_reading(link: Link, source: Cluster, known: set[str]) -> None:
    """The groups that the link selects with an offset in one of its topics there, into `known`: those with a committed
    one count also where what is pending is not told in time.
    """
    asking = Asking(in_part=True)
    listed, opened = await group_names(source, asking)
    others = {name for name in listed if link.selects_group(name)} - known
    found = await look_at_offsets(source, others, asking)
    known |= {name for name, offsets in found.items() if any(link.selects_topic(at.topic) for at in offsets)}
    beginning = {name: GroupOffsets({}) for name in others - known if opened.may_hold(name)}
    if beginning:
        topics = {name: topic for name, topic in (await list_topics(source)).items() if link.selects_topic(name)}
        told, _ = split_failures(await with_first_offsets(source, beginning, partitions_of(topics), opened))
        known |= {name for name, each in told.items() if each.offsets or each.pending}
