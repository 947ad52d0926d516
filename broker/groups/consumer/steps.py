"""What a heartbeat, a departure and a change of topics do to a group: (group, what happened) -> the new group. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from broker.coordination.host import TopicShape
from broker.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from broker.groups.consumer.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    HeartbeatAsk,
    HeartbeatRefused,
    HeartbeatResult,
    Subscription,
)
from broker.groups.consumer.reconcile import reconcile
from broker.wire.errors import ErrorCode

Resolve = Callable[[ConsumerMember], Mapping[str, TopicShape]]
"""The topics that exist and that a subscription means."""


def heartbeat(
    group: ConsumerGroup, ask: HeartbeatAsk, resolve: Resolve, members_max: int, *, look: bool = True
) -> tuple[ConsumerGroup, HeartbeatResult]:
    """Of an `ask` that `check` found in order. `look`: whether the topics are looked at even where no member changed.

    Raises HeartbeatRefused; then nothing has.

    A static member that comes back under the id of another member ends that one: its client is one and the same.
    """
    if ask.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        return _leave(group, ask)
    before = _find(group, ask, members_max)
    member = _updated(before, ask)
    if before is not None and before.member_id != member.member_id:
        if member.member_id in group.members:
            group = without(group, member.member_id)
        group = renamed(group, before.member_id, member)
    joins = before is None or before.subscription != member.subscription
    group = replace(group, members={**group.members, member.member_id: member})
    if joins or look or group.epoch > group.target_epoch:
        group = refresh(group, resolve, changed=joins)
    moved = reconcile(group, member, ask.owned)
    if moved != member:
        group = replace(group, members={**group.members, member.member_id: moved})
    told = before.assigned if before is not None else NOTHING
    tells = ask.member_epoch == JOIN_EPOCH or ask.is_full or moved.assigned != told
    return group, HeartbeatResult(moved.member_id, moved.epoch, moved.assigned if tells else None)


def refresh(group: ConsumerGroup, resolve: Resolve, *, changed: bool = False) -> ConsumerGroup:
    """A new epoch where members or topics changed, and a new target where the epoch asks for one."""
    wants = {member.member_id: resolve(member) for member in group.members.values()}
    shapes = {name: shape for topics in wants.values() for name, shape in topics.items()}
    if shapes != group.shapes or changed:
        group = replace(group, epoch=group.epoch + 1, shapes=shapes)
    if group.epoch == group.target_epoch:
        return group
    assignor = _assignor(group)
    target = ASSIGNORS[assignor](wants, group.target)
    return replace(group, target=target, target_epoch=group.epoch, assignor=assignor)


def without(group: ConsumerGroup, member_id: str) -> ConsumerGroup:
    """The member is gone; the others get its partitions with their next heartbeats."""
    members = {id_: member for id_, member in group.members.items() if id_ != member_id}
    target = {id_: slots for id_, slots in group.target.items() if id_ != member_id}
    return replace(group, epoch=group.epoch + 1, members=members, target=target)


def check_epoch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """May a commit, or a fetch of offsets, be done in this member's name? From outside only while nobody is in."""
    if not member_id and epoch < 0:
        return ErrorCode.NONE if not group.members else ErrorCode.UNKNOWN_MEMBER_ID
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def check(ask: HeartbeatAsk) -> None:
    """Whatever the group is. Raises HeartbeatRefused."""
    if not ask.member_id:
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if ask.member_epoch < STATIC_LEAVE_EPOCH:
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if ask.member_epoch == STATIC_LEAVE_EPOCH and not ask.instance_id:
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    if ask.instance_id == "":
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "InstanceId can't be empty.")
    if ask.rack_id == "":
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "RackId can't be empty.")
    if ask.assignor is not None and ask.assignor not in ASSIGNORS:
        raise HeartbeatRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {ask.assignor} is not supported. Supported assignors: {', '.join(sorted(ASSIGNORS))}.",
        )
    if ask.member_epoch != JOIN_EPOCH:
        return
    if ask.rebalance_timeout_ms < 0:
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if ask.owned is None or ask.owned:
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if not ask.names and not ask.regex:
        raise HeartbeatRefused(
            ErrorCode.INVALID_REQUEST, "SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
        )


def _find(group: ConsumerGroup, ask: HeartbeatAsk, members_max: int) -> ConsumerMember | None:
    """The member as it was; for one that joins as a static instance, the member whose place it takes."""
    if ask.member_epoch == JOIN_EPOCH:
        found = group.members.get(ask.member_id)
        if ask.instance_id is not None:
            holder = group.instance(ask.instance_id)
            if holder is not None and holder.member_id != ask.member_id:
                if holder.epoch != STATIC_LEAVE_EPOCH and holder.classic is None:
                    raise HeartbeatRefused(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {ask.member_id} with instance id {ask.instance_id} cannot join the group "
                        "because the instance id is owned by another member.",
                    )
                return holder
        if found is None and len(group.members) >= members_max:
            raise HeartbeatRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum of {members_max} members.",
            )
        return found
    member = _known(group, ask)
    if ask.member_epoch == member.epoch:
        return member
    retried = ask.member_epoch == member.previous_epoch and ask.owned is not None and ask.owned <= member.assigned
    if not retried:
        word = "smaller" if ask.member_epoch < member.epoch else "larger"
        raise HeartbeatRefused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {word} member epoch ({ask.member_epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    return member


def _known(group: ConsumerGroup, ask: HeartbeatAsk) -> ConsumerMember:
    if ask.instance_id is not None:
        holder = group.instance(ask.instance_id)
        if holder is None:
            raise HeartbeatRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {ask.instance_id} is unknown.")
        if holder.member_id != ask.member_id:
            raise HeartbeatRefused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {ask.member_id} with instance id {ask.instance_id} was fenced by member "
                f"{holder.member_id}.",
            )
    member = group.members.get(ask.member_id)
    if member is None:
        raise HeartbeatRefused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {ask.member_id} is not a member of group {group.group_id}."
        )
    return member


def _updated(before: ConsumerMember | None, ask: HeartbeatAsk) -> ConsumerMember:
    """With what the request says anew. Who joins again has nothing: it must not read on what it had."""
    # Who joins says everything: what the process before it wanted, in the same static instance, is not its wish.
    said = Subscription() if before is None or ask.member_epoch == JOIN_EPOCH else before.subscription
    subscription = Subscription(
        names=said.names if ask.names is None else frozenset(ask.names),
        regex=said.regex if ask.regex is None else ask.regex or None,
        assignor=said.assignor if ask.assignor is None else ask.assignor,
    )
    if before is None:
        return ConsumerMember(
            ask.member_id,
            ask.instance_id,
            ask.rack_id,
            ask.client_id,
            ask.client_host,
            ask.rebalance_timeout_ms,
            subscription,
        )
    member = replace(
        before,
        member_id=ask.member_id,
        rack_id=before.rack_id if ask.rack_id is None else ask.rack_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if ask.rebalance_timeout_ms < 0 else ask.rebalance_timeout_ms,
        subscription=subscription,
        classic=None,
    )
    if ask.member_epoch != JOIN_EPOCH:
        return member
    return replace(member, instance_id=ask.instance_id, epoch=JOIN_EPOCH, previous_epoch=-1, revoking=NOTHING)


def renamed(group: ConsumerGroup, old_id: str, member: ConsumerMember) -> ConsumerGroup:
    """A static member that came back under a new id keeps its target."""
    members = {id_: each for id_, each in group.members.items() if id_ != old_id}
    target = {member.member_id if id_ == old_id else id_: slots for id_, slots in group.target.items()}
    return replace(group, members=members, target=target)


def _leave(group: ConsumerGroup, ask: HeartbeatAsk) -> tuple[ConsumerGroup, HeartbeatResult]:
    member = _known(group, ask)
    if ask.member_epoch == LEAVE_EPOCH:
        return without(group, member.member_id), HeartbeatResult(ask.member_id, LEAVE_EPOCH)
    away = replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING)
    members = {**group.members, member.member_id: away}
    return replace(group, members=members), HeartbeatResult(ask.member_id, STATIC_LEAVE_EPOCH)


def _assignor(group: ConsumerGroup) -> str:
    """The one that most members ask for."""
    votes = Counter(m.subscription.assignor for m in group.members.values() if m.subscription.assignor)
    return max(votes, key=lambda name: (votes[name], name)) if votes else DEFAULT_ASSIGNOR
