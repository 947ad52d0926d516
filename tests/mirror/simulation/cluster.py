"""A simulated Kafka cluster: topics with their logs, nodes, leaders, coordinators. What it answers is in `answers`."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from broker.transactions import model as transactions
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.records import ControlKind
from broker.wire.vocabulary import TopicPartition
from tests.mirror.simulation.logs import SimulatedPartition
from tests.mirror.simulation.loop import SimulatedClock, SimulatedLoop
from tests.mirror.simulation.trace import Trace

TRANSACTION_TIMEOUT_MAX_MS = 900_000
MARKER_DELAY_MAX_S = 0.05
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
"""It is kept as `SimulatedGroup`s, not as a log."""


@dataclass(eq=False)
class SimulatedTopic:
    name: str
    topic_id: uuid.UUID
    configs: dict[str, str]
    partitions: list[SimulatedPartition] = field(default_factory=list)


@dataclass
class SimulatedGroup:
    """A group without members: what was committed from outside, and by producer id what is staged in transactions."""

    offsets: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    staged: dict[int, dict[TopicPartition, tuple[int, str]]] = field(default_factory=dict)
    _lies_at: dict[tuple[int | None, TopicPartition], int] = field(default_factory=dict)
    """How late each was appended, by producer id; None: what counts."""
    _appended: int = 0

    @property
    def pending(self) -> frozenset[TopicPartition]:
        return frozenset(where for staged in self.staged.values() for where in staged)

    def stage(self, producer_id: int, offsets: dict[TopicPartition, tuple[int, str]]) -> None:
        self._appended += 1
        self.staged.setdefault(producer_id, {}).update(offsets)
        self._lies_at |= {(producer_id, where): self._appended for where in offsets}

    def commit(self, where: TopicPartition, offset: int, metadata: str) -> None:
        self._appended += 1
        self.offsets[where] = (offset, metadata)
        self._lies_at[None, where] = self._appended

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Of two offsets the one counts that was appended later, whenever their transactions end."""
        for where, staged in self.staged.pop(producer_id, {}).items():
            at = self._lies_at.pop((producer_id, where))
            if commit and at > self._lies_at.get((None, where), 0):
                self.offsets[where] = staged
                self._lies_at[None, where] = at


class SimulatedCluster:
    """One site. `on_topic` is called with each partition that is made."""

    def __init__(self, name: str, loop: SimulatedLoop, rng: random.Random, trace: Trace, node_count: int) -> None:
        self.name = name
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.clock = SimulatedClock(loop)
        self.cluster_id = f"cluster-{name}"
        self.node_ids = tuple(range(1, node_count + 1))
        self.topics: dict[str, SimulatedTopic] = {}
        self.groups: dict[str, SimulatedGroup] = {}
        self.coordinator_id = 1
        self.fetches_by_id = False
        """Whether its brokers take fetches that name topics by their ids (Kafka 3.1)."""
        self.on_partition: Callable[[SimulatedPartition], None] = lambda _partition: None
        self._transactions: dict[str, transactions.Transaction] = {}
        self._next_producer_id = rng.randrange(0, 5000)

    def address(self, node_id: int) -> tuple[str, int]:
        return self.name, 9000 + node_id

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in map(self.address, self.node_ids))

    # -- topics

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> SimulatedTopic:
        topic = SimulatedTopic(name, uuid.UUID(int=self.rng.getrandbits(128)), dict(configs or {}))
        self.topics[name] = topic
        self.grow_topic(name, partitions)
        return topic

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = self.topics[name]
        for number in range(len(topic.partitions), partitions):
            made = SimulatedPartition(
                TopicPartition(name, number), topic.configs, self.clock.now_ms, self.rng.choice(self.node_ids)
            )
            topic.partitions.append(made)
            self.on_partition(made)

    def delete_topic(self, name: str) -> None:
        for partition in self.topics.pop(name).partitions:
            partition.is_there = False
            partition.wake()

    def partition(self, topic: str, number: int) -> SimulatedPartition | None:
        found = self.topics.get(topic)
        return found.partitions[number] if found and 0 <= number < len(found.partitions) else None

    def partitions(self) -> Iterator[SimulatedPartition]:
        return (partition for topic in self.topics.values() for partition in topic.partitions)

    def allocate_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    # -- transactions, decided by the broker's own pure model; as in Kafka, the markers come after the answer

    def transaction(self, transactional_id: str) -> transactions.Transaction | None:
        return self._transactions.get(transactional_id)

    def init_producer(
        self, transactional_id: str | None, timeout_ms: int, claims: tuple[int, int]
    ) -> tuple[ErrorCode, int, int]:
        """`claims`: the id and epoch that the producer says it has, or -1 twice -> (error, producer id, epoch)."""
        if transactional_id is None:
            return ErrorCode.NONE, self.allocate_producer_id(), 0
        ask = transactions.InitAsk(transactional_id, timeout_ms, TRANSACTION_TIMEOUT_MAX_MS, *claims)
        current = self._transactions.get(transactional_id)
        decided = transactions.decide_init(current, ask, self.clock.now_ms(), self.allocate_producer_id)
        if isinstance(decided, transactions.AbortFirst):
            self._prepare(decided.prepared)
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        if isinstance(decided, ErrorCode):
            return decided, -1, -1
        self._transactions[transactional_id] = decided
        return ErrorCode.NONE, decided.producer_id, decided.producer_epoch

    def add_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        current = self._transactions.get(transactional_id)
        decided = transactions.decide_add(current, *producer, partitions, self.clock.now_ms())
        if isinstance(decided, ErrorCode):
            return decided
        self._transactions[transactional_id] = decided
        if current is None or current.state is not decided.state:
            self.loop.call_later(decided.timeout_ms / 1000, self._time_out, transactional_id, decided.start_ms)
        return ErrorCode.NONE

    def stage_offsets(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        group_id: str,
        offsets: dict[TopicPartition, tuple[int, str]],
    ) -> ErrorCode:
        current = self._transactions.get(transactional_id)
        error = transactions.check_append(current, *producer, OFFSETS)
        if error is ErrorCode.NONE and offsets:
            group = self.groups.setdefault(group_id, SimulatedGroup())
            group.stage(producer[0], offsets)
        return error

    def end_transaction(self, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> ErrorCode:
        current = self._transactions.get(transactional_id)
        decided = transactions.decide_end(current, *producer, commit=commit, now_ms=self.clock.now_ms())
        if isinstance(decided, ErrorCode):
            return decided
        self._prepare(decided)
        return ErrorCode.NONE

    def _time_out(self, transactional_id: str, start_ms: int) -> None:
        current = self._transactions[transactional_id]
        if current.start_ms == start_ms:
            now_ms = self.clock.now_ms()
            decided = transactions.decide_timeout(current, now_ms - start_ms, now_ms)
            if decided is not None:
                self._prepare(decided)

    def _prepare(self, prepared: transactions.Transaction) -> None:
        self._transactions[prepared.transactional_id] = prepared
        left = set(prepared.partitions)
        kind = ControlKind.COMMIT if prepared.state.name == "PREPARE_COMMIT" else ControlKind.ABORT

        def write(where: TopicPartition) -> None:
            partition = self.partition(*where)
            if partition is not None:
                partition.append_marker(kind, prepared.producer_id, prepared.producer_epoch)
            if where == OFFSETS:
                for group in self.groups.values():
                    group.end(prepared.producer_id, commit=kind is ControlKind.COMMIT)
            left.discard(where)
            if not left:
                done = transactions.complete(prepared, self.clock.now_ms())
                self._transactions[prepared.transactional_id] = done

        for where in sorted(prepared.partitions):
            self.loop.call_later(self.rng.random() * MARKER_DELAY_MAX_S, write, where)
        if not left:
            self._transactions[prepared.transactional_id] = transactions.complete(prepared, self.clock.now_ms())
