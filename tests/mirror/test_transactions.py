"""A transaction at the source that stays open holds up its partition: what no lag counts is a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.base.clock import Clock, SystemClock
from broker.client.cluster import Cluster
from broker.client.connection import Connection, common_versions
from broker.client.errors import KafkaError
from broker.client.producers import ProducerIdAndEpoch, end_txn
from broker.client.transactions import first_transactions, open_transaction, transactional_ids
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.records import Record
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from mirror.findings import link_findings
from mirror.heartbeat import judge_heartbeat
from mirror.limits import CLOCK_DIFFERENCE_MAX_MS, TRANSACTION_OPEN_MAX_MS
from mirror.link import Link
from mirror.link_finding import LinkFinding, LinkFindingKind
from mirror.looking import LinkLook, look_at_link
from mirror.offsets.entries import LinkRun, RunState
from mirror.offsets.state import load_partial_state
from mirror.offsets.state_entries import StateEntries
from mirror.transactions import HoldingTransaction, TransactionFate
from tests.failover.stage import PARTITIONS, RECORDS, Stage, two_sites
from tests.mirror.harness import Later, some_records, write
from tests.mirror.transactions import APP, OLD_MS, append_unasked, begin, transactional

AT = PARTITIONS[0]
A_MINUTE_ON = Later(by_ms=TRANSACTION_OPEN_MAX_MS + 1_000)


async def look(stage: Stage, clock: Clock | None = None) -> LinkLook:
    async with Cluster(stage.link.source, clock=clock or SystemClock()) as source:
        return await look_at_link(stage.link, source, stage.target, await load_partial_state(stage.link, stage.target))


def found(link: Link, seen: LinkLook, run: RunState | None = None) -> list[LinkFinding]:
    entries = StateEntries(link, exists=True, run=None if run is None else LinkRun(run, "op", 1))
    findings = link_findings(link, (True, True), entries, seen, judge_heartbeat(None, 2), "", {})
    return [one for one in findings if one.kind is LinkFindingKind.TRANSACTION_OPEN]


async def test_one_that_is_open_for_long_is_a_finding_with_what_stands_behind_it(tmp_path: Path) -> None:
    """The link was healthy, with a lag of 0, while nothing that was written there came to the target any more."""
    async with two_sites(tmp_path) as stage:
        await begin(stage.source, AT)
        await write(stage.source, AT, some_records(RECORDS, 40))
        now = await look(stage)
        later = await look(stage, A_MINUTE_ON)
    lags = {lag.partition: lag.held_by_transaction_offsets for lag in now.lags.lags}
    assert lags == {0: 41, 1: 0}
    (held,) = now.transactions
    assert (held.fate, held.transactional_id, held.said) == (TransactionFate.OPEN, APP, "Ongoing")
    assert (held.first_offset, held.offsets, held.is_long) == (RECORDS, 41, False)
    assert found(stage.link, now) == [], "replayed records are old, and it is not"
    (finding,) = found(stage.link, later)
    assert (finding.topic, finding.partition) == AT
    assert finding.detail.startswith(f"41 offsets from {RECORDS} on are not mirrored before a transaction ends")
    assert held.since_ms is not None
    since = datetime.fromtimestamp(held.since_ms / 1000, UTC).isoformat(timespec="seconds")
    assert f"since {since} by its coordinator's clock: {APP}, Ongoing at its coordinator" in finding.detail
    abort = f"abort --topic flights --partition 0 --start-offset {RECORDS}"
    assert f"`kafka-transactions.sh --bootstrap-server {stage.link.source.bootstrap_servers} {abort}`" in (
        finding.next_step
    )
    assert found(stage.link, later, RunState.PROMOTED) == [], "nothing of it is to be mirrored"
    assert found(stage.link, later, RunState.PAUSED) == [finding]


async def test_one_that_has_ended_is_none_and_asks_for_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_sites(tmp_path) as stage:
        producer = await begin(stage.source, AT)
        await end_txn(stage.source, APP, producer, commit=True)
        await end_txn(stage.source, APP, producer, commit=True)  # its marker is written
        asked: list[str] = []
        send = Connection.send

        async def noted(self: Connection, message: Message, *more: Any, **named: Any) -> Awaitable[Any]:
            asked.append(type(message).__name__)
            return await send(self, message, *more, **named)

        monkeypatch.setattr(Connection, "send", noted)
        seen = await look(stage, A_MINUTE_ON)
    assert seen.transactions == ()
    kinds = Counter(asked)
    assert kinds["ListOffsetsRequest"] == 4, "start, end and stable end of the source's logs, and the target's end"
    assert not kinds.keys() & {"DescribeProducersRequest", "ListTransactionsRequest", "DescribeTransactionsRequest"}
    assert [lag.held_by_transaction_offsets for lag in seen.lags.lags] == [0, 0]


async def test_one_that_its_coordinator_has_ended_is_hanging_at_once(tmp_path: Path) -> None:
    """As Kafka 4.3 leaves it that is back from a kill: no time-out ends it."""
    async with two_sites(tmp_path) as stage:
        producer = await begin(stage.source, PARTITIONS[1])
        await end_txn(stage.source, APP, producer, commit=False)
        append_unasked(stage.brokers[0], AT, transactional(producer, some_records(0, 3)))
        seen = await look(stage)
        (held,) = [one for one in seen.transactions if (one.topic, one.partition) == AT]
        assert (held.fate, held.said) == (TransactionFate.HANGING, "CompleteAbort")
        (finding,) = found(stage.link, seen)
    assert "by its records' own time: it hangs" in finding.detail
    assert finding.next_step.startswith("`kafka-transactions.sh")


async def test_one_that_goes_on_elsewhere_hangs_where_its_coordinator_does_not_know_of_it(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        producer = await begin(stage.source, PARTITIONS[1])
        append_unasked(stage.brokers[0], AT, transactional(producer, some_records(0, 3)))
        seen = await look(stage)
    fates = {one.partition: one.fate for one in seen.transactions}
    assert fates == {0: TransactionFate.HANGING, 1: TransactionFate.OPEN}


@pytest.mark.parametrize(("age_ms", "is_found"), [(5_000, False), (TRANSACTION_OPEN_MAX_MS + 5_000, True)])
async def test_one_that_nobody_names_is_as_old_as_its_first_record(tmp_path: Path, age_ms: int, is_found: bool) -> None:
    async with two_sites(tmp_path) as stage:
        stranger = ProducerIdAndEpoch(4_711, 0)
        at_ms = SystemClock().now_ms() - age_ms
        append_unasked(stage.brokers[0], AT, transactional(stranger, [Record(0, at_ms, b"k", b"v")]))
        seen = await look(stage)
    (held,) = seen.transactions
    assert (held.fate, held.since_ms, held.transactional_id) == (TransactionFate.UNNAMED, at_ms, "")
    findings = found(stage.link, seen)
    assert bool(findings) is is_found
    assert all(
        "no coordinator names it, so it hangs, or farshore may not see whose it is" in f.detail for f in findings
    )


@pytest.mark.parametrize("too_old_for", [ApiKey.DESCRIBE_PRODUCERS, ApiKey.LIST_TRANSACTIONS])
async def test_where_the_brokers_are_too_old_to_be_asked_the_records_times_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, too_old_for: ApiKey
) -> None:
    async with two_sites(tmp_path) as stage:
        await begin(stage.source, AT)
        monkeypatch.setattr(
            "broker.client.connection.common_versions",
            lambda theirs: {key: version for key, version in common_versions(theirs).items() if key != too_old_for},
        )
        seen = await look(stage)
    (held,) = seen.transactions
    assert (held.fate, held.since_ms) == (TransactionFate.UNTOLD, OLD_MS)
    (finding,) = found(stage.link, seen)
    assert "since 2017-07-14T02:40:00+00:00 by its records' own time: whose it is could not be asked" in finding.detail


def test_what_is_not_known_is_not_short() -> None:
    def is_long(age_ms: int | None, fate: TransactionFate = TransactionFate.OPEN) -> bool:
        return HoldingTransaction("t", 0, 0, 1, fate, age_ms=age_ms).is_long

    assert not is_long(0)
    assert not is_long(TRANSACTION_OPEN_MAX_MS)
    assert not is_long(-CLOCK_DIFFERENCE_MAX_MS)
    assert is_long(TRANSACTION_OPEN_MAX_MS + 1)
    assert is_long(None)
    assert is_long(-CLOCK_DIFFERENCE_MAX_MS - 1), "its coordinator's clock is another one"
    assert is_long(0, TransactionFate.HANGING)


async def test_what_the_client_tells_of_transactions(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as stage:
        source = stage.source
        producer = await begin(source, AT)
        gone = TopicPartition("gone", 0)
        told = await first_transactions(source, [AT, PARTITIONS[1], gone])
        assert told[AT] == (producer.producer_id, RECORDS)
        assert told[PARTITIONS[1]] is None
        error = told[gone]
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await transactional_ids(source, [producer.producer_id, 4_711]) == {producer.producer_id: APP}
        open_ = await open_transaction(source, APP)
        assert open_ is not None
        assert (open_.producer, open_.partitions, open_.is_ending) == (producer, frozenset({AT}), False)
        assert await open_transaction(source, "nobody") is None
        await end_txn(source, APP, producer, commit=True)
        await end_txn(source, APP, producer, commit=True)
        assert await open_transaction(source, APP) is None
