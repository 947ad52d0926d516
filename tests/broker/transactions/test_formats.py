"""The records of `__transaction_state`: what was written is read, and what others wrote is left to them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.transactions.formats import KEY_VERSION, read_key, read_value, tombstone, transaction_entry
from broker.transactions.model import Transaction, TransactionState
from broker.wire.errors import MalformedMessage
from broker.wire.vocabulary import TopicPartition

IDS = st.text(max_size=300)
TIMES = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 2**31 - 1)), max_size=8)


@given(
    st.builds(
        Transaction,
        IDS,
        st.integers(-1, 2**63 - 1),
        st.integers(-1, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
        PARTITIONS,
        TIMES,
        TIMES,
        st.integers(-1, 2**15 - 1),
        st.integers(0, 2**63 - 1),
    )
)
@example(Transaction("link", 7, 3, 60_000, TransactionState.EMPTY, previous_producer_id=6, previous_epoch=2))
@example(Transaction("x" * 256, 1, 0, 60_000, TransactionState.ONGOING))
@example(Transaction("link", 7, 3, 60_000, TransactionState.EMPTY, updated_ms=5))
def test_what_was_written_is_read(transaction: Transaction) -> None:
    entry = transaction_entry(transaction)
    assert read_key(entry.key) == transaction.transactional_id
    assert entry.value is not None
    assert read_value(transaction.transactional_id, entry.value) == transaction
    gone = tombstone(transaction.transactional_id)
    assert (gone.key, gone.value) == (entry.key, None)


def test_the_bytes_are_those_of_kafkas_schemas() -> None:
    partitions = frozenset({TopicPartition("t", 2), TopicPartition("t", 1)})
    entry = transaction_entry(Transaction("id", 1, 2, 3, TransactionState.PREPARE_ABORT, partitions, 4, 5))
    assert entry.key == b"\x00\x00" + b"\x00\x02id"
    assert entry.value == (
        b"\x00\x00" + struct.pack(">qhib", 1, 2, 3, 3) + b"\x00\x00\x00\x01\x00\x01t"
        b"\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02" + struct.pack(">qq", 4, 5)
    )
    empty = transaction_entry(Transaction("id", 1, 2, 3, TransactionState.EMPTY, frozenset(), 4, 5)).value
    assert empty == b"\x00\x00" + struct.pack(">qhib", 1, 2, 3, 0) + b"\xff\xff\xff\xff" + struct.pack(">qq", 4, 5)


def test_what_kafka_does_not_keep_stands_in_tagged_fields_of_version_1() -> None:
    entry = transaction_entry(Transaction("id", 7, 0, 3, updated_ms=4, previous_producer_id=6, previous_epoch=2))
    assert entry.value == (
        b"\x00\x01"
        + struct.pack(">qhib", 7, 0, 3, 0)
        + b"\x00"
        + struct.pack(">qq", 4, -1)
        # two tagged fields: 10,000 of eight bytes, 10,001 of two
        + b"\x02"
        + b"\x90\x4e\x08"
        + struct.pack(">q", 6)
        + b"\x91\x4e\x02"
        + struct.pack(">h", 2)
    )


@given(st.integers(-(2**15), 2**15 - 1).filter(lambda version: version != KEY_VERSION), st.binary(max_size=6))
@example(256, b"\x00\x02id")
def test_keys_of_other_versions_are_left_to_others(version: int, rest: bytes) -> None:
    assert read_key(struct.pack(">h", version) + rest) is None


def test_what_is_no_record_of_a_transaction_is_named() -> None:
    for key in (b"", b"\x00"):
        with pytest.raises(MalformedMessage, match=r"a key of .* in the transactions topic"):
            read_key(key)
    entry = transaction_entry(Transaction("id", 1, 2, 3))
    assert entry.value is not None
    of_no_state = bytearray(entry.value)
    of_no_state[16] = 99
    with pytest.raises(MalformedMessage, match="'id' is in state 99, which is not known"):
        read_value("id", bytes(of_no_state))
