"""All brokers of a cluster knowing of the same partitions and leaders: each is told by itself, one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.fanout import ask_brokers_there, await_every_broker, split_failures
from broker.client.model import read_metadata
from broker.wire.messages.metadata import MetadataRequest

PARTITIONS_NAMED = 5
"""In an error."""


class BrokersDiffer(ClientError):
    """Brokers of a site know of other partitions, or of older leaders, than the site's others."""

    retriable = True
    hint = "see `farshore cluster verify`, then try again"


class _Log(NamedTuple):
    """A topic of the same name that was made anew has other ones."""

    topic: str
    topic_id: UUID | None
    partition: int


async def await_same_leaders(cluster: Cluster, selects: Callable[[str], bool]) -> None:
    """Returns when every broker knows of each partition that one of them knows of, and of its newest leader. `selects`:
    the topics that it is about, by their names. Raises BrokersDiffer.
    """
    lacked: list[str] = []

    async def epochs_at(node_id: int) -> dict[_Log, int]:
        connection = await cluster.connection(node_id)
        told = read_metadata(await connection.request(MetadataRequest(None, allow_auto_topic_creation=False)))
        return {
            _Log(name, topic.topic_id, one.partition): one.leader_epoch
            for name, topic in told.topics.items()
            if selects(name)
            for one in topic.partitions
        }

    async def ask() -> dict[int, frozenset[_Log] | ClientError]:
        asked = await ask_brokers_there(cluster, epochs_at, cluster.limits.retry_timeout_ms)
        told, failures = split_failures(asked)
        newest = _newest(told.values())
        lacks = {node: frozenset(log for log in newest if newest[log] > at.get(log, -2)) for node, at in told.items()}
        lacked[:] = sorted({f"{log.topic}:{log.partition}" for logs in lacks.values() for log in logs})
        return {**lacks, **failures}

    def differ(why: str) -> BrokersDiffer:
        named = ", ".join(lacked[:PARTITIONS_NAMED]) + (" and others" if len(lacked) > PARTITIONS_NAMED else "")
        of = f" (of {named})" if named else ""
        return BrokersDiffer(f"brokers of {cluster.site.name} do not know who leads its partitions{of}: {why}")

    await await_every_broker(cluster, ask, lambda lacks: not lacks, differ)


def _newest(told: Iterable[Mapping[_Log, int]]) -> dict[_Log, int]:
    newest: dict[_Log, int] = {}
    for epochs in told:
        for log, epoch in epochs.items():
            newest[log] = max(epoch, newest.get(log, epoch))
    return newest
