"""A group that reads a topic and commits through all that happens to its brokers, and where a mirror brought it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, KafkaException

from broker.client.cluster import Cluster
from broker.client.groups import committed_offsets
from broker.wire.records import Record
from broker.wire.vocabulary import TopicPartition
from tests.chaos_runs.looking import content_of
from tests.chaos_runs.writers import QUIET

COMMIT_EACH_RECORDS = 50
JOIN_TIMEOUT_S = 90.0


class Reader:
    """One member of a group; `committed` has the newest offset per partition of which the cluster said that it is."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.commits = 0
        self.went_back: list[str] = []
        """A group that forgot what it was told to keep, in words."""
        self.group = group
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
            "log_level": 0,
            "logger": QUIET,
        }

    def run(self, stop: threading.Event) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        try:
            read = 0
            while not stop.is_set():
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                read += 1
                if read % COMMIT_EACH_RECORDS == 0:
                    self._commit(consumer)
            self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        with suppress(KafkaException):  # as one whose coordinator is gone: the next one says more
            for where in consumer.commit(asynchronous=False) or ():
                if where.error is None and where.offset >= 0:
                    self._note(TopicPartition(where.topic, where.partition), where.offset)
                    self.commits += 1

    def _note(self, where: TopicPartition, offset: int) -> None:
        before = self.committed.get(where, 0)
        if offset < before:
            self.went_back.append(f"{where}: the group was at {before}, and later at {offset}")
        self.committed[where] = offset

    async def forgotten(self, cluster: Cluster) -> list[str]:
        """What was acknowledged and is not there, in words."""
        at = await committed_offsets(cluster, self.group)
        for where in list(self.committed):
            self._note(where, at[where].offset if where in at else 0)
        return self.went_back


@contextmanager
def reading(bootstrap: str, group: str, topic: str) -> Iterator[Reader]:
    """A reader while the context is open; leaving it waits for its last commit."""
    reader = Reader(bootstrap, group, topic)
    stop = threading.Event()
    thread = threading.Thread(target=reader.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield reader
    finally:
        stop.set()
        thread.join(JOIN_TIMEOUT_S)
        assert not thread.is_alive(), f"the reader of {topic} hangs"


async def wrongly_carried(
    group: str,
    sites: tuple[Cluster, Cluster],
    logs: Mapping[TopicPartition, tuple[Sequence[Record], Sequence[Record]]],
) -> list[str]:
    """The group's next record must be the same at both sites -> where it is not, in words. Raises ClientError.

    `logs` has what a reader of committed records sees at the source and at the target.
    """
    at_source, at_target = [await committed_offsets(site, group) for site in sites]
    wrong = []
    for where, (source, target) in logs.items():
        if where not in at_source:
            continue
        if where not in at_target:
            wrong.append(f"{where}: {group} is at {at_source[where].offset}, and was not carried over")
            continue
        here, there = at_source[where].offset, at_target[where].offset
        wanted = next((content_of(record) for record in source if record.offset >= here), None)
        found = next((content_of(record) for record in target if record.offset >= there), None)
        if wanted != found:
            wrong.append(f"{where}: {group} is at {here}, and at {there} of the target, which is another record")
    return wrong
