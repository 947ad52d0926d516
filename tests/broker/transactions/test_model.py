"""Decisions about a transactional id, as values."""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.formats import read_key, read_value, transaction_entry
from broker.transactions.limits import PRODUCER_EPOCH_MAX
from broker.transactions.model import (
    AbortFirst,
    InitAsk,
    Transaction,
    TransactionState,
    check_append,
    complete,
    decide_add,
    decide_end,
    decide_init,
    decide_timeout,
)
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition

FLIGHTS = TopicPartition("flights", 0)
ASK = InitAsk("mirror", 60_000, 900_000)
IDLE = Transaction("mirror", 1, 0, 60_000)
OPEN = replace(IDLE, state=TransactionState.ONGOING, partitions=frozenset({FLIGHTS}), start_ms=0)


def decide(current: Transaction | None, ask: InitAsk = ASK) -> ErrorCode | AbortFirst | Transaction:
    return decide_init(current, ask, 5, lambda: 77)


def test_the_first_use_of_an_id_gets_a_fresh_producer_id() -> None:
    made = decide(None)
    assert isinstance(made, Transaction)
    assert (made.producer_id, made.producer_epoch, made.state) == (77, 0, TransactionState.EMPTY)


def test_each_later_use_raises_the_epoch() -> None:
    made = decide(IDLE)
    assert isinstance(made, Transaction)
    assert (made.producer_id, made.producer_epoch) == (1, 1)


def test_an_exhausted_epoch_means_a_new_producer_id() -> None:
    made = decide(replace(IDLE, producer_epoch=PRODUCER_EPOCH_MAX - 1))
    assert isinstance(made, Transaction)
    assert (made.producer_id, made.producer_epoch) == (77, 0)


def test_an_open_transaction_is_aborted_under_the_next_epoch_first() -> None:
    decision = decide(OPEN)
    assert isinstance(decision, AbortFirst)
    assert (decision.prepared.state, decision.prepared.producer_epoch) == (TransactionState.PREPARE_ABORT, 1)
    assert decide(decision.prepared) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (InitAsk("", 1, 9), ErrorCode.INVALID_REQUEST),
        (InitAsk("mirror", 0, 9), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitAsk("mirror", 10, 9), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitAsk("mirror", 9, 9, producer_id=1, producer_epoch=3), ErrorCode.PRODUCER_FENCED),
        (InitAsk("mirror", 9, 9, producer_id=2, producer_epoch=0), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_refusals(ask: InitAsk, error: ErrorCode) -> None:
    assert decide(IDLE, ask) is error


def test_a_producer_that_names_its_epoch_may_repeat_the_request() -> None:
    ask = replace(ASK, producer_id=1, producer_epoch=0)
    first = decide(IDLE, ask)
    assert isinstance(first, Transaction)
    assert first.producer_epoch == 1
    assert decide(first, ask) is first, "the answer was lost: the same again, not one epoch more"


def test_end_and_its_repeats() -> None:
    def end(current: Transaction | None, epoch: int = 0, *, commit: bool = True) -> ErrorCode | Transaction:
        return decide_end(current, 1, epoch, commit=commit, now_ms=5)

    prepared = end(OPEN)
    assert isinstance(prepared, Transaction)
    assert prepared.state is TransactionState.PREPARE_COMMIT
    assert end(prepared) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(prepared, commit=False) is ErrorCode.INVALID_TXN_STATE
    done = complete(prepared, 6)
    assert done.state is TransactionState.COMPLETE_COMMIT
    assert end(done) is ErrorCode.NONE
    assert end(done, commit=False) is ErrorCode.INVALID_TXN_STATE
    assert end(IDLE) is ErrorCode.INVALID_TXN_STATE
    assert end(OPEN, epoch=1) is ErrorCode.PRODUCER_FENCED
    assert end(None) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_adding_partitions() -> None:
    more = TopicPartition("flights", 1)
    opened = decide_add(IDLE, 1, 0, [FLIGHTS], 5)
    assert isinstance(opened, Transaction)
    assert (opened.state, opened.start_ms) == (TransactionState.ONGOING, 5)
    assert decide_add(opened, 1, 0, [FLIGHTS], 9) is opened, "nothing new, nothing to store"
    grown = decide_add(opened, 1, 0, [more], 9)
    assert isinstance(grown, Transaction)
    assert (grown.partitions, grown.start_ms) == (frozenset({FLIGHTS, more}), 5)
    assert decide_add(opened, 1, 1, [more], 9) is ErrorCode.PRODUCER_FENCED
    assert decide_add(opened, 2, 0, [more], 9) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_only_partitions_of_the_open_transaction_take_transactional_records() -> None:
    assert check_append(OPEN, 1, 0, FLIGHTS) is ErrorCode.NONE
    assert check_append(OPEN, 1, 0, TopicPartition("flights", 1)) is ErrorCode.INVALID_TXN_STATE
    assert check_append(IDLE, 1, 0, FLIGHTS) is ErrorCode.INVALID_TXN_STATE
    assert check_append(OPEN, 1, 1, FLIGHTS) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert check_append(None, 1, 0, FLIGHTS) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_is_aborted_when_its_time_is_over() -> None:
    assert decide_timeout(OPEN, 59_999, 1) is None
    late = decide_timeout(OPEN, 60_000, 1)
    assert late is not None
    assert (late.state, late.producer_epoch) == (TransactionState.PREPARE_ABORT, 1)
    assert decide_timeout(IDLE, 10**12, 1) is None


def test_kafkas_record_format_of_a_transaction() -> None:
    entry = transaction_entry(replace(OPEN, producer_epoch=3, updated_ms=258))
    assert entry.key == b"\x00\x00\x00\x06mirror"
    assert entry.value == (
        b"\x00\x00"  # version
        b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x03\x00\x00\xea\x60\x01"  # producer id, epoch, timeout, Ongoing
        b"\x00\x00\x00\x01\x00\x07flights\x00\x00\x00\x01\x00\x00\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x00\x00\x00\x00"
    )


@given(
    st.builds(
        Transaction,
        st.text(min_size=1, max_size=20),
        st.integers(0, 2**63 - 1),
        st.integers(0, PRODUCER_EPOCH_MAX),
        st.integers(1, 2**31 - 1),
        st.sampled_from([s for s in TransactionState if s is not TransactionState.EMPTY]),
        st.frozensets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 99)), max_size=5),
        st.integers(-1, 2**62),
        st.integers(-1, 2**62),
    )
)
def test_what_is_written_is_read(transaction: Transaction) -> None:
    key, value = transaction_entry(transaction)
    assert value is not None
    assert read_value(read_key(key) or "", value) == transaction


@given(st.lists(st.sampled_from(["init", "claim", "add", "commit", "abort", "complete", "late"]), max_size=40))
def test_at_any_time_one_epoch_owns_the_id(steps: list[str]) -> None:
    """Whatever happens: the epoch never falls under one producer id, and no earlier epoch can end or add."""
    fresh = count(100)
    current: Transaction | None = None
    owners: list[tuple[int, int]] = []
    for step in steps:
        before = current
        owner = owners[-1] if owners else (1, 0)
        decision: ErrorCode | AbortFirst | Transaction | None
        if step in ("init", "claim"):
            named = owner if step == "claim" else (-1, -1)
            decision = decide_init(
                current, replace(ASK, producer_id=named[0], producer_epoch=named[1]), 0, fresh.__next__
            )
            if isinstance(decision, Transaction):
                owners.append((decision.producer_id, decision.producer_epoch))
        elif step == "add":
            decision = decide_add(current, *owner, [FLIGHTS], 0)
        elif step in ("commit", "abort"):
            decision = decide_end(current, *owner, commit=step == "commit", now_ms=0)
        elif current is not None and step == "complete" and current.state.prepared:
            decision = complete(current, 0)
        else:
            decision = decide_timeout(current, 10**9, 0) if current else None
        if isinstance(decision, AbortFirst):
            current = decision.prepared
        elif isinstance(decision, Transaction):
            current = decision
        if current is not None and before is not None and current.producer_id == before.producer_id:
            assert current.producer_epoch >= before.producer_epoch
        for earlier in owners[:-1]:
            if earlier != owners[-1]:
                assert isinstance(decide_add(current, *earlier, [FLIGHTS], 0), ErrorCode)
                assert decide_end(current, *earlier, commit=True, now_ms=0) is not ErrorCode.NONE
