"""Looking at a link again and again, whatever happens to its sites."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from broker.base.clock import Clock
from broker.base.errors import FarshoreError
from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import NOT_LET_IN, ClientError
from broker.client.fanout import both
from broker.client.model import ClusterMetadata
from broker.client.site import Site
from broker.wire.vocabulary import NO_LEADER
from mirror.api import (
    AclRecord,
    Heartbeat,
    HeartbeatWatch,
    Link,
    LinkFindingKind,
    LinkLook,
    LinkState,
    Pulse,
    Split,
    StateEntries,
    StateReader,
    acls_of,
    condition_now,
    link_findings,
    load_partial_state,
    look_at_link,
    registered_at,
)
from monitoring import limits
from monitoring.metrics.observation import (
    AclSample,
    Board,
    GroupSample,
    HoldSample,
    LagSample,
    LinkObservation,
    SplitSample,
)

CLIENT_ID = "farshore-monitor"


class _Connection:
    """A cluster that is connected when it is needed, and dropped when it made trouble."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._cluster: Cluster | None = None

    async def cluster(self) -> Cluster:
        """Raises ClientError when the site does not answer."""
        if self._cluster is None:
            cluster = Cluster(self.site, client_id=CLIENT_ID)
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
        reach = _Reach()
        source, target = await both(self._reach(self._source, reach), self._reach(self._target, reach))
        state: LinkState | None = None
        look: LinkLook | None = None
        acls: AclRecord | ClientError | None = None
        offline: dict[str, int] = {}
        state_lost = False
        try:
            async with timeout(limits.MONITOR_LINK_TIMEOUT_MS / 1000):
                if target is not None:
                    state = await load_partial_state(self.link, target, self._state)
                    if not state.entries.exists:
                        state_lost = any(one.link == self.link.name for one in await registered_at(target))
                    acls = await acls_of(self.link, target)
            async with timeout(limits.MONITOR_LINK_TIMEOUT_MS / 1000):
                if state is not None and source is not None and target is not None:
                    look = await look_at_link(self.link, source, target, state)
                    offline[self.link.source.name] = await _partitions_offline(source)
                    offline[self.link.target.name] = await _partitions_offline(target)
        except (FarshoreError, OSError, TimeoutError) as trouble:
            reach.note(trouble)
            # Which of the two failed is not guessed: both are asked anew, and who does not answer then is away.
            await self.close()
            source, target = await both(self._reach(self._source, reach), self._reach(self._target, reach))
        entries = state.entries if state is not None else None
        heartbeat = self._heartbeats.judge_units(self.link.name, entries.owners() if entries is not None else {0: None})
        seen = observed(self.link.name, self._clock.now_ms(), entries, look, heartbeat, reach.error)
        answers = (source is not None, target is not None)
        told = (answers, entries, look, heartbeat, "; ".join(reach.trouble), reach.locked)
        found = Counter(finding.kind for finding in link_findings(self.link, *told, state_lost=state_lost, acls=acls))
        sees_all = look is not None and not found.keys() & _UNSEEN
        return replace(seen, partitions_offline=offline, findings=found, sees_all=sees_all, acls=acl_sample(acls))

    async def _reach(self, connection: _Connection, reach: _Reach) -> Cluster | None:
        try:
            async with timeout(limits.MONITOR_LINK_TIMEOUT_MS / 1000):
                return await connection.cluster()
        except (FarshoreError, OSError, TimeoutError) as error:
            reach.note(error)
            if isinstance(error, NOT_LET_IN):
                reach.locked[connection.site.name] = str(error)
            return None


@dataclass(slots=True)
class _Reach:
    """What went wrong in one pass: the first error's class, all of them in words, and who lets farshore not in."""

    error: str | None = None
    trouble: list[str] = field(default_factory=list)
    locked: dict[str, str] = field(default_factory=dict)

    def note(self, error: Exception) -> None:
        self.error = self.error or type(error).__name__
        self.trouble.append(str(error) or type(error).__name__)


_UNSEEN: Final = {LinkFindingKind.SITE_LOST, LinkFindingKind.SITE_LOCKED, LinkFindingKind.TROUBLE}
"""With one of these something else may be there that was not seen."""


def acl_sample(found: AclRecord | ClientError | None) -> AclSample | None:
    """What the worker wrote down, as a value; None: nothing."""
    if not isinstance(found, AclRecord) or found.look is None:
        return None
    look = found.look
    steps = {
        "create": look.to_create,
        "remove": look.to_remove,
        "hold": look.held,
        "withhold": look.withheld,
        "open": look.open_at_target,
        "failed": look.failed,
    }
    return AclSample(look.at_ms, steps, bool(look.trouble))


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
