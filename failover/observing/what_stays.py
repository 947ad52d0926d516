"""Which groups the move of a link leaves at its source: those that it does not select, and what others have elsewhere.

The link is fenced for them, too, and nobody carries them further.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from broker.client.cluster import Cluster
from broker.client.described_groups import SHARE_TYPE
from broker.client.errors import ClientError
from broker.client.groups import ListedGroup, list_groups
from failover.limits import SOURCE_ROLE_S
from failover.observing.looking import Asking, look_at_offsets
from failover.observing.sites import Sites
from failover.observing.snapshot import Snapshot
from failover.planning.staying import Stay, StayKind, StayReason, share_groups, topics_detail
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class OtherGroups:
    """Of the groups at the source that the link does not select the topics in which each has an offset; `shared`: share
    groups, which are not carried over. Not `is_told`: there may be others.
    """

    topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_told: bool = False
    shared: frozenset[str] = frozenset()


async def other_groups(link: Link, source: Cluster | None) -> OtherGroups:
    """As far as the source tells it in time: it is asked beside what a plan cannot do without, and holds up nothing."""
    if source is not None:
        with suppress(ClientError, TimeoutError):
            return await asyncio.wait_for(_others(link, source), SOURCE_ROLE_S)
    return OtherGroups()


async def _others(link: Link, source: Cluster) -> OtherGroups:
    listed = await list_groups(source)
    shared = shared_of(listed)
    names = [name for name in listed if name not in shared and not link.selects_group(name)]
    asking = Asking(in_part=True)
    found = await look_at_offsets(source, names, asking) if names else {}
    topics = {name: frozenset(at.topic for at in offsets) for name, offsets in found.items()}
    return OtherGroups(topics, not asking.missed, shared)


def shared_of(listed: Mapping[str, ListedGroup]) -> frozenset[str]:
    """Those of Kafka 4's type of groups whose members share partitions."""
    return frozenset(name for name, group in listed.items() if group.protocol_type == SHARE_TYPE)


async def others_beside(sites: Sites) -> OtherGroups | None:
    """For a plan's `stays`; None where they are not said: what a failback moves, and what stays, its own plan says."""
    return None if sites.within else await other_groups(sites.link, sites.source)


def what_stays(snapshot: Snapshot, others: OtherGroups | None) -> tuple[Stay, ...]:
    """Of a plan by this snapshot. A source that is not the one that was mirrored tells nothing. Pure."""
    return () if others is None else tuple(_stays(snapshot, others))


def _stays(snapshot: Snapshot, others: OtherGroups) -> Iterable[Stay]:
    if not others.is_told or snapshot.source_finding.is_gone:
        text = f"{snapshot.source} does not tell which groups it has"
        yield Stay(StayKind.GROUP, "", StayReason.NOT_KNOWN, text)
        told = {} if snapshot.source_finding.is_gone else others.topics
        for group in snapshot.groups_carried_before:
            if group not in told:
                yield Stay(StayKind.GROUP, group, StayReason.GROUP_NOT_SELECTED_NOW, snapshot.link)
    if snapshot.source_finding.is_gone:
        return
    going = {view.topic for view in snapshot.partitions}
    for group, topics in sorted(others.topics.items()):
        if topics & going and group not in snapshot.asked_groups:
            yield Stay(StayKind.GROUP, group, StayReason.GROUP_NOT_SELECTED, snapshot.link)
    for view in snapshot.groups:
        if view.other_topics:
            yield Stay(StayKind.GROUP, view.group, StayReason.OTHER_TOPICS, topics_detail(view.other_topics))
    yield from share_groups(others.shared)
    for group in snapshot.groups_elsewhere:
        yield Stay(StayKind.GROUP, group, StayReason.NO_OFFSETS)
