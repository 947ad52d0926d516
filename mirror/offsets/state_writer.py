"""Writing to a link's state topic, in order, under the fence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from broker.client.cluster import Cluster
from broker.client.configs import ConfigEntry, alter_topic_configs, describe_topic_configs
from broker.client.durable_topics import make_durable_topics
from broker.client.errors import ClientError, KafkaError
from broker.client.scan import OffsetSpan
from broker.client.topics import NewTopic
from broker.wire.buffers import Buffer
from broker.wire.compression import Compression
from broker.wire.errors import ErrorCode
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import ALL_REPLICAS, ConfigOperation
from mirror.errors import LinkFenced
from mirror.link import PRODUCERS_TOPIC, Link
from mirror.offsets.entries import (
    Block,
    Checkpoint,
    Entry,
    Gap,
    Void,
    Writer,
    encode_key,
    encode_value,
    encode_void_key,
)
from mirror.offsets.limits import (
    STATE_BATCH_MAX_BYTES,
    STATE_BATCH_MAX_ENTRIES,
    STATE_TOPIC_CONFIGS,
)
from mirror.offsets.pages import Page
from mirror.offsets.recovery import SEQUENCE_MASK

FENCED_CODES = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)

MOVED_CODES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
"""Another broker leads the state's partition, or will: what was said to the one before may be said again."""

REGISTRY_CONTENT: Final = "what tells mirrored records from local ones"

Change: TypeAlias = Entry | Void
_Encoded: TypeAlias = tuple[bytes, bytes | None]


class Carried(NamedTuple):
    """A record of one part of the state as it is to stand in another, or is taken back there (None)."""

    key: bytes
    value: bytes | None


class StateLog:
    """Appends to the state topic as one writer, whoever leads it. After an error it must not be used again, unless
    `settle` comes first.

    `others` are the offsets, since `follow`, that its batches did not get: there somebody else wrote.
    """

    def __init__(self, target: Cluster, link: Link, writer: Writer) -> None:
        self.others: list[OffsetSpan] = []
        self._target = target
        self._link = link
        self.writer = writer
        self._sequence = 0
        self._end: int | None = None
        self._doubt: tuple[Buffer, int] | None = None
        self._heard: Callable[[], None] = _nothing

    def follow(self, read_to: int) -> None:
        """Everything before this offset is known: what others write behind it is noted."""
        self._end = read_to

    def on_others(self, heard: Callable[[], None]) -> None:
        """Call this when `others` has grown."""
        self._heard = heard

    def of(self, writer: Writer) -> StateLog:
        """The log of this writer: itself, whose sequences go on, where the writer is the same."""
        return self if writer == self.writer else StateLog(self._target, self._link, writer)

    async def settle(self) -> None:
        """After an append that failed, of whose last batch nobody knows whether it landed: say that one again, under
        its epoch and sequence, by which it is there once. Then the log may be used again, and writes what of the append
        was still to come where that is repeated.

        Somebody else is found by the partition itself, which has his marker. The coordinator would not tell: a next
        epoch is refused also where it gave one, and died with the answer. Raises LinkFenced, ClientError.
        """
        if self._doubt is not None:
            await self._deliver(*self._doubt)

    async def append(self, changes: Iterable[Change | Carried]) -> None:
        """Write and wait for the acknowledgement. Raises LinkFenced, ClientError.

        What is said of one partition in a row is in one batch, unless no batch holds it: half of it would be untrue,
        as a position behind a gap that still seems to be before it.
        """
        batch = _Batch(self._target.clock.now_ms())
        for where, group in groupby(changes, _where_of):
            entries = [_encode(change) for change in group]
            if where is not None and not batch.has_room(entries):
                await self._produce(batch.records)
                batch = _Batch(self._target.clock.now_ms())
            for entry in entries:
                if not batch.has_room([entry]):
                    await self._produce(batch.records)
                    batch = _Batch(self._target.clock.now_ms())
                batch.add(entry)
        if batch.records:
            await self._produce(batch.records)

    async def _produce(self, records: Sequence[Record]) -> None:
        writer = self.writer
        is_large = len(records) == 1 and len(records[0].value or b"") > STATE_BATCH_MAX_BYTES
        batch = encode_batch(
            records,
            # One entry may be larger than the topic takes: a group with offsets in tens of thousands of partitions.
            compression=Compression.GZIP if is_large else Compression.NONE,
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=self._sequence,
        )
        self._doubt = batch, len(records)
        await self._deliver(*self._doubt)

    async def _deliver(self, batch: Buffer, count: int) -> None:
        link, writer = self._link, self.writer
        retry = self._target.retry()
        while True:
            try:
                base_offset = await self._send(batch)
                break
            except KafkaError as error:
                if error.code in FENCED_CODES:
                    raise LinkFenced(f"link {link.name}: another owner took over", writer=writer) from error
                if error.code not in MOVED_CODES:
                    raise
                await retry.pause(error)  # to another leader; by its sequence it is there once
        self._doubt = None
        self._sequence = (self._sequence + count) & SEQUENCE_MASK
        self._note(base_offset, count)

    def _note(self, base_offset: int, count: int) -> None:
        """A batch landed there. The answer to one that was said twice may name no offset: the next one does."""
        if self._end is None or base_offset < self._end:
            return
        before, self._end = self._end, base_offset + count
        if base_offset > before:
            self.others.append(OffsetSpan(before, base_offset))
            self._heard()

    async def _send(self, batch: Buffer) -> int:
        """-> the offset of its first record."""
        topic = self._link.state_topic
        partition = self._link.state_partition
        node_id = await self._target.leader(topic, partition)
        connection = await self._target.connection(node_id, "admin")
        data = [TopicProduceData(topic, [PartitionProduceData(partition, batch)])]
        timeout_ms = self._target.limits.delivery_timeout_ms
        response: ProduceResponse = await connection.request(ProduceRequest(None, ALL_REPLICAS, timeout_ms, data))
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            self._target.forget_leaders([topic])
            raise KafkaError(answer.error_code, f"writing {topic} at {self._link.target.name}")
        return answer.base_offset


def _nothing() -> None:
    pass


@dataclass(slots=True)
class _Batch:
    now_ms: int
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0

    def has_room(self, entries: Sequence[_Encoded]) -> bool:
        """Whether these fit into it, too; an empty one takes whatever comes."""
        fits = len(self.records) + len(entries) <= STATE_BATCH_MAX_ENTRIES
        return not self.records or (fits and self.size_bytes + sum(map(_size_bytes, entries)) <= STATE_BATCH_MAX_BYTES)

    def add(self, entry: _Encoded) -> None:
        self.records.append(Record(len(self.records), self.now_ms, *entry))
        self.size_bytes += _size_bytes(entry)


def _size_bytes(entry: _Encoded) -> int:
    key, value = entry
    return len(key) + len(value or b"")


def _where_of(change: Change | Carried) -> tuple[str, int] | None:
    """The partition that is another one by this change; what is only taken back is told by nothing else."""
    return (change.topic, change.partition) if isinstance(change, Block | Page | Checkpoint | Gap) else None


def _encode(change: Change | Carried) -> _Encoded:
    if isinstance(change, Carried):
        return change
    if isinstance(change, Void):
        return encode_void_key(change), None
    return encode_key(change), encode_value(change)


class StateWriter:
    """A queue before the state log: what is submitted while a write is under way goes into the next one."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._changes: list[Change] = []
        self._callbacks: list[Callable[[], None]] = []
        self._wake = asyncio.Event()

    def submit(self, changes: Sequence[Change], then: Callable[[], None] | None = None) -> None:
        """Queue changes; `then` is called when they, and all submitted before, are acknowledged."""
        self._changes.extend(changes)
        if then is not None:
            self._callbacks.append(then)
        self._wake.set()

    async def write(self, changes: Sequence[Change]) -> None:
        """Submit and wait until acknowledged. Needs `run` to be running."""
        done = asyncio.Event()
        self.submit(changes, done.set)
        await done.wait()

    async def run(self) -> None:
        """Write for ever. Raises what the log raises; then nothing more is written."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            changes, self._changes = self._changes, []
            callbacks, self._callbacks = self._callbacks, []
            await self._log.append(changes)
            for callback in callbacks:
                callback()


def own_topics(link: Link) -> tuple[str, str]:
    """What the link needs at the target beside what is mirrored: its state, and the registry of producers."""
    return link.state_topic, PRODUCERS_TOPIC


async def ensure_own_topics(target: Cluster, link: Link) -> None:
    """Make the state topic and the producer registry on the target if they are not there, and see that they keep what
    is written. Raises ClientError.
    """
    await make_own_topics(target, link)
    await check_own_topics(target, link)


async def make_own_topics(target: Cluster, link: Link) -> None:
    """If they are not there. Of a state topic that is there the units are what they were. Raises ClientError."""
    compact = {"cleanup.policy": "compact"}
    topics = [
        NewTopic(link.state_topic, link.unit_count, configs=compact | STATE_TOPIC_CONFIGS),
        NewTopic(PRODUCERS_TOPIC, 1, configs=compact),
    ]
    metadata = await target.metadata([topic.name for topic in topics])
    await make_durable_topics(target, [topic for topic in topics if topic.name not in metadata.topics])


async def check_own_topics(target: Cluster, link: Link) -> None:
    """Refuse them as `check_compacted` does. A state topic that an earlier version made gets the configs that keep it
    small, where nobody set others. Raises ClientError.
    """
    described = await check_compacted(target, {link.state_topic: "the offset map", PRODUCERS_TOPIC: REGISTRY_CONTENT})
    state = described[link.state_topic]
    changes = [
        (name, ConfigOperation.SET, value)
        for name, value in STATE_TOPIC_CONFIGS.items()
        if name in state and not state[name].is_topic_own and state[name].value != value
    ]
    # Where they may not be altered the link runs as it did before there were such: a start takes longer, that is all.
    await alter_topic_configs(target, {link.state_topic: changes} if changes else {})


async def check_compacted(cluster: Cluster, topics: Mapping[str, str]) -> dict[str, dict[str, ConfigEntry]]:
    """Refuse to run where retention would delete what these topics (name -> what they hold) keep -> their configs.

    Without its entries a state topic is no map, and a registry of producers cuts no loop. Raises ClientError.
    """
    found = {}
    for topic, described in (await describe_topic_configs(cluster, topics)).items():
        if isinstance(described, KafkaError):
            raise described
        policy = described["cleanup.policy"].value
        if policy != "compact":
            raise ClientError(
                f"{topic} at {cluster.site.name} has cleanup.policy={policy}: {topics[topic]} would be deleted",
                f"set cleanup.policy=compact on {topic} at {cluster.site.name}",
            )
        found[topic] = described
    return found
