"""What a node of a simulated cluster answers about groups: all of them live on its coordinator, none has members."""

from __future__ import annotations

from typing import Any

from broker.wire.errors import ErrorCode
from broker.wire.messages import (
    add_offsets_to_txn,
    describe_groups,
    list_groups,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
)
from broker.wire.vocabulary import NO_OFFSET, TopicPartition
from tests.mirror.simulation.cluster import OFFSETS, SimulatedCluster, SimulatedGroup


class GroupAnswers:
    """A method per API key; `refuse`: to say that it cannot just now."""

    cluster: SimulatedCluster
    node_id: int

    def _coordinator_error(self, refuse: bool) -> int:
        if self.node_id != self.cluster.coordinator_id:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if refuse else 0

    def list_groups(self, _request: list_groups.ListGroupsRequest, refuse: bool) -> list_groups.ListGroupsResponse:
        if refuse:
            return list_groups.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        here = self.cluster.groups if self.node_id == self.cluster.coordinator_id else {}
        return list_groups.ListGroupsResponse(groups=[list_groups.ListedGroup(g, "", "Empty") for g in here])

    def describe_groups(self, request: describe_groups.DescribeGroupsRequest, refuse: bool) -> Any:
        error = self._coordinator_error(refuse)
        return describe_groups.DescribeGroupsResponse(
            groups=[
                describe_groups.DescribedGroup(error, g, "Empty" if g in self.cluster.groups else "Dead")
                for g in request.groups
            ]
        )

    def offset_fetch(self, request: offset_fetch.OffsetFetchRequest, refuse: bool) -> offset_fetch.OffsetFetchResponse:
        error = self._coordinator_error(refuse)

        def answer(group: str, named: list[TopicPartition] | None) -> offset_fetch.OffsetFetchResponseGroup:
            found = self.cluster.groups.get(group, SimulatedGroup())
            pending = found.pending if request.require_stable else frozenset()
            topics: dict[str, list[Any]] = {}
            for where in found.offsets if named is None else named:
                offset, text = (NO_OFFSET, "") if where in pending else found.offsets.get(where, (NO_OFFSET, ""))
                code = ErrorCode.UNSTABLE_OFFSET_COMMIT if where in pending else 0
                one = offset_fetch.OffsetFetchResponsePartitions(where.partition, offset, -1, text, code)
                topics.setdefault(where.topic, []).append(one)
            listed = [offset_fetch.OffsetFetchResponseTopics(name, ones) for name, ones in topics.items()]
            return offset_fetch.OffsetFetchResponseGroup(group, [] if error else listed, error)

        return offset_fetch.OffsetFetchResponse(groups=[answer(one.group_id, _named(one)) for one in request.groups])

    def offset_commit(self, request: offset_commit.OffsetCommitRequest, refuse: bool) -> Any:
        error = self._coordinator_error(refuse)
        if not error:
            group = self.cluster.groups.setdefault(request.group_id, SimulatedGroup())
            for topic in request.topics:
                for asked in topic.partitions:
                    where = TopicPartition(topic.name, asked.partition_index)
                    group.commit(where, asked.committed_offset, asked.committed_metadata or "")
        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.OffsetCommitResponseTopic(
                    t.name,
                    [offset_commit.OffsetCommitResponsePartition(p.partition_index, error) for p in t.partitions],
                )
                for t in request.topics
            ]
        )

    def add_offsets_to_txn(self, request: add_offsets_to_txn.AddOffsetsToTxnRequest, refuse: bool) -> Any:
        producer = (request.producer_id, request.producer_epoch)
        error = self._coordinator_error(refuse)
        error = error or self.cluster.add_partitions(request.transactional_id, producer, [OFFSETS])
        return add_offsets_to_txn.AddOffsetsToTxnResponse(0, error)

    def txn_offset_commit(self, request: txn_offset_commit.TxnOffsetCommitRequest, refuse: bool) -> Any:
        producer = (request.producer_id, request.producer_epoch)
        offsets = {
            TopicPartition(topic.name, asked.partition_index): (asked.committed_offset, asked.committed_metadata or "")
            for topic in request.topics
            for asked in topic.partitions
        }
        known = {where: offset for where, offset in offsets.items() if self.cluster.partition(*where) is not None}
        error = self._coordinator_error(refuse)
        error = error or self.cluster.stage_offsets(request.transactional_id, producer, request.group_id, known)

        def code(where: TopicPartition) -> int:
            return error or (0 if where in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        return txn_offset_commit.TxnOffsetCommitResponse(
            0,
            [
                txn_offset_commit.TxnOffsetCommitResponseTopic(
                    t.name,
                    [
                        txn_offset_commit.TxnOffsetCommitResponsePartition(n, code(TopicPartition(t.name, n)))
                        for n in (p.partition_index for p in t.partitions)
                    ],
                )
                for t in request.topics
            ],
        )


def _named(asked: offset_fetch.OffsetFetchRequestGroup) -> list[TopicPartition] | None:
    if asked.topics is None:
        return None
    return [TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partition_indexes]
