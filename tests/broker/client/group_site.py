"""A site with two brokers that knows groups, and of logs where they begin, and counts round trips.

It is far away: it answers only when nothing more has come for a while, and then all that has come. What was asked in
one such wave took one round trip, however many requests they were.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.api import ApiKey
from broker.wire.coordinator_keys import OFFSETS_TOPIC, partition_for
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader, decode_request, encode_response
from broker.wire.messages import consumer_group_describe
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from broker.wire.schema import Message
from broker.wire.vocabulary import LATEST, NO_OFFSET, IsolationLevel, TopicPartition
from tests.broker.client.peer import all_versions

QUIET_S: Final = 0.03
LATE_S, BUSY_S, LOOKS_MAX = 0.01, 0.005, 10  # then in any case: something else in the process may never rest
PARTITIONS: Final = 256
"""Of each topic that is asked for, but for the one of offsets."""
Offsets = dict[TopicPartition, CommittedOffset]


@dataclass
class GroupSite:
    """`offsets` by group; the errors are by group, too, and `silent` are nodes that never answer,
    `garbling` such whose answers about offsets are not Kafka's.

    A group's state is "Empty" where `states` does not say another.
    """

    offsets: dict[str, Offsets] = field(default_factory=dict)
    staged: dict[str, Offsets] = field(default_factory=dict)
    """By group, what the open transaction holds."""
    held: dict[str, Offsets] = field(default_factory=dict)
    """By group, what an application's transaction holds that has not ended."""
    appended: list[tuple[str, TopicPartition, bool]] = field(default_factory=list)
    """Where offsets were committed in transactions, as they came; True: by an application."""
    types: dict[str, str] = field(default_factory=dict)
    """Of groups of other protocols than the two: neither request that describes groups knows them."""
    producer_epoch: int = 0
    leaders: list[int] = field(default_factory=list)
    """Of each partition of the offsets topic, -1 where there is none; [] where it may not be described."""
    coordinator_errors: dict[str, ErrorCode] = field(default_factory=dict)
    fetch_errors: dict[str, ErrorCode] = field(default_factory=dict)
    partition_errors: dict[str, ErrorCode] = field(default_factory=dict)
    commit_errors: dict[str, ErrorCode] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    garbling: set[int] = field(default_factory=set)
    newest: dict[ApiKey, int] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    """That are listed, with how many partitions each has."""
    log_starts: dict[TopicPartition, int] | None = field(default_factory=dict)
    """Other logs begin at 0; None: nobody may ask."""
    waves: int = 0
    commits_at_once: int = 0
    """The most that were answered in one wave."""
    requests: dict[int, int] = field(default_factory=dict)
    named_offsets: int = 0
    """So many were asked for by group and partition,"""
    named_at_once: int = 0
    """and in one request at most."""
    ports: list[int] = field(default_factory=list)
    _waiting: list[tuple[asyncio.StreamWriter, RequestHeader, Message]] = field(default_factory=list)
    _flush: asyncio.TimerHandle | None = None
    _looks: int = 0

    def node_of(self, group: str) -> int:
        return sum(group.encode()) % 2

    async def serve(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header, message = decode_request(await reader.readexactly(size))
                if header.api_key == ApiKey.API_VERSIONS:
                    self._write(writer, header, self._versions())
                elif node_id not in self.silent:
                    await self.arriving(header)
                    self.requests[header.api_key] = self.requests.get(header.api_key, 0) + 1
                    self._waiting.append((writer, header, message))
                    self._wait_for_more()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def arriving(self, header: RequestHeader) -> None:
        """Returns when the request is there; what comes behind it on its connection waits, too."""

    def _wait_for_more(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        loop = asyncio.get_running_loop()
        self._flush = loop.call_later(QUIET_S, self._answer_if_quiet, loop.time(), time.process_time())

    def _answer_if_quiet(self, since_s: float, cpu_s: float) -> None:
        """Who asks is in this process: where that has computed meanwhile, or was kept from it, more may come."""
        is_late = asyncio.get_running_loop().time() - since_s > QUIET_S + LATE_S
        if (is_late or time.process_time() - cpu_s > BUSY_S) and self._looks < LOOKS_MAX:
            self._looks += 1
            return self._wait_for_more()
        self._looks = 0
        return self._answer_all()

    def _answer_all(self) -> None:
        self.waves += 1
        waiting, self._waiting = self._waiting, []
        commits = sum(isinstance(message, OffsetCommitRequest) for _, _, message in waiting)
        self.commits_at_once = max(self.commits_at_once, commits)
        for writer, header, message in waiting:
            if isinstance(message, OffsetFetchRequest) and self._asked_node(message) in self.garbling:
                writer.write(struct.pack(">iib", 5, header.correlation_id, 0))
            else:
                self._write(writer, header, self._answer(header, message))

    def _asked_node(self, message: OffsetFetchRequest) -> int:
        return self.node_of(message.groups[0].group_id if message.groups else message.group_id)

    def _write(self, writer: asyncio.StreamWriter, header: RequestHeader, reply: Message) -> None:
        writer.writelines(encode_response(header.api_key, header.api_version, header.correlation_id, reply))

    def _versions(self) -> ApiVersionsResponse:
        found = all_versions()
        keys = [
            ApiVersion(v.api_key, v.min_version, self.newest.get(ApiKey(v.api_key), v.max_version))
            for v in found.api_keys
        ]
        return ApiVersionsResponse(0, keys)

    def _answer(self, header: RequestHeader, message: Message) -> Message:
        if isinstance(message, FindCoordinatorRequest):
            keys = message.coordinator_keys if header.api_version >= 4 else [message.key]
            found = [self._located(key) for key in keys]
            if header.api_version >= 4:
                return FindCoordinatorResponse(coordinators=found)
            one = found[0]
            return FindCoordinatorResponse(0, one.error_code, None, one.node_id, one.host, one.port)
        if isinstance(message, OffsetFetchRequest):
            return self._fetched(header, message)
        if isinstance(message, OffsetCommitRequest):
            return self._committed(message)
        if isinstance(message, InitProducerIdRequest):
            return self._init()
        if isinstance(message, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(0, self._fenced(message.producer_epoch))
        if isinstance(message, TxnOffsetCommitRequest):
            return self._stage(message)
        if isinstance(message, EndTxnRequest):
            return self._end(message)
        if isinstance(message, DescribeGroupsRequest):
            states = {group: "Dead" if group in self.types else "Empty" for group in message.groups}
            return DescribeGroupsResponse(groups=[DescribedGroup(0, *known) for known in states.items()])
        if isinstance(message, ConsumerGroupDescribeRequest):
            code = ErrorCode.GROUP_ID_NOT_FOUND
            unknown = [consumer_group_describe.DescribedConsumerGroup(code, None, name) for name in message.group_ids]
            return consumer_group_describe.ConsumerGroupDescribeResponse(0, unknown)
        if header.api_key == ApiKey.LIST_GROUPS:
            return ListGroupsResponse(
                groups=[
                    ListedGroup(g, kind := self.types.get(g, "consumer"), self.states.get(g, "Empty"), kind)
                    for g in sorted(self.offsets)
                ]
            )
        if isinstance(message, ListOffsetsRequest):
            return self._begins(message)
        assert isinstance(message, MetadataRequest), header
        return self._metadata(message)

    def _begins(self, asked: ListOffsetsRequest) -> ListOffsetsResponse:
        starts = self.log_starts
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if starts is None else ErrorCode.NONE
        return ListOffsetsResponse(
            0,
            [
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(
                            p.partition_index,
                            code,
                            offset=self._offset(TopicPartition(topic.name, p.partition_index), p, asked),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in asked.topics
            ],
        )

    def _offset(self, where: TopicPartition, asked: ListOffsetsPartition, request: ListOffsetsRequest) -> int:
        """The topic of offsets ends at 10, and what is open there begins at 5."""
        if where.topic != OFFSETS_TOPIC or asked.timestamp != LATEST:
            return (self.log_starts or {}).get(where, 0)
        is_stable = request.isolation_level == IsolationLevel.READ_COMMITTED
        groups = [*self.held, *self.staged]
        is_open = any(partition_for(group, len(self.leaders)) == where.partition for group in groups)
        return 5 if is_stable and is_open else 10

    def _metadata(self, asked: MetadataRequest) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id, "127.0.0.1", port) for node_id, port in enumerate(self.ports)]
        topics = []
        for name in self.topics if asked.topics is None else [topic.name for topic in asked.topics]:
            leaders = self.leaders if name == OFFSETS_TOPIC else [0] * self.topics.get(name or "", PARTITIONS)
            partitions = [
                MetadataResponsePartition(0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE, n, leader, 1, [0], [0])
                for n, leader in enumerate(leaders)
            ]
            topics += [MetadataResponseTopic(0, name, partitions=partitions)] if partitions else []
        return MetadataResponse(brokers=brokers, cluster_id="groups", controller_id=0, topics=topics)

    # -- transactions: of one transactional id, each fence takes back what is staged

    def _init(self) -> InitProducerIdResponse:
        self.producer_epoch += 1
        self.staged.clear()
        return InitProducerIdResponse(0, ErrorCode.NONE, 7, self.producer_epoch)

    def hold(self, group: str, offsets: Offsets) -> None:
        """An application commits them in a transaction."""
        self.held.setdefault(group, {}).update(offsets)
        self.appended += [(group, where, True) for where in offsets]

    def end_held(self) -> None:
        """It commits. Of two offsets the one counts that came later; the one in `staged` has its own end."""
        for group, held in self.held.items():
            last = {where: is_held for of_group, where, is_held in self.appended if of_group == group}
            self.offsets.setdefault(group, {}).update({at: one for at, one in held.items() if last[at]})
        self.held.clear()

    def _fenced(self, epoch: int) -> ErrorCode:
        return ErrorCode.NONE if epoch == self.producer_epoch else ErrorCode.PRODUCER_FENCED

    def _stage(self, asked: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        code = self.commit_errors.get(asked.group_id, self._fenced(asked.producer_epoch))
        if self.states.get(asked.group_id, "Empty") != "Empty":
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is ErrorCode.NONE:
            group = self.staged.setdefault(asked.group_id, {})
            for topic in asked.topics:
                for p in topic.partitions:
                    where = TopicPartition(topic.name, p.partition_index)
                    group[where] = CommittedOffset(p.committed_offset, p.committed_metadata or "")
                    self.appended.append((asked.group_id, where, False))
        return TxnOffsetCommitResponse(
            0,
            [
                TxnOffsetCommitResponseTopic(
                    topic.name, [TxnOffsetCommitResponsePartition(p.partition_index, code) for p in topic.partitions]
                )
                for topic in asked.topics
            ],
        )

    def _end(self, asked: EndTxnRequest) -> EndTxnResponse:
        code = self._fenced(asked.producer_epoch)
        if code is ErrorCode.NONE:
            if asked.committed:
                for group, staged in self.staged.items():
                    self.offsets.setdefault(group, {}).update(staged)
            else:
                self.appended = [one for one in self.appended if one[2]]
            self.staged.clear()
        return EndTxnResponse(0, code)

    def _located(self, group: str) -> Coordinator:
        node_id = self.node_of(group)
        code = self.coordinator_errors.get(group, ErrorCode.NONE)
        return Coordinator(group, node_id, "127.0.0.1", self.ports[node_id], code, None)

    def _fetched(self, header: RequestHeader, asked: OffsetFetchRequest) -> OffsetFetchResponse:
        named_now = sum(len(topic.partition_indexes) for one in asked.groups for topic in one.topics or ())
        self.named_offsets += named_now
        self.named_at_once = max(self.named_at_once, named_now)
        if header.api_version >= 8:
            groups = []
            for group in asked.groups:
                name = group.group_id
                code = self.partition_errors.get(name, ErrorCode.NONE)
                named = (
                    None
                    if group.topics is None
                    else [TopicPartition(t.name, n) for t in group.topics for n in t.partition_indexes]
                )
                topics = [
                    OffsetFetchResponseTopics(
                        at.topic, [OffsetFetchResponsePartitions(at.partition, c.offset, -1, c.metadata, held or code)]
                    )
                    for at, c, held in self._told(name, named, asked.require_stable)
                ]
                groups.append(OffsetFetchResponseGroup(name, topics, self.fetch_errors.get(name, ErrorCode.NONE)))
            return OffsetFetchResponse(groups=groups)
        name = asked.group_id
        named = (
            None
            if asked.topics is None
            else [TopicPartition(t.name, n) for t in asked.topics for n in t.partition_indexes]
        )
        old = [
            OffsetFetchResponseTopic(
                at.topic, [OffsetFetchResponsePartition(at.partition, c.offset, -1, c.metadata, held)]
            )
            for at, c, held in self._told(name, named, asked.require_stable)
        ]
        return OffsetFetchResponse(0, old, self.fetch_errors.get(name, ErrorCode.NONE))

    def _told(
        self, group: str, named: list[TopicPartition] | None, is_stable: bool
    ) -> Iterator[tuple[TopicPartition, CommittedOffset, ErrorCode]]:
        """As Kafka: of all offsets that a group has none is told that is its first, and pending."""
        found = self.offsets.get(group, {})
        pending = {*self.held.get(group, {}), *self.staged.get(group, {})} if is_stable else set()
        for where in found if named is None else named:
            if where in pending:
                yield where, CommittedOffset(NO_OFFSET), ErrorCode.UNSTABLE_OFFSET_COMMIT
            else:
                yield where, found.get(where, CommittedOffset(NO_OFFSET)), ErrorCode.NONE

    def _committed(self, asked: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self.commit_errors.get(asked.group_id, ErrorCode.NONE)
        group = {} if code else self.offsets.setdefault(asked.group_id, {})
        topics = []
        for topic in asked.topics:
            for p in topic.partitions:
                where = TopicPartition(topic.name, p.partition_index)
                group[where] = CommittedOffset(p.committed_offset, p.committed_metadata or "")
            answers = [OffsetCommitResponsePartition(p.partition_index, code) for p in topic.partitions]
            topics.append(OffsetCommitResponseTopic(topic.name, answers))
        return OffsetCommitResponse(0, topics)


@asynccontextmanager
async def serving(site: GroupSite, name: str) -> AsyncIterator[Site]:
    """Both brokers of the site, on free ports."""
    async with AsyncExitStack() as stack:
        for node_id in range(2):

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int = node_id) -> None:
                await site.serve(node_id, reader, writer)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            stack.callback(server.close)
            site.ports.append(server.sockets[0].getsockname()[1])
        yield Site(name, f"127.0.0.1:{site.ports[0]}")
