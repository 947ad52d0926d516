"""The records of consumer groups in `__consumer_offsets`, in Kafka's own formats (KIP-848).

A key's version says what it is. Not written: the topics' metadata (key 4, gone again in Kafka 4.1) and resolved
regular expressions (key 16); both are looked at anew after a start.
"""

from __future__ import annotations

import struct
import uuid as uuids
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker.coordination.internal_log import Entry
from broker.groups.consumer.model import (
    NOTHING,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Slot,
    Slots,
    Subscription,
)
from broker.groups.model import GroupProtocol
from broker.wire.codec import decode_prefixed, encode_prefixed
from broker.wire.schema import (
    Kind,
    Message,
    Struct,
    array,
    bytestring,
    int8,
    int32,
    message,
    nested_nullable,
    string,
    uuid,
)
from broker.wire.schema import struct as wire_struct

GROUP_KEY: Final = 3
MEMBER_KEY: Final = 5
TARGET_KEY: Final = 6
TARGET_MEMBER_KEY: Final = 7
CURRENT_KEY: Final = 8
KEY_VERSIONS: Final = frozenset({GROUP_KEY, MEMBER_KEY, TARGET_KEY, TARGET_MEMBER_KEY, CURRENT_KEY})
_VALUE_VERSION: Final = 0


@message(versions=(GROUP_KEY, TARGET_KEY))
class OfGroupKey(Message):
    group_id: str = string()


@message(versions=(MEMBER_KEY, CURRENT_KEY))
class OfMemberKey(Message):
    group_id: str = string()
    member_id: str = string()


@message(versions=(0, 0), flexible=0)
class GroupValue(Message):
    epoch: int = int32()


@wire_struct
class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = bytestring()


@wire_struct
class ClassicMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


@message(versions=(0, 0), flexible=0)
class MemberValue(Message):
    instance_id: str | None = string(default=None, nullable=0)
    rack_id: str | None = string(default=None, nullable=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(Kind.STRING)
    subscribed_topic_regex: str | None = string(default=None, nullable=0)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(default=None, nullable=0)
    classic: ClassicMetadata | None = nested_nullable(ClassicMetadata, tag=0)


@message(versions=(0, 0), flexible=0)
class TargetValue(Message):
    assignment_epoch: int = int32()


@wire_struct
class TopicPartitions(Struct):
    topic_id: uuids.UUID = uuid()
    partitions: list[int] = array(Kind.INT32)


@message(versions=(0, 0), flexible=0)
class TargetMemberValue(Message):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(versions=(0, 0), flexible=0)
class CurrentValue(Message):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


def by_topic(slots: Slots) -> dict[uuids.UUID, list[int]]:
    """Sorted partitions per topic id."""
    topics: dict[uuids.UUID, list[int]] = {}
    for slot in sorted(slots):
        topics.setdefault(slot.topic_id, []).append(slot.partition)
    return topics


def _packed(slots: Slots) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id, partitions) for topic_id, partitions in by_topic(slots).items()]


def _unpacked(topics: list[TopicPartitions]) -> Slots:
    return frozenset(Slot(topic.topic_id, partition) for topic in topics for partition in topic.partitions)


def changes(before: ConsumerGroup, after: ConsumerGroup) -> list[Entry]:
    """What must be written so that the log says `after` where it said `before`; empty when nothing differs."""
    entries = [*_member_changes(before, after), *_target_changes(before, after)]
    if before.epoch != after.epoch:
        entries.append(_of_group(GROUP_KEY, after.group_id, GroupValue(after.epoch)))
    return entries


def removal(group: ConsumerGroup) -> list[Entry]:
    """Tombstones for all that the log may hold of a group."""
    gone = changes(group, replace(group, members={}, target={}))
    return [*gone, _of_group(TARGET_KEY, group.group_id, None), _of_group(GROUP_KEY, group.group_id, None)]


def _member_changes(before: ConsumerGroup, after: ConsumerGroup) -> Iterator[Entry]:
    group_id = after.group_id
    for member_id in before.members.keys() - after.members.keys():
        yield _of_member(CURRENT_KEY, group_id, member_id, None)
        yield _of_member(MEMBER_KEY, group_id, member_id, None)
    for member_id, member in after.members.items():
        was = before.members.get(member_id)
        if was is None or _metadata(was) != _metadata(member):
            yield _of_member(MEMBER_KEY, group_id, member_id, _metadata(member))
        if was is None or _current(was) != _current(member):
            yield _of_member(CURRENT_KEY, group_id, member_id, _current(member))


def _target_changes(before: ConsumerGroup, after: ConsumerGroup) -> Iterator[Entry]:
    for member_id in before.target.keys() - after.target.keys():
        yield _of_member(TARGET_MEMBER_KEY, after.group_id, member_id, None)
    for member_id, slots in after.target.items():
        if before.target.get(member_id) != slots:
            yield _of_member(TARGET_MEMBER_KEY, after.group_id, member_id, TargetMemberValue(_packed(slots)))
    if before.target_epoch != after.target_epoch:
        yield _of_group(TARGET_KEY, after.group_id, TargetValue(after.target_epoch))


def _metadata(member: ConsumerMember) -> MemberValue:
    return MemberValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        sorted(member.subscription.names),
        member.subscription.regex,
        member.rebalance_timeout_ms,
        member.subscription.assignor,
        _classic_metadata(member.classic),
    )


def _classic_metadata(classic: ClassicSide | None) -> ClassicMetadata | None:
    if classic is None:
        return None
    return ClassicMetadata(
        classic.session_timeout_ms, [ClassicProtocol(name, metadata) for name, metadata in classic.protocols]
    )


def _current(member: ConsumerMember) -> CurrentValue:
    return CurrentValue(
        member.epoch, member.previous_epoch, member.state, _packed(member.assigned), _packed(member.revoking)
    )


def _of_group(kind: int, group_id: str, value: Message | None) -> Entry:
    return Entry(encode_prefixed(OfGroupKey(group_id), kind), _value(value))


def _of_member(kind: int, group_id: str, member_id: str, value: Message | None) -> Entry:
    return Entry(encode_prefixed(OfMemberKey(group_id, member_id), kind), _value(value))


def _value(value: Message | None) -> bytes | None:
    return None if value is None else encode_prefixed(value, _VALUE_VERSION)


@dataclass(slots=True)
class _Read:
    """The newest values of one group while its records are read."""

    values: dict[int, Message] = field(default_factory=dict)
    members: dict[int, dict[str, Message]] = field(default_factory=dict)


class GroupReader:
    """Folds the records of the log into groups; records must come in their order."""

    def __init__(self) -> None:
        self._groups: dict[str, _Read] = {}

    def take(self, key: bytes, value: bytes | None) -> bool:
        """Whether the record is one of a consumer group. Raises MalformedMessage."""
        if len(key) < 2:
            return False
        (kind,) = struct.unpack_from(">h", key, 0)
        if kind not in KEY_VERSIONS:
            return False
        cls = _VALUES[kind]
        read = None if value is None else decode_prefixed(cls, value)[0]
        if kind in (GROUP_KEY, TARGET_KEY):
            group_id = decode_prefixed(OfGroupKey, key)[0].group_id
            _put(self._groups.setdefault(group_id, _Read()).values, kind, read)
        else:
            found = decode_prefixed(OfMemberKey, key)[0]
            group = self._groups.setdefault(found.group_id, _Read())
            _put(group.members.setdefault(kind, {}), found.member_id, read)
        return True

    def groups(self) -> Iterator[ConsumerGroup]:
        """Those that were not removed."""
        for group_id, read in self._groups.items():
            if GROUP_KEY in read.values:
                yield _restored(group_id, read)


def _put(where: dict[Any, Message], key: int | str, value: Message | None) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value


_VALUES: Final[Mapping[int, type[Message]]] = {
    GROUP_KEY: GroupValue,
    MEMBER_KEY: MemberValue,
    TARGET_KEY: TargetValue,
    TARGET_MEMBER_KEY: TargetMemberValue,
    CURRENT_KEY: CurrentValue,
}


def _restored(group_id: str, read: _Read) -> ConsumerGroup:
    epoch, target = read.values[GROUP_KEY], read.values.get(TARGET_KEY, TargetValue())
    assert isinstance(epoch, GroupValue)
    assert isinstance(target, TargetValue)
    members = {}
    for member_id, value in read.members.get(MEMBER_KEY, {}).items():
        current = read.members.get(CURRENT_KEY, {}).get(member_id)
        assert isinstance(value, MemberValue)
        assert isinstance(current, CurrentValue | None)
        members[member_id] = _member(member_id, value, current)
    targets = {}
    for member_id, slots in read.members.get(TARGET_MEMBER_KEY, {}).items():
        assert isinstance(slots, TargetMemberValue)
        targets[member_id] = _unpacked(slots.topic_partitions)
    return ConsumerGroup(group_id, epoch.epoch, target.assignment_epoch, "", members, targets)


def _member(member_id: str, value: MemberValue, current: CurrentValue | None) -> ConsumerMember:
    return ConsumerMember(
        member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        Subscription(frozenset(value.subscribed_topic_names), value.subscribed_topic_regex, value.server_assignor),
        epoch=current.member_epoch if current else 0,
        previous_epoch=current.previous_member_epoch if current else -1,
        state=_state(current.state) if current else MemberState.STABLE,
        assigned=_unpacked(current.assigned_partitions) if current else NOTHING,
        revoking=_unpacked(current.partitions_pending_revocation) if current else NOTHING,
        classic=_classic(value.classic),
    )


def _classic(value: ClassicMetadata | None) -> ClassicSide | None:
    if value is None:
        return None
    return ClassicSide(
        value.session_timeout_ms, tuple(GroupProtocol(each.name, each.metadata) for each in value.supported_protocols)
    )


def _state(number: int) -> MemberState:
    """One that is not known, of a newer coordinator, as a member that still has to find its place."""
    return MemberState(number) if number in tuple(MemberState) else MemberState.UNRELEASED_PARTITIONS
