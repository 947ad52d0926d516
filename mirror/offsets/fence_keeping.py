"""Writing where both sites' logs ended when a link was promoted, for who asks later what came since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from broker.base.time_limits import timeout
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import split_failures
from broker.client.log import append
from broker.client.offsets import list_each_offset
from broker.client.topics import describe_topics
from broker.wire.compression import Compression
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import LATEST, TopicPartition
from mirror.limits import KEEP_FENCE_ENDS_MS
from mirror.link import Link
from mirror.offsets.entries import LinkRun, Writer, encode_key, encode_value
from mirror.offsets.fence import Fence
from mirror.offsets.fence_ends import FenceEnds, fence_entries
from mirror.offsets.fenced_logs import FencedLog, fenced_entries
from mirror.offsets.limits import STATE_BATCH_MAX_BYTES
from mirror.offsets.offset_map import Where
from mirror.offsets.source_ends import load_observation
from mirror.offsets.state_entries import StateEntries


async def may_keep_fence_ends(link: Link, target: Cluster) -> bool:
    """Whether there is a topic for them: no worker of the link may ever have made it. Raises nothing: as
    `keep_fence_ends` it holds nothing up.
    """
    with suppress(ClientError, TimeoutError):
        async with timeout(KEEP_FENCE_ENDS_MS / 1000):
            return bool(await describe_topics(target, [link.ends_topic]))
    return False


async def keep_fence_ends(
    link: Link, target: Cluster, operation_id: str, ends: FenceEnds, before: LinkRun | None
) -> None:
    """Before this operation's promotion, which it does not hold up; `before`: the one that stands, whose ends count on.

    Where they cannot be kept in KEEP_FENCE_ENDS_MS nobody knows later what came since: then the state has no entry of
    that operation, and that is said.
    """
    if before is not None and before.operation_id == operation_id:  # they were kept before that
        return
    with suppress(ClientError, TimeoutError):
        async with timeout(KEEP_FENCE_ENDS_MS / 1000):
            if before is None:
                await _write(link, target, [operation_id], ends)
            elif kept := (await load_observation(link, target)).fence_ends.get(before.operation_id):
                await _write(link, target, [before.operation_id, operation_id], kept)


async def _write(link: Link, target: Cluster, operation_ids: Sequence[str], ends: FenceEnds) -> None:
    """Raises ClientError."""
    now_ms = target.clock.now_ms()
    entries = fence_entries(operation_ids, ends)
    if entries:
        batch = encode_batch([Record(at, now_ms, key, value) for at, (key, value) in enumerate(entries)])
        await append(target, TopicPartition(link.ends_topic, 0), batch)


class UnitFence(NamedTuple):
    """What fenced a unit, and the writer whose markers those are."""

    unit: Link
    writer: Writer
    fence: Fence


async def keep_fenced_logs(
    target: Cluster, operation_id: str, fences: Iterable[UnitFence], known: StateEntries, before: LinkRun | None
) -> None:
    """Behind this operation's fences: where the logs that they reached end now. `known`: the link's state before them;
    `before`: the promotion that stands, of which what is kept counts on.

    It takes KEEP_FENCE_ENDS_MS at the most: what cannot be kept then is told by the markers alone, while the target has
    them. Raises nothing.
    """
    standing = [(each, _standing_logs(operation_id, each, known, before)) for each in fences]
    wanted = {
        there: LATEST
        for each, logs in standing
        for there, topic_id in each.fence.reached.items()
        if topic_id and _at_source(each.unit, there) not in logs
    }
    with suppress(ClientError, TimeoutError):
        async with timeout(KEEP_FENCE_ENDS_MS / 1000):
            ends, _ = split_failures(await list_each_offset(target, wanted))
            for (unit, writer, fence), logs in standing:
                for there in fence.reached.keys() & ends.keys():
                    log = FencedLog(fence.reached[there], ends[there].offset, writer, operation_id)
                    logs[_at_source(unit, there)] = log
                if any(known.fenced_logs.get(where) != log for where, log in logs.items()):
                    await _write_fenced(unit, target, operation_id, logs)


def _standing_logs(
    operation_id: str, fenced: UnitFence, known: StateEntries, before: LinkRun | None
) -> dict[Where, FencedLog]:
    """What is kept of the promotion that stands, but of topics that are others now: applications have written since."""
    fence = fenced.fence
    if before is None:
        return {}
    found = {}
    for there in (*fence.reached, *fence.left_out):
        log = known.fenced_logs.get(where := _at_source(fenced.unit, there))
        if log is None or log.operation_id != before.operation_id:
            continue
        if fence.reached.get(there, log.topic_id) == log.topic_id:
            found[where] = replace(log, operation_id=operation_id)
    return found


def _at_source(unit: Link, there: TopicPartition) -> Where:
    """Of a partition that the link could write to."""
    topic = unit.source_topic(there.topic)
    assert topic is not None
    return topic, there.partition


async def _write_fenced(unit: Link, target: Cluster, operation_id: str, logs: Mapping[Where, FencedLog]) -> None:
    """Raises ClientError."""
    now_ms = target.clock.now_ms()
    for entry in fenced_entries(operation_id, logs):  # an entry names all of its share, and may be large
        record = Record(0, now_ms, encode_key(entry), encode_value(entry))
        compression = Compression.GZIP if len(record.value or b"") > STATE_BATCH_MAX_BYTES else Compression.NONE
        batch = encode_batch([record], compression=compression)
        await append(target, TopicPartition(unit.state_topic, unit.state_partition), batch)
