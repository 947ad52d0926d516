"""Members of the classic protocol in a consumer group (KIP-848's migration): what their requests do to it. Pure.

Such a member is assigned to by the coordinator as all others are, but moves only when it joins: JoinGroup says what it
wants and has, SyncGroup tells it what it may read, Heartbeat when to join again. Its generation is its member epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from broker.groups.consumer.model import (
    JOIN_EPOCH,
    NOTHING,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Slot,
    Slots,
    Subscription,
)
from broker.groups.consumer.reconcile import reconcile
from broker.groups.consumer.records import by_topic
from broker.groups.consumer.steps import Resolve, refresh, renamed, without
from broker.groups.model import NO_MEMBER_ID, JoinAsk, JoinResult, Leaver, SyncAsk, SyncResult
from broker.groups.subscriptions import CONSUMER_PROTOCOL
from broker.wire.codec import decode_prefixed, encode_prefixed
from broker.wire.errors import ErrorCode, MalformedMessage
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

IdOf = Callable[[str], UUID | None]
"""The id of the topic of that name; None where there is none."""
NameOf = Callable[[UUID], str | None]


def join(
    group: ConsumerGroup, ask: JoinAsk, resolve: Resolve, id_of: IdOf, members_max: int
) -> tuple[ConsumerGroup, JoinResult]:
    """`id_of` knows the topics that exist. Nothing has changed where the result has an error.

    Answered at once: the coordinator assigns, so that nobody has to wait for others, and nobody leads.
    """
    error = _refusal(group, ask, members_max)
    if error is not None:
        return group, JoinResult(error, NO_MEMBER_ID)
    if not ask.member_id and ask.instance_id is None and ask.requires_known_member_id:
        return group, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, ask.new_member_id)
    try:
        said, _ = decode_prefixed(ConsumerProtocolSubscription, ask.protocols[0].metadata)
    except MalformedMessage:
        return group, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NO_MEMBER_ID)
    before = _before(group, ask)
    member = _updated(before, ask, said)
    if before is not None and before.member_id != member.member_id:
        group = renamed(group, before.member_id, member)
    changed = before is None or before.subscription != member.subscription
    group = replace(group, members={**group.members, member.member_id: member})
    group = refresh(group, resolve, changed=changed)
    moved = reconcile(group, member, slots_of(said.owned_partitions, id_of))
    group = replace(group, members={**group.members, member.member_id: moved})
    name = ask.protocols[0].name
    return group, JoinResult(ErrorCode.NONE, moved.member_id, moved.epoch, CONSUMER_PROTOCOL, name)


def sync(group: ConsumerGroup, ask: SyncAsk, name_of: NameOf) -> SyncResult:
    """What the member may read, whatever assignments it brings; `name_of` knows the topics that exist."""
    member = _known(group, ask.member_id, ask.instance_id, ask.generation_id)
    if isinstance(member, ErrorCode):
        return SyncResult(member)
    assert member.classic is not None
    protocol = member.classic.protocols[0]
    if ask.protocol_type not in (None, CONSUMER_PROTOCOL) or ask.protocol_name not in (None, protocol.name):
        return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.epoch < group.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncResult(ErrorCode.NONE, CONSUMER_PROTOCOL, protocol.name, assignment(member.assigned, member, name_of))


def heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
    """REBALANCE_IN_PROGRESS where the member comes further by joining: to give up, or to get all that it waits for."""
    member = _known(group, member_id, instance_id, generation_id)
    if isinstance(member, ErrorCode):
        return member
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return ErrorCode.REBALANCE_IN_PROGRESS
    missing = group.target.get(member_id, NOTHING) - member.assigned
    if member.state is MemberState.UNRELEASED_PARTITIONS and not missing & group.held_by_others(member_id):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(group: ConsumerGroup, leavers: Sequence[Leaver]) -> tuple[ConsumerGroup, list[ErrorCode]]:
    """One error code per leaver. A member of either protocol can be removed: by its id, or its instance id alone."""
    after, errors = group, []
    for leaver in leavers:
        member_id = leaver.member_id
        if leaver.instance_id is not None and not member_id:
            holder = after.instance(leaver.instance_id)
            member_id = holder.member_id if holder is not None else NO_MEMBER_ID
        error = _identify(after, member_id, leaver.instance_id)
        if error is None:
            after = without(after, member_id)
        errors.append(error or ErrorCode.NONE)
    return (replace(after, epoch=group.epoch + 1) if after != group else group), errors


def assignment(slots: Slots, member: ConsumerMember, name_of: NameOf) -> bytes:
    """As SyncGroup tells it, in the version that the member speaks; without topics that are gone."""
    assert member.classic is not None
    _, version = decode_prefixed(ConsumerProtocolSubscription, member.classic.protocols[0].metadata)
    named = ((name_of(topic_id), partitions) for topic_id, partitions in by_topic(slots).items())
    topics = [TopicPartition(name, partitions) for name, partitions in named if name is not None]
    newest = ConsumerProtocolAssignment.VERSIONS[1]
    return encode_prefixed(ConsumerProtocolAssignment(topics), min(version, newest))


def slots_of(topics: Iterable[TopicPartition], id_of: IdOf) -> Slots:
    """Of the topics that exist."""
    known = ((id_of(each.topic), each.partitions) for each in topics)
    return frozenset(Slot(topic_id, p) for topic_id, partitions in known if topic_id is not None for p in partitions)


def _refusal(group: ConsumerGroup, ask: JoinAsk, members_max: int) -> ErrorCode | None:
    comes_back = ask.member_id in group.members
    if ask.instance_id is not None:
        holder = group.instance(ask.instance_id)
        comes_back = holder is not None
        if ask.member_id and holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if ask.member_id and holder is not None and holder.member_id != ask.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if not comes_back and len(group.members) >= members_max:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    others = [m.classic for m in group.members.values() if m.classic is not None and m.member_id != ask.member_id]
    common = {p.name for p in ask.protocols}.intersection(*({p.name for p in each.protocols} for each in others))
    return None if ask.protocol_type == CONSUMER_PROTOCOL and common else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _before(group: ConsumerGroup, ask: JoinAsk) -> ConsumerMember | None:
    """The member as it was, or the static one whose place it takes."""
    if ask.instance_id is not None:
        return group.instance(ask.instance_id)
    return group.members.get(ask.member_id)


def _updated(before: ConsumerMember | None, ask: JoinAsk, said: ConsumerProtocolSubscription) -> ConsumerMember:
    member_id = ask.member_id or ask.new_member_id
    subscription = Subscription(frozenset(said.topics))
    classic = ClassicSide(ask.session_timeout_ms, ask.protocols)
    member = ConsumerMember(
        member_id,
        ask.instance_id,
        said.rack_id,
        ask.client_id,
        ask.client_host,
        ask.rebalance_timeout_ms,
        subscription,
        classic=classic,
    )
    if before is None:
        return member
    if before.member_id != member_id:
        # A process that has just begun: it reads nothing yet.
        return replace(member, state=before.state, assigned=before.assigned, epoch=JOIN_EPOCH)
    return replace(
        member,
        epoch=before.epoch,
        previous_epoch=before.previous_epoch,
        state=before.state,
        assigned=before.assigned,
        revoking=before.revoking,
    )


def _known(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember | ErrorCode:
    error = _identify(group, member_id, instance_id)
    if error is not None:
        return error
    member = group.members[member_id]
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if generation_id == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _identify(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """None when the ids belong to one current member."""
    if instance_id is not None:
        holder = group.instance(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
