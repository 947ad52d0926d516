"""Two sites that both take writes to the same topics since one took over from the other: seen from the promoted link.

What came to the source since is what lies behind all that the mirror brought or had seen there before. A record's own
time tells more only where it is of today: a record that was stamped between the last look and the promotion belongs to
the loss; one that is stamped earlier may have come at any time since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.log import read_batches
from broker.client.offsets import log_end_offsets
from broker.client.site_role import site_standing
from broker.client.topics import list_topics
from broker.wire.batch import BatchHeader
from broker.wire.errors import ErrorCode, WireError
from broker.wire.records import decode_records
from broker.wire.site_role import SiteStanding
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, SPLIT_COUNT_MS
from mirror.link import Link
from mirror.offsets.entries import LinkRun, RunState
from mirror.offsets.promotions import is_later
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state import LinkState, read_entries
from mirror.topics.plan import select_topics
from mirror.worker.origins import complete_link
from mirror.worker.registry import registered_at


@dataclass(frozen=True, slots=True)
class LocalWrites:
    """Committed records of a site's own producers, from `first_offset` on: so many, counted by reading, the earliest
    stamped `first_timestamp_ms` by its producer. `is_complete`: all was read in time; else there may be more.
    """

    topic: str
    partition: int
    first_offset: int
    records: int
    first_timestamp_ms: int
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Split:
    """Who writes since the link was promoted. `two_active`: by their roles both sites take writes to topics of the
    link; None: the brokers of one have no roles. What came to the target is read only where something came to the
    source, at all.
    """

    promoted_at_ms: int
    two_active: bool | None
    at_source: tuple[LocalWrites, ...] = ()
    at_target: tuple[LocalWrites, ...] = ()

    @property
    def is_split(self) -> bool:
        return bool(self.at_source and self.at_target)


async def look_for_split(link: Link, source: Cluster, target: Cluster, state: LinkState) -> Split | None:
    """None where the link is not promoted, or a link back was promoted since: then that one is to be asked. Raises
    ClientError, StateDamaged.
    """
    run = state.entries.run
    if run is None or run.state is not RunState.PROMOTED:
        return None
    for back in (await complete_link(link, source, target)).reverse_links:
        if is_later(await read_entries(back, source, only=()), state.entries):
            return None
    topics = await list_topics(source)
    names = [name for name in select_topics(link, topics) if name != link.canary_topic]
    two_active = _are_two_active(link, names, await _role(source), await _role(target))
    partitions = [TopicPartition(name, partition.partition) for name in names for partition in topics[name].partitions]
    at_source = await _at_source(link, source, target, state, run, partitions)
    if not at_source:
        return Split(run.at_ms, two_active)
    return Split(run.at_ms, two_active, at_source, await _at_target(link, target, state, partitions))


def _are_two_active(
    link: Link, names: Iterable[str], source: SiteStanding | None, target: SiteStanding | None
) -> bool | None:
    if source is None or target is None:
        return None
    return any(not source.refuses(name) and not target.refuses(link.target_topic(name)) for name in names)


async def _role(cluster: Cluster) -> SiteStanding | None:
    try:
        return await site_standing(cluster)
    except KafkaError as error:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # farshore's own brokers ask no rights
            return None
        raise


async def _at_source(
    link: Link, source: Cluster, target: Cluster, state: LinkState, run: LinkRun, partitions: Iterable[TopicPartition]
) -> tuple[LocalWrites, ...]:
    observation = await load_observation(link, target)
    looked_at_ms = run.at_ms if observation.last is None else observation.last.at_ms
    starts = {}
    for where in partitions:
        end, seen = state.map.mirrored_end(*where), observation.ends.get(where)
        position = max(end.source_next, state.map.partition(*where).position) if end else 0
        starts[where] = max(position, seen.end if seen else 0)
    mirrors = {registered.producer_id for registered in await registered_at(source)}
    is_of_the_future = run.at_ms > source.clock.now_ms() + CLOCK_DIFFERENCE_MAX_MS
    before_ms = (0, 0) if is_of_the_future else (looked_at_ms, run.at_ms)  # who promoted it has another clock
    return await _local_writes(source, starts, mirrors, before_ms)


async def _at_target(
    link: Link, target: Cluster, state: LinkState, partitions: Iterable[TopicPartition]
) -> tuple[LocalWrites, ...]:
    there = await list_topics(target)
    starts = {}
    for where in partitions:
        name = link.target_topic(where.topic)
        if name in there and where.partition < len(there[name].partitions):
            end = state.map.mirrored_end(*where)
            starts[TopicPartition(name, where.partition)] = end.target_next if end else 0
    mirrors = {registered.producer_id for registered in await registered_at(target)}
    return await _local_writes(target, starts, mirrors, (0, 0))


async def _local_writes(
    cluster: Cluster, starts: Mapping[TopicPartition, int], mirrors: Container[int], before_ms: tuple[int, int]
) -> tuple[LocalWrites, ...]:
    """By partition, without what is stamped within `before_ms`, as far as it can be read in SPLIT_COUNT_MS."""
    ends = await log_end_offsets(cluster, starts, IsolationLevel.READ_COMMITTED)
    grown = {where: start for where, start in sorted(starts.items()) if ends[where] > start}
    found: dict[TopicPartition, LocalWrites] = {}
    whole: set[TopicPartition] = set()
    with suppress(TimeoutError):
        async with asyncio.timeout(SPLIT_COUNT_MS / 1000):
            for where, start in grown.items():
                with suppress(ClientError, WireError):  # one that cannot be read hides no other
                    async for header, batch in read_batches(
                        cluster, where, start, ends[where], IsolationLevel.READ_COMMITTED
                    ):
                        if (
                            header.producer_id not in mirrors
                            and not before_ms[0] <= header.max_timestamp < before_ms[1]
                        ):
                            found[where] = _with_batch(found.get(where), where, start, header, batch)
                    whole.add(where)
    return tuple(
        LocalWrites(*at, writes.first_offset, writes.records, writes.first_timestamp_ms, at in whole)
        for at, writes in found.items()
    )


def _with_batch(
    known: LocalWrites | None, where: TopicPartition, start: int, header: BatchHeader, batch: memoryview
) -> LocalWrites:
    is_whole = header.base_offset >= start
    records = header.record_count if is_whole else sum(each.offset >= start for each in decode_records(batch))
    if known is None:
        return LocalWrites(*where, max(start, header.base_offset), records, header.first_timestamp)
    earliest_ms = min(known.first_timestamp_ms, header.first_timestamp)
    return LocalWrites(*where, known.first_offset, known.records + records, earliest_ms)
