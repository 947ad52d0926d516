"""Which records of one site were replayed at another, as a topic of that says.

It is kept by where a record was first written (cluster, topic id, partition, offset), so that a second export of the
same tail repeats nothing; and by the topic that it was brought to, of which another one, also of the same name, has
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from broker.client.cluster import Cluster
from broker.client.fanout import both
from broker.client.log import read_records
from broker.client.offsets import log_end_offsets
from broker.client.topics import describe_topics
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.errors import ReplayRefused
from failover.journal.lines import read_json
from mirror.api import Link

REPLAYS: Final = TopicPartition("__farshore-replays", 0)
PROGRESS_VERSION: Final = 2

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Offsets [first, end) of a source partition that were brought: in order, none touches the next."""


def replay_key(source_cluster_id: str, topic: str, topic_id: str, partition: int, target_topic_id: str) -> bytes:
    """`target_topic_id`: "" where it is not known, as in what earlier versions wrote."""
    origin = ["replayed", source_cluster_id, topic, topic_id, partition]
    return json.dumps([*origin, target_topic_id] if target_topic_id else origin).encode()


async def read_replays(target: Cluster, end: int) -> dict[bytes, Ranges]:
    """Per partition of any source what was replayed of it. Raises ReplayRefused, ClientError."""
    found: dict[bytes, Ranges] = {}
    async for record in read_records(target, REPLAYS, 0, end, IsolationLevel.READ_COMMITTED):
        done = read_done(record.value)
        if record.key is None or done is None:
            raise ReplayRefused(f"{REPLAYS} offset {record.offset} is no entry of a replay by this version")
        found[record.key] = done
    return found


def read_done(value: bytes | None) -> Ranges | None:
    """What an entry says was replayed. None: nobody of ours wrote it, or another version did. Pure."""
    match read_json(value):
        case {"v": version, "done": [*ranges]} if version == PROGRESS_VERSION:
            spans = [(one[0], one[1]) for one in ranges if _is_span(one)]
            return tuple(spans) if len(spans) == len(ranges) else None
    return None


def _is_span(found: object) -> bool:
    return isinstance(found, list) and len(found) == 2 and all(type(offset) is int for offset in found)


async def replayed_of(
    link: Link, source: Cluster, target: Cluster, places: Iterable[TopicPartition]
) -> Mapping[TopicPartition, Ranges]:
    """Of these partitions of the source what stands at the target since a replay; one of a topic that a site has no
    more is left out. Raises ReplayRefused, ClientError.
    """
    wanted = set(places)
    names = {at.topic for at in wanted}
    here, there = await both(
        describe_topics(source, names),
        describe_topics(target, {REPLAYS.topic, *map(link.target_topic, names)}),
    )
    done: dict[bytes, Ranges] = {}
    if REPLAYS.topic in there:
        end = (await log_end_offsets(target, [REPLAYS]))[REPLAYS]
        if (await log_end_offsets(target, [REPLAYS], IsolationLevel.READ_COMMITTED))[REPLAYS] < end:
            raise ReplayRefused(f"a transaction is open in {REPLAYS}: what was replayed behind it cannot be told")
        done = await read_replays(target, end)
    found = {}
    for at in wanted:
        topic, to = here.get(at.topic), there.get(link.target_topic(at.topic))
        if topic is not None and to is not None:
            origin = source.cluster_id, at.topic, str(topic.topic_id or ""), at.partition
            keys = {replay_key(*origin, ""), replay_key(*origin, str(to.topic_id or ""))}
            found[at] = joined((), (span for key in keys for span in done.get(key, ())))
    return found


def joined(ranges: Ranges, others: Iterable[tuple[int, int]]) -> Ranges:
    """What is in either. Pure."""
    for first, end in others:
        ranges = with_range(ranges, first, end)
    return ranges


def with_range(ranges: Ranges, first: int, end: int) -> Ranges:
    """The ranges and [first, end). Pure."""
    apart = [one for one in ranges if one[1] < first or end < one[0]]
    touched = [one for one in ranges if one not in apart]
    whole = (min([first, *(one[0] for one in touched)]), max([end, *(one[1] for one in touched)]))
    return tuple(sorted([*apart, whole]))


def inside(ranges: Ranges, first: int, end: int) -> Ranges:
    """What of [first, end) is in one of the ranges. Pure."""
    cut = [(max(first, begins), min(end, ends)) for begins, ends in ranges]
    return tuple(one for one in cut if one[0] < one[1])


def outside(ranges: Ranges, first: int, end: int) -> Ranges:
    """What of [first, end) is in none of the ranges. Pure."""
    found = []
    for begins, ends in ranges:
        if first < min(begins, end):
            found.append((first, min(begins, end)))
        first = max(first, ends)
    return (*found, (first, end)) if first < end else tuple(found)
