"""What writes at a source that is going to be lost: plain, transactional and compacted topics, some born late."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException, Producer

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.log import append
from broker.client.topics import NewTopic, create_partitions, create_topics, list_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from tests.chaos_runs.writers import QUIET, TRANSACTION_TIMEOUT_MS
from tests.interop.brokers import replicas_at

CONFIGS: dict[str, dict[str, str]] = {
    "plain": {"retention.ms": "-1"},
    "transactional": {"retention.ms": "-1"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.ms": "300",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "1000",
    },
}
KEYS = 7
"""Of a compacted topic: soon most of its records are superseded."""
PARTITIONS_MAX = 3
BATCH_RECORDS_MAX = 40
PADDING_BYTES_MAX = 300
PAUSE_S = 0.03
CALL_TIMEOUT_S = 10.0
WRITES_PER_LOOK = 10
"""Of who writes at the target, before it looks at the topics again."""
ENDINGS = ("commit", "commit", "abort", "open")
"""Of transactions; an open one is ended by its coordinator, after TRANSACTION_TIMEOUT_MS."""


@dataclass
class Source:
    """The topics of one run at the site that goes, and all that it acknowledged."""

    cluster: Cluster
    prefix: str
    chance: random.Random
    kinds: dict[str, str] = field(default_factory=dict)
    """The kind of each topic."""
    born_ms: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[TopicPartition, dict[bytes, int]] = field(default_factory=dict)
    """Of values that were acknowledged."""
    written: int = 0
    stopped: bool = False
    transactions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDINGS, 0))
    mark: bytes = b""
    """Before each value and key: of what came from the other site compaction takes nothing for what is written here."""

    async def make_topic(self, kind: str) -> str:
        name = f"{self.prefix}{len(self.kinds)}-{kind}"
        count = self.chance.randint(1, PARTITIONS_MAX)
        failures = await create_topics(
            self.cluster, [NewTopic(name, count, replicas_at(self.cluster.site.bootstrap_servers), CONFIGS[kind])]
        )
        assert not failures, failures
        self.kinds[name] = kind
        self._are_born(name, 0, count)
        return name

    async def grow(self) -> None:
        name = self.chance.choice(sorted(self.kinds))
        before = sum(where.topic == name for where in self.born_ms)
        failures = await create_partitions(self.cluster, {name: before + 1})
        assert not failures, failures
        self._are_born(name, before, before + 1)

    def _are_born(self, name: str, first: int, end: int) -> None:
        self.born_ms |= dict.fromkeys((TopicPartition(name, at) for at in range(first, end)), time.time_ns() // 10**6)

    def value(self) -> bytes:
        self.written += 1
        return b"%s%d-%s" % (self.mark, self.written, b"x" * self.chance.randrange(PADDING_BYTES_MAX))

    async def write_until_stopped(self) -> None:
        """A batch or a transaction after the other, until `stopped`. A site that is gone ends it."""
        number = 0
        with suppress(ClientError, KafkaException, TimeoutError):
            while not self.stopped:
                where = self.chance.choice(sorted(self.born_ms))
                if self.kinds[where.topic] == "transactional":
                    number += 1
                    ending = self.chance.choice(ENDINGS)
                    await asyncio.to_thread(self._transaction, where.topic, ending, f"{self.prefix}{number}")
                else:
                    await self._batch(where)
                await asyncio.sleep(self.chance.uniform(0.0, 2 * PAUSE_S))

    async def _batch(self, where: TopicPartition) -> None:
        values = [self.value() for _ in range(self.chance.randint(1, BATCH_RECORDS_MAX))]
        now_ms = time.time_ns() // 10**6
        records = [
            Record(at, now_ms, b"%sk%d" % (self.mark, self.chance.randrange(KEYS)), value)
            for at, value in enumerate(values)
        ]
        base = await append(self.cluster, where, encode_batch(records))
        known = self.offsets.setdefault(where, {})
        known |= {value: base + at for at, value in enumerate(values)}

    def _transaction(self, topic: str, ending: str, transactional_id: str) -> None:
        """Over several partitions, by librdkafka. One that stays open has all its records at the source."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.site.bootstrap_servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "log_level": 0,
                "logger": QUIET,
            }
        )
        producer.init_transactions(CALL_TIMEOUT_S)
        producer.begin_transaction()
        partitions = [where for where in sorted(self.born_ms) if where.topic == topic]
        for _ in range(self.chance.randint(1, BATCH_RECORDS_MAX)):
            producer.produce(topic, self.value(), partition=self.chance.choice(partitions).partition)
        producer.flush(CALL_TIMEOUT_S)
        self.transactions[ending] += 1
        if ending == "commit":
            producer.commit_transaction(CALL_TIMEOUT_S)
        elif ending == "abort":
            producer.abort_transaction(CALL_TIMEOUT_S)


FROM_TARGET: Final = b"west-"
"""Before the values of who writes at the target."""


@dataclass
class Other(Source):
    """Who writes to the same topics at the target, as soon as they are there: `first` makes them at its site."""

    mark: bytes = FROM_TARGET
    first: Source = field(kw_only=True)

    async def write_until_stopped(self) -> None:
        """What the site refuses (a topic that takes no long batches any more) is not written."""
        number = 0
        while not self.stopped:
            with suppress(ClientError, KafkaException, TimeoutError):
                there = await list_topics(self.cluster)
                found = {
                    TopicPartition(name, partition.partition): 0
                    for name in self.first.kinds.keys() & there.keys()
                    for partition in there[name].partitions
                }
                self.born_ms, self.kinds = found, self.first.kinds
                for _ in range(WRITES_PER_LOOK if found else 0):
                    where = self.chance.choice(sorted(found))
                    if self.kinds[where.topic] == "transactional":
                        number += 1
                        ending = self.chance.choice(ENDINGS)
                        await asyncio.to_thread(self._transaction, where.topic, ending, f"{self.prefix}west-{number}")
                    else:
                        await self._batch(where)
                    await asyncio.sleep(self.chance.uniform(0.0, 2 * PAUSE_S))
            await asyncio.sleep(PAUSE_S)
