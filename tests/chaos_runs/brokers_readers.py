"""Those who read a cluster under faults, by confluent-kafka: assigned, as a changing group, and for the ends alone."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from math import inf
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from broker.wire.vocabulary import TopicPartition
from chaos.cluster.history import ClusterHistory, EndTold, Log, Seen
from tests.chaos_runs.brokers_writers import Names, Workload
from tests.chaos_runs.hanging import NEVER_CLOSED, closed, leaving

POLL_S: Final = 0.2
WAITED_S: Final = 0.3
STILL_S: Final = 30.0
"""Who is given nothing for as long by brokers that all serve may stand still."""
COMMITTED: Final = "read_committed"
WHOLE: Final = "read_uncommitted"
LAST_READING_S: Final = 120.0


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(str(message.topic()), int(message.partition() or 0))


def value_of(message: Message) -> tuple[int, int]:
    """Its offset, and what it holds."""
    return int(message.offset() or 0), int(message.value() or b"0")


class Reader:
    """Notes all that it is given; subclasses say what it reads. `over`: it ends."""

    def __init__(self, workload: Workload, name: str, isolation: str) -> None:
        self.workload = workload
        self.name = name
        self.isolation = isolation
        self.over = threading.Event()
        self.chance = random.Random(f"{workload.seed}-{name}")
        self.run_number = 0
        if isolation == COMMITTED:
            workload.history.committed_readers.add(name)

    def run(self) -> None:
        raise NotImplementedError

    def note(self, message: Message, run: int) -> None:
        self.workload.history.seen.append(Seen(self.name, run, place_of(message), *value_of(message)))


class AssignedReader(Reader):
    """Of every partition, from its start on; an offset that the log has not is a finding."""

    def run(self) -> None:
        reached = dict.fromkeys(self.workload.names.all(), 0)
        expected_s = -inf
        while not self.over.is_set():
            consumer = Consumer(reading(self.workload, self.isolation))
            self._read(consumer, reached, expected_s)
            expected_s = time.time() - STILL_S
            if not closed(consumer):
                self.workload.hangs(self.name, NEVER_CLOSED)
                expected_s = -inf

    def _read(self, consumer: Consumer, reached: dict[TopicPartition, int], expected_s: float) -> None:
        """Until nothing has come for long, of a cluster that is healed. It may be that nothing is there; what was there
        before `expected_s`, of Unix time, an earlier consumer that works should have been given.
        """
        self._assign(consumer, reached)
        heard_s = time.monotonic()
        while not self.over.is_set() and time.monotonic() - heard_s < STILL_S:
            message = consumer.poll(POLL_S)
            if message is not None or not self.workload.stop.is_set():
                heard_s = time.monotonic()
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.note(message, self.run_number)
                where, (offset, _) = place_of(message), value_of(message)
                reached[where] = offset + 1
                if self.isolation == WHOLE and message.timestamp()[1] / 1000 < expected_s:
                    self.workload.problems.append(f"{self.name} was not given {where} at {offset}")
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self.workload.problems.append(f"{self.name} was led back: {error.str()}")
                self.run_number += 1
                reached.update(dict.fromkeys(reached, 0))
                self._assign(consumer, reached)

    def _assign(self, consumer: Consumer, reached: dict[TopicPartition, int]) -> None:
        consumer.assign([Place(*where, offset) for where, offset in reached.items()])


class Member(Reader):
    """Of a group; it leaves now and then, and comes again."""

    def __init__(self, workload: Workload, number: int, group: str) -> None:
        super().__init__(workload, f"member-{number}", COMMITTED)
        self.group = group
        self._runs: dict[TopicPartition, int] = {}

    def run(self) -> None:
        while not self.over.is_set():
            settings = {
                "group_id": self.group,
                "auto_commit_interval_ms": 500,
                "enable_auto_commit": True,
                # By itself the client stores also what it throws away while it closes.
                "enable_auto_offset_store": False,
                "session_timeout_ms": 3000,
                "heartbeat_interval_ms": 500,
                "auto_offset_reset": "earliest",
            }
            made = Consumer(reading(self.workload, self.isolation, **settings))
            with leaving(made, partial(self.workload.hangs, self.name)) as consumer:
                names = self.workload.names
                consumer.subscribe([names.plain, names.mixed, names.made], on_assign=self._assigned)
                self._live(consumer)

    def _live(self, consumer: Consumer) -> None:
        until_s = time.monotonic() + self.chance.uniform(4, 12)
        while not self.over.is_set() and (time.monotonic() < until_s or self.workload.stop.is_set()):
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self.note(message, self._runs[place_of(message)])
                with contextlib.suppress(KafkaException):  # it was taken away meanwhile, and is another member's
                    consumer.store_offsets(message=message)

    def _assigned(self, _consumer: Consumer, places: list[Place]) -> None:
        self.run_number += 1
        for place in places:
            self._runs[TopicPartition(place.topic, place.partition)] = self.run_number


class EndAsker(Reader):
    """Asks for the ends of logs, of which what was acknowledged before is a part."""

    def run(self) -> None:
        with closing(Consumer(reading(self.workload, WHOLE))) as consumer:
            while not self.over.is_set():
                where = self.chance.choice(self.workload.names.all())
                asked_s = time.monotonic()
                try:
                    _, end = consumer.get_watermark_offsets(Place(*where), timeout=1.0, cached=False)
                except KafkaException:
                    continue
                self.workload.history.ends.append(EndTold(where, asked_s, end))
                self.over.wait(0.05)


def reading(workload: Workload, isolation: str, **more: Any) -> dict[str, Any]:
    """A consumer's configuration."""
    usual: dict[str, Any] = {
        "group_id": f"{workload.names.plain}-assigned",
        "enable_auto_commit": False,
        "auto_offset_reset": "error",
        "fetch_wait_max_ms": 100,
        "fetch_error_backoff_ms": 100,
        "isolation_level": isolation,
    }
    return workload.client(**{**usual, **more})


def ends_of(asker: Consumer, names: Names) -> dict[TopicPartition, int]:
    """Of every partition, by the asker's isolation level. Raises KafkaException."""
    return {where: asker.get_watermark_offsets(Place(*where), timeout=5.0, cached=False)[1] for where in names.all()}


def read_to_the_ends(workload: Workload, isolation: str) -> dict[TopicPartition, Log]:
    """All that is there, from the leaders. Raises TimeoutError."""
    logs: dict[TopicPartition, Log] = {where: {} for where in workload.names.all()}
    left = set(logs)
    give_up_s = time.monotonic() + LAST_READING_S
    with closing(Consumer(reading(workload, isolation, enable_partition_eof=True))) as consumer:
        consumer.assign([Place(*where, 0) for where in logs])
        while left:
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"the last reading did not come to the end of {', '.join(map(str, sorted(left)))}")
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                offset, value = value_of(message)
                logs[place_of(message)][offset] = value
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(place_of(message))
    return logs


def read_by(history: ClusterHistory, readers: set[str]) -> set[tuple[TopicPartition, int]]:
    return {(seen.where, seen.offset) for seen in list(history.seen) if seen.reader in readers}


def waited(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it came true in time; a cluster that cannot be asked just now is asked again."""
    give_up_s = time.monotonic() + timeout_s
    while time.monotonic() < give_up_s:
        try:
            if condition():
                return True
        except KafkaException:
            pass
        time.sleep(WAITED_S)
    return False
