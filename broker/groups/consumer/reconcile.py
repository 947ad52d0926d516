"""One member on its way from what it has to what it should have: revoke first, then take what others let go. Pure.

Source: KIP-848, "Rebalance Process". A member is told a new epoch only when it has given up what is not its own there.
"""

from __future__ import annotations

from dataclasses import replace

from broker.groups.consumer.model import NOTHING, ConsumerGroup, ConsumerMember, MemberState, Slots


def reconcile(group: ConsumerGroup, member: ConsumerMember, owned: Slots | None) -> ConsumerMember:
    """The member one step further; `owned` is what it says it has, None when it does not say."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch == group.target_epoch:
                return member
            return _next(group, member, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or owned & member.revoking:
                return member
            return _next(group, replace(member, revoking=NOTHING), owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(group, member, owned)


def _next(group: ConsumerGroup, member: ConsumerMember, owned: Slots | None) -> ConsumerMember:
    target = group.target.get(member.member_id, NOTHING)
    kept = member.assigned & target
    to_revoke = member.assigned - target
    if to_revoke and (owned is None or owned & to_revoke):
        return _changed(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    free = (target - kept) - group.held_by_others(member.member_id)
    waits = kept | free != target
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _changed(member, group.target_epoch, state, kept | free, NOTHING)


def _changed(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Slots, revoking: Slots
) -> ConsumerMember:
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(member, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking)
