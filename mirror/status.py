"""What an operator wants to know of a link at a glance."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.limits import ClientLimits
from broker.client.site import Site
from mirror.lag import PartitionLag, link_lag
from mirror.link import Link
from mirror.offsets.entries import Gap, RunState
from mirror.offsets.state import LinkState, StateEntries, load_link_state

STATUS_LIMITS = ClientLimits(
    connect_timeout_ms=2_000, bootstrap_timeout_ms=2_500, retry_timeout_ms=5_000, request_timeout_ms=10_000,
    delivery_timeout_ms=10_000,
)  # fmt: skip
"""A person waits for the answer, and a lost site must not make them wait long."""


class LinkCondition(StrEnum):
    """A link's state in one word."""

    NEVER_RAN = "never_ran"
    RUNNING = "running"
    """Allowed to run; `last_seen_at_ms` says when its worker last proved a position."""
    STOPPED_PARTITIONS = "stopped_partitions"
    """Some partitions wait for a person's decision on a gap."""
    PROMOTED = "promoted"
    UNKNOWN = "unknown"
    """The target does not answer."""


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One link now. Sums and maxima are over partitions, None while a site does not answer."""

    link: str
    source: str
    target: str
    condition: LinkCondition
    source_answers: bool
    target_answers: bool
    topics: int | None
    partitions: int | None
    lag_records: int | None
    lag_bytes: int | None
    lag_seconds: float | None
    lag_is_estimated: bool
    last_seen_at_ms: int | None
    groups: int
    oldest_group_sync_at_ms: int | None
    gaps: tuple[Gap, ...]
    partition_lags: tuple[PartitionLag, ...]
    trouble: str


async def link_statuses(links: Sequence[Link]) -> list[LinkStatus]:
    """Look at all of them at once, in their order."""
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(link_status(link)) for link in links]
    return [look.result() for look in looks]


async def link_status(link: Link) -> LinkStatus:
    """Look at both sites; one that does not answer is part of the answer, not an error."""
    async with AsyncExitStack() as stack:
        trouble: list[str] = []
        source = await _enter(stack, link.source, trouble)
        target = await _enter(stack, link.target, trouble)
        state: LinkState | None = None
        lags: list[PartitionLag] | None = None
        try:
            if target is not None:
                state = await load_link_state(link, target)
            if source is not None and target is not None:
                lags = await link_lag(link, source, target, state)
        except FarshoreError as error:
            trouble.append(str(error))
        entries = state.entries if state is not None else None
        return summarise(link, source is not None, target is not None, entries, lags, "; ".join(trouble))


def summarise(
    link: Link,
    source_answers: bool,
    target_answers: bool,
    entries: StateEntries | None,
    lags: Sequence[PartitionLag] | None,
    trouble: str,
) -> LinkStatus:
    """Put together what was seen. Pure."""
    checkpoints = entries.checkpoints.values() if entries is not None else ()
    synced = entries.groups.synced_at_ms if entries is not None else {}
    return LinkStatus(
        link=link.name,
        source=link.source.name,
        target=link.target.name,
        condition=condition_of(entries),
        source_answers=source_answers,
        target_answers=target_answers,
        topics=None if lags is None else len({lag.topic for lag in lags}),
        partitions=None if lags is None else len(lags),
        lag_records=None if lags is None else sum(lag.lag_records for lag in lags),
        lag_bytes=None if lags is None else sum(lag.lag_bytes for lag in lags),
        lag_seconds=None if lags is None else max((lag.lag_seconds for lag in lags), default=0.0),
        lag_is_estimated=any(lag.lag_bytes_estimated or lag.lag_records_estimated for lag in lags or ()),
        last_seen_at_ms=max((checkpoint.observed_at_ms for checkpoint in checkpoints), default=None),
        groups=len(synced),
        oldest_group_sync_at_ms=min(synced.values(), default=None),
        gaps=tuple(entries.gaps.values()) if entries is not None else (),
        partition_lags=tuple(lags or ()),
        trouble=trouble,
    )


def condition_of(entries: StateEntries | None) -> LinkCondition:
    """The one word for a link's state topic; None: it could not be read."""
    if entries is None:
        return LinkCondition.UNKNOWN
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        return LinkCondition.PROMOTED
    if entries.open_gaps():
        return LinkCondition.STOPPED_PARTITIONS
    return LinkCondition.RUNNING if entries.exists and entries.owner is not None else LinkCondition.NEVER_RAN


async def _enter(stack: AsyncExitStack, site: Site, trouble: list[str]) -> Cluster | None:
    try:
        return await stack.enter_async_context(Cluster(site, client_id="farshore-status", limits=STATUS_LIMITS))
    except FarshoreError as error:
        trouble.append(str(error))
        return None
