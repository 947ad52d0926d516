"""Producer ids and the transactions that fence them.

Only versions below transactions v2 (KIP-890 part 2) are spoken: AddPartitionsToTxn up to 3, EndTxn up to 4, Produce
up to 11. So the epoch changes only where InitProducerId or an abort marker changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_any_broker, ask_coordinator, ask_each_leader
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.vocabulary import TopicPartition, by_topic

PARTITION_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Answers to AddPartitionsToTxn that speak of a partition, also where they are given for all that were asked for."""


class ProducerIdAndEpoch(NamedTuple):
    """Who writes, and in which life."""

    producer_id: int
    producer_epoch: int


class ConcurrentTransaction(KafkaError):
    """The coordinator still finishes the transaction before: nothing is wrong, ask again."""

    retriable = True

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.CONCURRENT_TRANSACTIONS, what)
        self.retriable = True


async def init_producer_id(
    cluster: Cluster,
    transactional_id: str | None = None,
    current: ProducerIdAndEpoch | None = None,
    *,
    transaction_timeout_ms: int = 60_000,
    patience_ms: int | None = None,
) -> ProducerIdAndEpoch:
    """A producer id; with a transactional id the next epoch of that id, which fences its last owner.

    Waits while an earlier transaction of the id is being finished, so its return proves that the markers of that are
    written. `current`: the caller must still be that producer (KIP-360; brokers before 2.5 do not look). What fails is
    tried again for `patience_ms` (None: the client's own). Raises ClientError; for a caller that was overtaken
    KafkaError with PRODUCER_FENCED or INVALID_PRODUCER_EPOCH.
    """
    request = InitProducerIdRequest(transactional_id, transaction_timeout_ms, *(current or ()))
    what = f"producer id for {transactional_id} at {cluster.site.name}"

    async def ask(connection: Connection) -> ProducerIdAndEpoch:
        response = await connection.request(request)
        raise_error(response.error_code, what)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    if transactional_id is not None:
        return await ask_coordinator(cluster, "transaction", transactional_id, ask, patience_ms=patience_ms)
    return await ask_any_broker(cluster, ask)


async def add_partitions_to_txn(
    cluster: Cluster, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """Begin the transaction, if it has not begun, and add partitions to it -> those that are refused, and why.

    Kafka adds all or none; so the others are asked for again without those. Raises ClientError for what refuses the
    transaction as a whole.
    """
    wanted = list(partitions)
    refused: dict[TopicPartition, KafkaError] = {}
    retry = cluster.retry(cluster.limits.unknown_topic_timeout_ms)
    while wanted:
        failures = await _add_partitions(cluster, transactional_id, producer, wanted)
        if not failures:
            break
        final = {where: error for where, error in failures.items() if not error.retriable}
        if not final:  # the coordinator may not know a young topic yet
            try:
                await retry.pause(next(iter(failures.values())))
                continue
            except KafkaError:
                final = failures
        refused |= final
        wanted = [where for where in wanted if where not in refused]
    return refused


async def _add_partitions(
    cluster: Cluster, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """All of them, or none -> those because of which it is none."""
    asked = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic(partitions).items()]
    request = AddPartitionsToTxnRequest(transactional_id, producer.producer_id, producer.producer_epoch, asked)

    async def ask(connection: Connection) -> dict[TopicPartition, KafkaError]:
        response = await connection.request(request)
        codes = {
            TopicPartition(topic.name, result.partition_index): result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
            if result.partition_error_code
        }
        whats = {where: f"{transactional_id}: adding {where} at {cluster.site.name}" for where in codes}
        # Where some partitions are refused, the others say OPERATION_NOT_ATTEMPTED; else all have the same error.
        refused = {where: code for where, code in codes.items() if code != ErrorCode.OPERATION_NOT_ATTEMPTED}
        if len(refused) == len(codes):
            for where, code in refused.items():
                if code not in PARTITION_CODES:
                    raise_error(code, whats[where])
        return {where: KafkaError(code, whats[where]) for where, code in refused.items()}

    return await ask_coordinator(cluster, "transaction", transactional_id, ask)


async def end_txn(
    cluster: Cluster,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool,
    patience_ms: int | None = None,
) -> None:
    """Commit or abort. It returns when that is decided; the markers are written after it. Raises ClientError.

    Asked once more in the same way it returns when all markers are written. What fails is tried again for `patience_ms`
    (None: the client's own).
    """
    request = EndTxnRequest(transactional_id, producer.producer_id, producer.producer_epoch, commit)

    async def ask(connection: Connection) -> None:
        response = await connection.request(request)
        raise_error(response.error_code, f"{transactional_id}: ending its transaction at {cluster.site.name}")

    await ask_coordinator(cluster, "transaction", transactional_id, ask, patience_ms=patience_ms)


async def next_sequences(
    cluster: Cluster, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | ClientError]:
    """Per partition the sequence that its leader expects next of this producer (KIP-664), 0 where it knows none.

    Each stands alone; before Kafka 2.8 the error is UNSUPPORTED_VERSION. Raises ClientError when no broker answers.
    """

    async def ask(
        connection: Connection, share: Mapping[TopicPartition, None]
    ) -> dict[TopicPartition, int | ErrorCode]:
        if not connection.supports(ApiKey.DESCRIBE_PRODUCERS):
            return dict.fromkeys(share, ErrorCode.UNSUPPORTED_VERSION)
        topics = [TopicRequest(name, indexes) for name, indexes in by_topic(share).items()]
        response = await connection.request(DescribeProducersRequest(topics))
        found: dict[TopicPartition, int | ErrorCode] = {}
        for topic in response.topics:
            for there in topic.partitions:
                known = {(state.producer_id, state.producer_epoch): state for state in there.active_producers}
                last = known[producer].last_sequence if producer in known else -1
                answer = ErrorCode.of(there.error_code) if there.error_code else (last + 1) & 0x7FFFFFFF
                found[TopicPartition(topic.name, there.partition_index)] = answer
        return found

    wanted: dict[TopicPartition, None] = dict.fromkeys(partitions)
    what = f"the sequence of producer {producer.producer_id} at {cluster.site.name}"
    return await ask_each_leader(cluster, what, wanted, ask)


def raise_error(code: int, what: str) -> None:
    """Raise KafkaError for an error code in a coordinator's answer about a transaction."""
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        raise ConcurrentTransaction(what)
    if code:
        raise KafkaError(code, what)
