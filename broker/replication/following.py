"""What a broker follows of one leader: which fetch to send next, and what an answer does to the logs.

All partitions of one leader share a connection and a fetch session. Each request names, per partition, the leader epoch
in which it is followed and the epoch of the last record; a leader whose log parted from ours says where, and the log is
cut there (KIP-101, KIP-279, KIP-595). It is never cut by a high watermark, which may be too low on the one who is new.
What an answer brings counts only for the log that it was asked for: in that leader epoch, at that end.

One failing partition never stops the others: it pauses, longer each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

from broker.errors import BrokerError, CorruptRecords, OffsetOutOfRange
from broker.limits import BYTES_PER_TURN
from broker.log.partition_log import PartitionLog
from broker.replication.limits import (
    FOLLOWER_BACKOFF_MAX_MS,
    FOLLOWER_MAX_BYTES,
    FOLLOWER_MAX_WAIT_MS,
    FOLLOWER_PARTITION_MAX_BYTES,
)
from broker.replication.throttling import ReplicationQuota
from broker.topics.partition import Partition
from broker.wire.buffers import Records
from broker.wire.errors import ErrorCode, WireError
from broker.wire.fetch_epochs import FULL_EPOCH, NO_SESSION, next_epoch
from broker.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

log = logging.getLogger(__name__)

EXPECTED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""While leadership moves: one of the two knows of it first."""

Key = tuple[UUID, int]


class LeaderRefused(BrokerError):
    """The leader answered with an error code for one partition."""

    retriable = True
    hint = "look at the log of the broker that leads the partition"


@dataclass(slots=True, eq=False)
class _Followed:
    partition: Partition
    catches_up: bool
    """Whether it may be held back: it lacks something that others have acknowledged, as far as is known here."""
    failures: int = 0
    not_before_ms: float = 0.0

    def asked(self) -> FetchPartition:
        own = self.partition.log
        return FetchPartition(
            self.partition.index,
            current_leader_epoch=self.partition.leader_epoch,
            fetch_offset=own.log_end_offset,
            last_fetched_epoch=own.leader_epoch,
            log_start_offset=own.log_start_offset,
            partition_max_bytes=FOLLOWER_PARTITION_MAX_BYTES,
        )


class Following:
    """`replica` is this broker: its node id and the epoch of its newest registration (KIP-903). `backoff_ms` gives the
    pause after so many failures in a row. `quota` is for the partitions that are held back, of all leaders together.
    """

    def __init__(
        self, replica: Callable[[], ReplicaState], backoff_ms: Callable[[int], float], quota: ReplicationQuota
    ) -> None:
        self._replica = replica
        self._backoff_ms = backoff_ms
        self._quota = quota
        self._followed: dict[Key, _Followed] = {}
        self._session_id = NO_SESSION
        self._session_epoch = FULL_EPOCH
        # What the leader knows of our session, and the request that was sent last.
        self._told: dict[Key, FetchPartition] = {}
        self._sent: FetchRequest | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, topic_id: UUID, partition: Partition) -> None:
        """From now on, in the leader epoch of its state, at once; once more when that changes."""
        in_sync = self._replica().replica_id in partition.isr
        self._followed[topic_id, partition.index] = _Followed(partition, catches_up=not in_sync)

    def forget(self, topic_id: UUID, index: int) -> None:
        self._followed.pop((topic_id, index), None)

    def due_ms(self, now_ms: float) -> float | None:
        """When the next partition may be asked for; None while there is none."""
        online = [one for one in self._followed.values() if one.partition.offline is None]
        # The rate may be another one by then, and what is held back too.
        allowed_ms = now_ms + min(self._quota.over_in_ms(now_ms), FOLLOWER_BACKOFF_MAX_MS)
        times = [max(one.not_before_ms, allowed_ms) if self._throttles(one) else one.not_before_ms for one in online]
        return min(times, default=None)

    def _throttles(self, one: _Followed) -> bool:
        return one.catches_up and one.partition.is_throttled_at(self._replica().replica_id)

    def next_request(self, now_ms: float) -> FetchRequest | None:
        """For all that do not pause; None when there is nothing to ask. Its answer is to be given to `take`, or `lost`
        to be told that none will come.
        """
        due: dict[Key, FetchPartition] = {}
        exceeded = self._quota.is_exceeded(now_ms)
        for key, followed in self._followed.items():
            if followed.not_before_ms > now_ms or followed.partition.offline is not None:
                continue
            if not (exceeded and self._throttles(followed)):
                due[key] = followed.asked()
        if not due:
            return None
        told = self._told if self._session_id else {}
        changed = {key: asked for key, asked in due.items() if told.get(key) != asked}
        forgotten = [key for key in told if key not in due]
        self._told = due
        self._sent = FetchRequest(
            replica_state=self._replica(),
            max_wait_ms=FOLLOWER_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FOLLOWER_MAX_BYTES,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic("", asked, topic_id) for topic_id, asked in _by_topic(changed).items()],
            forgotten_topics_data=[
                ForgottenTopic("", [index for topic, index in forgotten if topic == topic_id], topic_id)
                for topic_id in dict.fromkeys(topic for topic, _ in forgotten)
            ],
        )
        return self._sent

    def lost(self) -> None:
        """The connection ended: a request or its answer may be lost, so the session begins anew."""
        self._session_id, self._session_epoch, self._sent = NO_SESSION, FULL_EPOCH, None

    def take(self, request: FetchRequest, response: FetchResponse, now_ms: float) -> Iterator[int]:
        """Applies the answer to `request`, partition by partition -> the bytes that each brought, BYTES_PER_TURN where
        a log was to be cut, which waits for the disk; between two of them anything may happen. An answer to an earlier
        request than the last is left alone.
        """
        if request is not self._sent:
            return
        self._sent = None
        if response.error_code:
            # The leader dropped the session: it is begun anew with the next request.
            self.lost()
            return
        self._session_id = response.session_id
        self._session_epoch = next_epoch(self._session_epoch) if response.session_id else FULL_EPOCH
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed, asked = self._followed.get(key), self._told.get(key)
                if followed is not None and asked is not None and followed.partition.offline is None:
                    taken_bytes = self._try(followed, asked, data, now_ms)
                    if taken_bytes:
                        # Without a session the leader goes by our order, as far as its answer may grow.
                        self._followed[key] = self._followed.pop(key)
                    cuts = data.diverging_epoch is not None or data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                    yield BYTES_PER_TURN if cuts else taken_bytes

    def _try(self, followed: _Followed, asked: FetchPartition, data: PartitionData, now_ms: float) -> int:
        partition = followed.partition
        if partition.leading is not None or not _is_of(partition, asked):
            return 0
        try:
            taken_bytes = _apply(partition, asked, data)
        except (BrokerError, WireError) as error:
            code = error.error_code if isinstance(error, BrokerError) else None
            if not followed.failures and code not in EXPECTED:
                log.warning("%s-%d cannot be followed: %s", partition.topic, partition.index, error)
            self._pause(followed, now_ms)
        except Exception:  # whatever it is, it concerns this partition alone, and the others go on
            log.exception("%s-%d cannot be followed", partition.topic, partition.index)
            self._pause(followed, now_ms)
        else:
            followed.failures = 0
            if taken_bytes and partition.is_throttled_at(self._replica().replica_id):
                self._quota.record(taken_bytes, now_ms)
            followed.catches_up = partition.log.log_end_offset < data.high_watermark
            return taken_bytes
        return 0

    def _pause(self, followed: _Followed, now_ms: float) -> None:
        followed.failures += 1
        followed.not_before_ms = now_ms + self._backoff_ms(followed.failures)


def _is_of(partition: Partition, asked: FetchPartition) -> bool:
    """Whether the log is as it was when this was asked, and followed in the same leader epoch."""
    return (
        asked.current_leader_epoch == partition.leader_epoch
        and asked.fetch_offset == partition.log.log_end_offset
        and asked.last_fetched_epoch == partition.log.leader_epoch
    )


def _apply(partition: Partition, asked: FetchPartition, data: PartitionData) -> int:
    """The bytes that it brought. Raises BrokerError, with the log as it was or with a part of the batches."""
    own, records = partition.log, memoryview(b"")
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        _begin_anew(own, data)
    elif data.error_code:
        code = ErrorCode.of(data.error_code)
        raise LeaderRefused(f"the leader answered {code.name}", error_code=code)
    elif data.diverging_epoch is not None:
        _truncate(partition, data.diverging_epoch, data.log_start_offset)
    else:
        records = _one_buffer(data.records)
        # First the start: what is under the leader's was not compared, and must not be under records of the leader's.
        _follow_offsets(partition, data)
        own.append_as_follower(records, leader_epoch=asked.current_leader_epoch)
        _follow_offsets(partition, data)
    return len(records)


def _follow_offsets(partition: Partition, data: PartitionData) -> None:
    partition.follow_high_watermark(data.high_watermark)
    partition.log.follow_log_start(data.log_start_offset)


def _truncate(partition: Partition, diverging: EpochEndOffset, leader_start_offset: int) -> None:
    """Cuts the log where it and the leader's part. What is cut off below our own high watermark was acknowledged: this
    line in the log is all that tells of it, so it comes before the cut.
    """
    own, state = partition.log, partition.state
    offset = _parts_at(own, diverging, leader_start_offset)
    if offset < own.high_watermark:
        log.warning(
            "%s-%d is cut from offset %d to %d, below its high watermark %d, where it parts from the log of broker %d, "
            "which leads in epoch %d: acknowledged records are not there, as after an unclean election",
            *(partition.topic, partition.index, own.log_end_offset, offset, own.high_watermark),
            *(state.leader, state.leader_epoch),
        )
    compared = own.is_empty or diverging.end_offset > leader_start_offset
    if compared and offset >= own.log_start_offset:
        own.truncate_to(offset)
    else:
        own.start_anew(offset)


def _parts_at(own: PartitionLog, diverging: EpochEndOffset, leader_start_offset: int) -> int:
    """Where the epoch ends that the leader knows of those not above our last one, in the leader's log or in ours,
    whichever is earlier. Where we do not have that epoch, our next lower one is cut to, and the leader asked again.

    Where the leader has nothing of that epoch any more, nothing of ours was compared, and nothing of it stays.
    """
    if diverging.end_offset <= leader_start_offset and not own.is_empty:
        return leader_start_offset
    epoch, end_offset = own.end_offset_for_epoch(diverging.epoch)
    if epoch == diverging.epoch:
        end_offset = min(end_offset, diverging.end_offset)
    elif epoch < 0:
        end_offset = diverging.end_offset
    return min(end_offset, own.log_end_offset)


def _begin_anew(own: PartitionLog, data: PartitionData) -> None:
    """The leader's log begins above our end: what lies between is gone. Where our records reach into the leader's log
    something else is wrong, and they stay.
    """
    start_offset = data.log_start_offset
    if start_offset < 0 or (not own.is_empty and start_offset <= own.log_end_offset):
        raise OffsetOutOfRange(
            f"the leader's log does not hold offset {own.log_end_offset}, where ours ends; it begins at {start_offset}"
        )
    own.start_anew(start_offset)


def _one_buffer(records: Records | None) -> memoryview:
    if records is None:
        return memoryview(b"")
    if isinstance(records, list):
        return memoryview(b"".join(records))
    if not isinstance(records, memoryview | bytes | bytearray):
        raise CorruptRecords("fetched records that are not bytes")
    return memoryview(records)


def _by_topic(asked: dict[Key, FetchPartition]) -> dict[UUID, list[FetchPartition]]:
    topics: dict[UUID, list[FetchPartition]] = {}
    for (topic_id, _), one in asked.items():
        topics.setdefault(topic_id, []).append(one)
    return topics
