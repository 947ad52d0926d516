"""Asking both sites once more where their logs begin: whether what was read is still what was frozen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from broker.base.errors import first_of
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.offsets import list_each_offset
from broker.wire.vocabulary import EARLIEST, TopicPartition
from monitoring.audit.model import ComparablePartition, FrozenLink, Side
from monitoring.audit.rounds import LogStarts
from monitoring.errors import AuditError, SiteLost

CLIENT_ID = "farshore-audit"


async def log_starts(
    frozen: FrozenLink, partitions: Sequence[ComparablePartition], sides: Sequence[Side] = tuple(Side)
) -> LogStarts:
    """Where the logs of these partitions begin now, at both sites at once, or at one. Raises SiteLost."""
    here = {TopicPartition(item.topic, item.partition) for item in partitions}
    there = {TopicPartition(item.target_topic, item.partition) for item in partitions}
    try:
        async with asyncio.TaskGroup() as group:
            asked = {
                side: group.create_task(_starts(frozen, side, wanted))
                for side, wanted in ((Side.SOURCE, here), (Side.TARGET, there))
                if side in sides
            }
    except* SiteLost as lost:
        raise first_of(lost) from None
    return {(side, *where): start for side, found in asked.items() for where, start in found.result().items()}


async def _starts(frozen: FrozenLink, side: Side, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
    async with reached(frozen, side) as cluster:
        found, _ = split_failures(await list_each_offset(cluster, dict.fromkeys(wanted, EARLIEST)))
    return {where: at.offset for where, at in found.items()}


async def require_clusters(frozen: FrozenLink, sides: Sequence[Side]) -> None:
    """Raise AuditError where a site is another cluster than the one that was frozen, and SiteLost."""
    for side in sides:
        site = frozen.source if side is Side.SOURCE else frozen.target
        async with reached(frozen, side) as cluster:
            found = cluster.cluster_id
        if None not in (site.cluster_id, found) and found != site.cluster_id:
            raise AuditError(
                f"{side.value} {site.name} at {site.bootstrap_servers} is cluster {found}, and the plan is of "
                f"{site.cluster_id}",
                "see bootstrap_servers of this site in the configuration file here",
            )


@asynccontextmanager
async def reached(frozen: FrozenLink, side: Side) -> AsyncIterator[Cluster]:
    """A site as the audit's child comes to it. Raises SiteLost."""
    site = frozen.source if side is Side.SOURCE else frozen.target
    try:
        async with Cluster(site.site(), client_id=CLIENT_ID) as cluster:
            yield cluster
    except ClientError as error:
        raise SiteLost(
            f"{side.value} {site.name} at {site.bootstrap_servers} does not answer: {error}",
            "run the audit again when it does: what was read of it cannot be relied on",
        ) from error
