"""Looking at a link again and again, whatever happens to its sites."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from broker.base.clock import Clock
from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.model import ClusterMetadata
from broker.client.site import Site
from broker.wire.vocabulary import NO_LEADER
from mirror.api import (
    Heartbeat,
    HeartbeatWatch,
    Link,
    LinkLook,
    LinkState,
    Pulse,
    Split,
    StateEntries,
    StateReader,
    condition_now,
    load_partial_state,
    look_at_link,
)
from monitoring import limits
from monitoring.metrics.observation import Board, GroupSample, HoldSample, LagSample, LinkObservation, SplitSample

CLIENT_ID = "farshore-monitor"


class _Connection:
    """A cluster that is connected when it is needed, and dropped when it made trouble."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._cluster: Cluster | None = None

    async def cluster(self) -> Cluster:
        """Raises ClientError when the site does not answer."""
        if self._cluster is None:
            cluster = Cluster(self._site, client_id=CLIENT_ID)
            await cluster.__aenter__()
            self._cluster = cluster
        return self._cluster

    async def drop(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()


class LinkWatch:
    """Looks at one link and posts what it saw. `heartbeats`: of who else looks at it, less often."""

    def __init__(self, link: Link, board: Board, clock: Clock, heartbeats: HeartbeatWatch | None = None) -> None:
        self.link = link
        self._board = board
        self._clock = clock
        self._heartbeats = heartbeats or HeartbeatWatch(clock)
        self._state = StateReader(link)
        self._source = _Connection(link.source)
        self._target = _Connection(link.target)

    async def run(self) -> None:
        """For ever; after failed passes with growing pauses."""
        pause_ms = limits.MONITOR_REFRESH_MS
        try:
            while True:
                observation = await self.look()
                self._board.post(observation)
                pause_ms = (
                    limits.MONITOR_REFRESH_MS
                    if observation.answered
                    else min(2 * pause_ms, limits.MONITOR_RETRY_MAX_MS)
                )
                await asyncio.sleep(pause_ms / 1000)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close what is connected."""
        await self._source.drop()
        await self._target.drop()

    async def look(self) -> LinkObservation:
        """One pass. What a dead site cannot tell is left out; what the other one tells is kept."""
        state: LinkState | None = None
        look: LinkLook | None = None
        offline: dict[str, int] = {}
        error: str | None = None
        try:
            async with asyncio.timeout(limits.MONITOR_LINK_TIMEOUT_MS / 1000):
                state = await load_partial_state(self.link, await self._target.cluster(), self._state)
        except (FarshoreError, OSError, TimeoutError) as trouble:
            error = type(trouble).__name__
            await self._target.drop()
        if state is not None:
            try:
                async with asyncio.timeout(limits.MONITOR_LINK_TIMEOUT_MS / 1000):
                    source, target = await self._source.cluster(), await self._target.cluster()
                    look = await look_at_link(self.link, source, target, state)
                    offline[self.link.source.name] = await _partitions_offline(source)
                    offline[self.link.target.name] = await _partitions_offline(target)
            except (FarshoreError, OSError, TimeoutError) as trouble:
                error = type(trouble).__name__
                # Which of the two failed is not worth guessing: both are asked anew.
                await self.close()
        entries = state.entries if state is not None else None
        heartbeat = self._heartbeats.judge_units(self.link.name, entries.owners() if entries is not None else {0: None})
        seen = observed(self.link.name, self._clock.now_ms(), entries, look, heartbeat, error)
        return replace(seen, partitions_offline=offline)


async def _partitions_offline(cluster: Cluster) -> int:
    return offline_partitions(await cluster.metadata())


def offline_partitions(metadata: ClusterMetadata) -> int:
    """Those that nobody leads. A topic that the site cannot describe counts as one: how many it has is not known."""
    told = metadata.topics.values()
    leaderless = sum(partition.leader_id == NO_LEADER for topic in told for partition in topic.partitions)
    return leaderless + len(metadata.topic_errors)


def observed(
    link: str,
    at_ms: int,
    entries: StateEntries | None,
    look: LinkLook | None,
    heartbeat: Heartbeat,
    error: str | None,
) -> LinkObservation:
    """What the pass saw, as a value."""
    condition = condition_now(entries, heartbeat)
    return LinkObservation(
        link,
        at_ms,
        answered=error is None,
        up=error is None and heartbeat.pulse is Pulse.ALIVE,
        error=error,
        condition=None if entries is None else condition.value,
        lags=() if look is None else _lags(look),
        groups_synced_at_ms={} if entries is None else dict(entries.groups.synced_at_ms),
        groups={} if entries is None else _groups(entries),
        groups_looked_at_ms=None if entries is None else entries.groups.looked_at_ms,
        holds=() if look is None else tuple(HoldSample(h.topic, h.partition, h.reason.value) for h in look.holds),
        topics_paused=() if entries is None else entries.paused_topics(),
        gaps_open=0 if entries is None else len(entries.open_gaps()),
        heartbeat_at_ms=heartbeat.at_ms,
        split=None if look is None else _split(look),
    )


def _split(look: LinkLook) -> SplitSample | None:
    """Of a link that is not promoted there is nothing to say."""
    split = look.split
    both_promoted = any(back.is_later is not False and not back.may_run for back in look.backs)
    if split is None:
        return SplitSample(both_promoted=both_promoted)
    if not isinstance(split, Split):
        return None
    if not split.is_split:
        return SplitSample(split.two_active, False if split.is_known else None, both_promoted=both_promoted)
    at_source, at_target = (sum(each.records for each in writes) for writes in (split.at_source, split.at_target))
    return SplitSample(split.two_active, True, at_source, at_target, both_promoted)


def _lags(look: LinkLook) -> tuple[LagSample, ...]:
    known = [
        LagSample(
            lag.topic,
            lag.partition,
            lag.lag_records,
            lag.lag_seconds,
            lag.lag_bytes,
            lag.held_by_transaction_offsets,
        )
        for lag in look.lags.lags
    ]
    return (*known, *(LagSample(*where, None, None, None) for where in look.lags.unknown))


def _groups(entries: StateEntries) -> dict[str, GroupSample]:
    return {
        name: GroupSample(Counter(reason.value for reason in entry.waiting.values()), bool(entry.failure))
        for name, entry in entries.groups.by_group.items()
    }
