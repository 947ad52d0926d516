"""A partition on this broker: its log, its leadership, and who waits for its next records."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass

from broker.cluster.metadata import PartitionState, TopicState
from broker.errors import LogDamaged
from broker.log.partition_log import PartitionLog
from broker.topics.errors import InvalidTopicRequest, LeaderEpochMismatch, PartitionOffline, RequestTimedOut
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import IsolationLevel

log = logging.getLogger(__name__)


class Partition:
    """`state` is what the metadata store holds. `waiters` are set whenever the log grew, or the partition went away.

    A partition whose files cannot be opened, or turn out to be damaged later, is offline until the broker is started
    again: it is there, its log is not.
    """

    __slots__ = ("_log", "index", "offline", "state", "topic", "waiters")

    def __init__(self, topic: str, index: int, opened: PartitionLog | PartitionOffline, state: PartitionState) -> None:
        self.topic = topic
        self.index = index
        self.state = state
        self.waiters: set[asyncio.Event] = set()
        self.offline: PartitionOffline | None = None
        self._log: PartitionLog | None = None
        if isinstance(opened, PartitionOffline):
            self.offline = opened
        else:
            self._log = opened
            opened.append_listeners.append(self.wake)
            opened.damage_listeners.append(self._go_offline)

    @property
    def log(self) -> PartitionLog:
        """Raises PartitionOffline."""
        if self._log is None:
            hint = self.offline.hint if self.offline else None
            raise PartitionOffline(f"{self.topic}-{self.index} is offline: {self.offline}", hint=hint)
        return self._log

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.state.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state.isr

    def wake(self) -> None:
        for event in self.waiters:
            event.set()

    def _go_offline(self, damage: LogDamaged) -> None:
        log.error("%s-%d is offline: %s", self.topic, self.index, damage)
        self.offline = PartitionOffline(str(damage))
        self._log = None
        self.wake()

    async def wait_replicated(self, offset: int, timeout_ms: int) -> None:
        """Returns when everything before `offset` is below the high watermark. Raises RequestTimedOut,
        PartitionOffline.
        """
        if self.log.high_watermark < offset:
            raise RequestTimedOut(f"{self.topic}-{self.index} has no replica beyond {self.log.high_watermark}")

    def visible_end(self, isolation_level: int) -> int:
        """The offset before which a consumer of this isolation level may read."""
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        return self.log.last_stable_offset if committed else self.log.high_watermark

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
    """`partitions[i]` is partition i. `state` is replaced whole when the topic is changed."""

    state: TopicState
    partitions: list[Partition]
    is_internal: bool

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def topic_id(self) -> uuid.UUID:
        return self.state.topic_id
