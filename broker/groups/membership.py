"""Who is in a group: members, static instances, pending ids, the votes for a protocol, and their deadlines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from broker.groups.model import NO_LEADER, GroupRules, JoinAsk, JoinedMember, Member, Timing
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState


class GroupMembership:
    """The data of one group, and the questions about it that decide nothing."""

    def __init__(self, group_id: str, rules: GroupRules) -> None:
        self.group_id = group_id
        self.rules = rules
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id = NO_LEADER
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """Static members: instance id -> member id."""
        self.pending_members: dict[str, int] = {}
        """Member ids given out (KIP-394) and not yet used -> when they lapse."""
        self.rebalance: Timing | None = None
        self.grew = False
        self.sync_deadline_ms: int | None = None
        self.state_timestamp_ms = -1
        """Wall-clock time of the last change of state, for the record in the log; set by the coordinator."""

    # -- members ---------------------------------------------------------------------------------------------

    def add(self, ask: JoinAsk, member_id: str, now_ms: int) -> Member:
        """A new member, waiting for its join to be answered."""
        if not self.members:
            self.protocol_type = ask.protocol_type
            self.leader_id = member_id
        member = Member(
            member_id,
            ask.instance_id,
            ask.client_id,
            ask.client_host,
            ask.session_timeout_ms,
            ask.rebalance_timeout_ms,
            ask.protocols,
            session_deadline_ms=now_ms + self.rules.new_member_join_timeout_ms,
            is_new=True,
            awaits_join=True,
        )
        self.members[member_id] = member
        if ask.instance_id is not None:
            self.instances[ask.instance_id] = member_id
        return member

    def update(self, member: Member, ask: JoinAsk) -> None:
        member.client_id = ask.client_id
        member.client_host = ask.client_host
        member.protocols = ask.protocols
        member.session_timeout_ms = ask.session_timeout_ms
        member.rebalance_timeout_ms = ask.rebalance_timeout_ms

    def rename(self, old: Member, ask: JoinAsk, now_ms: int) -> Member:
        """Give a static member its new id, in its old place; its assignment stays."""
        assert old.instance_id is not None
        new_id = ask.new_member_id
        leads = self.leader_id == old.member_id
        self.members = {new_id if id_ == old.member_id else id_: m for id_, m in self.members.items()}
        old.member_id = new_id
        old.awaits_join = old.awaits_sync = False
        old.session_deadline_ms = now_ms + ask.session_timeout_ms
        self.update(old, ask)
        self.instances[old.instance_id] = new_id
        if leads:
            self.leader_id = new_id
        return old

    def discard(self, member: Member) -> None:
        """Drop a member; leadership goes to the oldest that is left."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), NO_LEADER)

    @property
    def is_unused(self) -> bool:
        """Nobody is in it, or about to be, and nobody ever was."""
        return self.state is GroupState.EMPTY and not self.pending_members and self.generation_id == 0

    def restore(self, members: Iterable[Member], now_ms: int) -> None:
        """Members as read from the log: each has one session from now to be heard of."""
        for member in members:
            member.session_deadline_ms = now_ms + member.session_timeout_ms
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.instances[member.instance_id] = member.member_id
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY

    # -- checks ----------------------------------------------------------------------------------------------

    def identify(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """None when the ids belong to one current member."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_member(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode | None:
        """None when a current member speaks of the current generation."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.identify(member_id, instance_id)
        if error is None and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def supports(self, ask: JoinAsk) -> bool:
        """Does the member have the group's protocol type, and a protocol that all others have too?"""
        if not ask.protocol_type or not ask.protocols:
            return False
        # A static member that restarted is itself, not one more.
        itself = self.instances.get(ask.instance_id or "", ask.member_id)
        others = [m for m in self.members.values() if m.member_id != itself]
        if self.members and ask.protocol_type != self.protocol_type:
            return False
        common = self._common_protocols(others)
        return not others or any(p.name in common for p in ask.protocols)

    # -- protocols -------------------------------------------------------------------------------------------

    def _common_protocols(self, members: Iterable[Member]) -> set[str]:
        sets = [{p.name for p in member.protocols} for member in members]
        return set.intersection(*sets) if sets else set()

    def selected_protocol(self) -> str | None:
        """Each member votes for the first of its protocols that all support; the first of the most voted wins."""
        common = self._common_protocols(self.members.values())
        votes = Counter(
            next(p.name for p in member.protocols if p.name in common) for member in self.members.values() if common
        )
        return votes.most_common(1)[0][0] if votes else None

    def roster(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol_name)) for m in self.members.values()
        )

    # -- deadlines -------------------------------------------------------------------------------------------

    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def touch(self, member_id: str, now_ms: int) -> None:
        member = self.members[member_id]
        member.session_deadline_ms = now_ms + member.session_timeout_ms

    def session_deadline_ms(self, member: Member) -> float:
        """Infinite while the coordinator owes the member an answer; but a new one may have given up on it."""
        if member.is_new:
            return member.session_deadline_ms
        return inf if member.awaits_join or member.awaits_sync else member.session_deadline_ms

    def next_deadline_ms(self) -> float:
        """When `tick` has something to do; infinite when only a request can change the group."""
        deadlines: list[float] = [self.session_deadline_ms(m) for m in self.members.values()]
        deadlines.extend(self.pending_members.values())
        if self.rebalance is not None:
            deadlines.append(self.rebalance.deadline_ms)
        if self.sync_deadline_ms is not None:
            deadlines.append(self.sync_deadline_ms)
        return min(deadlines, default=inf)
