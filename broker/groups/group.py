"""The classic group protocol as a state machine: requests and times go in, answers come out.

    Empty ──join──> PreparingRebalance ──all joined, or time is up──> CompletingRebalance ──leader's sync──> Stable
      ^                    ^  │ nobody joined                                │ join, leave, expiry      │
      └────────────────────┼──┘                                              │                          │
                           └─────────────────────────────────────────────────┴──────────────────────────┘

Every method takes `now_ms` on one monotonic scale. Nothing here waits: a member whose answer is not in the returned
effects is answered by a later step. Sources: KIP-345 (static members), KIP-394 (member id required), KIP-814 (skip
assignment).
"""

from __future__ import annotations

from broker.groups.membership import GroupMembership
from broker.groups.model import (
    NO_LEADER,
    NO_MEMBER_ID,
    Effects,
    JoinAsk,
    JoinResult,
    Leaver,
    Member,
    SyncAsk,
    SyncResult,
    Timing,
)
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState

__all__ = ["Group"]


class Group(GroupMembership):
    """One group: the members of `GroupMembership`, and what each request does to them."""

    # -- joining ---------------------------------------------------------------------------------------------

    def join(self, ask: JoinAsk, now_ms: int) -> JoinResult | Effects:
        """A result is the answer at once; effects mean that the member waits for its answer, under its member id."""
        refusal = self._refuse_join(ask)
        if refusal is not None:
            return JoinResult(refusal, ask.member_id)
        if ask.member_id == NO_MEMBER_ID:
            return self._join_new(ask, now_ms)
        if ask.member_id in self.pending_members:
            del self.pending_members[ask.member_id]
            return self._add_and_rebalance(ask, ask.member_id, now_ms)
        member = self.members[ask.member_id]
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._rejoin(member, ask, now_ms)
        unchanged = member.protocols == ask.protocols
        leads = member.member_id == self.leader_id
        if self.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # The answer to its first join was lost: the same generation again.
            return self._joined(member)
        if self.state is GroupState.STABLE and unchanged and not leads:
            return self._joined(member)
        return self._rejoin(member, ask, now_ms)

    def _refuse_join(self, ask: JoinAsk) -> ErrorCode | None:
        rules = self.rules
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not rules.session_timeout_min_ms <= ask.session_timeout_ms <= rules.session_timeout_max_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        known = ask.member_id in self.members
        if ask.member_id == NO_MEMBER_ID:
            grows = ask.instance_id is None or ask.instance_id not in self.instances
            if grows and len(self.members) + len(self.pending_members) >= rules.members_max:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
        elif ask.instance_id is not None:
            fenced = self.identify(ask.member_id, ask.instance_id)
            if fenced is not None:
                return fenced
        elif not known and ask.member_id not in self.pending_members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None if self.supports(ask) else ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def _join_new(self, ask: JoinAsk, now_ms: int) -> JoinResult | Effects:
        member_id = ask.new_member_id
        if ask.instance_id is not None:
            if ask.instance_id in self.instances:
                return self._replace_static(ask, now_ms)
        elif ask.requires_known_member_id:
            self.pending_members[member_id] = now_ms + ask.session_timeout_ms
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add_and_rebalance(ask, member_id, now_ms)

    def _add_and_rebalance(self, ask: JoinAsk, member_id: str, now_ms: int) -> Effects:
        self.add(ask, member_id, now_ms)
        self.grew = True
        return self._prepare_rebalance(Effects(), now_ms)

    def _rejoin(self, member: Member, ask: JoinAsk, now_ms: int) -> Effects:
        self.update(member, ask)
        member.awaits_join = True
        return self._prepare_rebalance(Effects(), now_ms)

    def _replace_static(self, ask: JoinAsk, now_ms: int) -> JoinResult | Effects:
        """A restarted static member takes over its instance; who still waits under the old id is fenced (KIP-345)."""
        assert ask.instance_id is not None
        effects = Effects()
        old_leader = self.leader_id
        old_id = self.instances[ask.instance_id]
        old = self.members[old_id]
        fenced = ErrorCode.FENCED_INSTANCE_ID
        if old.awaits_join:
            effects.joins[old_id] = JoinResult(fenced, old_id)
        if old.awaits_sync:
            effects.syncs[old_id] = SyncResult(fenced)
        was = self.selected_protocol()
        member = self.rename(old, ask, now_ms)
        if self.state is not GroupState.STABLE or self.selected_protocol() != was:
            member.awaits_join = True
            return self._prepare_rebalance(effects, now_ms)
        effects.store = True
        leads = self.leader_id == member.member_id
        effects.joins[member.member_id] = JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            # An older client that read its own id here would compute a new assignment that nobody asked for.
            leader=self.leader_id if ask.supports_skipping_assignment else old_leader,
            skip_assignment=ask.supports_skipping_assignment and leads,
            members=self.roster() if ask.supports_skipping_assignment and leads else (),
        )
        return effects

    # -- the rebalance ---------------------------------------------------------------------------------------

    def join_anew(self, now_ms: int) -> Effects:
        """Have all members join anew."""
        return self._prepare_rebalance(Effects(), now_ms)

    def dissolve(self) -> Effects:
        """The group goes on elsewhere: who waits for an answer is told to ask again, and nobody comes in any more."""
        error = ErrorCode.REBALANCE_IN_PROGRESS
        members = self.members.values()
        self.state = GroupState.DEAD
        return Effects(
            joins={m.member_id: JoinResult(error, m.member_id) for m in members if m.awaits_join},
            syncs={m.member_id: SyncResult(error) for m in members if m.awaits_sync},
        )

    def _prepare_rebalance(self, effects: Effects, now_ms: int) -> Effects:
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._maybe_close_rebalance(effects, now_ms)
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(effects, ErrorCode.REBALANCE_IN_PROGRESS)
        timeout_ms = self.rebalance_timeout_ms()
        delay_ms = min(self.rules.initial_rebalance_delay_ms, timeout_ms)
        if self.state is GroupState.EMPTY and delay_ms > 0:
            self.rebalance = Timing(now_ms + delay_ms, initial=True, remaining_ms=timeout_ms - delay_ms)
            self.grew = False
        else:
            self.rebalance = Timing(now_ms + timeout_ms)
        self.sync_deadline_ms = None
        self.state = GroupState.PREPARING_REBALANCE
        return self._maybe_close_rebalance(effects, now_ms)

    def _maybe_close_rebalance(self, effects: Effects, now_ms: int) -> Effects:
        if self.rebalance is not None and self.rebalance.initial:
            return effects
        if self.pending_members or not all(m.awaits_join for m in self.members.values()):
            return effects
        return self._close_rebalance(effects, now_ms)

    def _rebalance_due(self, timing: Timing, effects: Effects, now_ms: int) -> None:
        if timing.initial and self.grew and timing.remaining_ms > 0:
            delay_ms = min(self.rules.initial_rebalance_delay_ms, timing.remaining_ms)
            self.rebalance = Timing(now_ms + delay_ms, initial=True, remaining_ms=timing.remaining_ms - delay_ms)
            self.grew = False
            return
        self._close_rebalance(effects, now_ms)

    def _close_rebalance(self, effects: Effects, now_ms: int) -> Effects:
        for member in [m for m in self.members.values() if not m.awaits_join and m.instance_id is None]:
            self.discard(member)
        joined = [m for m in self.members.values() if m.awaits_join]
        if self.members and not joined:
            # Only static members that are away: they keep their place until their sessions end.
            self.rebalance = Timing(now_ms + self.rebalance_timeout_ms())
            return effects
        self.rebalance = None
        self.generation_id += 1
        if not joined:
            self.state, self.protocol_name, self.leader_id = GroupState.EMPTY, None, NO_LEADER
            effects.store = True
            return effects
        if self.leader_id not in self.members or not self.members[self.leader_id].awaits_join:
            self.leader_id = joined[0].member_id
        self.protocol_name = self.selected_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self.sync_deadline_ms = now_ms + self.rebalance_timeout_ms()
        for member in joined:
            member.awaits_join = member.is_new = member.synced = False
            member.session_deadline_ms = now_ms + member.session_timeout_ms
            effects.joins[member.member_id] = self._joined(member)
        return effects

    def _joined(self, member: Member) -> JoinResult:
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id,
            members=self.roster() if member.member_id == self.leader_id else (),
        )

    # -- syncing ---------------------------------------------------------------------------------------------

    def sync(self, ask: SyncAsk, now_ms: int) -> SyncResult | Effects:
        """A result is the answer at once; effects mean that the member waits for the leader's assignment."""
        error = self.check_member(ask.member_id, ask.instance_id, ask.generation_id)
        if error is None and ask.protocol_type is not None and ask.protocol_type != self.protocol_type:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is None and ask.protocol_name is not None and ask.protocol_name != self.protocol_name:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is None and self.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not None:
            return SyncResult(error)
        member = self.members[ask.member_id]
        member.synced = True
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        if self.state is GroupState.STABLE:
            return self._synced(member)
        member.awaits_sync = True
        effects = Effects()
        if ask.member_id == self.leader_id:
            self.state = GroupState.STABLE
            effects.store = True
            for each in self.members.values():
                each.assignment = ask.assignments.get(each.member_id, b"")
                if each.awaits_sync:
                    each.awaits_sync = False
                    each.session_deadline_ms = now_ms + each.session_timeout_ms
                    effects.syncs[each.member_id] = self._synced(each)
        return effects

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def assignment_not_stored(self, effects: Effects, error: ErrorCode, now_ms: int) -> Effects:
        """The write that `effects.store` asked for failed: nobody may start on that assignment."""
        after = Effects(joins=effects.joins, syncs={id_: SyncResult(error) for id_ in effects.syncs})
        if self.state is not GroupState.STABLE:
            # The group became empty or lost members; the next write will say so.
            return after
        self._drop_assignments(after, error)
        return self._prepare_rebalance(after, now_ms)

    def _drop_assignments(self, effects: Effects, error: ErrorCode) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.awaits_sync:
                member.awaits_sync = False
                effects.syncs[member.member_id] = SyncResult(error)

    # -- staying, committing, leaving --------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        error = self.check_member(member_id, instance_id, generation_id)
        if error is not None:
            return error
        self.touch(member_id, now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, now_ms: int, *, transactional: bool = False
    ) -> ErrorCode:
        """May this member commit offsets? A commit also counts as a sign of life."""
        outside = generation_id < 0
        anonymous = outside and member_id == NO_MEMBER_ID and instance_id is None
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if (outside and self.state is GroupState.EMPTY) or (anonymous and transactional):
            # Producers before KIP-447 say nothing of their group; a simple consumer may commit while it has no member.
            return ErrorCode.NONE
        error = self.check_member(member_id, instance_id, generation_id)
        if error is not None:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE and not transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.touch(member_id, now_ms)
        return ErrorCode.NONE

    def leave(self, leavers: list[Leaver], now_ms: int) -> tuple[list[ErrorCode], Effects]:
        """One error code per leaver, in order."""
        effects = Effects()
        errors = []
        for leaver in leavers:
            if leaver.instance_id is None and leaver.member_id in self.pending_members:
                del self.pending_members[leaver.member_id]
                if self.state is GroupState.PREPARING_REBALANCE:
                    self._maybe_close_rebalance(effects, now_ms)
                errors.append(ErrorCode.NONE)
                continue
            member_id = leaver.member_id
            if member_id == NO_MEMBER_ID and leaver.instance_id is not None:
                member_id = self.instances.get(leaver.instance_id, NO_MEMBER_ID)
            error = self.identify(member_id, leaver.instance_id)
            if error is None:
                self._remove(self.members[member_id], effects, now_ms)
            errors.append(error or ErrorCode.NONE)
        return errors, effects

    def _remove(self, member: Member, effects: Effects, now_ms: int) -> None:
        if member.awaits_join:
            effects.joins[member.member_id] = JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)
        if member.awaits_sync:
            effects.syncs[member.member_id] = SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        self.discard(member)
        self._prepare_rebalance(effects, now_ms)

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> Effects:
        """Do what is due: expire pending ids and sessions, close the rebalance, drop members that never synced."""
        effects = Effects()
        for member_id in [id_ for id_, deadline in self.pending_members.items() if deadline <= now_ms]:
            del self.pending_members[member_id]
            if self.state is GroupState.PREPARING_REBALANCE:
                self._maybe_close_rebalance(effects, now_ms)
        for member in list(self.members.values()):
            # Asked one by one: one that is dropped may end a rebalance, and the others' sessions then begin anew.
            if member.member_id in self.members and self.session_deadline_ms(member) <= now_ms:
                self._remove(member, effects, now_ms)
        if self.sync_deadline_ms is not None and self.sync_deadline_ms <= now_ms:
            self.sync_deadline_ms = None
            late = [m for m in self.members.values() if not m.synced]
            for member in late if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) else ():
                self._remove(member, effects, now_ms)
        if self.rebalance is not None and self.rebalance.deadline_ms <= now_ms:
            self._rebalance_due(self.rebalance, effects, now_ms)
        return effects
