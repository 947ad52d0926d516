"""The topic of the operations' journals, at the target of each: finding it, and making it where nobody has before."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from broker.client.cluster import Cluster
from broker.client.durable_topics import make_durable_topics
from broker.client.errors import KafkaError
from broker.client.fanout import both
from broker.client.model import Topic
from broker.client.topics import NewTopic, describe_topics
from broker.wire.vocabulary import TopicPartition
from mirror.api import check_compacted

OPERATIONS_TOPIC: Final = "__farshore-operations"
WHERE: Final = TopicPartition(OPERATIONS_TOPIC, 0)
_CONFIGS: Final = {"cleanup.policy": "compact"}


async def journal_topic(target: Cluster) -> Topic | None:
    """None where there never was an operation. Raises ClientError."""
    return (await describe_topics(target, [OPERATIONS_TOPIC])).get(OPERATIONS_TOPIC)


async def is_journal_there(target: Cluster) -> bool:
    """Raises ClientError, also where retention would delete an operation's first entries, and the chain with them."""
    topic, _ = await both(journal_topic(target), _check_topic(target))
    return topic is not None


async def make_journal(target: Cluster, *, is_there: bool) -> None:
    """Unless it `is_there`, or somebody else has made it by now. Raises ClientError."""
    if is_there:
        return
    await make_durable_topics(target, [NewTopic(OPERATIONS_TOPIC, 1, configs=_CONFIGS)])


async def _check_topic(target: Cluster) -> None:
    with suppress(KafkaError):  # who may not look at its configs may still move away from a lost site
        await check_compacted(target, {OPERATIONS_TOPIC: "the journals of operations"})
