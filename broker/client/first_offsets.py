"""First offsets of groups that are pending: Kafka says so only of partitions that it is asked for by name.

All groups by all partitions are too many to name over a distance: 1,000 by 10,000 are ten million. But what is pending
lies in the topic of committed offsets, in a transaction that is open there, and the group's name says in which
partition. So it is asked first where transactions are open, and by name are asked the groups of these partitions alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.errors import ClientError, KafkaError
from broker.client.fanout import ask_each_group, both, split_failures
from broker.client.limits import GROUPS_PER_REQUEST, NAMED_OFFSETS_PER_REQUEST
from broker.client.offset_fetch import GroupOffsets, fetch_offsets
from broker.client.offsets import list_each_offset
from broker.client.topics import describe_each_topic
from broker.wire.coordinator_keys import OFFSETS_TOPIC, partition_for
from broker.wire.vocabulary import LATEST, NO_LEADER, IsolationLevel, TopicPartition


@dataclass(frozen=True, slots=True)
class OpenOffsets:
    """In which `partitions` of the topic of committed offsets, of so many (`count`; 0: not known), a transaction may be
    open.
    """

    count: int = 0
    partitions: frozenset[int] = frozenset()

    def may_hold(self, group: str) -> bool:
        """Whether an offset of the group may be pending."""
        return not self.count or partition_for(group, self.count) in self.partitions


NOT_KNOWN: Final = OpenOffsets()


async def open_offsets(cluster: Cluster) -> OpenOffsets:
    """What may be open in a transaction that began before this was asked. A partition that does not answer counts as
    such, and all do where the topic may not be described. Raises ClientError where no broker answers.

    To be asked before the offsets themselves: what has ended in between is committed then.
    """
    topics, _ = await describe_each_topic(cluster, [OFFSETS_TOPIC])
    if OFFSETS_TOPIC not in topics:
        return NOT_KNOWN
    parts = topics[OFFSETS_TOPIC].partitions
    led = [TopicPartition(OFFSETS_TOPIC, one.partition) for one in parts if one.leader_id != NO_LEADER]
    wanted = dict.fromkeys(led, LATEST)
    # The end is sent first, and answered first: what is committed meanwhile does not look like something open.
    told_ends, told_stable = await both(
        list_each_offset(cluster, wanted), list_each_offset(cluster, wanted, IsolationLevel.READ_COMMITTED)
    )
    (ends, _), (stable, _) = split_failures(told_ends), split_failures(told_stable)
    closed = {at.partition for at, end in ends.items() if at in stable and stable[at].offset >= end.offset}
    return OpenOffsets(len(parts), frozenset(one.partition for one in parts) - closed)


async def with_first_offsets(
    cluster: Cluster,
    found: Mapping[str, GroupOffsets],
    partitions: Collection[TopicPartition],
    opened: OpenOffsets,
) -> dict[str, GroupOffsets | ClientError]:
    """What `stable_offsets_of_groups` has `found` behind `opened`, of all partitions: with what is pending in these
    where a group had no offset; where a transaction has ended since, the offset that it left.
    """
    asked = sorted(name for name in found if opened.may_hold(name))
    if not asked or not partitions:
        return dict(found)

    async def ask(connection: Connection, share: list[str]) -> dict[str, GroupOffsets | KafkaError]:
        answers: dict[str, GroupOffsets | KafkaError] = {group: found[group] for group in share}
        for named in _slices(sorted(partitions)):
            told = await fetch_offsets(connection, cluster.site.name, share, named, stable=True)
            answers |= {group: _joined(answers[group], each, named) for group, each in told.items()}
        return answers

    return {**found, **await ask_each_group(cluster, asked, ask)}


def _slices(partitions: Sequence[TopicPartition]) -> Iterable[Sequence[TopicPartition]]:
    """So that a request of as many groups as one may have stays small."""
    size = NAMED_OFFSETS_PER_REQUEST // GROUPS_PER_REQUEST
    return (partitions[at : at + size] for at in range(0, len(partitions), size))


def _joined(
    before: GroupOffsets | KafkaError, now: GroupOffsets | KafkaError, named: Iterable[TopicPartition]
) -> GroupOffsets | KafkaError:
    if isinstance(before, KafkaError) or isinstance(now, KafkaError):
        return before if isinstance(before, KafkaError) else now
    return GroupOffsets({**before.offsets, **now.offsets}, before.pending.difference(named) | now.pending)
