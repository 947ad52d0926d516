"""OffsetFetch as the client asks it: what groups have committed, and where a transaction may change that."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.client.connection import Connection
from broker.client.errors import KafkaError
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.wire.vocabulary import NO_OFFSET, TopicPartition, by_topic

_STABLE_SINCE: Final = 7
_MANY_GROUPS_SINCE: Final = 8


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group's committed offsets. Of the `pending` partitions a transaction that has not ended commits others
    (KIP-447): in `offsets` is what counts until it does, if anything.
    """

    offsets: dict[TopicPartition, CommittedOffset]
    pending: frozenset[TopicPartition] = frozenset()


async def fetch_offsets(
    connection: Connection,
    site: str,
    groups: list[str],
    partitions: Collection[TopicPartition] | None = None,
    *,
    stable: bool,
) -> dict[str, GroupOffsets | KafkaError]:
    """The committed offsets of groups of this coordinator, each alone, in these partitions (None: in all); of what is
    pending none where `stable` is asked for, else what counts until the transaction ends. Kafka before 2.5 cannot say
    what is pending, and no Kafka says it of a partition that it is not asked for by name, and that has none so far.
    """
    version = connection.version(ApiKey.OFFSET_FETCH)
    stable = stable and version >= _STABLE_SINCE
    named = None if partitions is None else by_topic(partitions)
    if version >= _MANY_GROUPS_SINCE:
        newer = None if named is None else [OffsetFetchRequestTopics(*topic) for topic in named.items()]
        asked = [OffsetFetchRequestGroup(group, topics=newer) for group in groups]
        response: OffsetFetchResponse = await connection.request(
            OffsetFetchRequest(groups=asked, require_stable=stable)
        )
        return {g.group_id: _committed(site, g.group_id, g.error_code, g.topics, stable) for g in response.groups}
    older = None if named is None else [OffsetFetchRequestTopic(*topic) for topic in named.items()]
    sent = [await connection.send(OffsetFetchRequest(group, older, require_stable=stable)) for group in groups]
    answers = [await answer for answer in sent]
    return {
        group: _committed(site, group, answer.error_code, answer.topics, stable)
        for group, answer in zip(groups, answers, strict=True)
    }


async def fetch_pending(
    connection: Connection, site: str, groups: Mapping[str, Collection[TopicPartition]]
) -> dict[str, frozenset[TopicPartition] | KafkaError]:
    """Per group of this coordinator which of its offsets in these partitions are pending, or why it does not tell."""
    if connection.version(ApiKey.OFFSET_FETCH) >= _MANY_GROUPS_SINCE:
        response: OffsetFetchResponse = await connection.request(_pending_request(groups))
        return {g.group_id: _pending(site, g.group_id, g.error_code, g.topics) for g in response.groups}
    sent = [await send_pending(connection, group, partitions) for group, partitions in groups.items()]
    return {group: pending_in(site, group, await answer) for group, answer in zip(groups, sent, strict=True)}


async def send_pending(
    connection: Connection, group: str, partitions: Collection[TopicPartition]
) -> Awaitable[OffsetFetchResponse]:
    """Ask which of the group's offsets in these partitions are pending -> the answer to come, for `pending_in`. What is
    sent next on the connection is handled right behind it.
    """
    if connection.version(ApiKey.OFFSET_FETCH) >= _MANY_GROUPS_SINCE:
        return await connection.send(_pending_request({group: partitions}))
    older = [OffsetFetchRequestTopic(*topic) for topic in by_topic(partitions).items()]
    return await connection.send(OffsetFetchRequest(group, older, require_stable=True))


def _pending_request(groups: Mapping[str, Collection[TopicPartition]]) -> OffsetFetchRequest:
    asked = [
        OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(*topic) for topic in by_topic(at).items()])
        for group, at in groups.items()
    ]
    return OffsetFetchRequest(groups=asked, require_stable=True)


def pending_in(site: str, group: str, answer: OffsetFetchResponse) -> frozenset[TopicPartition] | KafkaError:
    """What `send_pending` asked for, or why the group does not tell. Where a partition has another error, nothing is
    known to be pending.
    """
    code = next(filter(None, (answer.error_code, *(one.error_code for one in answer.groups))), 0)
    return _pending(site, group, code, [*answer.topics, *(topic for one in answer.groups for topic in one.topics)])


def _pending(
    site: str,
    group: str,
    error_code: int,
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics],
) -> frozenset[TopicPartition] | KafkaError:
    if error_code:
        return KafkaError(error_code, f"offsets of group {group} at {site}")
    return frozenset(
        TopicPartition(topic.name, p.partition_index)
        for topic in topics
        for p in topic.partitions
        if p.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    )


def _committed(
    site: str,
    group: str,
    error_code: int,
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics],
    stable: bool,
) -> GroupOffsets | KafkaError:
    """A partition's error is the group's: an offset that cannot be read must not look like none."""
    what = f"offsets of group {group} at {site}"
    if error_code:
        return KafkaError(error_code, what)
    found: dict[TopicPartition, CommittedOffset] = {}
    pending = set()
    for topic in topics:
        for p in topic.partitions:
            where = TopicPartition(topic.name, p.partition_index)
            if stable and p.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                pending.add(where)
            elif p.error_code and p.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return KafkaError(p.error_code, f"{what} in {where}")
            elif p.committed_offset != NO_OFFSET and not p.error_code:
                found[where] = CommittedOffset(p.committed_offset, p.metadata or "", p.committed_leader_epoch)
    return GroupOffsets(found, frozenset(pending))
