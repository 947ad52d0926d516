"""Stranded records brought to the target from their files: behind what it has, each once, however often it is begun.

Which offsets of each partition came stands in a topic of the target's (`failover/losses/replayed.py`), and is written
in one transaction with the records that it speaks of: tails may be replayed in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.producers import ProducerIdAndEpoch, add_partitions_to_txn, end_txn, init_producer_id
from broker.client.topics import NewTopic, create_topic, describe_topics
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.records import Record, decode_records, encode_batch
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from failover.errors import ReplayRefused
from failover.failback.export import ExportedRange, Manifest, exported_batches, within
from failover.limits import DRAIN_POLL_S, OPEN_REPLAY_S
from failover.losses.replayed import PROGRESS_VERSION, REPLAYS, Ranges, joined, read_replays, replay_key, with_range
from mirror.api import Link, RunState, StateEntries, check_compacted

REPLAYS_PREFIX: Final = "farshore-replay-"
"""Of their transactional ids, before the source's cluster id."""
ORIGIN_HEADER: Final = "farshore.stranded"
"""Of each replayed record: `SITE/TOPIC/PARTITION/OFFSET`, where it was first written."""
REPLICATION_FACTOR: Final = 3

Report: TypeAlias = Callable[[int], None]
"""Is told how many records have been replayed since the last time."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a run did: records that it brought, and those that an earlier run had brought."""

    records: int
    records_before: int


def check_left(entries: StateEntries, manifest: Manifest) -> None:
    """Raise ReplayRefused where the target is not the active site, or the link may bring the records itself. Pure."""
    if entries.run is None or entries.run.state is not RunState.PROMOTED:
        raise ReplayRefused(
            f"link {manifest.link} runs: {manifest.source} is the active site, and has the records",
            hint="consumers there can read them by their offsets, which the manifest names",
        )
    left = entries.left_at_source()
    for one in manifest.ranges:
        covered = any(
            (gap.topic, gap.partition) == (one.topic, one.partition)
            and gap.source_from <= one.first_offset
            and one.end_offset <= gap.source_to
            for gap in left
        )
        if one.records and not covered:
            where = f"{one.topic}-{one.partition} [{one.first_offset}, {one.end_offset})"
            raise ReplayRefused(
                f"link {manifest.link} was not told to leave {where} at {manifest.source}: it may bring the records",
                hint=f"farshore stranded leave --link {manifest.link} decides that",
            )


async def replay(link: Link, target: Cluster, manifest: Manifest, folder: Path, report: Report) -> Replayed:
    """Append them to the target's topics. Raises ReplayRefused, ExportDamaged, ClientError; begun again, it goes on."""
    if manifest.target != link.target.name or manifest.link != link.name:
        raise ReplayRefused(f"{folder} was exported of link {manifest.link}, to be replayed at {manifest.target}")
    topics = await _topics_there(link, target, manifest)
    factor = min(REPLICATION_FACTOR, max(1, len(target.nodes)))
    await create_topic(target, NewTopic(REPLAYS.topic, 1, factor, {"cleanup.policy": "compact"}), if_not_exists=True)
    await check_compacted(target, {REPLAYS.topic: "how far records were replayed"})
    transactional_id = f"{REPLAYS_PREFIX}{manifest.source_cluster_id}"
    producer = await init_producer_id(target, transactional_id)  # an earlier run's transaction is over behind this
    done = await read_replays(target, await _settled_end(target))
    run = _Run(target, transactional_id, producer, manifest)
    records = before = 0
    for one in manifest.ranges:
        there = TopicPartition(link.target_topic(one.topic), one.partition)
        key, begins = _key(manifest, one, topics[there.topic]), one.first_offset
        done[key] = joined(done.get(key, ()), done.get(_key(manifest, one), ()))
        for codec, found in _batches(folder, one):
            brought, ends = done[key], found[-1].offset + 1
            rest = [record for record in found if not any(first <= record.offset < end for first, end in brought)]
            before += len(found) - len(rest)
            if rest:
                done[key] = with_range(brought, begins, ends)
                await run.bring(one, there, rest, codec, (key, done[key]))
                records += len(rest)
            begins = ends
            report(len(found))
    return Replayed(records, before)


def _batches(folder: Path, one: ExportedRange) -> Iterator[tuple[Compression, list[Record]]]:
    for header, batch in exported_batches(folder, one):
        if found := within(one, decode_records(batch)):
            yield header.compression, found


class _Run:
    """One producer, and the sequences that it has used."""

    def __init__(
        self, target: Cluster, transactional_id: str, producer: ProducerIdAndEpoch, manifest: Manifest
    ) -> None:
        self._target = target
        self._id = transactional_id
        self._producer = producer
        self._manifest = manifest
        self._sequences: dict[TopicPartition, int] = {}

    async def bring(
        self,
        one: ExportedRange,
        there: TopicPartition,
        records: list[Record],
        codec: Compression,
        brought: tuple[bytes, Ranges],
    ) -> None:
        """One batch of the source, and what of its partition is `brought` with it, by its key: both, or neither."""
        key, done = brought
        refused = await add_partitions_to_txn(self._target, self._id, self._producer, [there, REPLAYS])
        for error in refused.values():
            raise error
        await self._append(there, [self._told(one, record) for record in records], codec)
        value = json.dumps({"v": PROGRESS_VERSION, "done": done, "link": self._manifest.link}).encode()
        await self._append(REPLAYS, [Record(0, self._target.clock.now_ms(), key, value)], Compression.NONE)
        await end_txn(self._target, self._id, self._producer, commit=True)

    async def _append(self, where: TopicPartition, records: list[Record], codec: Compression) -> None:
        """In halves where the target finds them too large with their new headers."""
        sequence = self._sequences.get(where, 0)
        batch = encode_batch(
            records,
            compression=codec,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        try:
            await append(self._target, where, batch, self._id)
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE or len(records) == 1:
                raise
            half = len(records) // 2
            await self._append(where, records[:half], codec)
            await self._append(where, records[half:], codec)
            return
        self._sequences[where] = sequence + len(records)

    def _told(self, one: ExportedRange, record: Record) -> Record:
        origin = f"{self._manifest.source}/{one.topic}/{one.partition}/{record.offset}"
        return record._replace(headers=(*record.headers, (ORIGIN_HEADER, origin.encode())))


def _key(manifest: Manifest, one: ExportedRange, target_topic_id: str = "") -> bytes:
    """`target_topic_id`: "" where it is not known, as in what earlier versions wrote."""
    return replay_key(manifest.source_cluster_id, one.topic, one.topic_id, one.partition, target_topic_id)


async def _settled_end(target: Cluster) -> int:
    """Where the log of replays ends, when no transaction is open before that: what was committed behind one is not
    read, and would be brought again. One of another replay ends in a moment, or, where its machine died, by its
    time-out. Raises ReplayRefused.
    """
    clock = target.clock
    end = (await log_end_offsets(target, [REPLAYS]))[REPLAYS]
    deadline_s = clock.boottime() + OPEN_REPLAY_S
    while (await log_end_offsets(target, [REPLAYS], IsolationLevel.READ_COMMITTED))[REPLAYS] < end:
        if clock.boottime() >= deadline_s:
            raise ReplayRefused(
                f"a transaction is open in {REPLAYS} at {target.site.name}: of what was replayed behind it nothing can "
                "be told; nothing was appended",
                hint="another replay is under way, or its machine died: it ends by its time-out, then try again",
            )
        await clock.sleep(DRAIN_POLL_S)
    return end


async def _topics_there(link: Link, target: Cluster, manifest: Manifest) -> dict[str, str]:
    """The ids of the target's topics by their names. Raises ReplayRefused where one lacks a partition."""
    names = {link.target_topic(one.topic) for one in manifest.ranges}
    topics = await describe_topics(target, names)
    for one in manifest.ranges:
        name = link.target_topic(one.topic)
        if name not in topics or one.partition >= len(topics[name].partitions):
            text = f"{link.target.name} has no partition {name}-{one.partition}"
            raise ReplayRefused(text, hint=f"farshore topic create --site {link.target.name} --topic {name}")
    return {name: str(topic.topic_id or "") for name, topic in topics.items()}
