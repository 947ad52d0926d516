"""The consumer groups of one coordinator: the shell around `steps.py` and `classic.py`.

A step is computed on values, written, and only then counts: a write that fails leaves the group as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from uuid import UUID

import re2

from broker.coordination.host import CoordinatorHost, TopicShape
from broker.coordination.internal_log import Entry, StateLog
from broker.errors import BrokerError
from broker.groups.consumer import classic
from broker.groups.consumer.model import (
    JOIN_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    HeartbeatAsk,
    HeartbeatRefused,
    HeartbeatResult,
    MemberState,
    Sees,
    Subscription,
    new_group,
)
from broker.groups.consumer.records import changes, removal
from broker.groups.consumer.steps import Resolve, check, heartbeat, without
from broker.groups.formats import group_entry
from broker.groups.group import Group
from broker.groups.limits import CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_TOPICS_LOOK_MS, GROUP_MEMBERS_MAX
from broker.groups.migration import downgraded
from broker.groups.model import GroupRules, JoinAsk, JoinResult, Leaver, SyncAsk, SyncResult
from broker.wire.errors import ErrorCode

Watch = Callable[[str, float], None]
"""Look at the group again at this monotonic time in ms, or before."""
Adopt = Callable[[Group], None]
"""Take over a group that is a classic one from here on; it stands in the log as that."""


@dataclass(slots=True)
class _Deadlines:
    """Of one member, on the monotonic scale in ms."""

    session_ms: float
    revocation_ms: float = inf
    revocation_epoch: int = -1
    join_ms: float = inf
    """A classic member that was told to join again does so until then,"""
    sync_ms: float = inf
    """and when it has, it asks for its assignment until then."""

    def next_ms(self) -> float:
        return min(self.session_ms, self.revocation_ms, self.join_ms, self.sync_ms)


class ConsumerGroups:
    """All groups of KIP-848. Everything happens between two awaits of the broker's event loop."""

    def __init__(self, host: CoordinatorHost, log: StateLog, watch: Watch, rules: GroupRules, adopt: Adopt) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.empty_since_ms: dict[str, int] = {}
        """Wall-clock time since when a group has had no member; since the start for one that was read."""
        self._host = host
        self._log = log
        self._watch = watch
        self._rules = rules
        self._adopt = adopt
        self._deadlines: dict[str, dict[str, _Deadlines]] = {}
        self._look_due_ms: dict[str, int] = {}
        """When a group's topics are to be looked at again although no member changed."""
        self._sees: dict[str, dict[str, Sees]] = {}
        """Of each group, where rights are asked for, by the members that were heard of since this was loaded."""
        self._matched_of: frozenset[str] = frozenset()
        self._matches: dict[str, frozenset[str]] = {}
        """Per regular expression the topics that it matched, of `_matched_of`."""

    def restore(self, groups: Iterable[ConsumerGroup], now_ms: int) -> None:
        """Groups as read from the log: each member has one session from now to be heard of."""
        for group in groups:
            self.groups[group.group_id] = group
            self._keep_time(group, group, list(group.members), now_ms)

    def heartbeat(
        self,
        group_id: str,
        ask: HeartbeatAsk,
        now_ms: int,
        *,
        first: Sequence[Entry] = (),
        begin: ConsumerGroup | None = None,
    ) -> HeartbeatResult:
        """`first` is written in the same batch, before what the heartbeat changes; a group that is not known yet is
        `begin`. Raises HeartbeatRefused.
        """
        check(ask)
        known = self.groups.get(group_id) or begin
        if known is None and ask.member_epoch != JOIN_EPOCH:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        before = known or new_group(group_id)
        if ask.regex:
            self._check_regex(ask.regex)
        seen = self._sees.get(group_id, {})
        look = now_ms >= self._look_due_ms.get(group_id, 0) or (ask.sees is not None and ask.member_id not in seen)
        if ask.sees is not None:
            seen = {**seen, ask.member_id: ask.sees}
        after, result = heartbeat(before, ask, self._resolver(seen), GROUP_MEMBERS_MAX, look=look)
        heard = [result.member_id] if begin is None else list(after.members)
        try:
            self._settle(before, after, heard, now_ms, first)
        except BrokerError as error:
            raise HeartbeatRefused(error.error_code, str(error)) from error
        if seen:
            self._sees[group_id] = {member: sees for member, sees in seen.items() if member in after.members}
        if look:
            self._look_due_ms[group_id] = now_ms + CONSUMER_TOPICS_LOOK_MS
        return result

    # -- members of the classic protocol -------------------------------------------------------------------------

    def join(self, group_id: str, ask: JoinAsk, now_ms: int) -> JoinResult | None:
        """None where the member took the place of the last one of the consumer protocol: then it is to join, as
        `ask.new_member_id`, the classic group that was adopted. Raises BrokerError.
        """
        if not self._rules.session_timeout_min_ms <= ask.session_timeout_ms <= self._rules.session_timeout_max_ms:
            return JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, ask.member_id)
        before = self.groups[group_id]
        resolve = self._resolver(self._sees.get(group_id, {}))
        after, result = classic.join(before, ask, resolve, self.topic_id, self._rules.members_max)
        if after is before:
            return result
        self._settle(before, after, [result.member_id], now_ms)
        if group_id not in self.groups:
            return None
        deadlines = self._deadlines[group_id][result.member_id]
        deadlines.join_ms, deadlines.sync_ms = inf, now_ms + ask.rebalance_timeout_ms
        self._watch(group_id, deadlines.next_ms())
        return result

    def sync(self, group_id: str, ask: SyncAsk, now_ms: int) -> SyncResult:
        group = self.groups[group_id]
        result = classic.sync(group, ask, self._host.topic_name)
        if result.error is ErrorCode.NONE:
            self._keep_time(group, group, [ask.member_id], now_ms)
            self._deadlines[group_id][ask.member_id].sync_ms = inf
        elif result.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._expect_join(group.members[ask.member_id], group_id, now_ms)
        return result

    def classic_heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, now_ms: int
    ) -> ErrorCode:
        group = self.groups[group_id]
        error = classic.heartbeat(group, member_id, instance_id, generation_id)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._keep_time(group, group, [member_id], now_ms)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._expect_join(group.members[member_id], group_id, now_ms)
        return error

    def _expect_join(self, member: ConsumerMember, group_id: str, now_ms: int) -> None:
        deadlines = self._deadlines[group_id][member.member_id]
        deadlines.join_ms = min(deadlines.join_ms, now_ms + member.rebalance_timeout_ms)
        self._watch(group_id, deadlines.next_ms())

    def leave(self, group_id: str, leavers: Sequence[Leaver], now_ms: int) -> list[ErrorCode]:
        """One error code per leaver. Raises BrokerError, with all of them still there."""
        before = self.groups[group_id]
        after, errors = classic.leave(before, leavers)
        self._settle(before, after, [], now_ms)
        return errors

    # -- time ------------------------------------------------------------------------------------------------------

    def tick(self, group_id: str, now_ms: int) -> None:
        """Drop the members that were silent for a session, or kept for too long what they had to give up.

        Raises BrokerError, with the members still there.
        """
        group = self.groups.get(group_id)
        if group is None:
            return
        after = group
        for member_id, deadlines in self._deadlines.get(group_id, {}).items():
            member = group.members[member_id]
            slow = deadlines.revocation_ms <= now_ms and member.epoch == deadlines.revocation_epoch
            if min(deadlines.session_ms, deadlines.join_ms, deadlines.sync_ms) <= now_ms or slow:
                after = without(after, member_id)
        self._settle(group, after, [], now_ms)

    def remove(self, group_id: str) -> None:
        """Forget an empty group. Raises BrokerError, with the group still there."""
        self._log.append(group_id, removal(self.groups[group_id]))
        self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        self.groups.pop(group_id, None)
        self.empty_since_ms.pop(group_id, None)
        self._deadlines.pop(group_id, None)
        self._look_due_ms.pop(group_id, None)
        self._sees.pop(group_id, None)

    def has_members(self, group_id: str) -> bool:
        group = self.groups.get(group_id)
        return group is not None and bool(group.members)

    def topic_id(self, name: str) -> UUID | None:
        """None where there is no such topic."""
        shape = self._host.topic_shape(name)
        return None if shape is None else shape.topic_id

    def subscribed_topics(self, group_id: str) -> frozenset[str]:
        """Of all members, by what exists now."""
        members, resolve = self.groups[group_id].members.values(), self._resolver({})
        return frozenset(name for member in members for name in resolve(member))

    # -- inside ------------------------------------------------------------------------------------------------

    def _settle(
        self,
        before: ConsumerGroup,
        after: ConsumerGroup,
        heard: Iterable[str],
        now_ms: int,
        first: Sequence[Entry] = (),
    ) -> None:
        """Write the step, and then take it. A group that only classic members are left in becomes a classic one.

        Raises BrokerError, with nothing changed.
        """
        group_id = after.group_id
        goes = before.members.keys() - after.members.keys()
        if goes and after.is_all_classic and self._host.config.group_consumer_migration_policy.downgrades:
            # The generation is the epoch that those who stay are at: they are told to join, not that they are too late.
            group = downgraded(after, before.epoch, self._rules, self._host.topic_name, now_ms)
            group.state_timestamp_ms = self._host.clock.now_ms()
            self._log.append(group_id, [*removal(before), group_entry(group)])
            self._forget(group_id)
            self._adopt(group)
            return
        known = self.groups.get(group_id) or ConsumerGroup(group_id)
        entries = [*first, *changes(known, after)]
        if entries:
            self._log.append(group_id, entries)
        self.groups[group_id] = after
        self._keep_time(before, after, heard, now_ms)

    def _keep_time(self, before: ConsumerGroup, after: ConsumerGroup, heard: Iterable[str], now_ms: int) -> None:
        deadlines = self._deadlines.setdefault(after.group_id, {})
        for gone in deadlines.keys() - after.members.keys():
            del deadlines[gone]
        for member_id in heard:
            member = after.members.get(member_id)
            if member is None:
                continue
            mine = deadlines.setdefault(member_id, _Deadlines(inf))
            session_ms = member.classic.session_timeout_ms if member.classic else CONSUMER_SESSION_TIMEOUT_MS
            mine.session_ms = now_ms + session_ms
            if member.classic is not None or member.state is not MemberState.UNREVOKED_PARTITIONS:
                mine.revocation_ms = inf
            elif mine.revocation_ms == inf or mine.revocation_epoch != member.epoch:
                mine.revocation_ms, mine.revocation_epoch = now_ms + member.rebalance_timeout_ms, member.epoch
        if after.members:
            self.empty_since_ms.pop(after.group_id, None)
        elif before.members or after.group_id not in self.empty_since_ms:
            self.empty_since_ms[after.group_id] = self._host.clock.now_ms()
        self._watch(after.group_id, min((each.next_ms() for each in deadlines.values()), default=inf))

    def _resolver(self, seen: Mapping[str, Sees]) -> Resolve:
        """By the topics as they are now, each subscription once: the members of a group mostly have the same. `seen`:
        which topics may be shown to whom, by member; empty where nobody is asked for rights.
        """
        known: dict[tuple[Subscription, Sees | None], Mapping[str, TopicShape]] = {}

        def resolve(member: ConsumerMember) -> Mapping[str, TopicShape]:
            subscription, sees = member.subscription, seen.get(member.member_id)
            if subscription.regex and seen and sees is None:
                # Not heard of since this was loaded: of what it matches it has what it had.
                sees = frozenset(self._host.topic_name(slot.topic_id) for slot in member.assigned).__contains__
            key = subscription, sees if subscription.regex else None
            if key not in known:
                names = set(subscription.names)
                if subscription.regex:
                    names |= set(filter(sees, self._matching(subscription.regex)))
                shapes = {name: self._host.topic_shape(name) for name in names}
                known[key] = {name: shape for name, shape in shapes.items() if shape is not None}
            return known[key]

        return resolve

    def _matching(self, regex: str) -> frozenset[str]:
        topics = frozenset(self._host.topic_names())
        if topics != self._matched_of:
            self._matches.clear()
            self._matched_of = topics
        if regex not in self._matches:
            in_use = {m.subscription.regex for g in self.groups.values() for m in g.members.values()}
            self._matches = {each: found for each, found in self._matches.items() if each in in_use}
            pattern = _compiled(regex)
            self._matches[regex] = frozenset(name for name in topics if pattern.fullmatch(name))
        return self._matches[regex]

    def _check_regex(self, regex: str) -> None:
        """RE2, as Kafka takes it: its time is linear, so that no client can stop the broker by an expression."""
        try:
            _compiled(regex)
        except re2.error as error:
            text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
            raise HeartbeatRefused(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from error


def _compiled(regex: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)
