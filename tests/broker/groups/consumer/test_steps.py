"""The consumer group protocol in stories. That no partition ever has two readers: `test_one_reader.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from broker.coordination.host import TopicShape
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
    MemberState,
    Slot,
    Slots,
    Subscription,
)
from broker.groups.consumer.reconcile import reconcile
from broker.groups.consumer.steps import check, check_epoch, heartbeat
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState

FLIGHTS = UUID(int=1)
JOIN = HeartbeatAsk("a", JOIN_EPOCH, None, None, "client", "/host", 30_000, ["flights"], None, None, NOTHING)


def slots(*partitions: int) -> Slots:
    return frozenset(Slot(FLIGHTS, partition) for partition in partitions)


class Story:
    """A group, its topics, and what each member was told."""

    def __init__(self, partitions: int = 4, members_max: int = 10) -> None:
        self.shapes = {"flights": TopicShape(FLIGHTS, partitions)}
        self.group = ConsumerGroup("readers")
        self.members_max = members_max

    def state(self) -> GroupState:
        return self.group.state

    def resolve(self, member: ConsumerMember) -> dict[str, TopicShape]:
        return {name: shape for name, shape in self.shapes.items() if name in member.subscription.names}

    def beat(self, ask: HeartbeatAsk) -> HeartbeatResult:
        self.group, result = heartbeat(self.group, ask, self.resolve, self.members_max)
        return result

    def stay(self, member_id: str, epoch: int, owned: Slots | None = None, **others: Any) -> HeartbeatResult:
        ask = replace(JOIN, member_id=member_id, member_epoch=epoch, names=None, owned=owned, rebalance_timeout_ms=-1)
        return self.beat(replace(ask, **others))

    def refused(self, ask: HeartbeatAsk) -> ErrorCode:
        before = self.group
        with pytest.raises(HeartbeatRefused) as caught:
            self.beat(ask)
        assert self.group is before
        return caught.value.error_code


def test_the_first_member_gets_everything_at_once() -> None:
    story = Story()
    assert story.beat(JOIN) == HeartbeatResult("a", 1, slots(0, 1, 2, 3))
    assert story.state() is GroupState.STABLE
    assert story.stay("a", 1) == HeartbeatResult("a", 1, None), "as it was told"


def test_a_second_member_waits_until_the_first_has_let_go() -> None:
    story = Story()
    story.beat(JOIN)
    assert story.beat(replace(JOIN, member_id="b")) == HeartbeatResult("b", 2, NOTHING)
    assert story.state() is GroupState.RECONCILING

    told = story.stay("a", 1, slots(0, 1, 2, 3))
    assert told.member_epoch == 1, "the old epoch until it has let go"
    assert told.assignment is not None
    assert len(told.assignment) == 2
    assert story.stay("b", 2).assignment is None, "a may still read them"
    assert story.stay("a", 1, told.assignment).member_epoch == 2

    rest = story.stay("b", 2).assignment
    assert rest == slots(0, 1, 2, 3) - told.assignment
    assert story.state() is GroupState.STABLE


def test_the_partitions_of_one_who_leaves_are_free_at_once() -> None:
    story = Story(partitions=1)
    story.beat(JOIN)
    story.beat(replace(JOIN, member_id="b"))
    assert story.stay("a", LEAVE_EPOCH) == HeartbeatResult("a", LEAVE_EPOCH)
    assert story.stay("b", 2).assignment == slots(0)
    story.stay("b", LEAVE_EPOCH)
    assert story.state() is GroupState.EMPTY


def test_epochs_that_are_not_the_members_own_are_fenced() -> None:
    story = Story()
    story.beat(JOIN)
    story.beat(replace(JOIN, member_id="b"))
    told = story.stay("a", 1, slots(0, 1, 2, 3)).assignment
    story.stay("a", 1, told)
    stay = replace(JOIN, member_epoch=1, names=None, owned=told)
    story.beat(stay)  # its answer was lost: the epoch before counts while it has no more than it should
    assert story.refused(replace(stay, owned=slots(0, 1, 2, 3))) is ErrorCode.FENCED_MEMBER_EPOCH
    assert story.refused(replace(stay, owned=None)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert story.refused(replace(stay, member_epoch=3)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert story.refused(replace(stay, member_id="nobody")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fenced_member_that_joins_again_is_told_all_it_has() -> None:
    story = Story()
    story.beat(JOIN)
    again = story.beat(JOIN)
    assert (again.member_epoch, again.assignment) == (1, slots(0, 1, 2, 3))


def malformed(ask: HeartbeatAsk) -> ErrorCode:
    with pytest.raises(HeartbeatRefused) as caught:
        check(ask)
    return caught.value.error_code


def test_bad_requests() -> None:
    assert malformed(replace(JOIN, member_id="")) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, rebalance_timeout_ms=-1)) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, owned=None)) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, owned=slots(0))) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, names=[])) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, member_epoch=-3)) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, member_epoch=STATIC_LEAVE_EPOCH)) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, instance_id="")) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, rack_id="")) is ErrorCode.INVALID_REQUEST
    assert malformed(replace(JOIN, assignor="sticky")) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_full_group_takes_nobody_more() -> None:
    story = Story(members_max=1)
    story.beat(JOIN)
    assert story.refused(replace(JOIN, member_id="b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert story.beat(JOIN).member_epoch == 1


def test_a_static_member_finds_its_partitions_again_without_a_rebalance() -> None:
    story = Story()
    first = replace(JOIN, instance_id="reader-1")
    story.beat(first)
    assert story.refused(replace(first, member_id="thief")) is ErrorCode.UNRELEASED_INSTANCE_ID
    story.stay("a", STATIC_LEAVE_EPOCH, instance_id="reader-1")
    story.beat(replace(JOIN, member_id="b"))
    assert story.group.members["b"].assigned == NOTHING, "its partitions wait for it"
    epoch = story.group.epoch
    back = story.beat(replace(first, member_id="a2"))
    assert (back.member_epoch, back.assignment) == (epoch, story.group.target["a2"])
    assert story.group.epoch == epoch
    assert story.refused(replace(first, member_epoch=epoch)) is ErrorCode.FENCED_INSTANCE_ID
    unknown = replace(first, member_epoch=epoch, instance_id="reader-9")
    assert story.refused(unknown) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_takes_an_instances_place_gives_up_its_own() -> None:
    """Or two targets would fall on one id, and one of them would be read by nobody while the group says Stable."""
    story = Story()
    first = replace(JOIN, instance_id="reader-1")
    story.beat(first)
    story.stay("a", STATIC_LEAVE_EPOCH, instance_id="reader-1")
    told = story.beat(replace(JOIN, member_id="b"))
    story.beat(replace(first, member_id="b"))
    for _ in range(3):
        member = story.group.members["b"]
        told = story.stay("b", member.epoch, member.assigned, instance_id="reader-1")
    assert list(story.group.members) == ["b"]
    assert story.group.members["b"].assigned == slots(0, 1, 2, 3)
    assert told.member_epoch == story.group.epoch


def test_a_topic_that_grows_or_appears_is_assigned_with_the_next_heartbeat() -> None:
    story = Story(partitions=1)
    story.beat(replace(JOIN, names=["flights", "weather"]))
    story.shapes["flights"] = TopicShape(FLIGHTS, 2)
    assert story.stay("a", 1) == HeartbeatResult("a", 2, slots(0, 1))
    story.shapes["weather"] = TopicShape(UUID(int=2), 1)
    assert story.stay("a", 2) == HeartbeatResult("a", 3, slots(0, 1) | {Slot(UUID(int=2), 0)})
    assert story.stay("a", 3).member_epoch == 3


def test_commits_are_taken_from_members_as_they_are_now_and_from_outside_of_an_empty_group() -> None:
    story = Story()
    assert check_epoch(story.group, None, -1) is ErrorCode.NONE
    assert check_epoch(story.group, "", 0) is ErrorCode.UNKNOWN_MEMBER_ID, "an epoch is a member's"
    assert check_epoch(story.group, "a", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    story.beat(JOIN)
    assert check_epoch(story.group, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_epoch(story.group, "a", 1) is ErrorCode.NONE
    assert check_epoch(story.group, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert check_epoch(story.group, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_assignor_that_most_ask_for_is_used() -> None:
    story = Story()
    story.beat(replace(JOIN, assignor="range"))
    assert story.group.assignor == "range"
    story.beat(replace(JOIN, member_id="b"))
    assert story.group.assignor == "range"


def reconciled(
    state: MemberState, owned: Slots | None, revoking: Slots = NOTHING
) -> tuple[ConsumerMember, ConsumerMember]:
    """A member at epoch 1 that has 0 and 1, and should have 0 at epoch 3 -> (as it was, as it is then)."""
    wants = Subscription(frozenset({"flights"}))
    joined = ConsumerMember("a", None, None, "client", "/host", 30_000, wants, 1, 0, state, slots(0, 1), revoking)
    group = ConsumerGroup("readers", 3, 3, members={"a": joined}, target={"a": slots(0)})
    return joined, reconcile(group, joined, owned)


@pytest.mark.parametrize("state", MemberState)
def test_who_has_let_go_already_goes_on_at_once_and_who_has_not_keeps_its_epoch(state: MemberState) -> None:
    revoking = slots(2) if state is MemberState.UNREVOKED_PARTITIONS else NOTHING
    before, after = reconciled(state, slots(0), revoking)
    stable = MemberState.STABLE
    assert after == replace(before, epoch=3, previous_epoch=1, state=stable, assigned=slots(0), revoking=NOTHING)
    before, after = reconciled(state, slots(0, 1), revoking)
    waits = MemberState.UNREVOKED_PARTITIONS
    assert after == replace(before, state=waits, assigned=slots(0), revoking=slots(1))


def test_who_does_not_say_what_it_has_has_not_let_go() -> None:
    for owned in (None, slots(0, 2)):
        before, after = reconciled(MemberState.UNREVOKED_PARTITIONS, owned, slots(2))
        assert after is before
