"""The values of the consumer group protocol (KIP-848). No asyncio, no clock, no disk.

A group is an immutable value; each step gives a new one, and what differs between the two is what is written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from broker.coordination.host import TopicShape
from broker.errors import BrokerError
from broker.groups.model import GroupProtocol
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that will come back: its partitions wait for it for one session."""


class Slot(NamedTuple):
    """A partition of a topic by the topic's id: a recreated topic is another."""

    topic_id: uuid.UUID
    partition: int


Slots = frozenset[Slot]
NOTHING: Final[Slots] = frozenset()


class MemberState(IntEnum):
    """Numbers as in Kafka's record (MemberState.java)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must say that it gave `revoking` up before it goes on."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""


Sees = Callable[[str], bool]
"""Equal, and hashed alike, of members that see the same."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants. `regex` is RE2 syntax and matches whole names."""

    names: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member of the classic protocol brought along: its own session, and how it is spoken to."""

    session_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. It owns `assigned` and, until it says otherwise, `revoking`. `classic` if it speaks that protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    subscription: Subscription
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Slots = NOTHING
    revoking: Slots = NOTHING
    classic: ClassicSide | None = None

    @property
    def held(self) -> Slots:
        """What nobody else may have."""
        return self.assigned | self.revoking


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """`epoch` rises when members or topics change, `target_epoch` is the one that `target` was computed for.

    `shapes` are the subscribed topics as the last step saw them; a group read from the log does not know them.
    """

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    target: Mapping[str, Slots] = field(default_factory=dict)
    shapes: Mapping[str, TopicShape] = field(default_factory=dict)

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        settled = all(
            m.state is MemberState.STABLE and m.epoch in (self.target_epoch, STATIC_LEAVE_EPOCH)
            for m in self.members.values()
        )
        return GroupState.STABLE if settled else GroupState.RECONCILING

    @property
    def is_all_classic(self) -> bool:
        """Has it members, and none of the consumer protocol?"""
        return bool(self.members) and all(m.classic is not None for m in self.members.values())

    def instance(self, instance_id: str) -> ConsumerMember | None:
        """The static member of that instance."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def held_by_others(self, member_id: str) -> set[Slot]:
        return {slot for m in self.members.values() if m.member_id != member_id for slot in m.held}


def new_group(group_id: str) -> ConsumerGroup:
    """A group before its first member, whose epoch is then 2, as in Kafka 4.3."""
    return ConsumerGroup(group_id, epoch=1, target_epoch=1)


@dataclass(frozen=True, slots=True)
class HeartbeatAsk:
    """A ConsumerGroupHeartbeat request; None where it says nothing new."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    names: Collection[str] | None
    regex: str | None
    assignor: str | None
    owned: Slots | None
    sees: Sees | None = None
    """Which topics may be shown to it, where rights are asked for."""

    @property
    def is_full(self) -> bool:
        """A member that joins, or that asks for everything anew, is told its whole assignment."""
        says_what = self.names is not None or self.regex is not None
        return says_what and self.owned is not None and self.rebalance_timeout_ms >= 0


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """`assignment` None: as it was told before."""

    member_id: str
    member_epoch: int
    assignment: Slots | None = None


class HeartbeatRefused(BrokerError):
    """A heartbeat that changes nothing; its text goes to the member."""

    hint = "join the group anew with member epoch 0"

    def __init__(self, error: ErrorCode, text: str) -> None:
        super().__init__(text, error_code=error)
