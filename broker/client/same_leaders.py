"""All brokers of a cluster knowing of the same partitions and leaders: each is told by itself, one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from broker.base.naming import named
from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError
from broker.client.fanout import ask_each_broker, split_failures
from broker.client.model import ClusterMetadata, read_metadata
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.vocabulary import INTERNAL_PREFIX


class BrokersDiffer(ClientError):
    """Brokers of a site know of fewer partitions than others, or of older leaders."""

    retriable = True

    def __init__(self, site: str, why: str) -> None:
        hint = f"see `farshore cluster verify --site {site}`, then try again"
        super().__init__(f"brokers of {site} do not tell the same: {why}", hint)


class _Log(NamedTuple):
    """Of a partition. A topic of the same name that was made anew has other ones."""

    topic: str
    topic_id: UUID | None
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


_Epochs = Mapping[_Log, int]
"""Of the leaders of logs."""


async def await_same_leaders(cluster: Cluster, selects: Callable[[str], bool]) -> None:
    """Returns when every broker knows of each log that one of them knew of when they were first asked, unless it is
    gone by then, and of the leader that was known then, or a later one. `selects`: the topics that it is about, by
    their names; internal ones never are. Raises BrokersDiffer, and ClientError where a broker does not say.
    """
    retry = cluster.retry()
    wanted: _Epochs | None = None
    while True:
        try:
            told = await _told_by_each(cluster, selects)
            wanted = _newest(told.values()) if wanted is None else wanted
            if not (lacks := _lacks(wanted, told)):
                break
            raise BrokersDiffer(cluster.site.name, lacks)
        except ClientError as error:
            await retry.pause(error)
            await cluster.metadata(())
    cluster.forget_leaders({log.topic for log in wanted})


async def _told_by_each(cluster: Cluster, selects: Callable[[str], bool]) -> dict[int, _Epochs]:
    async def ask(connection: Connection) -> ClusterMetadata:
        return read_metadata(await connection.request(MetadataRequest(None, allow_auto_topic_creation=False)))

    asked = await ask_each_broker(cluster, ask, laggard_ms=cluster.limits.retry_timeout_ms)
    told, failures = split_failures(asked)
    there = {node_id for metadata in told.values() for node_id in metadata.nodes}
    for node_id, failure in failures.items():
        if node_id in there or not told:
            raise failure
    if new := there - asked.keys():
        raise BrokersDiffer(cluster.site.name, f"broker {min(new)} came just now")
    return {node_id: _epochs(metadata, selects) for node_id, metadata in told.items()}


def _epochs(metadata: ClusterMetadata, selects: Callable[[str], bool]) -> _Epochs:
    return {
        _Log(name, topic.topic_id, one.partition): one.leader_epoch
        for name, topic in metadata.topics.items()
        if not name.startswith(INTERNAL_PREFIX) and selects(name)
        for one in topic.partitions
    }


def _newest(told: Iterable[_Epochs]) -> _Epochs:
    newest: dict[_Log, int] = {}
    for epochs in told:
        for log, epoch in epochs.items():
            newest[log] = max(epoch, newest.get(log, epoch))
    return newest


def _lacks(wanted: _Epochs, told: Mapping[int, _Epochs]) -> str:
    """Which brokers tell something else than others, in words; "" where none does. Pure."""
    there = wanted.keys() & _newest(told.values()).keys()
    ids: dict[str, set[UUID | None]] = {}
    for log in there:
        ids.setdefault(log.topic, set()).add(log.topic_id)
    anew = sorted(topic for topic, several in ids.items() if len(several) > 1)
    unknown: dict[str, list[str]] = {}
    for log in sorted((log for log in there if log.topic not in anew), key=str):
        knows = [node_id for node_id, epochs in told.items() if log in epochs]
        if len(knows) < len(told):
            which = f"known to {_brokers(knows)}, and not to {_brokers(told.keys() - set(knows))}"
            unknown.setdefault(which, []).append(str(log))
    found = [f"{named(anew)} was made anew, and some tell of the one before"] if anew else []
    found += [f"{named(logs)} is {which}" for which, logs in unknown.items()]
    for node_id, epochs in sorted(told.items()):
        if behind := sorted(str(log) for log in there & epochs.keys() if epochs[log] < wanted[log]):
            found.append(f"broker {node_id} names a leader of before for {named(behind)}")
    return "; ".join(found)


def _brokers(node_ids: Iterable[int]) -> str:
    return ", ".join(f"broker {node_id}" for node_id in sorted(node_ids))
