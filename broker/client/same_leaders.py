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
from broker.wire.coordinator_keys import OFFSETS_TOPIC
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


class _Differences(NamedTuple):
    """What brokers tell otherwise than others: topics that were `anew`, by who knows of them logs that are `unknown` to
    the rest, and by broker logs of which it names a leader of before (`behind`).
    """

    anew: frozenset[str]
    unknown: Mapping[frozenset[int], list[_Log]]
    behind: Mapping[int, list[_Log]]


async def await_same_leaders(cluster: Cluster, selects: Callable[[str], bool]) -> None:
    """Returns when every broker knows of each log that one of them knew of when they were first asked, unless it is
    gone by then, and of the leader that was known then, or a later one. `selects`: the topics that it is about, by
    their names; of internal ones it is about committed offsets alone, whose leaders tell where groups are. Raises
    BrokersDiffer, and ClientError where a broker does not say.
    """
    retry = cluster.retry()
    wanted: _Epochs | None = None
    while True:
        try:
            told = await _told_by_each(cluster, selects)
            wanted = _newest(told.values()) if wanted is None else wanted
            if not any(found := _differences(wanted, told)):
                break
            raise BrokersDiffer(cluster.site.name, _in_words(found, told))
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
        if name == OFFSETS_TOPIC or (not name.startswith(INTERNAL_PREFIX) and selects(name))
        for one in topic.partitions
    }


def _newest(told: Iterable[_Epochs]) -> _Epochs:
    newest: dict[_Log, int] = {}
    for epochs in told:
        for log, epoch in epochs.items():
            newest[log] = max(epoch, newest.get(log, epoch))
    return newest


def _differences(wanted: _Epochs, told: Mapping[int, _Epochs]) -> _Differences:
    """Pure."""
    there = wanted.keys() & _newest(told.values()).keys()
    ids: dict[str, set[UUID | None]] = {}
    for log in there:
        ids.setdefault(log.topic, set()).add(log.topic_id)
    anew = frozenset(topic for topic, several in ids.items() if len(several) > 1)
    unknown: dict[frozenset[int], list[_Log]] = {}
    for log in sorted((log for log in there if log.topic not in anew), key=str):
        knows = frozenset(node_id for node_id, epochs in told.items() if log in epochs)
        if len(knows) < len(told):
            unknown.setdefault(knows, []).append(log)
    behind = {
        node_id: logs
        for node_id, epochs in sorted(told.items())
        if (logs := sorted((log for log in there & epochs.keys() if epochs[log] < wanted[log]), key=str))
    }
    return _Differences(anew, unknown, behind)


def _in_words(found: _Differences, brokers: Iterable[int]) -> str:
    anew = [f"{named(sorted(found.anew))} was made anew, and some tell of the one before"] if found.anew else []
    unknown = [
        f"{_named(logs)} is known to {_brokers(knows)}, and not to {_brokers(set(brokers) - knows)}"
        for knows, logs in found.unknown.items()
    ]
    behind = [f"broker {node_id} names a leader of before for {_named(logs)}" for node_id, logs in found.behind.items()]
    return "; ".join([*anew, *unknown, *behind])


def _named(logs: Iterable[_Log]) -> str:
    return named([str(log) for log in logs])


def _brokers(node_ids: Iterable[int]) -> str:
    return ", ".join(f"broker {node_id}" for node_id in sorted(node_ids))
