"""Removing what killed chaos runs have left: their topics, proxies and folders, and nothing else.

A run that lives is left alone. Whether it does is not read from a clock: the run's mirror and its workload write all
the time, so a run of which no topic grows for WATCH_S, and whose folder nobody has locked, is dead.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from broker.base.errors import FarshoreError
from broker.client.cluster import Cluster
from broker.client.errors import ClusterUnreachable, KafkaError
from broker.client.fanout import split_failures
from broker.client.offsets import list_each_offset
from broker.client.site import Site
from broker.client.topics import delete_topics, list_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import LATEST, TopicPartition
from chaos.errors import FaultNotRemoved
from chaos.folder import folders_left, is_locked
from chaos.names import run_of_proxy, run_of_topic
from chaos.toxics import remove_proxies

WATCH_S: Final = 15.0
"""Three heartbeats of a mirror; the workload writes at least once a second."""
LOOK_S: Final = 1.0
CLIENT_ID: Final = "farshore-chaos"


class LeftKind(StrEnum):
    """What a run makes."""

    TOPIC = "topic"
    PROXY = "proxy"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that a run made; `place` is a site, or what else it is in."""

    run_id: str
    kind: LeftKind
    place: str
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of runs, by whether their run is dead, and the sites that could not be looked at."""

    dead: tuple[Leftover, ...]
    alive: tuple[Leftover, ...]
    lost_sites: tuple[str, ...]


class Cleaning:
    """What runs have left at sites, on a toxiproxy server (None: none is looked at) and on this machine."""

    def __init__(self, clusters: Mapping[str, Cluster], lost_sites: Iterable[str], server: Any | None) -> None:
        self._clusters = clusters
        self._lost_sites = tuple(lost_sites)
        self._server = server

    async def find(self, watch_s: float = WATCH_S) -> Found:
        """Look, and where there is something, look on for `watch_s` whether its run lives. Raises ClientError."""
        loop = asyncio.get_running_loop()
        first, alive = await self._signs(), _locked()
        deadline_s = loop.time() + watch_s
        while (suspects := {left.run_id for left in await self._list()} - alive) and loop.time() < deadline_s:
            await asyncio.sleep(LOOK_S)
            now = await self._signs()
            alive |= {run for run in suspects if now.get(run) != first.get(run)} | _locked()
        found = await self._list()
        return Found(
            tuple(left for left in found if left.run_id not in alive and left.run_id in suspects),
            tuple(left for left in found if left.run_id in alive or left.run_id not in suspects),
            self._lost_sites,
        )

    async def remove(self, dead: Sequence[Leftover]) -> None:
        """Remove them; what is gone already is no trouble. Raises FaultNotRemoved when all else is removed,
        ClientError.
        """
        failures: list[FarshoreError] = []
        for site, cluster in self._clusters.items():
            there = await list_topics(cluster)
            mine = [left.name for left in _of(dead, LeftKind.TOPIC) if left.place == site and left.name in there]
            failures += await remove_topics(cluster, mine)
        if self._server is not None:
            try:
                remove_proxies(self._server, [left.name for left in _of(dead, LeftKind.PROXY)])
            except FaultNotRemoved as error:
                failures.append(error)
        for left in _of(dead, LeftKind.FOLDER):
            with suppress(FileNotFoundError):
                shutil.rmtree(left.name)
        if failures:
            raise FaultNotRemoved(f"not removed: {'; '.join(map(str, failures))}")

    async def _list(self) -> list[Leftover]:
        found = []
        for site, cluster in self._clusters.items():
            for name in sorted(await list_topics(cluster)):
                if (run_id := run_of_topic(name)) is not None:
                    found.append(Leftover(run_id, LeftKind.TOPIC, site, name))
        for name, proxy in sorted(self._server.proxies().items() if self._server is not None else ()):
            # A server may be shared: what leads elsewhere belongs to somebody whose sites are not looked at here.
            if (run_id := run_of_proxy(name)) is not None and proxy.upstream in self._upstreams():
                found.append(Leftover(run_id, LeftKind.PROXY, "toxiproxy", name))
        found += [Leftover(run, LeftKind.FOLDER, "this machine", str(path)) for run, path in folders_left().items()]
        return found

    def _upstreams(self) -> set[str]:
        clusters = self._clusters.values()
        return {str(cluster.site.dial(node.host, node.port)) for cluster in clusters for node in cluster.nodes.values()}

    async def _signs(self) -> dict[str, dict[tuple[str, TopicPartition], int]]:
        """By run, where all its logs end that can be asked."""
        signs: dict[str, dict[tuple[str, TopicPartition], int]] = {}
        for site, cluster in self._clusters.items():
            topics = await list_topics(cluster)
            mine = [
                TopicPartition(topic.name, partition.partition)
                for topic in topics.values()
                if run_of_topic(topic.name) is not None
                for partition in topic.partitions
            ]
            ends, _ = split_failures(await list_each_offset(cluster, dict.fromkeys(mine, LATEST)))
            for where, end in ends.items():
                run_id = run_of_topic(where.topic)
                assert run_id is not None
                signs.setdefault(run_id, {})[site, where] = end.offset
        return signs


async def remove_topics(cluster: Cluster, names: Iterable[str]) -> list[KafkaError]:
    """Delete topics; what is gone already is no trouble -> why others are left. Raises ClientError."""
    failed = await delete_topics(cluster, names)
    return [error for error in failed.values() if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def cleaning(stack: AsyncExitStack, sites: Collection[Site], server: Any | None) -> Cleaning:
    """Connect to the sites for as long as the stack lives; one that does not answer is named in what is found."""
    clusters, lost = {}, []
    for site in sites:
        try:
            clusters[site.name] = await stack.enter_async_context(Cluster(site, client_id=CLIENT_ID))
        except ClusterUnreachable:
            lost.append(site.name)
    return Cleaning(clusters, lost, server)


def _locked() -> set[str]:
    return {run_id for run_id, folder in folders_left().items() if is_locked(folder)}


def _of(found: Iterable[Leftover], kind: LeftKind) -> list[Leftover]:
    return [left for left in found if left.kind is kind]
