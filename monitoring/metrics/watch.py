"""Looking at a link again and again, whatever happens to its sites."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.site import Site
from mirror.api import Link, LinkState, PartitionLag, RunState, StateEntries, link_lag, load_link_state
from monitoring import limits
from monitoring.metrics.observation import Board, LagSample, LinkObservation

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
    """Looks at one link and posts what it saw. `clock_ms` gives milliseconds since 1970."""

    def __init__(self, link: Link, board: Board, clock_ms: Callable[[], int]) -> None:
        self.link = link
        self._board = board
        self._clock_ms = clock_ms
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
                    limits.MONITOR_REFRESH_MS if observation.up else min(2 * pause_ms, limits.MONITOR_RETRY_MAX_MS)
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
        lags: list[PartitionLag] = []
        error: str | None = None
        try:
            async with asyncio.timeout(limits.MONITOR_LINK_TIMEOUT_MS / 1000):
                state = await load_link_state(self.link, await self._target.cluster())
        except (FarshoreError, OSError, TimeoutError) as trouble:
            error = type(trouble).__name__
            await self._target.drop()
        if state is not None:
            try:
                async with asyncio.timeout(limits.MONITOR_LINK_TIMEOUT_MS / 1000):
                    source, target = await self._source.cluster(), await self._target.cluster()
                    lags = await link_lag(self.link, source, target, state)
            except (FarshoreError, OSError, TimeoutError) as trouble:
                error = type(trouble).__name__
                # Which of the two failed is not worth guessing: both are asked anew.
                await self.close()
        return observed(self.link.name, self._clock_ms(), state.entries if state is not None else None, lags, error)


def _run_state(entries: StateEntries) -> RunState:
    """What the link may do; as long as no operation decided otherwise, it runs."""
    return RunState.RUNNING if entries.run is None else entries.run.state


def observed(
    link: str, at_ms: int, entries: StateEntries | None, lags: list[PartitionLag], error: str | None
) -> LinkObservation:
    """What the pass saw, as a value."""
    return LinkObservation(
        link,
        at_ms,
        up=error is None,
        error=error,
        state=None if entries is None or not entries.exists else _run_state(entries).value,
        lags=tuple(
            LagSample(lag.topic, lag.partition, lag.lag_records, lag.lag_seconds, lag.lag_bytes) for lag in lags
        ),
        groups_synced_at_ms={} if entries is None else dict(entries.groups.synced_at_ms),
        gaps_open=0 if entries is None else len(entries.open_gaps()),
    )
