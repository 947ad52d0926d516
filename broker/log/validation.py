"""What a batch must be before the log takes it. Pure; the rules are those of Kafka's LogValidator, so that a client is
refused here what a Kafka broker would refuse it.

A batch stays closed: what is looked at is its header, its CRC and its framing (broker/wire/framing.py). It is opened in
three rare cases, where a rule is about single records: a compacted topic (every record needs a key), a finite
`message.timestamp.before.max.ms`, and a batch marked LogAppendTime sent to a CreateTime topic, whose largest creation
time is then needed. With `record_validation = "full"` the Produce handler opens every one (`check_records`), as a Kafka
broker does: docs/performance.md says what that costs. How much is looked at is bounded (`OpeningLimits`).
"""

from collections.abc import Iterable
from enum import Enum
from itertools import islice

from broker.errors import CorruptRecords, RecordsRefused, RecordsTooLarge, TimestampRefused
from broker.limits import RECORD_ERRORS_MAX
from broker.log.config import FOREVER, LogConfig
from broker.log.stored import MOST, stored_records
from broker.wire.batch import LOG_APPEND_TIME_MASK, MAGIC, MAGIC_OFFSET, BatchHeader, pack_header, peek, verify_crc
from broker.wire.errors import BatchBeyondLimits, CorruptBatch, ErrorCode
from broker.wire.framing import check_framing
from broker.wire.records import OpeningLimits, Record, decode_records
from broker.wire.vocabulary import NO_TIMESTAMP


class AppendOrigin(Enum):
    """Who appends: a client through Produce, or one of the broker's own coordinators (offsets, transaction state,
    markers).
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"


def check_batch(
    batch: memoryview, config: LogConfig, origin: AppendOrigin, now_ms: int, limits: OpeningLimits = MOST
) -> BatchHeader:
    """The header of `batch`, once nothing speaks against appending it.

    Raises RecordsRefused (and its kinds), and BatchBeyondLimits with nothing changed. May change `batch` in place: a
    LogAppendTime mark is taken off for a CreateTime topic.
    """
    header = _whole_batch(batch)
    if header.size_bytes > config.max_message_bytes:
        raise RecordsTooLarge(f"batch of {header.size_bytes} bytes, max.message.bytes is {config.max_message_bytes}")
    try:
        verify_crc(batch)
    except CorruptBatch as error:
        raise CorruptRecords(str(error)) from error
    if origin is AppendOrigin.COORDINATOR:
        return header
    _check_header(header)
    try:
        check_framing(batch, header, limits.max_bytes)
    except BatchBeyondLimits:
        raise
    except CorruptBatch as error:
        raise RecordsRefused(str(error)) from error
    if config.log_append_time:
        if header.is_log_append_time:
            refused = TimestampRefused("a producer may not mark its batch as LogAppendTime")
            refused.record_indexes = _first(range(header.record_count))
            raise refused
    else:
        if header.is_log_append_time:
            header = _as_create_time(batch, header, limits)
        _check_timestamps(batch, header, config, now_ms, limits)
    if config.compacted:
        _check_keys(batch, limits)
    return header


def check_records(batch: memoryview, limits: OpeningLimits = MOST) -> None:
    """Opens the batch: everything that Kafka's broker would find wrong in its records. Raises RecordsRefused (and its
    kinds), BatchBeyondLimits.
    """
    header = _whole_batch(batch)
    try:
        verify_crc(batch)
    except CorruptBatch as error:
        raise CorruptRecords(str(error)) from error
    try:
        records = stored_records(batch, limits)
    except BatchBeyondLimits:
        raise
    except CorruptBatch as error:
        raise RecordsRefused(str(error)) from error
    late = [index for index, record in enumerate(records) if record.timestamp > header.max_timestamp]
    if late:
        refused = TimestampRefused(
            f"{len(late)} records are later than {header.max_timestamp}, the batch's largest time"
        )
        refused.record_indexes = _first(late)
        refused.hint = "set the batch's max timestamp to that of its latest record"
        raise refused


def _whole_batch(batch: memoryview) -> BatchHeader:
    """The header of the one batch that the bytes are."""
    if len(batch) > MAGIC_OFFSET and batch[MAGIC_OFFSET] < MAGIC:
        raise RecordsRefused(f"record format v{batch[MAGIC_OFFSET]} is not supported, only v{MAGIC}")
    if len(batch) == 0:
        raise RecordsRefused("no record batch for the partition")
    try:
        header = peek(batch)
    except CorruptBatch as error:
        raise CorruptRecords(str(error)) from error
    if header.size_bytes != len(batch):
        raise RecordsRefused(f"{len(batch) - header.size_bytes} bytes follow the batch: send one batch per partition")
    return header


def _check_header(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise RecordsRefused(
            f"batch of {header.record_count} records whose last offset delta is {header.last_offset_delta}"
        )
    if header.base_offset != 0:
        raise RecordsRefused(f"the base offset of a produced batch is 0, not {header.base_offset}")
    if header.is_control:
        raise RecordsRefused("clients may not write control batches")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise RecordsRefused(
                f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
            )
    elif header.is_transactional:
        raise RecordsRefused("a transactional batch without a producer id")
    try:
        _ = header.compression
    except CorruptBatch as error:
        raise RecordsRefused(str(error), error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) from error


def _check_timestamps(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, limits: OpeningLimits
) -> None:
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest_ms:
        refused = TimestampRefused(f"timestamp {header.max_timestamp} is after {latest_ms}, the latest allowed now")
        refused.record_indexes = _first(
            i for i, record in enumerate(_open(batch, limits)) if record.timestamp > latest_ms
        )
        raise refused
    if config.message_timestamp_before_max_ms == FOREVER:
        return
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    wrong = [
        index
        for index, record in enumerate(_open(batch, limits))
        if record.timestamp != NO_TIMESTAMP and record.timestamp < earliest_ms
    ]
    if wrong:
        refused = TimestampRefused(f"{len(wrong)} records are older than {earliest_ms}, the earliest allowed now")
        refused.record_indexes = _first(wrong)
        raise refused


def _check_keys(batch: memoryview, limits: OpeningLimits) -> None:
    wrong = [index for index, record in enumerate(_open(batch, limits)) if record.key is None]
    if wrong:
        refused = RecordsRefused(f"{len(wrong)} records without a key, and the topic is compacted")
        refused.record_indexes = _first(wrong)
        refused.hint = "give every record a key, or take `compact` off the topic's cleanup.policy"
        raise refused


def _as_create_time(batch: memoryview, header: BatchHeader, limits: OpeningLimits) -> BatchHeader:
    """Takes the LogAppendTime mark off, as Kafka does: the records' own creation times count again."""
    unmarked = header._replace(attributes=header.attributes & ~LOG_APPEND_TIME_MASK)
    pack_header(batch, unmarked)
    try:
        latest_ms = max(record.timestamp for record in _open(batch, limits))
    except BatchBeyondLimits:
        # It is looked at again within other limits: as it came.
        pack_header(batch, header)
        raise
    pack_header(batch, unmarked._replace(max_timestamp=latest_ms))
    return peek(batch)


def _first(indexes: Iterable[int]) -> tuple[int, ...]:
    """Of a batch with a million wrong records the first ones say enough."""
    return tuple(islice(indexes, RECORD_ERRORS_MAX))


def _open(batch: memoryview, limits: OpeningLimits) -> list[Record]:
    try:
        return decode_records(batch, limits)
    except BatchBeyondLimits:
        raise
    except CorruptBatch as error:
        # The CRC is right, so the producer made it so: sending it again would not help.
        raise RecordsRefused(str(error)) from error
