"""A steady load on several partitions, when its records were at the target, and what of them is there."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Message, Producer

from broker.client.cluster import Cluster
from broker.client.log import read_batches, read_records
from broker.client.offsets import log_end_offsets
from broker.wire.vocabulary import TopicPartition

RECORD_BYTES = 100
RATE_PER_PARTITION_S = 50.0
JOIN_TIMEOUT_S = 120.0


class Load(threading.Thread):
    """Writes to the partitions in turn until it is told to stop; each record's value is a number of its own."""

    def __init__(self, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(daemon=True)
        self.acknowledged: set[int] = set()
        self.failures: list[str] = []
        self.stop = threading.Event()
        self._servers, self._partitions = bootstrap, partitions

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 2})
        every_s = 1 / (RATE_PER_PARTITION_S * len(self._partitions))
        due_s = time.monotonic()
        for number in itertools.count():
            if self.stop.is_set():
                break
            where = self._partitions[number % len(self._partitions)]
            value = b"%d" % number
            producer.produce(
                where.topic, value.ljust(RECORD_BYTES), partition=where.partition, on_delivery=self._answered(number)
            )
            producer.poll(0)
            due_s += every_s
            if (ahead_s := due_s - time.monotonic()) > 0:
                time.sleep(ahead_s)
        producer.flush(JOIN_TIMEOUT_S)

    def _answered(self, number: int) -> object:
        def answered(error: object, _message: Message) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failures.append(str(error))

        return answered


@contextmanager
def loaded(bootstrap: str, partitions: Sequence[TopicPartition]) -> Iterator[Load]:
    """RuntimeError at the end where a record was not acknowledged: nothing could be said of the others."""
    load = Load(bootstrap, partitions)
    load.start()
    try:
        yield load
    finally:
        load.stop.set()
        load.join(JOIN_TIMEOUT_S)
    if load.failures:
        raise RuntimeError(f"{len(load.failures)} records were not acknowledged: {load.failures[0]}")


class Arrival(NamedTuple):
    """A batch with records at the target: when it was first seen there, and who wrote it."""

    at_s: float
    producer: tuple[int, int]


class Arrivals:
    """Watches the target's logs, and tells of each batch with records when it was there; fences leave none."""

    def __init__(self, west: Cluster, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        self._west = west
        self._grown: dict[TopicPartition, deque[tuple[int, float]]] = {where: deque() for where in partitions}
        """Ends that were seen, and when, of what was not read yet."""
        self._positions = dict.fromkeys(partitions, 0)
        self._found: dict[TopicPartition, list[Arrival]] = {where: [] for where in partitions}

    async def watch(self, every_s: float) -> None:
        """Until cancelled."""
        last = dict.fromkeys(self.partitions, 0)
        while True:
            ends, now_s = await log_end_offsets(self._west, self.partitions), time.monotonic()
            for where, end in ends.items():
                if end > last[where]:
                    self._grown[where].append((end, now_s))
            last = ends
            await asyncio.sleep(every_s)

    async def read(self) -> Mapping[TopicPartition, Sequence[Arrival]]:
        """All that was seen until now."""
        for where, grown in self._grown.items():
            if not grown:
                continue
            until = grown[-1][0]
            async for header, _ in read_batches(self._west, where, self._positions[where], until):
                if header.next_offset > until:
                    break
                while grown[0][0] <= header.last_offset:
                    grown.popleft()
                self._positions[where] = header.next_offset
                if not header.is_control:
                    producer = (header.producer_id, header.producer_epoch)
                    self._found[where].append(Arrival(grown[0][1], producer))
        return self._found


def longest_gap_s(batches: Sequence[Arrival], since_s: float, until_s: float) -> float:
    """Without a record, of those that begin in the window."""
    return max((b.at_s - a.at_s for a, b in pairwise(batches) if since_s <= a.at_s <= until_s), default=0.0)


def handover_s(batches: Sequence[Arrival], since_s: float) -> float | None:
    """Between the last record of one owner and the first of the next; None where nobody else came since then."""
    return next((b.at_s - a.at_s for a, b in pairwise(batches) if b.at_s >= since_s and a.producer != b.producer), None)


@dataclass(frozen=True, slots=True)
class Content:
    """What the target has of the acknowledged records."""

    records: int
    lost: int
    twice: int


async def content(west: Cluster, partitions: Sequence[TopicPartition], load: Load) -> Content:
    found: Counter[int] = Counter()
    for where, end in (await log_end_offsets(west, partitions)).items():
        async for record in read_records(west, where, 0, end):
            found[int(record.value or b"-1")] += 1
    return Content(found.total(), len(load.acknowledged - found.keys()), sum(count - 1 for count in found.values()))
