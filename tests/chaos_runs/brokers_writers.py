"""Those who write to a cluster under faults, by confluent-kafka: plain, in transactions, and from what they read.

Each is a thread, notes all in the history, and goes on until it is told to stop; what it does not know stays unknown.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place

from broker.wire.vocabulary import TopicPartition
from chaos.cluster.history import ClusterHistory, Ending, Send
from chaos.history import Outcome
from tests.chaos_runs.hanging import leaving

PARTITIONS: Final = 3
FLUSH_S: Final = 60.0
CALL_S: Final = 5.0
QUIET_S: Final = 0.2
TRANSACTION_TIMEOUT_MS: Final = 10_000
WAITING_MAX: Final = 200
"""Records that a writer has sent and not heard of."""
MADE_AT_ONCE: Final = 500
CLIENT: Final[dict[str, Any]] = {
    "socket.timeout.ms": 3000,
    "socket.connection.setup.timeout.ms": 2000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
    # Without one the client raises in whatever call comes next, and not always of the client that it is about.
    "error_cb": lambda _error: None,
}


@dataclass(slots=True)
class Names:
    """The topics of a run: `plain` is written by plain producers, `mixed` by transactions, `made` from `plain`."""

    plain: str
    mixed: str
    made: str

    def partitions(self, *topics: str) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for topic in topics for index in range(PARTITIONS)]

    def all(self) -> list[TopicPartition]:
        return self.partitions(self.plain, self.mixed, self.made)


class Workload:
    """What all who write share: the history, unique values, and the word to stop."""

    def __init__(self, bootstrap: str, names: Names, seed: int, *, acks_all: bool) -> None:
        self.bootstrap = bootstrap
        self.names = names
        self.seed = seed
        self.acks_all = acks_all
        self.history = ClusterHistory()
        self.stop = threading.Event()
        """Nothing new is begun."""
        self.problems: list[str] = []
        self.hung: list[str] = []
        """Clients that hang by a known fault of their library."""
        self._values = itertools.count(1)
        self._transactions = itertools.count(1)

    def hangs(self, client: str, where: str) -> None:
        self.hung.append(f"{client} of seed {self.seed} {where}")

    def client(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, **CLIENT, **{k.replace("_", "."): v for k, v in more.items()}}

    def send(
        self,
        producer: Producer,
        where: TopicPartition,
        writer: str,
        transaction: int | None = None,
        origin: int | None = None,
    ) -> None:
        send = Send(next(self._values), where, writer, transaction, origin)

        def heard(error: KafkaError | None, message: Message) -> None:
            if error is None:
                send.outcome, send.done_s = Outcome.ACKNOWLEDGED, time.monotonic()
                # None: it was there already, and where is not known any more.
                send.offset = message.offset()

        self.history.sends.append(send)
        while True:
            try:
                producer.produce(where.topic, b"%d" % send.value, partition=where.partition, on_delivery=heard)
            except BufferError:
                producer.poll(QUIET_S)
            else:
                return

    def begin(self) -> int:
        number = next(self._transactions)
        # Nobody can commit it before somebody asks for that.
        self.history.transactions[number] = Ending.ABORTED
        return number


class PlainWriter:
    """acks=all and idempotent, or acks=1 and once; breaks off now and then, and does not learn what became of that."""

    def __init__(self, workload: Workload, number: int) -> None:
        self.workload = workload
        self.name = f"plain-{number}"
        self.chance = random.Random(f"{workload.seed}-{self.name}")

    def run(self) -> None:
        for life in itertools.count():
            producer = self._producer()
            writer = f"{self.name}.{life}"
            until_s = time.monotonic() + self.chance.uniform(4, 16)
            while not self.workload.stop.is_set() and time.monotonic() < until_s:
                if len(producer) >= WAITING_MAX:
                    producer.poll(QUIET_S)
                    continue
                where = TopicPartition(self.workload.names.plain, self.chance.randrange(PARTITIONS))
                for _ in range(self.chance.choice([1, 1, 1, 2, 5])):
                    self.workload.send(producer, where, writer)
                producer.poll(self.chance.uniform(0, 0.06))
            if self.workload.stop.is_set():
                producer.flush(FLUSH_S)
                return
            producer.purge(in_queue=True, in_flight=True)
            producer.flush(CALL_S)

    def _producer(self) -> Producer:
        # In time for a record to be told about after every fault of a run, but not for ever.
        more: dict[str, Any] = {"linger_ms": 2, "message_timeout_ms": 50_000}
        # One at a time: where a batch is refused behind one that is to be sent again, librdkafka begins a new producer
        # epoch, and sends in it what other partitions may have already.
        more |= {"max_in_flight": 1}
        if self.workload.acks_all:
            more |= {"acks": "all", "enable_idempotence": True}
        else:
            # What is sent again would come twice, rightly so.
            more |= {"acks": 1, "message_send_max_retries": 0}
        return Producer(self.workload.client(**more))


class ProducerLost(Exception):
    """A transactional producer is of no use any more, and another one is made."""


class Transactions:
    """One transactional id, and the producers that come after each other under it."""

    def __init__(self, workload: Workload, name: str, over: threading.Event) -> None:
        """`over`: no further producer is wanted."""
        self.workload = workload
        self._over = over
        self._id = f"{name}-{uuid.uuid4().hex[:6]}"

    def producers(self) -> Iterator[Producer]:
        """Each one, once it has fenced the one before."""
        while not self._over.is_set():
            producer = Producer(
                self.workload.client(
                    transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, linger_ms=2
                )
            )
            try:
                self._asked(producer.init_transactions)
            except (ProducerLost, KafkaException):
                self._over.wait(QUIET_S)
                continue
            yield producer

    def commit(self, producer: Producer, number: int) -> None:
        """Or aborts where the client says so. Raises ProducerLost."""
        endings = self.workload.history.transactions
        try:
            producer.flush(CALL_S)
            endings[number] = Ending.UNKNOWN
            self._asked(producer.commit_transaction)
            endings[number] = Ending.COMMITTED
        except (KafkaException, SystemError):  # a fatal error met in `flush` comes as the interpreter's own complaint
            self.abort(producer)

    def abort(self, producer: Producer) -> None:
        """Raises ProducerLost."""
        try:
            self._asked(producer.abort_transaction)
        except KafkaException as error:
            raise ProducerLost(str(error)) from error

    def _asked(self, call: Callable[[float], None]) -> None:
        """Again while the client says that this may help. Raises KafkaException where an abort helps, ProducerLost
        where nothing does.
        """
        give_up_s = time.monotonic() + FLUSH_S
        while True:
            try:
                call(CALL_S)
            except KafkaException as error:
                told = error.args[0]
                if told.txn_requires_abort():
                    raise
                if not told.retriable() or time.monotonic() > give_up_s:
                    raise ProducerLost(str(error)) from error
            else:
                return


class TransactionalWriter:
    """Some records over all partitions, then a commit, an abort, or nothing: its next producer ends that."""

    def __init__(self, workload: Workload, number: int) -> None:
        self.workload = workload
        self.name = f"transactional-{number}"
        self.chance = random.Random(f"{workload.seed}-{self.name}")
        self._transactions = Transactions(workload, f"{workload.names.mixed}-{number}", workload.stop)

    def run(self) -> None:
        for life, producer in enumerate(self._transactions.producers()):
            try:
                self._live(producer, f"{self.name}.{life}")
            except ProducerLost:
                continue

    def _live(self, producer: Producer, writer: str) -> None:
        """Raises ProducerLost."""
        until_s = time.monotonic() + self.chance.uniform(4, 16)
        while not self.workload.stop.is_set():
            number = self.workload.begin()
            try:
                producer.begin_transaction()
                for _ in range(self.chance.randint(1, 8)):
                    where = TopicPartition(self.workload.names.mixed, self.chance.randrange(PARTITIONS))
                    self.workload.send(producer, where, writer, number)
                    producer.poll(self.chance.choice([0, 0.005]))
            except KafkaException:
                self._transactions.abort(producer)
                continue
            if time.monotonic() > until_s:
                # Killed, as it were: some of that is on its way, and the id's next producer fences it.
                return
            if self.chance.random() < 0.8:
                self._transactions.commit(producer, number)
            else:
                with suppress(KafkaException):  # a fatal error: the abort meets it as well
                    producer.flush(self.chance.choice([0, QUIET_S]))
                self._transactions.abort(producer)


class Maker:
    """Consumes, transforms, produces: for each record of `plain` one of `made`, with the offset in one transaction.

    After an abort, or when its partitions were taken from it, it begins again at what is committed.
    """

    def __init__(self, workload: Workload, number: int) -> None:
        self.workload = workload
        self.name = f"maker-{number}"
        self.group = f"{workload.names.made}-makers"
        self.chance = random.Random(f"{workload.seed}-{self.name}")
        self.until = threading.Event()
        """All has been made of what was to be."""
        self._revoked = False
        self._transactions = Transactions(workload, f"{workload.names.made}-{number}", self.until)

    def run(self) -> None:
        for life, producer in enumerate(self._transactions.producers()):
            try:
                while not self.until.is_set():
                    with leaving(self._consumer(), partial(self.workload.hangs, self.name)) as consumer:
                        self._live(producer, consumer, f"{self.name}.{life}")
            except ProducerLost:
                continue
            return

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            self.workload.client(
                group_id=self.group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                session_timeout_ms=3000,
                heartbeat_interval_ms=500,
            )
        )
        self._revoked = False

        # Served within `consume` alone: without them the client gives partitions back at any time, and what was
        # consumed before would be committed in the name of who has them no longer.
        def assigned(_consumer: Consumer, _places: list[Place]) -> None:
            pass

        def revoked(_consumer: Consumer, _places: list[Place]) -> None:
            self._revoked = True

        consumer.subscribe([self.workload.names.plain], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        return consumer

    def _live(self, producer: Producer, consumer: Consumer, writer: str) -> None:
        """Until a transaction of it did not come to be. Raises ProducerLost."""
        until_s = time.monotonic() + self.chance.uniform(5, 15)
        while not self.until.is_set() and (time.monotonic() < until_s or self.workload.stop.is_set()):
            try:
                messages = [m for m in consumer.consume(MADE_AT_ONCE, QUIET_S) if m.error() is None]
            except KafkaException:
                return
            if self._revoked:
                return
            if not messages:
                continue
            if not self._make(producer, consumer, writer, messages):
                return

    def _make(self, producer: Producer, consumer: Consumer, writer: str, messages: Sequence[Message]) -> bool:
        """Whether it was committed. Raises ProducerLost."""
        number = self.workload.begin()
        after: dict[tuple[str, int], int] = {}
        try:
            producer.begin_transaction()
            for message in messages:
                value = message.value()
                assert value is not None
                where = TopicPartition(self.workload.names.made, self.chance.randrange(PARTITIONS))
                self.workload.send(producer, where, writer, number, int(value))
                after[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1
            places = [Place(topic, index, offset) for (topic, index), offset in after.items()]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), CALL_S)
        except KafkaException:
            self._transactions.abort(producer)
            return False
        self._transactions.commit(producer, number)
        return self.workload.history.transactions[number] is Ending.COMMITTED
