"""The looks that a drill is judged from. It changes nothing at either site."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.fanout import both
from failover.contact import CLIENT_ID
from failover.drill import AuditNote, LinkDrill, judge_drill
from failover.observe import observe
from failover.snapshot import Snapshot
from mirror.api import STATUS_LIMITS, GroupSyncs, HeartbeatWatch, Link, link_status, read_entries


async def drill_link(link: Link, heartbeats: HeartbeatWatch, audit: AuditNote, now_ms: Callable[[], int]) -> LinkDrill:
    """Look at the link as it is, and as it would be seen if its source were dead. A lost site is a finding, and so is
    what could not be looked at.
    """
    status, (blind, live, syncs, trouble) = await both(link_status(link, heartbeats), _looks(link, now_ms))
    return judge_drill(status, blind, live, syncs, audit, now_ms(), trouble)


async def _looks(link: Link, now_ms: Callable[[], int]) -> tuple[Snapshot | None, Snapshot | None, GroupSyncs, str]:
    """With the source dead, and as it is; None where a site does not tell, and then why."""
    async with AsyncExitStack() as stack:
        try:
            target = await stack.enter_async_context(_cluster(link, at_source=False))
            blind = await observe(link, None, target, (), now_ms())
            syncs = (await read_entries(link, target)).groups
        except FarshoreError as error:
            return None, None, GroupSyncs(), str(error)
        try:
            source = await stack.enter_async_context(_cluster(link, at_source=True))
            return blind, await observe(link, source, target, (), now_ms()), syncs, ""
        except FarshoreError as error:
            return blind, None, syncs, str(error)


def _cluster(link: Link, *, at_source: bool) -> Cluster:
    return Cluster(link.source if at_source else link.target, client_id=CLIENT_ID, limits=STATUS_LIMITS)
