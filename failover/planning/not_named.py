"""Who is left behind by a move of groups by name: the link is fenced for them, too."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.groups import list_groups
from failover.failback.waves import moved_along
from failover.limits import SOURCE_ROLE_S
from failover.observing.looking import Asking, look_at_offsets
from failover.observing.sites import Sites
from mirror.api import Link


async def groups_not_named(sites: Sites) -> tuple[str, ...]:
    """Those with offsets in the link's topics, as far as its state knows them, or the source tells them in time, that
    were neither asked for nor moved along it before. None where all are moved. Raises ClientError for the target.
    """
    link, target = sites.link, sites.target
    if not sites.groups:
        return ()
    entries = await sites.readers.states.of(link).read(target)
    known = {name for name in entries.groups.by_group if link.selects_group(name)}
    if sites.source is not None:
        with suppress(ClientError, TimeoutError):
            known |= await asyncio.wait_for(_reading(link, sites.source, known), SOURCE_ROLE_S)
    before = moved_along(link.name, entries.run, await sites.readers.operations.read(target))
    return () if before.is_all else tuple(sorted(known - before.names - set(sites.groups)))


async def _reading(link: Link, source: Cluster, known: set[str]) -> set[str]:
    """The groups that the link selects with an offset in one of its topics there, beside the `known` ones."""
    listed = {name for name in await list_groups(source) if link.selects_group(name)}
    found = await look_at_offsets(source, listed - known, Asking(in_part=True))
    return {name for name, offsets in found.items() if any(link.selects_topic(at.topic) for at in offsets)}
