"""Groups with their members, of whatever protocol: as their coordinators describe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.wire.codec import decode
from broker.wire.errors import WireError
from broker.wire.messages import consumer_group_describe, share_group_describe, streams_group_describe
from broker.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from broker.wire.messages.describe_groups import DescribedGroup
from broker.wire.vocabulary import GroupState, TopicPartition

SHARE_TYPE: Final = "share"
"""Of the groups of KIP-932: they commit no offsets."""

STREAMS_TYPE: Final = "streams"
"""Of those of KIP-1071: Kafka Streams' own protocol."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and what it is assigned (empty when its assignment is not a consumer's)."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None
    assignment: tuple[TopicPartition, ...]
    subscribed: tuple[str, ...] = ()
    """Topics that it reads, whatever it is assigned: told of share groups, and of Kafka Streams' own."""


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """A group with its members."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


def described_classic(group: DescribedGroup) -> DescribedConsumerGroup:
    is_consumer = group.protocol_type == "consumer"
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.group_instance_id,
            _assignment(member.member_assignment) if is_consumer else (),
        )
        for member in group.members
    )
    return DescribedConsumerGroup(
        group.group_id, state_of(group.group_state), group.protocol_type, group.protocol_data, members
    )


def described_newer(group: consumer_group_describe.DescribedConsumerGroup) -> DescribedConsumerGroup:
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            _partitions(member.assignment),
        )
        for member in group.members
    )
    return DescribedConsumerGroup(group.group_id, state_of(group.group_state), "consumer", group.assignor_name, members)


def described_shared(group: share_group_describe.DescribedShareGroup) -> DescribedConsumerGroup:
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            None,
            _partitions(member.assignment),
            tuple(member.subscribed_topic_names),
        )
        for member in group.members
    )
    return DescribedConsumerGroup(group.group_id, state_of(group.group_state), SHARE_TYPE, group.assignor_name, members)


def described_streams(group: streams_group_describe.DescribedStreamsGroup) -> DescribedConsumerGroup:
    """Of its members what the whole application reads is told: what of that is whose, its tasks alone say."""
    topology = group.topology.subtopologies if group.topology is not None else None
    topics = sorted({topic for part in topology or () for topic in part.source_topics})
    members = tuple(
        GroupMember(member.member_id, member.client_id, member.client_host, member.instance_id, (), tuple(topics))
        for member in group.members
    )
    return DescribedConsumerGroup(group.group_id, state_of(group.group_state), STREAMS_TYPE, "", members)


def _partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """A member's partitions; empty for bytes that are no consumer assignment (a client may put anything there)."""
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.VERSIONS[1])
    try:
        assignment, _ = decode(ConsumerProtocolAssignment, version, data, 2)
    except WireError:
        return ()
    return tuple(TopicPartition(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions)


def state_of(text: str) -> GroupState:
    return _STATES.get(text, GroupState.UNKNOWN)


NOWHERE: Final = (GroupState.DEAD, GroupState.UNKNOWN)
_STATES = {state.value: state for state in GroupState}
