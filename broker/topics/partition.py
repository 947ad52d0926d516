"""A partition on this broker: its log, whether it leads, and who waits for its next records.

A partition is led here, followed here, or offline. Only a leader has an end that consumers may be told: its high
watermark (`broker/replication/leading.py`), which on the only replica is the log's end.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from broker.base.time_limits import timeout
from broker.cluster.metadata import NO_LEADER, PartitionState, TopicState
from broker.cluster.orders import ReplicaLog
from broker.errors import LogDamaged
from broker.log.guard import may_pass
from broker.log.partition_log import PartitionLog
from broker.replication.leading import Leading
from broker.replication.throttling import is_listed
from broker.topics.errors import (
    InvalidTopicRequest,
    LeaderEpochMismatch,
    MetadataBehind,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeading,
    OffsetNotAvailable,
    PartitionOffline,
    RequestTimedOut,
)
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import IsolationLevel

log = logging.getLogger(__name__)


class Waiter(Protocol):
    """An `asyncio.Event`, or what tells several apart."""

    def set(self) -> None: ...


Waiters: TypeAlias = dict[Waiter, None]
"""In the order in which they came."""


class Partition:
    """`state` is what the metadata store holds. `leading` is what this broker knows as the leader, None where it does
    not lead.

    `waiters` are set whenever consumers may see more, `replica_waiters` whenever the log grew, and both when the
    partition is no longer led here, or went away. A partition whose files cannot be opened, or turn out to be damaged
    later, is offline until the broker is started again, or until it is ordered again if that `may_pass`: it is there,
    its log is not.
    """

    __slots__ = (
        "_awaited", "_log", "_start_waiters", "index", "leading", "offline", "offline_listeners", "ordered_in",
        "replica_waiters", "state", "topic", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        index: int,
        opened: PartitionLog | PartitionOffline,
        state: PartitionState,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` is what the broker noted of it (`broker/replication/checkpoint.py`)."""
        self.topic = topic
        self.index = index
        self.state = state
        self.leading: Leading | None = None
        self.ordered_in = 0
        """The epoch of the registration in which this broker was last ordered to lead or follow."""
        self.waiters: Waiters = {}
        self.replica_waiters: Waiters = {}
        self.offline: PartitionOffline | None = None
        self.offline_listeners: list[Callable[[], None]] = []
        """Called when its files turn out to be damaged, or its disk to fail, after they were opened."""
        self._awaited: dict[asyncio.Future[None], int] = {}
        self._start_waiters: Waiters = {}
        self._log: PartitionLog | None = None
        if isinstance(opened, PartitionOffline):
            self.offline = opened
        else:
            self._log = opened
            # Of an end that a crash took nothing is known, whatever comes in its place.
            opened.high_watermark = max(min(high_watermark, opened.log_end_offset), opened.log_start_offset)
            opened.append_listeners.append(self._appended)
            opened.damage_listeners.append(self._go_offline)
            opened.failure_listeners.append(self._give_up)

    @property
    def log(self) -> PartitionLog:
        """Raises PartitionOffline."""
        if self._log is None:
            raise self.refusal()
        return self._log

    def refusal(self) -> PartitionOffline:
        """What whoever asks for one that is offline is told."""
        hint = self.offline.hint if self.offline else None
        return PartitionOffline(f"{self.topic}-{self.index} is offline: {self.offline}", hint=hint)

    @property
    def is_followed(self) -> bool:
        """Whether its log is here, and another broker leads it."""
        return self._log is not None and self.leading is None and self.state.leader != NO_LEADER

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def is_throttled_here(self) -> bool:
        """Whether it is held back on this broker, which leads it, for replicas that are not in sync."""
        return is_listed(self.log.config.leader_replication_throttled_replicas, self.index, self.state.leader)

    def is_throttled_at(self, follower: int) -> bool:
        return is_listed(self.log.config.follower_replication_throttled_replicas, self.index, follower)

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.state.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state.isr

    # -- roles -----------------------------------------------------------------------------------------------------

    def check_not_behind(self, state: PartitionState) -> None:
        """Who leads or follows by metadata of an earlier day gives out epochs again that other replicas have for other
        records, and cuts off what was acknowledged since. Raises MetadataBehind.
        """
        if self._log is not None and self._log.leader_epoch > state.leader_epoch:
            raise MetadataBehind(
                f"{self.topic}-{self.index} has records of leader epoch {self._log.leader_epoch} here, the metadata "
                f"are at {state.leader_epoch}: they were put back to an earlier day"
            )

    def lead(self, state: PartitionState, now_ms: float) -> None:
        """`state.leader` is this broker, from this leader epoch on; `now_ms` is steady time. Once more in the same
        epoch it takes over what was written since: an order that is older says nothing of what this leader has asked
        for. Raises LogStorageError, PartitionOffline, MetadataBehind.
        """
        if self.leading is not None and self.leading.epoch == state.leader_epoch:
            if state.version > self.state.version:
                self.take_state(state, now_ms)
            return
        log = self.log
        self.check_not_behind(state)
        self.stop_leading()
        log.begin_leader_epoch(state.leader_epoch)
        self.state = state
        leading = self.leading = Leading(
            state.leader,
            state,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
        )
        log.high_watermark = leading.high_watermark

    def told(self) -> ReplicaLog:
        """For the controller, which compares the replicas. Raises PartitionOffline."""
        log = self.log
        latest = max(self.state.leader_epoch, log.leader_epoch)
        return ReplicaLog(latest, log.leader_epochs, log.log_end_offset, log.high_watermark)

    def follow(self, state: PartitionState) -> None:
        """Another broker leads, or nobody."""
        self.stop_leading()
        self.state = state

    def take_state(self, state: PartitionState, now_ms: float) -> None:
        """What the metadata store holds now, of the same leader epoch: an ISR that was written, a change that was
        refused, other replicas.
        """
        self.state = state
        self._tell_start_moved()
        if self.leading is not None and self.leading.written(state, self.log.log_end_offset, now_ms):
            self._advanced(self.leading)

    def stop_leading(self) -> None:
        """Whoever waits for records, or for their replicas, is told to look elsewhere."""
        self.leading = None
        self.wake()

    def follower_fetched(
        self, node_id: int, end_offset: int, log_start_offset: int, now_ms: float, broker_epoch: int = -1
    ) -> None:
        """See `Leading.fetched`; only while this broker leads."""
        leading, log_end_offset = self.leading, self.log.log_end_offset
        assert leading is not None
        if self._start_waiters:
            self._tell_start_moved()
        if leading.fetched(
            node_id,
            end_offset,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            now_ms=now_ms,
            broker_epoch=broker_epoch,
        ):
            self._advanced(leading)

    def follow_high_watermark(self, offset: int) -> None:
        """What the leader tells: it is not above our log end, and a new leader that knows less takes nothing back."""
        log = self.log
        reached = max(log.high_watermark, min(offset, log.log_end_offset))
        if reached > log.high_watermark:
            log.high_watermark = reached
            for event in self.waiters:
                event.set()

    # -- who waits -------------------------------------------------------------------------------------------------

    def is_replicated(self, offset: int, leader_epoch: int) -> bool:
        """Whether everything before `offset`, appended in this leader epoch, is before the high watermark, and so
        acknowledged.

        Raises NotLeading, PartitionOffline when that will not be known here, NotEnoughReplicasAfterAppend.
        """
        log, leading = self.log, self.leading
        if leading is None or leading.epoch != leader_epoch:
            raise NotLeading(f"{self.topic}-{self.index} is not led here in leader epoch {leader_epoch} any more")
        if leading.high_watermark < offset:
            return False
        if not leading.has_enough_in_sync(log.config.min_insync_replicas):
            raise NotEnoughReplicasAfterAppend(
                f"{self.topic}-{self.index} has the records at {len(leading.maximal_isr)} replicas, "
                f"{log.config.min_insync_replicas} are needed"
            )
        return True

    def check_may_append(self) -> None:
        """Before what must get to `min.insync.replicas` is appended. Raises NotEnoughReplicas, PartitionOffline."""
        leading, needed = self.leading, self.log.config.min_insync_replicas
        if leading is not None and not leading.may_append(needed):
            raise NotEnoughReplicas(
                f"{self.topic}-{self.index} needs {needed} in-sync replicas, there are {len(leading.isr)}"
            )

    async def wait_replicated(self, offset: int, timeout_ms: float, leader_epoch: int | None = None) -> None:
        """Returns when everything before `offset` is before the high watermark; at once where it is, as it always is
        where no replica follows. `leader_epoch` is that of the append, None: the present one.

        Raises as `is_replicated`, and RequestTimedOut.
        """
        epoch = self.leader_epoch if leader_epoch is None else leader_epoch
        if self.is_replicated(offset, epoch):
            return
        try:
            async with timeout(timeout_ms / 1000):
                while not self.is_replicated(offset, epoch):
                    await self._next_advance(offset)
        except TimeoutError as error:
            raise RequestTimedOut(
                f"{self.topic}-{self.index} is not replicated up to offset {offset} within {timeout_ms:.0f} ms"
            ) from error

    async def _next_advance(self, offset: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[future] = offset
        try:
            await future
        finally:
            self._awaited.pop(future, None)

    async def wait_deleted(self, offset: int, timeout_ms: float) -> int:
        """Returns when no replica in sync has anything before `offset`: the offset before which none has. At once where
        no replica follows. Raises NotLeading, PartitionOffline, RequestTimedOut.
        """
        event = asyncio.Event()
        self._start_waiters[event] = None
        try:
            async with timeout(timeout_ms / 1000):
                while (reached := self._low_watermark()) < offset:
                    await event.wait()
                    event.clear()
        except TimeoutError as error:
            raise RequestTimedOut(
                f"{self.topic}-{self.index} is not deleted before {offset} at every replica within {timeout_ms:.0f} ms"
            ) from error
        finally:
            del self._start_waiters[event]
        return reached

    def _low_watermark(self) -> int:
        log = self.log
        if self.leading is None:
            raise NotLeading(f"{self.topic}-{self.index} is not led here any more")
        return self.leading.low_watermark(log.log_start_offset)

    def wake(self) -> None:
        """Everybody who waits looks again."""
        self._tell_awaited(2**63)
        self._tell_start_moved()
        for event in self.waiters:
            event.set()
        for event in self.replica_waiters:
            event.set()

    def _appended(self) -> None:
        leading = self.leading
        if leading is not None and leading.advance(self.log.log_end_offset):
            self._advanced(leading)
        for event in self.replica_waiters:
            event.set()

    def _advanced(self, leading: Leading) -> None:
        self.log.high_watermark = leading.high_watermark
        if leading.read_at_followers:
            for event in self.replica_waiters:
                event.set()
        if self._awaited:
            self._tell_awaited(leading.high_watermark)
        for event in self.waiters:
            event.set()

    def _tell_awaited(self, high_watermark: int) -> None:
        for future, offset in self._awaited.items():
            if offset <= high_watermark and not future.done():
                future.set_result(None)

    def _tell_start_moved(self) -> None:
        for event in self._start_waiters:
            event.set()

    def _go_offline(self, damage: LogDamaged) -> None:
        log.error("%s-%d is offline: %s", self.topic, self.index, damage)
        self.offline = PartitionOffline(str(damage))
        self.offline.may_pass = may_pass(damage)
        self._log = None
        self.stop_leading()
        for listener in self.offline_listeners:
            listener()

    def _give_up(self, error: OSError) -> None:
        """A leader whose disk fails, where others have all that is acknowledged: one of them is to lead. Alone in sync
        it stays, and refuses records until the disk takes them; a follower is out of sync when it lags.
        """
        if self._log is not None and self.leading is not None and len(self.leading.isr) > 1:
            self._log.end_damaged(LogDamaged(f"its disk failed: {error}"))

    # -- what readers may see --------------------------------------------------------------------------------------

    def visible_end(self, isolation_level: int) -> int:
        """The offset before which a consumer of this isolation level may read."""
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        return self.log.last_stable_offset if committed else self.log.high_watermark

    def check_end_known(self) -> None:
        """Before an end of the log is told, which must never go back. Raises OffsetNotAvailable (KIP-207)."""
        if self.leading is not None and not self.leading.knows_end:
            raise OffsetNotAvailable(
                f"{self.topic}-{self.index} has a new leader, whose high watermark {self.leading.high_watermark} has "
                f"not reached the start of its epoch, {self.leading.epoch_start_offset}"
            )

    def check_leader_epoch(self, client_epoch: int) -> None:
        """Raises LeaderEpochMismatch (KIP-320); -1 is a client that does not say."""
        if client_epoch in (-1, self.state.leader_epoch):
            return
        newer = client_epoch > self.state.leader_epoch
        raise LeaderEpochMismatch(
            f"{self.topic}-{self.index} has leader epoch {self.state.leader_epoch}, not {client_epoch}",
            error_code=ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH,
        )


def check_isolation_level(level: int) -> None:
    """Raises InvalidTopicRequest for one that Kafka does not have."""
    if level not in tuple(IsolationLevel):
        raise InvalidTopicRequest(f"There is no isolation level {level}.")


@dataclass(slots=True, eq=False)
class Topic:
    """`partitions` are those on this broker, by index. `state` is replaced whole when the topic is changed."""

    state: TopicState
    partitions: dict[int, Partition]
    is_internal: bool

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def topic_id(self) -> uuid.UUID:
        return self.state.topic_id
