"""May transactional records be appended? The coordinator of the transaction says (KIP-890, part 1).

Records of a transaction that does not know their partition would get no marker, and hide all that follows them from
consumers that read committed records, for ever.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.client.errors import ClientError
from broker.cluster.lane import Lane
from broker.cluster.peers import Peers
from broker.cluster.view import ClusterView
from broker.coordination.coordinators import Coordinators
from broker.coordination.internal_log import NotCoordinator, Producer
from broker.errors import BrokerError
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.limits import VERIFICATION_TIMEOUT_MS
from broker.wire.errors import ErrorCode, WireError
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from broker.wire.vocabulary import TopicPartition

VERSION: Final = 4
CANNOT_SAY: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Verification:
    """Asks the coordinators of all brokers."""

    def __init__(self, transactions: Coordinators[TransactionCoordinator], view: ClusterView, peers: Peers) -> None:
        self._transactions = transactions
        self._view = view
        self._peers = peers
        self._lanes: dict[int, Lane] = {}

    async def verify(
        self, transactional_id: str, producer: Producer, where: TopicPartition, *, has_begun: bool = False
    ) -> ErrorCode:
        """NONE when the transaction is open and has the partition, and no failover takes that back. `has_begun`: it was
        verified for a record that stands in the partition's log already, where its marker is still to come; another
        broker is not asked again. Raises BrokerError where the coordinator cannot say.
        """
        try:
            return await self._transactions.ask(
                transactional_id, lambda at: at.check_append(transactional_id, producer, where)
            )
        except NotCoordinator:
            leader = await self._coordinator_of(transactional_id)
            if leader is None:
                raise
        return ErrorCode.NONE if has_begun else await self._asked(leader, transactional_id, producer, where)

    async def _coordinator_of(self, transactional_id: str) -> int | None:
        """None: nobody is known to be."""
        index = await self._transactions.partition_for(transactional_id)
        leader = self._view.leader_of(self._transactions.topic.name, index)
        return leader if leader in self._view.brokers else None

    async def _asked(self, leader: int, name: str, producer: Producer, where: TopicPartition) -> ErrorCode:
        lane = self._lanes.get(leader)
        if lane is None:
            lane = self._lanes[leader] = Lane(partial(self._peers.connect, leader), VERIFICATION_TIMEOUT_MS)
        topics = [AddPartitionsToTxnTopic(where.topic, [where.partition])]
        asked = AddPartitionsToTxnTransaction(name, *producer, verify_only=True, topics=topics)
        try:
            response: AddPartitionsToTxnResponse = await lane.ask(
                AddPartitionsToTxnRequest(transactions=[asked]), VERSION
            )
        except (ClientError, WireError) as error:
            raise BrokerError(
                f"broker {leader}, which coordinates {name}, does not answer: {error}",
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                hint="ask again",
            ) from error
        code = _code_of(response)
        if code in CANNOT_SAY:
            raise BrokerError(f"broker {leader} cannot say whether {name} has {where}: {code.name}", error_code=code)
        return code

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()


def _code_of(response: AddPartitionsToTxnResponse) -> ErrorCode:
    """To the one question that was asked."""
    codes = [
        one.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
    ]
    return ErrorCode.of(response.error_code or (codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR))
