"""From one group protocol to the other while members live (KIP-848, "Upgrade and Downgrade"). Pure.

A member of the consumer protocol that joins a classic group makes it a consumer group, in which the others go on as
they were (`consumer/classic.py`); when the last such member has left, the group is a classic one again.
"""

from __future__ import annotations

from dataclasses import replace

from broker.groups.consumer.classic import IdOf, NameOf, assignment, slots_of
from broker.groups.consumer.model import (
    NOTHING,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    HeartbeatRefused,
    Slots,
    Subscription,
    new_group,
)
from broker.groups.group import Group
from broker.groups.model import NO_LEADER, GroupRules, Member, MigrationPolicy
from broker.groups.subscriptions import CONSUMER_PROTOCOL
from broker.wire.codec import decode_prefixed
from broker.wire.errors import ErrorCode, MalformedMessage
from broker.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from broker.wire.vocabulary import GroupState


def upgraded(group: Group, policy: MigrationPolicy, id_of: IdOf) -> ConsumerGroup:
    """The group as a consumer group at the epoch of its generation, each member with what it may be reading.

    `id_of` knows the topics that exist. Raises HeartbeatRefused.
    """
    if not group.members:
        return new_group(group.group_id)
    if not policy.upgrades:
        raise _not_upgraded(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL:
        raise _not_upgraded(group, "the group does not use the consumer embedded protocol")
    members: dict[str, ConsumerMember] = {}
    taken: Slots = NOTHING
    for each in group.members.values():
        try:
            member = _joined_before(group, each, id_of)
        except MalformedMessage as error:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed") from error
        # Where two say that they read a partition, as an assignor of their own may let them, one of them has it here.
        members[each.member_id] = replace(member, assigned=member.assigned - taken)
        taken |= member.assigned
    target = {id_: member.assigned for id_, member in members.items()}
    generation = group.generation_id
    return ConsumerGroup(group.group_id, generation, generation, members=members, target=target)


def downgraded(group: ConsumerGroup, generation_id: int, rules: GroupRules, name_of: NameOf, now_ms: int) -> Group:
    """The group, all of whose members are classic, as a classic group at that generation.

    It has no leader: a sign, also for who reads it from the log, that its members have to join anew.
    """
    classic = Group(group.group_id, rules)
    classic.generation_id = generation_id
    classic.protocol_type = CONSUMER_PROTOCOL
    classic.restore((_member(each, name_of) for each in group.members.values()), now_ms)
    classic.protocol_name = classic.selected_protocol()
    classic.leader_id = NO_LEADER
    assert classic.state is GroupState.STABLE
    return classic


def _joined_before(group: Group, member: Member, id_of: IdOf) -> ConsumerMember:
    metadata = member.metadata(group.protocol_name) or member.protocols[0].metadata
    said, _ = decode_prefixed(ConsumerProtocolSubscription, metadata)
    # Until it has synced, or where a rebalance threw its assignment away, it has what it brought along.
    assigned = NOTHING if member.assignment and member.synced else slots_of(said.owned_partitions, id_of)
    if member.assignment:
        told, _ = decode_prefixed(ConsumerProtocolAssignment, member.assignment)
        if told.user_data:
            raise _not_upgraded(
                group,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade",
            )
        assigned |= slots_of(told.assigned_partitions, id_of)
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        said.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        Subscription(frozenset(said.topics)),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=assigned,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def _member(member: ConsumerMember, name_of: NameOf) -> Member:
    """With what it may still be reading as its assignment."""
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
        session_deadline_ms=0,
        assignment=assignment(member.held, member, name_of),
    )


def _not_upgraded(group: Group, why: str) -> HeartbeatRefused:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    return HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, text)
