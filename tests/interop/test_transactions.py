"""Transactions that hold up a link at Apache Kafka: one that stays open, and one that hangs, as the link's status sees
them, and as Kafka's own tool ends them.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.offsets import log_end_offsets
from broker.client.producers import end_txn
from broker.client.site import Site
from broker.wire.vocabulary import IsolationLevel, TopicPartition
from mirror.link import Link
from mirror.looking import look_at_link
from mirror.offsets.state import load_partial_state
from mirror.transactions import HoldingTransaction, TransactionFate, end_by_hand
from tests.broker.running import running_server
from tests.interop.servers import KafkaServer, run_java, wait_until
from tests.interop.test_classes import VERSIONS
from tests.mirror.harness import eventually, make_topic, some_records, write
from tests.mirror.test_transactions import A_MINUTE_ON, found
from tests.mirror.transactions import APP, begin, transactional

AT = TopicPartition("flights", 0)
TIMEOUT_MS = 10_000
HANGING = (TransactionFate.HANGING, "CompleteAbort", True)
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""As Kafka was before 3.6: what comes late, behind its transaction's end, is taken."""


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_holds_up_a_link_at_kafka(tmp_path: Path, version: str) -> None:
    with KafkaServer(version, tmp_path / "kafka", UNVERIFIED) as kafka:
        async with running_server(tmp_path / "west") as west:
            link = Link("east-west", Site("east", kafka.bootstrap), Site("west", west.address), ("flights",))
            async with (
                Cluster(link.source, clock=A_MINUTE_ON) as source,
                Cluster(link.target) as target,
            ):

                async def held() -> tuple[HoldingTransaction, ...]:
                    seen = await look_at_link(link, source, target, await load_partial_state(link, target))
                    assert bool(found(link, seen)) is bool(seen.transactions)
                    return seen.transactions

                await make_topic(source, AT.topic)
                producer = await begin(source, AT)
                await write(source, AT, some_records(0, 40))
                (open_,) = await held()
                assert (open_.fate, open_.transactional_id, open_.said) == (TransactionFate.OPEN, APP, "Ongoing")
                assert (open_.first_offset, open_.offsets) == (0, 41)
                await end_txn(source, APP, producer, commit=True)
                await eventually(lambda: is_stable(source, 42), "the marker to be written")
                assert await held() == ()

                await append(source, AT, transactional(producer, sequence=1), APP)
                (hanging,) = await held()
                assert (hanging.fate, hanging.said) == (TransactionFate.HANGING, "CompleteCommit")
                command, _, _ = end_by_hand(kafka.bootstrap, AT, hanging.first_offset).strip("`").partition("`")
                run_java(version, "org.apache.kafka.tools.TransactionsCommand", *command.split()[1:])
                await eventually(lambda: is_stable(source, 44), "the marker of the abort")
                assert await held() == ()


async def test_what_a_kafka_that_was_killed_left_hanging_is_found(tmp_path: Path) -> None:
    """Back from a kill it may abort what has timed out before it knows any leader again, and writes no marker then."""
    at_once = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1"}
    with KafkaServer("4.3.0", tmp_path / "kafka", at_once) as kafka:
        async with running_server(tmp_path / "west") as west:
            link = Link("east-west", Site("east", kafka.bootstrap), Site("west", west.address), ("flights",))
            async with Cluster(link.source) as source:
                await make_topic(source, AT.topic)
                await begin(source, AT, timeout_ms=TIMEOUT_MS)
                await write(source, AT, some_records(0, 40))
            over_at_s = time.monotonic() + TIMEOUT_MS / 1000
            kafka.kill9()
            wait_until(lambda: time.monotonic() > over_at_s, 2 * TIMEOUT_MS / 1000, "the transaction's time to be over")
            kafka.start()
            async with Cluster(link.source) as source, Cluster(link.target) as target:
                told: set[tuple[TransactionFate, str, bool]] = set()

                async def is_settled() -> bool:
                    seen = await look_at_link(link, source, target, await load_partial_state(link, target))
                    told.update((one.fate, one.said, bool(found(link, seen))) for one in seen.transactions)
                    return HANGING in told or await is_stable(source, 42)

                await eventually(is_settled, "it to hang, or to end", deadline_s=60)
        if HANGING not in told:
            pytest.skip("this time Kafka knew the leader in time, and wrote the marker")


async def is_stable(source: Cluster, end: int) -> bool:
    return (await log_end_offsets(source, [AT], IsolationLevel.READ_COMMITTED))[AT] == end
