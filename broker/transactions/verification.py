"""May transactional records be appended? The coordinator of the transaction says (KIP-890, part 1).

Records of a transaction that does not know their partition would get no marker, and hide all that follows them from
consumers that read committed records, for ever.
"""

from __future__ import annotations

from broker.coordination.coordinators import Coordinators
from broker.coordination.internal_log import Producer
from broker.transactions.coordinator import TransactionCoordinator
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition


async def verify(
    transactions: Coordinators[TransactionCoordinator], transactional_id: str, producer: Producer, where: TopicPartition
) -> ErrorCode:
    """NONE when the transaction is open and has the partition, and no failover takes that back. Raises BrokerError
    where the coordinator cannot say.
    """
    return await transactions.ask(transactional_id, lambda at: at.check_append(transactional_id, producer, where))
