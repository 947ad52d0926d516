"""Taking a link over: after the fence, no earlier writer of the link can write, and its successor can.

InitProducerId with the link's transactional id raises the epoch; an aborted transaction over all partitions carries the
new epoch into each of them, by its marker (which takes one offset there); a second InitProducerId succeeds only when
all those markers are written, and gives the epoch to write with, from sequence 0. Only what is read after that is
final. Works on Apache Kafka from 2.8 and on farshore's broker; plain idempotent batches may be sent with this id.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.client.cluster import Cluster
from broker.client.errors import KafkaError
from broker.client.producers import add_partitions_to_txn, end_txn, init_producer_id
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced
from mirror.link import Link
from mirror.offsets.entries import Writer
from mirror.offsets.state import writable_partitions
from mirror.offsets.state_writer import FENCED_CODES


async def fence_link(target: Cluster, link: Link, partitions: Iterable[TopicPartition] | None = None) -> Writer:
    """Fence the link's earlier writers in `partitions` of the target and in the state topic, and become its writer.

    Without `partitions`: all of the target's partitions that the link could write to. The state topic must exist.
    Raises LinkFenced when somebody else takes the link over at the same time, and ClientError.
    """
    if partitions is None:
        partitions = await writable_partitions(target, link)
    everywhere = [TopicPartition(link.state_topic, 0), *partitions]
    transactional_id = link.transactional_id
    try:
        producer = await init_producer_id(target, transactional_id)
        await add_partitions_to_txn(target, transactional_id, producer, everywhere)
        await end_txn(target, transactional_id, producer, commit=False)
        return Writer(*await init_producer_id(target, transactional_id))
    except KafkaError as error:
        if error.code in FENCED_CODES:
            raise LinkFenced(f"link {link.name} was taken over by another owner while it was starting") from error
        raise
