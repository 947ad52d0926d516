"""The records of `__consumer_offsets`, in Kafka's own formats, so that Kafka's tools can read the topic.

Keys: version 0 and 1 an offset (group, topic, partition), version 2 a group's metadata. Sources: Kafka's
OffsetCommitKey/Value.json and GroupMetadataKey/Value.json.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from broker.coordination.internal_log import Entry
from broker.groups.membership import GroupMembership
from broker.groups.model import GroupProtocol, Member
from broker.wire.codec import decode_prefixed, encode_prefixed
from broker.wire.errors import MalformedMessage
from broker.wire.schema import Message, Struct, array, bytestring, int32, int64, message, string
from broker.wire.schema import struct as wire_struct
from broker.wire.vocabulary import NO_TIMESTAMP, TopicPartition

OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 3
# The only version that can carry a time of expiry of its own (OffsetCommit v2-4 with retention_time_ms).
OFFSET_VALUE_EXPIRING_VERSION = 1
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3


@message(versions=(0, 1))
class OffsetCommitKey(Message):
    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(versions=(0, 3))
class OffsetCommitValue(Message):
    offset: int = int64()
    leader_epoch: int = int32(default=-1, since=3)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(default=-1, since=1, until=1)


@message(versions=(2, 2))
class GroupMetadataKey(Message):
    group: str = string()


@wire_struct
class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(default=None, since=3, nullable=3)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1)
    session_timeout: int = int32()
    subscription: bytes = bytestring()
    assignment: bytes = bytestring()


@message(versions=(0, 3))
class GroupMetadataValue(Message):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(default=None, nullable=0)
    leader: str | None = string(default=None, nullable=0)
    current_state_timestamp: int = int64(default=-1, since=2)
    members: list[MemberMetadata] = array(MemberMetadata)


class Committed(NamedTuple):
    """A committed offset. `log_offset` is where it stands in `__consumer_offsets`: of two, the later one counts."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    log_offset: int = -1


def offset_entry(group_id: str, where: TopicPartition, committed: Committed | None) -> Entry:
    key = encode_prefixed(OffsetCommitKey(group_id, where.topic, where.partition), OFFSET_KEY_VERSION)
    if committed is None:
        return Entry(key, None)
    value = OffsetCommitValue(
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.commit_timestamp_ms,
        committed.expire_timestamp_ms,
    )
    expires = committed.expire_timestamp_ms != NO_TIMESTAMP
    return Entry(key, encode_prefixed(value, OFFSET_VALUE_EXPIRING_VERSION if expires else OFFSET_VALUE_VERSION))


def group_entry(group: GroupMembership) -> Entry:
    """The group with its members; each with the metadata and assignment of the chosen protocol."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id or None,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.metadata(group.protocol_name),
                m.assignment,
            )
            for m in group.members.values()
        ],
    )
    key = encode_prefixed(GroupMetadataKey(group.group_id), GROUP_KEY_VERSION)
    return Entry(key, encode_prefixed(value, GROUP_VALUE_VERSION))


def group_tombstone(group_id: str) -> Entry:
    return Entry(encode_prefixed(GroupMetadataKey(group_id), GROUP_KEY_VERSION), None)


class OffsetKey(NamedTuple):
    group_id: str
    where: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """None for a key of a version that is not known: newer Kafka coordinators write more of them."""
    if len(key) < 2:
        raise MalformedMessage(f"a key of {key!r} in the offsets topic")
    (version,) = struct.unpack_from(">h", key, 0)
    if version in (0, 1):
        read, _ = decode_prefixed(OffsetCommitKey, key)
        return OffsetKey(read.group, TopicPartition(read.topic, read.partition))
    if version == GROUP_KEY_VERSION:
        return GroupKey(decode_prefixed(GroupMetadataKey, key)[0].group)
    return None


def read_offset(value: bytes, log_offset: int) -> Committed:
    read, _ = decode_prefixed(OffsetCommitValue, value)
    return Committed(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, log_offset
    )


def read_group(value: bytes) -> GroupMetadataValue:
    return decode_prefixed(GroupMetadataValue, value)[0]


def restore_members(value: GroupMetadataValue) -> list[Member]:
    """The members as they were; their sessions begin again."""
    return [
        Member(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.session_timeout,
            m.rebalance_timeout if m.rebalance_timeout >= 0 else m.session_timeout,
            (GroupProtocol(value.protocol or "", m.subscription),),
            session_deadline_ms=0,
            assignment=m.assignment,
        )
        for m in value.members
    ]
