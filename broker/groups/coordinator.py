"""The group coordinator: the shell around the group state machine.

It owns the groups of one partition of `__consumer_offsets`, writes them there, keeps the requests that wait for a
rebalance, and the one timer. Everything between two `await`s is one step: nothing else touches a group. What a step
says counts once it is replicated, which those wait for who pass it on (`Coordinators.ask`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from math import inf

from broker.base.clock import steady_ms
from broker.base.time_limits import timeout
from broker.coordination.host import CoordinatorHost
from broker.coordination.internal_log import StateLog
from broker.coordination.limits import COORDINATOR_LOAD_RECORDS_PER_TURN
from broker.errors import BrokerError
from broker.groups.consumer.coordinator import ConsumerGroups
from broker.groups.consumer.model import JOIN_EPOCH, HeartbeatAsk, HeartbeatRefused, HeartbeatResult
from broker.groups.consumer.steps import check_epoch
from broker.groups.formats import GroupMetadataValue, group_entry, group_tombstone, read_group, restore_members
from broker.groups.group import Group
from broker.groups.limits import (
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_MEMBERS_MAX,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    OFFSET_TOMBSTONE_RETRY_MS,
    OFFSETS_RETENTION_CHECK_MS,
)
from broker.groups.loading import StoredGroups
from broker.groups.migration import upgraded
from broker.groups.model import Effects, GroupRules, JoinAsk, JoinResult, Leaver, SyncAsk, SyncResult
from broker.groups.offsets import OffsetStore, expired
from broker.groups.subscriptions import subscribed_topics
from broker.groups.timers import Deadlines
from broker.groups.waiters import Waiters
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import GroupState, TopicPartition

log = logging.getLogger(__name__)


class GroupCoordinator:
    """The groups of one partition, for as long as this broker leads it. `load` once, then `run`."""

    def __init__(self, host: CoordinatorHost, log: StateLog) -> None:
        config = host.config
        self._host = host
        self._clock = host.clock
        self._rules = GroupRules(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            session_timeout_min_ms=config.group_min_session_timeout_ms,
            session_timeout_max_ms=config.group_max_session_timeout_ms,
            members_max=GROUP_MEMBERS_MAX,
            new_member_join_timeout_ms=NEW_MEMBER_JOIN_TIMEOUT_MS,
        )
        self.log = log
        self.offsets = OffsetStore(self.log)
        self.groups: dict[str, Group] = {}
        self.consumer = ConsumerGroups(host, self.log, self._watch_at, self._rules, self._adopt)
        self._joins: Waiters[JoinResult] = Waiters()
        self._syncs: Waiters[SyncResult] = Waiters()
        self._deadlines = Deadlines()
        self._earlier_deadline = asyncio.Event()

    def now_ms(self) -> int:
        """Monotonic: sessions must not end because somebody set the clock."""
        return int(steady_ms(self._clock))

    # -- start and time --------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the partition, and drop the offsets of topics that are gone, whose tombstones a kill or a full disk
        prevented. Others get their turn meanwhile. Raises BrokerError, CorruptBatch, MalformedMessage.
        """
        stored = StoredGroups(self.offsets)
        taken = 0
        for batch in self.log.replay():
            stored.take(batch)
            taken += len(batch.records)
            if taken >= COORDINATOR_LOAD_RECORDS_PER_TURN:
                taken = 0
                await asyncio.sleep(0)
        for number, (group_id, value) in enumerate(stored.classic.items(), 1):
            self._restore(group_id, read_group(value))
            if number % COORDINATOR_LOAD_RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)
        self.consumer.restore(stored.consumer.groups(), self.now_ms())
        await self._forget_gone_topics()
        for group_id in self.offsets.group_ids():
            if group_id not in self.consumer.groups:
                self._group(group_id)

    async def _forget_gone_topics(self) -> None:
        """Asked of the cluster: a broker that has just begun to lead may not have heard of every topic."""
        named = {where.topic async for group_id in self._in_turns() for where in self.offsets.of(group_id).partitions()}
        gone = await self._host.gone_topics(named)
        if gone:
            async for group_id in self._in_turns():
                self._forget_offsets(group_id, gone)

    async def _in_turns(self) -> AsyncIterator[str]:
        """The groups that have offsets; between a few of them others get their turn."""
        taken = 0
        for group_id in list(self.offsets.group_ids()):
            taken += len(self.offsets.of(group_id).committed)
            yield group_id
            if taken >= COORDINATOR_LOAD_RECORDS_PER_TURN:
                taken = 0
                await asyncio.sleep(0)

    def _restore(self, group_id: str, stored: GroupMetadataValue) -> None:
        group = self._group(group_id)
        group.generation_id = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol
        group.leader_id = stored.leader or ""
        group.state_timestamp_ms = stored.current_state_timestamp
        group.restore(restore_members(stored), self.now_ms())
        if group.members and not group.leader_id:
            # It ended between the departure of its last member of the consumer protocol and its rebalance.
            self._apply(group, group.join_anew(self.now_ms()))
        self._watch(group)

    async def run(self) -> None:
        """Do what is due when it is due; ends only by being cancelled."""
        next_retention_ms = self.now_ms() + OFFSETS_RETENTION_CHECK_MS
        while True:
            self._earlier_deadline.clear()
            wait_ms = min(self._deadlines.next_ms(), next_retention_ms) - self.now_ms()
            try:
                async with timeout(max(wait_ms, 0) / 1000):
                    await self._earlier_deadline.wait()
            except TimeoutError:
                self.tick()
            if self.now_ms() >= next_retention_ms:
                next_retention_ms = self.now_ms() + OFFSETS_RETENTION_CHECK_MS
                self.expire_offsets()

    def tick(self) -> None:
        """Let every group whose time has come do what is due."""
        now_ms = self.now_ms()
        for group_id in self._deadlines.pop_due(now_ms):
            self._write_owed(group_id)
            group = self.groups.get(group_id)
            if group is not None:
                self._apply(group, group.tick(now_ms))
                continue
            try:
                self.consumer.tick(group_id, now_ms)
            except BrokerError as error:
                # A member that cannot be dropped yet is tried again; a full disk must not end the coordinator.
                log.warning("silent members of group %s could not be dropped: %s", group_id, error)
                self._watch_at(group_id, now_ms + CONSUMER_HEARTBEAT_INTERVAL_MS)

    def expire_offsets(self) -> None:
        """Drop offsets of empty groups that had their time, and empty groups that have none left."""
        now_ms = self._clock.now_ms()
        for group in [g for g in self.groups.values() if g.state is GroupState.EMPTY and not g.pending_members]:
            offsets = self.offsets.of(group.group_id)
            since_ms = group.state_timestamp_ms if group.protocol_type else -1
            try:
                self.offsets.remove(group.group_id, expired(offsets, empty_since_ms=since_ms, now_ms=now_ms))
                if not self.offsets.has_any(group.group_id):
                    self._remove(group)
            except BrokerError as error:
                # Retention is tried again at the next check; a full disk must not end the coordinator.
                log.warning("offsets of group %s could not be expired: %s", group.group_id, error)
        for group_id, since_ms in list(self.consumer.empty_since_ms.items()):
            offsets = self.offsets.of(group_id)
            try:
                self.offsets.remove(group_id, expired(offsets, empty_since_ms=since_ms, now_ms=now_ms))
                if not self.offsets.has_any(group_id):
                    self.consumer.remove(group_id)
            except BrokerError as error:
                # As above.
                log.warning("offsets of group %s could not be expired: %s", group_id, error)

    def end(self) -> None:
        """The leadership is over: whoever waits is to look for the next coordinator."""
        self.log.is_over = True
        error = ErrorCode.NOT_COORDINATOR
        self._joins.answer_all(lambda member_id: JoinResult(error, member_id))
        self._syncs.answer_all(lambda _: SyncResult(error))
        self._deadlines = Deadlines()

    # -- the protocol ----------------------------------------------------------------------------------------

    async def join(self, group_id: str, ask: JoinAsk) -> JoinResult:
        if not group_id:
            return JoinResult(ErrorCode.INVALID_GROUP_ID, ask.member_id)
        if group_id not in self.groups and ask.member_id and not self.consumer.has_members(group_id):
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ask.member_id)
        try:
            if self.consumer.has_members(group_id):
                joined = self.consumer.join(group_id, ask, self.now_ms())
                if joined is not None:
                    return joined
                ask = replace(ask, member_id=ask.new_member_id)
            elif group_id in self.consumer.groups:
                self.consumer.remove(group_id)
        except BrokerError as error:
            return JoinResult(error.error_code, ask.member_id)
        group = self._group(group_id)
        outcome = group.join(ask, self.now_ms())
        if isinstance(outcome, JoinResult):
            self._watch(group)
            self._forget_if_unused(group)
            return outcome
        with self._joins.waiting(group_id, ask.member_id or ask.new_member_id) as answer:
            self._apply(group, outcome)
            return await answer

    async def sync(self, group_id: str, ask: SyncAsk) -> SyncResult:
        if not group_id:
            return SyncResult(ErrorCode.INVALID_GROUP_ID)
        if group_id in self.consumer.groups:
            return self.consumer.sync(group_id, ask, self.now_ms())
        group = self.groups.get(group_id)
        if group is None:
            return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        outcome = group.sync(ask, self.now_ms())
        if isinstance(outcome, SyncResult):
            return outcome
        with self._syncs.waiting(group_id, ask.member_id) as answer:
            self._apply(group, outcome)
            return await answer

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group_id in self.consumer.groups:
            return self.consumer.classic_heartbeat(group_id, member_id, instance_id, generation_id, self.now_ms())
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, instance_id, generation_id, self.now_ms())

    def consumer_heartbeat(self, group_id: str, ask: HeartbeatAsk) -> HeartbeatResult:
        """A member of a consumer group (KIP-848) joins, lives or leaves. Raises HeartbeatRefused."""
        if not group_id:
            raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        classic = self.groups.get(group_id)
        if classic is None:
            return self.consumer.heartbeat(group_id, ask, self.now_ms())
        if ask.member_epoch != JOIN_EPOCH:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        # A classic group becomes a consumer group when a member of that kind comes: with its first record.
        begin = upgraded(classic, self._host.config.group_consumer_migration_policy, self.consumer.topic_id)
        gone = [group_tombstone(group_id)] if classic.generation_id > 0 else []
        result = self.consumer.heartbeat(group_id, ask, self.now_ms(), first=gone, begin=begin)
        del self.groups[group_id]
        self._apply(classic, classic.dissolve())
        return result

    def _adopt(self, group: Group) -> None:
        """One whose last member of the consumer protocol has left: its members are told to join anew."""
        self.groups[group.group_id] = group
        self._apply(group, group.join_anew(self.now_ms()))

    def leave(self, group_id: str, leavers: list[Leaver]) -> list[ErrorCode]:
        if group_id in self.consumer.groups:
            try:
                return self.consumer.leave(group_id, leavers, self.now_ms())
            except BrokerError as error:
                return [error.error_code] * len(leavers)
        group = self.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavers)
        errors, effects = group.leave(leavers, self.now_ms())
        self._apply(group, effects)
        return errors

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, *, transactional: bool = False
    ) -> ErrorCode:
        """May offsets be committed for the group? A group is made for a commit from outside of any."""
        consumer = self.consumer.groups.get(group_id)
        if consumer is not None:
            from_outside = transactional and generation_id < 0 and not member_id and instance_id is None
            return ErrorCode.NONE if from_outside else check_epoch(consumer, member_id, generation_id)
        group = self.groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            group = self._group(group_id)
        return group.check_commit(member_id, instance_id, generation_id, self.now_ms(), transactional=transactional)

    # -- deletion --------------------------------------------------------------------------------------------

    def delete(self, group_id: str) -> ErrorCode:
        """Forget an empty group and its offsets (DeleteGroups)."""
        group, consumer = self.groups.get(group_id), self.consumer.groups.get(group_id)
        if group is None and consumer is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group is not None and (group.state is not GroupState.EMPTY or group.pending_members):
            return ErrorCode.NON_EMPTY_GROUP
        if consumer is not None and consumer.members:
            return ErrorCode.NON_EMPTY_GROUP
        try:
            self.offsets.remove(group_id, self.offsets.of(group_id).partitions())
            if consumer is not None:
                self.consumer.remove(group_id)
            elif group is not None:
                self._remove(group)
        except BrokerError as error:
            return error.error_code
        return ErrorCode.NONE

    def subscribed_topics(self, group_id: str) -> frozenset[str] | None:
        """Of a group that exists; None where it has members and it cannot be known."""
        if group_id in self.consumer.groups:
            return self.consumer.subscribed_topics(group_id)
        return subscribed_topics(self.groups[group_id])

    def remove_offsets(self, group_id: str, offsets: Sequence[TopicPartition]) -> None:
        """Forget single offsets, and the group where that was all of it. Raises BrokerError."""
        self.offsets.remove(group_id, offsets)
        group = self.groups.get(group_id)
        if group is not None:
            self._forget_if_unused(group)

    def exists(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.consumer.groups

    def forget_topic(self, topic: str) -> None:
        """Drop the offsets of a deleted topic: a new one of that name starts from nothing."""
        for group_id in list(self.offsets.group_ids()):
            self._forget_offsets(group_id, {topic})

    def _forget_offsets(self, group_id: str, topics: Collection[str]) -> None:
        gone = [where for where in self.offsets.of(group_id).partitions() if where.topic in topics]
        if gone:
            self.offsets.forget(group_id, gone)
            self._write_owed(group_id)

    def _write_owed(self, group_id: str) -> None:
        try:
            self.offsets.write_owed(group_id)
        except BrokerError as error:
            # Nobody is answered with the offsets any more; tried again, and what a restart still finds `load` drops.
            log.warning("offsets of deleted topics are still in the log of group %s: %s", group_id, error)
            self._watch_at(group_id, self.now_ms() + OFFSET_TOMBSTONE_RETRY_MS)

    def _remove(self, group: Group) -> None:
        """Raises BrokerError, with the group still there."""
        if group.generation_id > 0:
            self.log.append(group.group_id, [group_tombstone(group.group_id)])
        group.state = GroupState.DEAD
        del self.groups[group.group_id]

    # -- inside ----------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._rules)
            group.state_timestamp_ms = self._clock.now_ms()
        return group

    def _apply(self, group: Group, effects: Effects) -> None:
        """Write, then answer: nobody starts on an assignment that a restart would forget."""
        if effects.store:
            group.state_timestamp_ms = self._clock.now_ms()
            effects = self._store(group, effects)
        for join_id, joined in effects.joins.items():
            self._joins.answer(group.group_id, join_id, joined)
        for sync_id, synced in effects.syncs.items():
            self._syncs.answer(group.group_id, sync_id, synced)
        self._watch(group)
        self._forget_if_unused(group)

    def _store(self, group: Group, effects: Effects) -> Effects:
        try:
            self.log.append(group.group_id, [group_entry(group)])
        except BrokerError as error:
            code = error.error_code
            if code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                # The name of that error says nothing to a member; Kafka answers so too.
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            return group.assignment_not_stored(replace(effects, store=False), code, self.now_ms())
        return effects

    def _watch(self, group: Group) -> None:
        self._watch_at(group.group_id, group.next_deadline_ms())

    def _watch_at(self, group_id: str, deadline_ms: float) -> None:
        if deadline_ms < inf and self._deadlines.set_at_most(group_id, deadline_ms):
            self._earlier_deadline.set()

    def _forget_if_unused(self, group: Group) -> None:
        if group.is_unused and not self.offsets.has_any(group.group_id):
            self.groups.pop(group.group_id, None)
