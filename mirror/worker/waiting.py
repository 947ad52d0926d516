"""A worker whose source is down says in the link's state that it lives, until the source answers.

Heartbeats are a session's, and a session needs both sites. Without these the link of a living worker would be called
silent, and the next step that is told, to start one, would start a rival that fences it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.base.address import AddressInvalid
from broker.base.clock import Clock
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from mirror.coordinator.model import Permit
from mirror.limits import HEARTBEAT_INTERVAL_MS, HEARTBEAT_MAX_AGE_MS
from mirror.link import Link
from mirror.offsets.entries import Owner
from mirror.offsets.state import read_entries
from mirror.offsets.taking_over import claim_link
from mirror.worker.ahead import refuse_stopped
from mirror.worker.startup import Restarts, worker_name

SOURCE_PROBE_MS: Final = 4_000
"""How long the source may take to answer at all."""

assert SOURCE_PROBE_MS + 2 * HEARTBEAT_INTERVAL_MS < HEARTBEAT_MAX_AGE_MS, "a probe between two heartbeats is no death"


async def wait_for_source(
    link: Link, target: Cluster, restarts: Restarts, heartbeat_interval_ms: int, permit: Permit
) -> None:
    """Return when the source answers; sooner where another worker was the link's last owner, and its heartbeat moves:
    it may mirror still, and would be fenced.

    The state is fenced once more, since how far the session before had written is not known. Raises LinkPromoted,
    LinkPaused, LinkFenced, StateDamaged, ClientError (of the target), UnitNotHeld.
    """
    if await _answers(link, target.clock):
        return
    entries = await read_entries(link, target, only=())
    refuse_stopped(entries)
    owner = entries.owner
    if owner is None:
        return
    if owner.worker != worker_name() and not await _stands_still(owner, link, target, heartbeat_interval_ms):
        return
    permit.check()
    claim = await claim_link(target, link, worker_name(), restarts=restarts.count, restart_reason=restarts.reason)
    while not await _answers(link, target.clock):
        await target.clock.sleep(heartbeat_interval_ms / 1000)
        await claim.log.append([replace(claim.owner, at_ms=target.clock.now_ms())])


async def _stands_still(owner: Owner, link: Link, target: Cluster, heartbeat_interval_ms: int) -> bool:
    """Watched for longer than a living worker's heartbeat may; False where the source answers meanwhile."""
    clock = target.clock
    until = clock.monotonic() + HEARTBEAT_MAX_AGE_MS / 1000
    while clock.monotonic() < until:
        await clock.sleep(heartbeat_interval_ms / 1000)
        if await _answers(link, clock):
            return False
        entries = await read_entries(link, target, only=())
        refuse_stopped(entries)
        if entries.owner != owner:
            return False
    return True


async def _answers(link: Link, clock: Clock) -> bool:
    try:
        async with (
            timeout(SOURCE_PROBE_MS / 1000),
            Cluster(link.source, client_id=f"farshore-{link.name}", clock=clock),
        ):
            return True
    except (ClientError, AddressInvalid, TimeoutError):
        return False
