"""A producer that names its id and epoch asks again, as its answer was lost.

It is answered as the first time, by whoever is the coordinator then, and nobody is ended by it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.coordination.internal_log import Producer
from broker.transactions.limits import MARKER_RETRY_MS, PRODUCER_EPOCH_MAX
from broker.transactions.model import InitAsk, TransactionState
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition
from tests.broker.clock import ManualClock
from tests.broker.coordinator_host import Host, start

NAME = "farshore-link"
ASK = InitAsk(NAME, 60_000, 900_000)
FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = start(tmp_path)
    host.create_topic("flights")
    return host


async def init(host: Host, asker: Producer | None = None) -> Producer | ErrorCode:
    named = ASK if asker is None else replace(ASK, producer_id=asker.producer_id, producer_epoch=asker.producer_epoch)
    error, producer = await host.transactions.init_producer_id(named)
    return error or producer


async def begun(host: Host) -> Producer:
    producer = await init(host)
    assert isinstance(producer, Producer)
    return producer


def add(host: Host, producer: Producer | ErrorCode) -> ErrorCode:
    assert isinstance(producer, Producer)
    return host.transactions.add_partitions(NAME, producer, [FLIGHTS])


@pytest.mark.parametrize("moves", [False, True])
async def test_is_answered_as_the_first_time(host: Host, moves: bool) -> None:
    old = await begun(host)
    first = await init(host, old)
    assert first == Producer(old.producer_id, old.producer_epoch + 1)
    for _ in range(2):
        host = host.restart(clean=False) if moves else host
        assert await init(host, old) == first


@pytest.mark.parametrize("moves", [False, True])
async def test_also_where_it_left_a_transaction_open(host: Host, moves: bool) -> None:
    old = await begun(host)
    add(host, old)
    first = await init(host, old)
    assert first == Producer(old.producer_id, old.producer_epoch + 2), "one for the abort's markers, one of its own"
    host = host.restart(clean=False) if moves else host
    assert await init(host, old) == first


@pytest.mark.parametrize("moves", [False, True])
async def test_also_where_the_abort_of_that_takes_its_time(tmp_path: Path, moves: bool) -> None:
    clock = ManualClock()
    host = start(tmp_path, clock)
    host.create_topic("flights")
    old = await begun(host)
    add(host, old)
    with host.offline("flights"):
        assert await init(host, old) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await init(host, old) is ErrorCode.CONCURRENT_TRANSACTIONS
    if moves:
        host = host.restart(clean=False)
    clock.advance(MARKER_RETRY_MS)
    for transactional_id in host.transactions.due():
        await host.transactions.attend(transactional_id)
    assert host.transactions.transactions[NAME].state is TransactionState.COMPLETE_ABORT
    assert await init(host, old) == Producer(old.producer_id, old.producer_epoch + 2)


@pytest.mark.parametrize("moves", [False, True])
async def test_also_of_a_new_producer_id(host: Host, moves: bool) -> None:
    """For a name that is not known any more, and behind the last epoch."""
    forgotten = Producer(7, 3)
    first = await init(host, forgotten)
    assert isinstance(first, Producer)
    assert (first.producer_id != 7, first.producer_epoch) == (True, 0)
    host = host.restart(clean=False) if moves else host
    assert await init(host, forgotten) == first
    current = host.transactions.transactions[NAME]
    last = Producer(first.producer_id, PRODUCER_EPOCH_MAX - 1)
    host.transactions._store(replace(current, producer_epoch=last.producer_epoch))
    second = await init(host, last)
    assert isinstance(second, Producer)
    assert (second.producer_id != last.producer_id, second.producer_epoch) == (True, 0)
    host = host.restart(clean=False) if moves else host
    assert await init(host, last) == second


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
async def test_is_refused_where_the_name_has_a_new_owner(host: Host, moves: bool, is_open: bool) -> None:
    old = await begun(host)
    if is_open:
        add(host, old)
    asked = await init(host, old)
    owner = await begun(host)
    host = host.restart(clean=False) if moves else host
    assert await init(host, old) is ErrorCode.PRODUCER_FENCED
    assert add(host, asked) is ErrorCode.PRODUCER_FENCED
    assert add(host, owner) is ErrorCode.NONE


@pytest.mark.parametrize("moves", [False, True])
async def test_one_that_comes_late_ends_no_transaction_that_its_producer_began_since(host: Host, moves: bool) -> None:
    """It was given up with its connection; that the producer went on says that it has an answer."""
    old = await begun(host)
    new = await init(host, old)
    assert isinstance(new, Producer)
    assert add(host, new) is ErrorCode.NONE
    host = host.restart(clean=False) if moves else host
    assert await init(host, old) is ErrorCode.PRODUCER_FENCED
    assert host.transactions.transactions[NAME].state is TransactionState.ONGOING
    assert await host.transactions.end_transaction(NAME, new, commit=True) is ErrorCode.NONE
    assert await init(host, old) is ErrorCode.PRODUCER_FENCED
    assert add(host, new) is ErrorCode.NONE
