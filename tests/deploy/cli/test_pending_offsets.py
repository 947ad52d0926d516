"""A switchover amid a transaction that commits offsets of a group, as a person at the command line meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.draining import TIMEOUT_S
from tests.deploy.cli.test_failover import append_records, two_sites
from tests.interop.servers import wait_until

GROUP = "app"


def commit(bootstrap: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition("flights", 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition("flights", 0)], timeout=TIMEOUT_S)
    consumer.close()
    return int(found.offset)


@contextmanager
def pending(bootstrap: str, offset: int) -> Iterator[Producer]:
    """A transaction that reads, writes nothing that is mirrored, and commits what it has read."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": GROUP})
    producer.init_transactions(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    producer.begin_transaction()
    place = TopicPartition("flights", 0, offset)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)
    yield producer
    consumer.close()


def test_a_switchover_is_refused_while_offsets_are_pending_and_says_whose(tmp_path: Path) -> None:
    with two_sites(tmp_path) as shell:
        append_records(shell.east, "first", 40)
        commit(shell.east.bootstrap, 20)
        wait_until(lambda: committed(shell.west.bootstrap) > 0, TIMEOUT_S, "the group at the target")
        with pending(shell.east.bootstrap, 35) as producer:
            planned = shell.run("switchover --dry-run", ExitCode.DONE)
            told = "offsets in transactions at east that have not ended: app; the drain waits"
            assert told in " ".join(planned.stdout.split())
            refused = shell.run("switchover --yes --timeout 5s -o json", ExitCode.REFUSED)
            said = json.loads(refused.stdout)["refusals"]
            assert [(one["reason"], one["subject"]) for one in said] == [("offsets_pending", GROUP)]
            assert "transaction.timeout.ms" in refused.stderr
            producer.commit_transaction(TIMEOUT_S)
        shell.run("switchover --yes", ExitCode.DONE)
        assert committed(shell.west.bootstrap) - committed(shell.east.bootstrap) in (0, 1)
