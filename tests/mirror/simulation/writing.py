"""What local producers, consumers and brokers do at a site while the mirror runs: one action at a time, by the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.wire.compression import Compression
from broker.wire.records import ControlKind, Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.mirror.simulation.cluster import SimulatedCluster, SimulatedGroup
from tests.mirror.simulation.logs import SimulatedPartition
from tests.mirror.simulation.loop import START_MS
from tests.mirror.simulation.truth import Content, Fortune, Written, content_of

RECORDS_PER_BATCH_MAX = 5
OPEN_TRANSACTIONS_MAX = 3
CODECS = (Compression.NONE,) * 6 + (Compression.GZIP, Compression.ZSTD, Compression.LZ4)


@dataclass
class OpenTransaction:
    producer_id: int
    sequences: dict[TopicPartition, int]
    written: list[Written]


class SiteLife:
    """Everything that happens at one site without the mirror. `written` are its own books."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.written: dict[TopicPartition, list[Written]] = {}
        self.topics: list[str] = []
        """Those that have local writers."""
        self.away: set[str] = set()
        """Topics that are deleted, and will be made anew."""
        self._count = 0
        self._open: list[OpenTransaction] = []
        self._idempotent: dict[TopicPartition, tuple[int, int]] = {}

    def make_topic(self, name: str, partitions: int) -> None:
        self.topics.append(name)
        if name not in self.cluster.topics:
            self.cluster.create_topic(name, partitions, {"retention.ms": "-1"})

    def books(self, where: TopicPartition) -> list[Written]:
        return self.written.setdefault(where, [])

    def expire(self, where: TopicPartition, before: int) -> None:
        """The log starts at `before` now."""
        for one in self.books(where):
            if one.offset < before and one.fortune is Fortune.COMMITTED:
                one.fortune = Fortune.EXPIRED

    def forget(self, where: TopicPartition, end: int) -> set[Content]:
        """The log has lost what lay at `end` and behind it -> that."""
        books = self.books(where)
        lost = {one.content for one in books if one.offset >= end}
        books[:] = [one for one in books if one.offset < end]
        self._idempotent.pop(where, None)
        for transaction in self._open:
            transaction.sequences.pop(where, None)
            transaction.written = [one for one in transaction.written if one.content not in lost]
        for group in self.cluster.groups.values():
            if where in group.offsets:
                group.commit(where, min(end, group.offsets[where][0]), "")
        return lost

    # -- actions

    def write(self, partition: SimulatedPartition | None = None) -> None:
        """A batch of a plain or an idempotent producer."""
        partition = partition or self._any_partition()
        producer_id, sequence = -1, -1
        records = self._records(partition.where)
        if self.rng.random() < 0.4:
            producer_id, sequence = self._idempotent.get(partition.where, (self.cluster.allocate_producer_id(), 0))
            self._idempotent[partition.where] = (producer_id, sequence + len(records))
        self._append(partition, records, Fortune.COMMITTED, producer_id, sequence, transactional=False)

    def transact(self) -> None:
        """A transaction begins, goes on, or ends."""
        may_begin = len(self._open) < OPEN_TRANSACTIONS_MAX
        if not self._open or (may_begin and self.rng.random() < 0.3):
            self._open.append(OpenTransaction(self.cluster.allocate_producer_id(), {}, []))
        transaction = self.rng.choice(self._open)
        if transaction.written and self.rng.random() < 0.5:
            self._end(transaction, commit=self.rng.random() < 0.5)
            return
        partition = self._any_partition()
        sequence = transaction.sequences.get(partition.where, 0)
        records = self._records(partition.where)
        transaction.sequences[partition.where] = sequence + len(records)
        transaction.written += self._append(
            partition, records, Fortune.PENDING, transaction.producer_id, sequence, transactional=True
        )

    def end_transactions(self) -> None:
        for transaction in list(self._open):
            self._end(transaction, commit=self.rng.random() < 0.7)

    def compact(self) -> None:
        """Some records in the middle of a log go; their offsets stay empty."""
        partition = self._any_partition()
        stable = [
            index
            for index, stored in enumerate(partition.batches[:-1])
            if stored.header.next_offset <= partition.stable_end and not stored.header.is_control
        ]
        own = {one.offset: one for one in self.books(partition.where) if one.fortune is Fortune.COMMITTED}
        if not stable:
            return
        index = self.rng.choice(stable)
        header = partition.batches[index].header
        inside = [offset for offset in range(header.base_offset, header.next_offset) if offset in own]
        dropped = {offset for offset in inside if self.rng.random() < 0.5}
        for offset in dropped:
            own[offset].fortune = Fortune.COMPACTED
        if dropped and len(dropped) == header.record_count and header.producer_id < 0:
            del partition.batches[index]
        elif dropped:
            partition.compact(index, dropped.__contains__)

    def move_leader(self) -> None:
        partitions = list(self.cluster.partitions())
        if not partitions:
            return
        partition = self.rng.choice(partitions)
        partition.lead(self.rng.choice(self.cluster.node_ids))
        self.cluster.trace(f"{self.cluster.name}: {partition.where} is led by", partition.leader)

    def move_coordinator(self) -> None:
        self.cluster.coordinator_id = self.rng.choice(self.cluster.node_ids)

    def commit_group(self) -> None:
        """A consumer group goes on in some partition, or is set back."""
        partition = self._any_partition()
        group = self.cluster.groups.setdefault(f"group-{self.rng.randrange(2)}", SimulatedGroup())
        before, _ = group.offsets.get(partition.where, (0, ""))
        offset = self.rng.randrange(0 if self.rng.random() < 0.2 else before, partition.stable_end + 1)
        self.cluster.trace(f"{self.cluster.name}: group goes from {before} to {offset} in", partition.where)
        group.commit(partition.where, offset, "")

    def grow(self) -> None:
        name = self.rng.choice(self.topics)
        self.cluster.grow_topic(name, len(self.cluster.topics[name].partitions) + 1)

    # -- how

    def _end(self, transaction: OpenTransaction, *, commit: bool) -> None:
        self._open.remove(transaction)
        for one in transaction.written:
            one.fortune = Fortune.COMMITTED if commit else Fortune.ABORTED
        kind = ControlKind.COMMIT if commit else ControlKind.ABORT
        for where in transaction.sequences:
            partition = self.cluster.partition(*where)
            if partition is not None:
                partition.append_marker(kind, transaction.producer_id, 0)

    def _append(
        self,
        partition: SimulatedPartition,
        records: list[Record],
        fortune: Fortune,
        producer_id: int,
        sequence: int,
        *,
        transactional: bool,
    ) -> list[Written]:
        batch = encode_batch(
            records,
            compression=self.rng.choice(CODECS),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        base = partition.log_end
        written = [Written(base + record.offset, content_of(record), fortune) for record in records]
        self.books(partition.where).extend(written)
        partition.append(batch)
        self.cluster.trace(
            f"{self.cluster.name}: {fortune.value} to", partition.where, f"{base}..{partition.log_end - 1}"
        )
        return written

    def _records(self, where: TopicPartition) -> list[Record]:
        return [
            Record(number, *self._content(where)) for number in range(1 + self.rng.randrange(RECORDS_PER_BATCH_MAX))
        ]

    def _content(self, where: TopicPartition) -> Content:
        """Records of all shapes: null and empty keys and values, headers with null values, times out of order."""
        self._count += 1
        name = f"{self.cluster.name}/{where}/{self._count}".encode()
        shape = self._count % 4
        key = (name, None, b"", b"k")[shape]
        value = (None, name, name, name)[shape]
        headers = (("n", b"1"), ("null", None), ("n", b"")) if self._count % 5 == 0 else ()
        return Content(START_MS + self._count * 7 - (self._count % 3) * 100, key, value, headers)

    def _any_partition(self) -> SimulatedPartition:
        """The first topic's more often than the others'."""
        name = self.topics[0] if self.rng.random() < 0.6 else self.rng.choice(self.topics)
        return self.rng.choice(self.cluster.topics[name].partitions)
