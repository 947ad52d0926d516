"""What an opening begins with, before its fence: by reading alone, so that it can be done while another worker runs the
link still.

All of it may be older than what the fence finds. Behind that the state, the registry at the target and the source's
leaders and topics are asked anew, whether this is from a moment ago or from some seconds (docs/adr/0030).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from broker.client.cluster import Cluster, Purpose
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.topics import Described, describe_each_topic
from broker.wire.vocabulary import NO_LEADER, TopicPartition
from mirror.errors import LinkPaused, LinkPromoted
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.cutting import agree_on_units
from mirror.offsets.entries import RunState
from mirror.offsets.state import StateReader
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import REGISTRY_CONTENT, check_compacted, check_own_topics, make_own_topics
from mirror.topics.sync import TopicSyncReport, look_at_topics, report_of, sync_topics
from mirror.worker.evidence import partition_pairs
from mirror.worker.limits import AHEAD_MAX_AGE_MS
from mirror.worker.origins import Passage


@dataclass(slots=True)
class Ahead:
    """What a session has read before its fence; `topics` None: nothing that an opening could begin with.

    The state is read on from where this has read it.
    """

    state: StateReader
    topics: TopicSyncReport | None = None
    asked_s: float = field(default=float("-inf"))

    def fresh_topics(self, target: Cluster) -> TopicSyncReport | None:
        return None if is_old(target, self.asked_s) else self.topics


def refuse_stopped(entries: StateEntries) -> None:
    """Raise LinkPromoted when the target was promoted, LinkPaused when a person paused the link: by which operation."""
    run = entries.run
    if run is not None and run.state is RunState.PAUSED:
        hint = f"to let it run again: farshore link resume --link {entries.link.name}"
        raise LinkPaused(f"link {entries.link.name} was paused by operation {run.operation_id}", hint)
    if run is not None and run.state is RunState.PROMOTED:
        text = f"link {entries.link.name}: {entries.link.target.name} was promoted by operation {run.operation_id}"
        hint = f"to mirror to it again, overwriting nothing: farshore link resume --link {entries.link.name}"
        raise LinkPromoted(text, hint)


def is_old(target: Cluster, asked_s: float) -> bool:
    """Whether what was asked then is to be asked again."""
    return target.clock.monotonic() - asked_s > AHEAD_MAX_AGE_MS / 1000


async def look_ahead(link: Link, clusters: tuple[Cluster, Cluster], passage: Passage, ahead: Ahead) -> TopicSyncReport:
    """Decide whether the link may run, and with what: its state, both registries, and the topics, of which those are
    made that are missing. Raises MirrorError, ClientError.
    """
    source, target = clusters
    before, described = await _read(link, clusters, passage, ahead.state)
    await agree_on_units(target, link, before)
    await _admit(target, passage, before, described)
    return await sync_topics(passage.link, source, target, described=described)


async def prepare(link: Link, clusters: tuple[Cluster, Cluster], passage: Passage, ahead: Ahead) -> None:
    """As `look_ahead`, while another worker runs the link: nothing is made, set or written. What has still to be leaves
    `topics` None. Connections that an opening needs are open then. Raises MirrorError, ClientError.
    """
    source, target = clusters
    asked_s = target.clock.monotonic()
    own = {link.state_topic: "the offset map", PRODUCERS_TOPIC: REGISTRY_CONTENT}
    reading = both(ahead.state.read(target), both(check_compacted(target, own), passage.at_target.refresh()))
    looking = both(passage.read_at_source(), describe_each_topic(source))
    (before, _), (_, described) = await both(reading, looking)
    if before.owner is None or (before.units is None and link.unit_count > 1):
        return
    await agree_on_units(target, link, before)
    await _admit(target, passage, before, described)
    seen = await look_at_topics(passage.link, source, target, described)
    topics = await report_of(passage.link, source, target, seen)
    if topics is None:
        return
    pairs = partition_pairs(passage.link, topics.mirrored)
    await target.coordinator("transaction", link.transactional_id)
    await both(
        connect_leaders(source, pairs.keys(), ("fetch", "admin")),
        connect_leaders(target, pairs.values(), ("fetch", "produce", "admin")),
    )
    ahead.topics, ahead.asked_s = topics, asked_s


async def _admit(target: Cluster, passage: Passage, before: StateEntries, described: Described) -> None:
    await passage.complete(target, before.left_to())
    await passage.at_source.refuse_unknown_writers(described[0])
    refuse_stopped(before)


async def _read(
    link: Link, clusters: tuple[Cluster, Cluster], passage: Passage, state: StateReader
) -> tuple[StateEntries, Described]:
    """The link's state, both registries, and the source's topics, which are described again where the target took
    long.
    """
    source, target = clusters
    asked_s = target.clock.monotonic()

    async def at_target() -> StateEntries:
        await make_own_topics(target, link)
        own = both(check_own_topics(target, link), passage.at_target.refresh())
        return (await both(state.read(target), own))[0]

    before, (_, described) = await both(at_target(), both(passage.read_at_source(), describe_each_topic(source)))
    return before, await describe_each_topic(source) if is_old(target, asked_s) else described


@asynccontextmanager
async def connecting(
    cluster: Cluster, partitions: Iterable[TopicPartition], purposes: Sequence[Purpose]
) -> AsyncIterator[None]:
    """Meanwhile those connections are opened that the leaders of these partitions will be asked by.

    What is not open by then, or cannot be opened, whoever needs it opens, and hears why it cannot be.
    """
    nodes = await _leaders(cluster, partitions)
    opening = asyncio.ensure_future(_connect(cluster, nodes, purposes))
    try:
        yield
    finally:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)


async def connect_leaders(cluster: Cluster, partitions: Iterable[TopicPartition], purposes: Sequence[Purpose]) -> None:
    """Until each of those connections is open, or cannot be. Raises ClientError where no leader is known."""
    await _connect(cluster, await _leaders(cluster, partitions), purposes)


async def _leaders(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted((await cluster.by_leader(partitions)).keys() - {NO_LEADER})


async def _connect(cluster: Cluster, nodes: Sequence[int], purposes: Sequence[Purpose]) -> None:
    async def connect(node_id: int, purpose: Purpose) -> None:
        with suppress(ClientError):
            await cluster.connection(node_id, purpose)

    await asyncio.gather(*(connect(node, purpose) for node in nodes for purpose in purposes))
