"""Produce, v0-13 advertised, v3-13 served: append one batch to each partition named.

Older versions (magic 0 and 1) are advertised all the same, because older librdkafka switches compression off where
Produce does not begin at 0 (KAFKA-18659); using them closes the connection. v3 transactional id; v7 zstd (before:
UNSUPPORTED_COMPRESSION_TYPE); v8 errors of single records (KIP-467); v12 is v11, as no feature is advertised that would
give it another meaning (KIP-890); v13 topics by their ids (KIP-516). acks=0 has no answer: an error closes the
connection, which makes the client look the leader up again. acks=1 is answered when all batches are in the log,
acks=all when all replicas in sync have them, each partition's by itself.

While the site is not active, records of clients are refused (NOT_ENOUGH_REPLICAS, docs/adr/0020-a-sites-role.md).

The batch's bytes go from the frame to the log as they are; only a topic whose compression.type names another codec
than the batch has is decoded and encoded again, as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, NamedTuple

from broker.access.authorizer import NotAuthorized, Rights
from broker.broker import Broker
from broker.config import FULL
from broker.coordination.internal_log import Producer
from broker.errors import BrokerError, CorruptRecords, RecordsRefused, RecordsTooLarge
from broker.handlers.handler import CloseConnection, Handler, RequestContext, Unfinished, in_turns
from broker.limits import BYTES_PER_TURN
from broker.log.validation import check_records
from broker.topics.errors import NotLeading, RequestTimedOut, UnknownTopic
from broker.topics.partition import Partition, Topic
from broker.transactions.markers import MarkerGuard
from broker.wire.api import ApiKey
from broker.wire.batch import (
    ATTRIBUTES_OFFSET,
    BATCH_LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    TRANSACTIONAL_MASK,
    BatchHeader,
    peek,
    verify_crc,
)
from broker.wire.compression import Compression
from broker.wire.errors import BatchBeyondLimits, CorruptBatch, ErrorCode
from broker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from broker.wire.records import OpeningLimits, decode_records, encode_batch
from broker.wire.vocabulary import ALL_REPLICAS, AclOperation, AclResource, TopicPartition

ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13
_KEPT_AS_IT_COMES = "producer"
_UNGUARDED: Final = nullcontext(MarkerGuard())


class _Appended(NamedTuple):
    """A batch that is in the log: `end_offset` follows it."""

    partition: Partition
    leader_epoch: int
    end_offset: int
    answer: PartitionProduceResponse


async def handle(broker: Broker, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    begun = await begin(broker, request, context)
    if isinstance(begun, Unfinished):
        response: ProduceResponse = await begun.wait()
        return response
    return begun


async def begin(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Unfinished | None:
    """Everything but the wait for replicas. Raises CloseConnection."""
    responses: list[TopicProduceResponse] = []
    appended: list[_Appended] = []
    failed = ErrorCode.NONE
    for data in request.topic_data:
        answers = []
        async for item in in_turns(data.partition_data):
            found = await _produce(broker, request, data, item, context)
            if isinstance(found, _Appended):
                appended.append(found)
                found = found.answer
            answers.append(found)
        failed = next((ErrorCode.of(p.error_code) for p in answers if p.error_code), failed)
        responses.append(TopicProduceResponse(data.name, answers, data.topic_id))
    if request.acks == 0:
        if failed:
            raise CloseConnection(f"a produce request with acks=0 failed: {failed.name}")
        return None
    if request.acks == ALL_REPLICAS and not _are_replicated(appended):
        deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
        return Unfinished(partial(_replicated, responses, appended, deadline))
    return ProduceResponse(responses)


def _are_replicated(appended: list[_Appended]) -> bool:
    """As they are at once where nobody follows; False where that cannot be known any more."""
    try:
        return all(batch.partition.is_replicated(batch.end_offset, batch.leader_epoch) for batch in appended)
    except BrokerError:
        return False


async def _replicated(
    responses: list[TopicProduceResponse], appended: list[_Appended], deadline: float
) -> ProduceResponse:
    """All batches of the request share the time; what keeps one from being acknowledged is said of that one."""
    for batch in appended:
        try:
            if batch.partition.is_replicated(batch.end_offset, batch.leader_epoch):
                continue
            left_ms = max(0.0, deadline - asyncio.get_running_loop().time()) * 1000
            await batch.partition.wait_replicated(batch.end_offset, left_ms, batch.leader_epoch)
        except BrokerError as error:
            batch.answer.error_code, batch.answer.error_message = _code_after_append(error), str(error)
    return ProduceResponse(responses)


def _code_after_append(error: BrokerError) -> ErrorCode:
    """None that says that the batch was not kept, as Kafka's NOT_LEADER_OR_FOLLOWER does: another leader may have it.

    librdkafka would give its sequence to other records, where the transaction is aborted before the batch is sent
    again, and those would pass for its repeat (seed 227 of the brokers' chaos runs: two acknowledged records lost).
    """
    is_known = isinstance(error, RequestTimedOut)
    return ErrorCode.REQUEST_TIMED_OUT if is_known else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def _produce(
    broker: Broker,
    request: ProduceRequest,
    named: TopicProduceData,
    data: PartitionProduceData,
    context: RequestContext,
) -> PartitionProduceResponse | _Appended:
    log_start_offset = -1
    try:
        by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
        topic = broker.view.require_by_id(named.topic_id).name if by_id else named.name
        if context.rights.is_limited:
            _check_rights(context.rights, topic, data, request.transactional_id)
        partition = broker.require_partition(topic, data.index)
        _check_acks(request.acks, partition, broker.topics[topic])
        records = _batch(data)
        if broker.config.record_validation == FULL:
            await broker.openings.run(partial(check_records, records))
        if partition.log.config.compression_type != _KEPT_AS_IT_COMES or context.api_version < ZSTD_SINCE_VERSION:
            configs = broker.topics[topic].state.configs
            wanted = partition.log.config.compression_type
            records = await broker.openings.run(partial(_with_codec, records, wanted, configs, context))
        header = _peek(records)
        leading = partition.leading
        with _guard(broker, partition, header) as guard:
            if header.is_transactional:
                await _check_transaction(broker, request, partition, header)
            log_start_offset = partition.log.log_start_offset
            checked = await broker.openings.run(partial(partition.log.check, records))
            if len(records) > BYTES_PER_TURN:
                await asyncio.sleep(0)
            if broker.require_partition(topic, data.index) is not partition:
                # Deleted while its batch was looked at, and made anew.
                raise UnknownTopic(f"The partition {topic}-{data.index} is another one now.")
            if header.is_transactional and partition.leading is not leading:
                # The transaction may have been ended at another leader, of which the guard hears nothing.
                raise NotLeading(f"{topic}-{data.index} was led by another broker while its batch was looked at")
            if guard.ended:
                raise _not_in_transaction(header, partition, ErrorCode.INVALID_TXN_STATE)
            # A transaction that has records here already is let come to its end.
            if not (header.is_transactional and _has_begun(partition, header)):
                broker.broker_configs.check_writable(context.client_id, partition.topic)
            if context.rights.is_limited:
                # Again: who was told meanwhile that this client may not write here sees nothing more of it.
                context.rights.require(AclOperation.WRITE, AclResource.TOPIC, topic)
            result = partition.log.append(records, leader_epoch=partition.leader_epoch, checked=checked)
    except BrokerError as error:
        return PartitionProduceResponse(
            data.index,
            error.error_code,
            base_offset=-1,
            log_start_offset=-1 if isinstance(error, RecordsTooLarge | CorruptRecords) else log_start_offset,
            record_errors=_record_errors(error),
            error_message=str(error) or None,
        )
    answer = PartitionProduceResponse(
        data.index, ErrorCode.NONE, result.base_offset, result.log_append_time_ms, result.log_start_offset
    )
    return _Appended(partition, partition.leader_epoch, result.last_offset + 1, answer)


def _check_rights(rights: Rights, topic: str, data: PartitionProduceData, transactional_id: str | None) -> None:
    """Raises NotAuthorized."""
    records = data.records
    attributes_at = ATTRIBUTES_OFFSET + 1
    if isinstance(records, memoryview) and len(records) > attributes_at and records[attributes_at] & TRANSACTIONAL_MASK:
        if transactional_id is None:
            raise NotAuthorized(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        rights.require(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)
    rights.require(AclOperation.WRITE, AclResource.TOPIC, topic)


def _check_acks(acks: int, partition: Partition, topic: Topic) -> None:
    if acks not in (ALL_REPLICAS, 0, 1):
        raise RecordsRefused(f"acks is {acks}", error_code=ErrorCode.INVALID_REQUIRED_ACKS, hint="use acks 0, 1 or all")
    if topic.is_internal:
        raise RecordsRefused(
            f"{topic.name} is written by its coordinator only",
            error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            hint="commit offsets or end transactions through the protocol",
        )
    if acks == ALL_REPLICAS:
        partition.check_may_append()


def _batch(data: PartitionProduceData) -> memoryview:
    records = data.records
    if not isinstance(records, memoryview) or not _is_whole(records):
        raise RecordsRefused(f"partition {data.index} came with something else than one whole record batch")
    if len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] < MAGIC:
        raise RecordsRefused(f"record format v{records[MAGIC_OFFSET]} is not supported, only v{MAGIC}")
    return records


def _is_whole(records: memoryview) -> bool:
    """As far as its length says; a length that no batch has is for those who look into it."""
    announced_bytes = int.from_bytes(records[BATCH_LENGTH_OFFSET:LOG_OVERHEAD], "big", signed=True)
    return len(records) >= LOG_OVERHEAD and (announced_bytes <= 0 or len(records) == LOG_OVERHEAD + announced_bytes)


def _with_codec(
    records: memoryview, wanted: str, configs: Mapping[str, str], context: RequestContext, limits: OpeningLimits
) -> memoryview:
    """The batch in the `wanted` codec. Raises CorruptRecords, RecordsRefused, BatchBeyondLimits."""
    try:
        header = peek(records)
        if header.compression is Compression.ZSTD and context.api_version < ZSTD_SINCE_VERSION:
            raise RecordsRefused(
                "zstd needs Produce v7", error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, hint="use a newer client"
            )
        codec = Compression.NONE if wanted == "uncompressed" else Compression.__members__.get(wanted.upper())
        if codec is None or codec is header.compression or header.is_control or header.size_bytes != len(records):
            return records
        verify_crc(records)
        decoded = decode_records(records, limits)
    except BatchBeyondLimits:
        raise
    except CorruptBatch as error:
        raise CorruptRecords(str(error)) from error
    if len(decoded) != header.last_offset_delta + 1:
        raise RecordsRefused(f"the batch has {len(decoded)} records and last offset delta {header.last_offset_delta}")
    level = configs.get(f"compression.{wanted}.level")
    return memoryview(
        encode_batch(
            decoded,
            compression=codec,
            level=None if level is None or level == "-1" else int(level),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )


async def _check_transaction(
    broker: Broker, request: ProduceRequest, partition: Partition, header: BatchHeader
) -> None:
    """Transactional records need an open transaction that knows this partition; else they would never be ended."""
    if request.transactional_id is None:
        raise RecordsRefused(
            "a transactional batch without a transactional id",
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            hint="send the producer's transactional.id with the request",
        )
    producer, where = (
        Producer(header.producer_id, header.producer_epoch),
        TopicPartition(partition.topic, partition.index),
    )
    try:
        has_begun = _has_begun(partition, header)
        code = await broker.verification.verify(request.transactional_id, producer, where, has_begun=has_begun)
    except BrokerError as error:
        # Of all that may be the matter with the coordinator, this is what a producer tries again for.
        raise RecordsRefused(str(error), error_code=ErrorCode.NOT_ENOUGH_REPLICAS, hint=error.hint) from error
    if code:
        raise _not_in_transaction(header, partition, code)


def _has_begun(partition: Partition, header: BatchHeader) -> bool:
    """Whether the batch's transaction has records in this partition already."""
    known = partition.log.producer(header.producer_id)
    return known is not None and known.in_transaction and known.producer_epoch == header.producer_epoch


def _not_in_transaction(header: BatchHeader, partition: Partition, code: ErrorCode) -> RecordsRefused:
    return RecordsRefused(
        f"producer {header.producer_id} may not write transactional records to {partition.topic}-{partition.index}",
        error_code=code,
        hint="add the partition to the transaction first",
    )


def _guard(broker: Broker, partition: Partition, header: BatchHeader) -> AbstractContextManager[MarkerGuard]:
    """Its transaction may end while its batch is looked at."""
    if not header.is_transactional:
        return _UNGUARDED
    return broker.markers.guard(TopicPartition(partition.topic, partition.index), header.producer_id)


def _peek(records: memoryview) -> BatchHeader:
    try:
        return peek(records)
    except CorruptBatch as error:
        raise CorruptRecords(str(error)) from error


def _record_errors(error: BrokerError) -> list[BatchIndexAndErrorMessage]:
    indexes = error.record_indexes if isinstance(error, RecordsRefused) else ()
    return [BatchIndexAndErrorMessage(index, str(error)) for index in indexes]


HANDLER = Handler(api=ApiKey.PRODUCE, versions=(0, 13), handle=handle, begin=begin)
