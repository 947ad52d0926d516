"""The records of `__transaction_state`, in Kafka's own format (TransactionLogKey.json, TransactionLogValue.json).

What id and epoch a producer named that asked for the next one goes in Kafka with its coordinator, and the next one
fences the repeat. Here two tagged fields of our own keep it, until no repeat is due any more.
"""

from __future__ import annotations

import struct

from broker.coordination.internal_log import Entry
from broker.transactions.model import Transaction, TransactionState
from broker.wire.codec import decode_prefixed, encode_prefixed
from broker.wire.errors import MalformedMessage
from broker.wire.messages.own_fields import OWN_TAG
from broker.wire.schema import Kind, Message, Struct, array, int8, int16, int32, int64, message, string
from broker.wire.schema import struct as wire_struct
from broker.wire.vocabulary import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition, by_topic

KEY_VERSION = 0
VALUE_VERSION = 0
# Kafka 3.5 and later, and every farshore broker, read version 1 too, and read over tagged fields that they do not know.
VALUE_VERSION_WITH_TAGS = 1


@message(versions=(0, 0))
class TransactionLogKey(Message):
    transactional_id: str = string()


@wire_struct
class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(Kind.INT32)


@message(versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable=0)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    previous_producer_id: int = int64(default=NO_PRODUCER_ID, since=1, tag=OWN_TAG)
    previous_epoch: int = int16(default=NO_PRODUCER_EPOCH, since=1, tag=OWN_TAG + 1)


def transaction_entry(transaction: Transaction) -> Entry:
    topics = by_topic(sorted(transaction.partitions))
    empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state.value,
        None if empty else [PartitionsSchema(topic, ids) for topic, ids in topics.items()],
        transaction.updated_ms,
        transaction.start_ms,
        transaction.previous_producer_id,
        transaction.previous_epoch,
    )
    asked_on = transaction.previous_producer_id != NO_PRODUCER_ID
    version = VALUE_VERSION_WITH_TAGS if asked_on else VALUE_VERSION
    return Entry(_key(transaction.transactional_id), encode_prefixed(value, version))


def tombstone(transactional_id: str) -> Entry:
    return Entry(_key(transactional_id), None)


def _key(transactional_id: str) -> bytes:
    return encode_prefixed(TransactionLogKey(transactional_id), KEY_VERSION)


def read_key(key: bytes) -> str | None:
    """The transactional id; None for a key of a version that is not known."""
    if len(key) < 2:
        raise MalformedMessage(f"a key of {key!r} in the transactions topic")
    (version,) = struct.unpack_from(">h", key, 0)
    return decode_prefixed(TransactionLogKey, key)[0].transactional_id if version == KEY_VERSION else None


def read_value(transactional_id: str, value: bytes) -> Transaction:
    read, _ = decode_prefixed(TransactionLogValue, value)
    try:
        state = TransactionState(read.transaction_status)
    except ValueError as error:
        raise MalformedMessage(
            f"transactional id {transactional_id!r} is in state {read.transaction_status}, which is not known"
        ) from error
    return Transaction(
        transactional_id,
        read.producer_id,
        read.producer_epoch,
        read.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in read.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        read.transaction_last_update_timestamp_ms,
        read.transaction_start_timestamp_ms,
        previous_epoch=read.previous_epoch,
        previous_producer_id=read.previous_producer_id,
    )
