"""The consumer groups of this broker: the shell around `steps.py`.

A step is computed on values, written, and only then counts: a write that fails leaves the group as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import re2

from broker.coordination.host import CoordinatorHost, TopicShape
from broker.coordination.internal_log import Entry, InternalLog
from broker.errors import BrokerError
from broker.groups.consumer.model import (
    JOIN_EPOCH,
    ConsumerGroup,
    HeartbeatAsk,
    HeartbeatRefused,
    HeartbeatResult,
    MemberState,
    Subscription,
)
from broker.groups.consumer.records import changes, removal
from broker.groups.consumer.steps import Resolve, heartbeat, without
from broker.groups.limits import CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_TOPICS_LOOK_MS, GROUP_MEMBERS_MAX
from broker.wire.errors import ErrorCode

Watch = Callable[[str, float], None]
"""Look at the group again at this monotonic time in ms, or before."""


@dataclass(slots=True)
class _Deadlines:
    """Of one member, on the monotonic scale in ms."""

    session_ms: float
    revocation_ms: float = inf
    revocation_epoch: int = -1

    def next_ms(self) -> float:
        return min(self.session_ms, self.revocation_ms)


class ConsumerGroups:
    """All groups of KIP-848. Everything happens between two awaits of the broker's event loop."""

    def __init__(self, host: CoordinatorHost, log: InternalLog, watch: Watch) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.empty_since_ms: dict[str, int] = {}
        """Wall-clock time since when a group has had no member; since the start for one that was read."""
        self._host = host
        self._log = log
        self._watch = watch
        self._deadlines: dict[str, dict[str, _Deadlines]] = {}
        self._look_due_ms: dict[str, int] = {}
        """When a group's topics are to be looked at again although no member changed."""
        self._matched_of: frozenset[str] = frozenset()
        self._matches: dict[str, frozenset[str]] = {}
        """Per regular expression the topics that it matched, of `_matched_of`."""

    def restore(self, groups: Iterable[ConsumerGroup], now_ms: int) -> None:
        """Groups as read from the log: each member has one session from now to be heard of."""
        for group in groups:
            self.groups[group.group_id] = group
            self._keep_time(group, group, list(group.members), now_ms)

    def heartbeat(
        self, group_id: str, ask: HeartbeatAsk, now_ms: int, *, first: Sequence[Entry] = ()
    ) -> HeartbeatResult:
        """`first` is written in the same batch, before what the heartbeat changes. Raises HeartbeatRefused."""
        known = self.groups.get(group_id)
        if known is None and ask.member_epoch != JOIN_EPOCH:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        before = known or ConsumerGroup(group_id)
        if ask.regex:
            self._check_regex(ask.regex)
        look = now_ms >= self._look_due_ms.get(group_id, 0)
        after, result = heartbeat(before, ask, self._resolver(), GROUP_MEMBERS_MAX, look=look)
        try:
            self._write(before, after, first)
        except BrokerError as error:
            raise HeartbeatRefused(error.error_code, str(error)) from error
        if look:
            self._look_due_ms[group_id] = now_ms + CONSUMER_TOPICS_LOOK_MS
        self._keep_time(before, after, [result.member_id], now_ms)
        return result

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
            if deadlines.session_ms <= now_ms or slow:
                after = without(after, member_id)
        self._write(group, after)
        self._keep_time(group, after, [], now_ms)

    def remove(self, group_id: str) -> None:
        """Forget an empty group. Raises BrokerError, with the group still there."""
        self._log.append(group_id, removal(self.groups[group_id]))
        del self.groups[group_id]
        self.empty_since_ms.pop(group_id, None)
        self._deadlines.pop(group_id, None)
        self._look_due_ms.pop(group_id, None)

    def subscribed_topics(self, group_id: str) -> frozenset[str]:
        """Of all members, by what exists now."""
        members, resolve = self.groups[group_id].members.values(), self._resolver()
        return frozenset(name for member in members for name in resolve(member.subscription))

    # -- inside ------------------------------------------------------------------------------------------------

    def _write(self, before: ConsumerGroup, after: ConsumerGroup, first: Sequence[Entry] = ()) -> None:
        entries = [*first, *changes(before, after)]
        if entries:
            self._log.append(after.group_id, entries)
        self.groups[after.group_id] = after

    def _keep_time(self, before: ConsumerGroup, after: ConsumerGroup, heard: Iterable[str], now_ms: int) -> None:
        deadlines = self._deadlines.setdefault(after.group_id, {})
        for gone in deadlines.keys() - after.members.keys():
            del deadlines[gone]
        for member_id in heard:
            member = after.members.get(member_id)
            if member is None:
                continue
            mine = deadlines.setdefault(member_id, _Deadlines(inf))
            mine.session_ms = now_ms + CONSUMER_SESSION_TIMEOUT_MS
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                mine.revocation_ms = inf
            elif mine.revocation_ms == inf or mine.revocation_epoch != member.epoch:
                mine.revocation_ms, mine.revocation_epoch = now_ms + member.rebalance_timeout_ms, member.epoch
        if after.members:
            self.empty_since_ms.pop(after.group_id, None)
        elif before.members or after.group_id not in self.empty_since_ms:
            self.empty_since_ms[after.group_id] = self._host.clock.now_ms()
        self._watch(after.group_id, min((each.next_ms() for each in deadlines.values()), default=inf))

    def _resolver(self) -> Resolve:
        """By the topics as they are now, each subscription once: the members of a group mostly have the same."""
        known: dict[Subscription, Mapping[str, TopicShape]] = {}

        def resolve(subscription: Subscription) -> Mapping[str, TopicShape]:
            if subscription not in known:
                names = set(subscription.names)
                if subscription.regex:
                    names |= self._matching(subscription.regex)
                shapes = {name: self._host.topic_shape(name) for name in names}
                known[subscription] = {name: shape for name, shape in shapes.items() if shape is not None}
            return known[subscription]

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
