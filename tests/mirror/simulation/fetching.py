"""A fetch at a simulated node: answered at once, when something comes, or when its time is over.

Its sessions are those of farshore's broker. At times a node drops them all, as Kafka does where others need the room.
"""

from __future__ import annotations

from asyncio import TimerHandle

from broker.errors import BrokerError, OffsetOutOfRange
from broker.topics.fetch_sessions import Fetched, FetchPlan, FetchSessions, by_topic
from broker.wire.errors import ErrorCode
from broker.wire.messages import fetch
from broker.wire.vocabulary import IsolationLevel
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.logs import SimulatedPartition
from tests.mirror.simulation.network import Respond


def require_leader(
    cluster: SimulatedCluster, node_id: int, topic: str, number: int, epoch: int = -1
) -> SimulatedPartition:
    """The partition, if this node leads it, in the epoch that the client knows (-1: any). Raises BrokerError."""
    found = cluster.partition(topic, number)
    if found is None:
        raise BrokerError(f"{topic}-{number}", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if found.leader != node_id:
        raise BrokerError(f"{topic}-{number}", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if 0 <= epoch < found.leader_epoch:
        raise BrokerError(f"{topic}-{number}", error_code=ErrorCode.FENCED_LEADER_EPOCH)
    if epoch > found.leader_epoch:
        raise BrokerError(f"{topic}-{number}", error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    return found


class ParkedFetch:
    """One fetch request, and its wait: of what `plan` names, by names or by ids (from version 13)."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        node_id: int,
        sessions: FetchSessions,
        request: fetch.FetchRequest,
        plan: FetchPlan,
        respond: Respond,
        *,
        refuse: bool,
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._sessions = sessions
        self._request = request
        self._plan = plan
        self._respond = respond
        self._refuse = refuse
        self._timer: TimerHandle | None = None
        self._deadline = cluster.loop.now + request.max_wait_ms / 1000
        self._done = False

    def look(self) -> None:
        """Answer if there is enough, or no time left; else wait for a change of any of the partitions."""
        if self._done:
            return
        found, size_bytes, urgent = self._read()
        now = self._cluster.loop.now
        if urgent or size_bytes >= self._request.min_bytes or now >= self._deadline:
            self._done = True
            if self._timer is not None:
                self._timer.cancel()
            session_id, told = self._sessions.tell(self._plan, found)
            self._respond(fetch.FetchResponse(session_id=session_id, responses=by_topic(told)))
            return
        for fetched in self._plan.partitions.values():
            partition = self._cluster.partition(self._name(fetched), fetched.asked.partition)
            if partition is not None:
                partition.parked[self] = self._wake
        if self._timer is None:
            self._timer = self._cluster.loop.call_at(self._deadline, self.look)

    def _wake(self) -> None:
        self._cluster.loop.call_soon(self.look)

    def _name(self, fetched: Fetched) -> str:
        """Of its topic, "" where there is none of that id any more."""
        if isinstance(fetched.topic, str):
            return fetched.topic
        there = self._cluster.topics.items()
        return next((name for name, topic in there if topic.topic_id == fetched.topic), "")

    def _read(self) -> tuple[list[tuple[Fetched, fetch.PartitionData]], int, bool]:
        found, size_bytes, urgent = [], 0, not self._plan.partitions
        for fetched in self._plan.partitions.values():
            data = self._read_partition(fetched, size_bytes)
            size_bytes += len(data.records or b"")
            urgent = urgent or bool(data.error_code) or data.diverging_epoch is not None
            found.append((fetched, data))
        return found, size_bytes, urgent

    def _read_partition(self, fetched: Fetched, size_bytes: int) -> fetch.PartitionData:
        asked = fetched.asked
        isolation = self._request.isolation_level
        committed = isolation == IsolationLevel.READ_COMMITTED
        number = asked.partition
        if self._refuse:
            return fetch.PartitionData(number, ErrorCode.KAFKA_STORAGE_ERROR, -1, records=b"")
        try:
            if not (name := self._name(fetched)):
                raise BrokerError(f"{fetched.topic}", error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            partition = require_leader(self._cluster, self._node_id, name, number, asked.current_leader_epoch)
            data = fetch.PartitionData(
                number,
                0,
                partition.log_end,
                partition.stable_end,
                partition.log_start,
                aborted_transactions=[] if committed else None,
                records=b"",
            )
            data.diverging_epoch = _divergence(partition, asked)
            if data.diverging_epoch is not None:
                return data
            room = min(asked.partition_max_bytes, self._request.max_bytes - size_bytes)
            found = partition.read(
                asked.fetch_offset, room, up_to=partition.visible_end(isolation), at_least_one=not size_bytes
            )
        except BrokerError as error:
            refused = fetch.PartitionData(number, error.error_code, -1, records=b"")
            if isinstance(error, OffsetOutOfRange):
                refused.log_start_offset, refused.high_watermark = partition.log_start, partition.log_end
            return refused
        data.records = found.data
        if committed and found.data:
            aborted = partition.aborted_in(asked.fetch_offset, found.next_offset)
            data.aborted_transactions = [fetch.AbortedTransaction(*one) for one in aborted]
        return data


def _divergence(partition: SimulatedPartition, asked: fetch.FetchPartition) -> fetch.EpochEndOffset | None:
    """Where the client's log parts from the leader's (KIP-595). Raises OffsetOutOfRange when that is not known."""
    if asked.last_fetched_epoch < 0:
        return None
    epoch, end = partition.epochs.end_offset_for(asked.last_fetched_epoch, partition.log_end)
    if epoch < 0 or end < 0:
        raise OffsetOutOfRange(f"epoch {asked.last_fetched_epoch} is not known")
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return fetch.EpochEndOffset(epoch, end)
    return None
