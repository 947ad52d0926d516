"""A fetch at a simulated node: answered at once, when something comes, or when its time is over."""

from __future__ import annotations

from asyncio import TimerHandle

from broker.errors import BrokerError, OffsetOutOfRange
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
    """One fetch request, and its wait. With `by_id` it names topics by their ids alone (from version 13)."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        node_id: int,
        request: fetch.FetchRequest,
        respond: Respond,
        *,
        by_id: bool,
        refuse: bool,
    ) -> None:
        if by_id:
            names = {topic.topic_id: name for name, topic in cluster.topics.items()}
            for asked in request.topics:
                asked.topic = names.get(asked.topic_id, "")
        self._cluster = cluster
        self._node_id = node_id
        self._request = request
        self._respond = respond
        self._by_id = by_id
        self._refuse = refuse
        self._timer: TimerHandle | None = None
        self._deadline = cluster.loop.now + request.max_wait_ms / 1000
        self._done = False

    def look(self) -> None:
        """Answer if there is enough, or no time left; else wait for a change of any of the partitions."""
        if self._done:
            return
        answer, size_bytes, urgent = self._read()
        now = self._cluster.loop.now
        if urgent or size_bytes >= self._request.min_bytes or now >= self._deadline:
            self._done = True
            if self._timer is not None:
                self._timer.cancel()
            self._respond(answer)
            return
        for topic in self._request.topics:
            for asked in topic.partitions:
                partition = self._cluster.partition(topic.topic, asked.partition)
                if partition is not None:
                    partition.parked[self] = self._wake
        if self._timer is None:
            self._timer = self._cluster.loop.call_at(self._deadline, self.look)

    def _wake(self) -> None:
        self._cluster.loop.call_soon(self.look)

    def _read(self) -> tuple[fetch.FetchResponse, int, bool]:
        size_bytes, urgent = 0, not self._request.topics
        topics = []
        for topic in self._request.topics:
            partitions = []
            for asked in topic.partitions:
                data = self._read_partition(topic, asked, size_bytes)
                size_bytes += len(data.records or b"")
                urgent = urgent or bool(data.error_code) or data.diverging_epoch is not None
                partitions.append(data)
            topics.append(fetch.FetchableTopicResponse(topic.topic, partitions, topic.topic_id))
        return fetch.FetchResponse(responses=topics), size_bytes, urgent

    def _read_partition(
        self, topic: fetch.FetchTopic, asked: fetch.FetchPartition, size_bytes: int
    ) -> fetch.PartitionData:
        isolation = self._request.isolation_level
        committed = isolation == IsolationLevel.READ_COMMITTED
        number = asked.partition
        if self._refuse:
            return fetch.PartitionData(number, ErrorCode.KAFKA_STORAGE_ERROR, -1, records=b"")
        try:
            there = self._cluster.topics.get(topic.topic)
            if self._by_id and (there is None or there.topic_id != topic.topic_id):
                raise BrokerError(f"{topic.topic_id}", error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            partition = require_leader(self._cluster, self._node_id, topic.topic, number, asked.current_leader_epoch)
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
