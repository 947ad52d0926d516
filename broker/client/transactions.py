"""What a cluster says of transactions (KIP-664): where one is open, whose it is, and how its coordinator has it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_coordinator, ask_each_broker, ask_each_leader
from broker.client.producers import ProducerIdAndEpoch, raise_error
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.vocabulary import TopicPartition, by_topic

UNTOLD = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class TransactionInLog(NamedTuple):
    """As a partition's leader knows it: who writes it, and the offset of its first record there."""

    producer_id: int
    first_offset: int


async def first_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, TransactionInLog | ClientError | None]:
    """Of each partition the open transaction that began first, None where there is none.

    Each stands alone; before Kafka 2.8 the error is UNSUPPORTED_VERSION. Raises ClientError when no broker answers.
    """

    async def ask(
        connection: Connection, share: Mapping[TopicPartition, None]
    ) -> dict[TopicPartition, TransactionInLog | ErrorCode | None]:
        if not connection.supports(ApiKey.DESCRIBE_PRODUCERS):
            return dict.fromkeys(share, ErrorCode.UNSUPPORTED_VERSION)
        topics = [TopicRequest(name, indexes) for name, indexes in by_topic(share).items()]
        found: dict[TopicPartition, TransactionInLog | ErrorCode | None] = {}
        for topic in (await connection.request(DescribeProducersRequest(topics))).topics:
            for there in topic.partitions:
                begun = [
                    TransactionInLog(state.producer_id, state.current_txn_start_offset)
                    for state in there.active_producers
                    if state.current_txn_start_offset >= 0
                ]
                first = min(begun, key=lambda one: one.first_offset, default=None)
                answer = ErrorCode.of(there.error_code) if there.error_code else first
                found[TopicPartition(topic.name, there.partition_index)] = answer
        return found

    wanted: dict[TopicPartition, None] = dict.fromkeys(partitions)
    return await ask_each_leader(cluster, f"open transactions at {cluster.site.name}", wanted, ask)


async def transactional_ids(cluster: Cluster, producer_ids: Collection[int]) -> dict[int, str]:
    """By producer id the transactional id that has it; without those that no coordinator names, or that nobody of
    farshore's rights is told of.

    Raises ClientError where a broker does not say (before Kafka 3.0 with UNSUPPORTED_VERSION): it may name the others.
    """
    request = ListTransactionsRequest(producer_id_filters=sorted(producer_ids))

    async def ask(connection: Connection) -> dict[int, str]:
        what = f"the transactions of {cluster.site.name}"
        if not connection.supports(ApiKey.LIST_TRANSACTIONS):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, what)
        answer = await connection.request(request)
        raise_error(answer.error_code, what)
        return {state.producer_id: state.transactional_id for state in answer.transaction_states}

    found: dict[int, str] = {}
    for said in (await ask_each_broker(cluster, ask)).values():
        if isinstance(said, ClientError):
            raise said
        found |= said
    return found


class DescribedTransaction(NamedTuple):
    """As its coordinator has it: `state` in Kafka's own words. Of one that is being ended `partitions` are those whose
    marker nobody has acknowledged yet. `started_at_ms` is by the coordinator's clock.
    """

    state: str
    started_at_ms: int
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]

    @property
    def is_ending(self) -> bool:
        return self.state.startswith("Prepare")

    @property
    def is_open(self) -> bool:
        """Its end is not decided, or its markers are still being written."""
        return self.is_ending or self.state == "Ongoing"


async def describe_transaction(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """The last transaction of this id. Raises ClientError, UNSUPPORTED_VERSION before Kafka 3.0."""
    request = DescribeTransactionsRequest([transactional_id])
    what = f"the transaction of {transactional_id} at {cluster.site.name}"

    async def ask(connection: Connection) -> DescribedTransaction:
        if not connection.supports(ApiKey.DESCRIBE_TRANSACTIONS):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, what)
        (found,) = (await connection.request(request)).transaction_states
        raise_error(found.error_code, what)
        return DescribedTransaction(
            found.transaction_state,
            found.transaction_start_time_ms,
            ProducerIdAndEpoch(found.producer_id, found.producer_epoch),
            frozenset(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions),
        )

    return await ask_coordinator(cluster, "transaction", transactional_id, ask)


async def open_transaction(cluster: Cluster, transactional_id: str) -> DescribedTransaction | None:
    """The transaction of this id that is open or is being ended; None where it has none, or the cluster does not say
    (Kafka before 3.0, or no right to ask). Raises ClientError.
    """
    try:
        found = await describe_transaction(cluster, transactional_id)
    except KafkaError as error:
        if error.code in UNTOLD:
            return None
        raise
    return found if found.is_open else None
