"""The broker's error tree. Every error carries the code that Kafka gives for it.

    BrokerError                  any refusal; `error_code` is what goes on the wire
    ├── RecordsRefused           a produced batch the log will not take (broker/log/validation.py): also CorruptRecords,
    │                            RecordsTooLarge, TimestampRefused
    ├── ProducerRefused          idempotence and transactions (broker/log/producers.py): also OutOfOrderSequence,
    │                            InvalidTransactionState, CoordinatorFenced
    ├── OffsetOutOfRange         a read outside [log start, log end]
    ├── LogStorageError          the disk failed; the log was put back to its last good batch
    └── LogDamaged               files that cannot be explained by a crash

The parts of the broker that have more to say (groups, transactions, topics) derive from `BrokerError` in their own
modules. A handler turns a `BrokerError` into `error_code`; anything else closes the connection.
"""

from broker.base.errors import FarshoreError
from broker.wire.errors import ErrorCode


class BrokerError(FarshoreError):
    """A request that is answered with an error code.

    `hint` says what a person can do about it; `retriable` whether the same request may succeed later.
    """

    error_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: bool = False
    hint: str = "see the broker's log"

    def __init__(self, message: str = "", *, error_code: ErrorCode | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        if error_code is not None:
            self.error_code = error_code
            self.retriable = error_code.retriable
        if hint is not None:
            self.hint = hint


class RecordsRefused(BrokerError):
    """A produced batch that breaks a rule of the format or of the topic."""

    error_code = ErrorCode.INVALID_RECORD
    hint = "send one record batch of format v2 per partition, with offsets 0..count-1"
    # Positions in the batch of the records that are at fault, where single ones are (Produce v8+ `record_errors`).
    record_indexes: tuple[int, ...] = ()


class CorruptRecords(RecordsRefused):
    error_code = ErrorCode.CORRUPT_MESSAGE
    retriable = True
    hint = "the bytes changed on their way; send the batch again"


class RecordsTooLarge(RecordsRefused):
    error_code = ErrorCode.MESSAGE_TOO_LARGE
    hint = "send smaller batches or raise max.message.bytes of the topic"


class TimestampRefused(RecordsRefused):
    error_code = ErrorCode.INVALID_TIMESTAMP
    hint = "raise message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic"


class ProducerRefused(BrokerError):
    """A batch or marker that the state kept for its producer id forbids."""

    error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    hint = "close this producer; a newer one with the same transactional id has taken over"


class OutOfOrderSequence(ProducerRefused):
    error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    hint = "a batch before this one is missing; start again with a new producer epoch"


class InvalidTransactionState(ProducerRefused):
    error_code = ErrorCode.INVALID_TXN_STATE
    hint = "end the open transaction first"


class CoordinatorFenced(ProducerRefused):
    error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    hint = "a newer transaction coordinator has written to this partition"


class OffsetOutOfRange(BrokerError):
    error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    hint = "seek to an offset between the log start offset and the log end offset"


class LogStorageError(BrokerError):
    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    retriable = True
    hint = "free or repair the disk under the broker's data directory"


class LogDamaged(BrokerError):
    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "restore the partition's directory, or delete the topic and mirror it again"
