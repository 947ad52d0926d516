"""Markers: what ends a transaction in the partitions that it wrote to (KIP-98), and who writes them.

A coordinator gives each broker the order for the partitions that it leads, and repeats it until each is done or gone.
A leader takes no marker of a coordinator that is older than one it has heard of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from broker.coordination.host import CoordinatorHost, HostPartition
from broker.coordination.internal_log import Producer
from broker.coordination.limits import REPLICATION_TIMEOUT_MS
from broker.errors import BrokerError
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition

OffsetsEnd = Callable[[int, int, bool, int], None]
"""(partition of the offsets topic, producer id, commit, end offset of the marker): a marker in `__consumer_offsets`."""


class Marker(NamedTuple):
    """`coordinator_epoch` is the leader epoch of the coordinator's partition of `__transaction_state`."""

    producer: Producer
    commit: bool
    coordinator_epoch: int


class Markers(Protocol):
    """The way to the leaders of all partitions."""

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """Has the marker written in each of them, and replicated: what came of it. UNKNOWN_TOPIC_OR_PARTITION is for
        what the cluster does not have; a leader that is not known or does not answer, for an error to be tried again.

        Orders of one coordinator arrive one after the other, also after somebody who waited for one was cancelled, and
        this returns when none of its own is on its way: a marker that came late would end the next transaction.
        """
        ...


class MarkerGuard:
    """Of one producer in one partition: whether a marker of it was written there meanwhile."""

    ended = False


class _Written(NamedTuple):
    partition: HostPartition
    end_offset: int
    leader_epoch: int


async def _replicated(written: _Written) -> ErrorCode:
    try:
        await written.partition.wait_replicated(written.end_offset, REPLICATION_TIMEOUT_MS, written.leader_epoch)
    except BrokerError as error:
        return error.error_code
    return ErrorCode.NONE


class LocalMarkers:
    """The partitions that this broker leads; in a cluster of one broker that is all of them."""

    def __init__(self, host: CoordinatorHost, end_offsets: OffsetsEnd) -> None:
        self._host = host
        self._end_offsets = end_offsets
        self._guards: dict[tuple[TopicPartition, int], list[MarkerGuard]] = {}

    async def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """As `Markers.write`: each partition is tried, as the records of one that took its marker are to be read
        whatever became of another.
        """
        written = {where: self._append(where, marker) for where in sorted(partitions)}
        return {
            where: each if isinstance(each, ErrorCode) else await _replicated(each) for where, each in written.items()
        }

    def _append(self, where: TopicPartition, marker: Marker) -> ErrorCode | _Written:
        producer = marker.producer
        try:
            partition = self._host.require_partition(*where)
            # Afterwards would be too late: the order is repeated, and each time one more marker would be written.
            partition.check_may_append()
            offset = partition.log.write_marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                leader_epoch=partition.leader_epoch,
            )
        except BrokerError as error:
            return error.error_code
        for guard in self._guards.get((where, producer.producer_id), ()):
            guard.ended = True
        if where.topic == OFFSETS_TOPIC:
            self._end_offsets(where.partition, producer.producer_id, marker.commit, offset + 1)
        return _Written(partition, offset + 1, partition.leader_epoch)

    @contextmanager
    def guard(self, where: TopicPartition, producer_id: int) -> Iterator[MarkerGuard]:
        """While it is asked whether the producer's transaction is open, its end may be written."""
        guard = MarkerGuard()
        guards = self._guards.setdefault((where, producer_id), [])
        guards.append(guard)
        try:
            yield guard
        finally:
            guards.remove(guard)
            if not guards:
                self._guards.pop((where, producer_id), None)
