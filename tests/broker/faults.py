"""Errors at the handlers of brokers in this process: what a cluster of many does to one partition or one topic.

`Faults` stands before the handlers of one broker. What it refuses never reaches the handler, so nothing is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import pytest

import broker.connection
from broker.broker import Broker
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.table import HANDLERS
from broker.topics.errors import PartitionOffline
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.fetch_epochs import FINAL_EPOCH
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from broker.wire.messages.api_versions import ApiVersionsResponse
from broker.wire.messages.create_topics import CreatableTopicResult
from broker.wire.messages.delete_topics import DeletableTopicResult
from broker.wire.messages.describe_configs import DescribeConfigsResult
from broker.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from broker.wire.messages.init_producer_id import InitProducerIdResponse
from broker.wire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from broker.wire.messages.metadata import MetadataResponse
from broker.wire.messages.produce import PartitionProduceResponse, TopicProduceResponse
from broker.wire.vocabulary import NO_LEADER, TopicPartition

SPARED: Final = "spared"
"""A client of this id meets no faults: it is the test's own."""
PARTITION_APIS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.ADD_PARTITIONS_TO_TXN})


@dataclass
class Faults:
    """What one broker refuses, until it is taken back. `asked` counts the requests by API."""

    leaderless: set[TopicPartition] = field(default_factory=set)
    """Metadata names no leader, nobody can ask for it, and a transaction over it never ends."""
    short_isr: set[TopicPartition] = field(default_factory=set)
    """Three replicas, one in sync."""
    partitions: dict[tuple[ApiKey, TopicPartition], ErrorCode] = field(default_factory=dict)
    topics: dict[tuple[ApiKey, str], ErrorCode] = field(default_factory=dict)
    """For Metadata, CreateTopics, DeleteTopics (from version 6) and DescribeConfigs."""
    groups: dict[tuple[ApiKey, str], ErrorCode] = field(default_factory=dict)
    """For DescribeGroups and OffsetFetch (from version 8)."""
    listing: ErrorCode | None = None
    """For ListGroups, of all groups."""
    transactional_ids: dict[str, ErrorCode] = field(default_factory=dict)
    """For InitProducerId."""
    empty: set[TopicPartition] = field(default_factory=set)
    """Fetch has nothing to give, not even the news that the partition is gone."""
    late: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    """The next answer to a fetch that was taken already has this error."""
    newest: dict[ApiKey, int] = field(default_factory=dict)
    """As an older broker: ApiVersions offers nothing later."""
    asked: Counter[ApiKey] = field(default_factory=Counter)
    marked: set[TopicPartition] = field(default_factory=set)
    """In the transaction that is open or being ended."""
    moments: dict[ApiKey, Callable[[Any], None]] = field(default_factory=dict)
    """Called with each request of that API before it is handled."""

    def refuse(self, where: TopicPartition, code: ErrorCode, *apis: ApiKey) -> None:
        self.partitions |= {(api, where): code for api in apis or PARTITION_APIS}

    def heal(self) -> None:
        for kept in (self.leaderless, self.short_isr, self.partitions, self.topics, self.groups):
            kept.clear()
        self.listing = None
        for more in (self.transactional_ids, self.empty):
            more.clear()

    def code(self, api: ApiKey, topic: str, partition: int) -> ErrorCode | None:
        where = TopicPartition(topic, partition)
        if where in self.leaderless and api in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.partitions.get((api, where))

    def _reach_fetches(self) -> bool:
        return bool(self.leaderless or self.empty or any(api is ApiKey.FETCH for api, _ in self.partitions))

    async def answer(self, handler: Handler, served: Broker, request: Any, context: RequestContext) -> Any:
        around = _AROUND.get(handler.api)
        if context.client_id == SPARED:
            return await handler.handle(served, request, context)
        self.asked[handler.api] += 1
        if handler.api in self.moments:
            self.moments[handler.api](request)
        if around is None:
            return await handler.handle(served, request, context)
        before, after = around
        if handler.api is ApiKey.FETCH and self._reach_fetches():
            # What a session goes on with is not named: it is over, as where Kafka has no more room for it.
            if request.session_epoch > 0:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            request.session_epoch = FINAL_EPOCH
        _name_topics(served, handler.api, getattr(request, "topics", ()))
        refused = before(self, request)
        if isinstance(refused, Answer):
            return refused.response
        response = await handler.handle(served, request, context)
        _name_topics(served, handler.api, getattr(response, "responses", ()))
        response = after(self, response, refused)
        if handler.api is ApiKey.FETCH:
            for topic in response.responses:
                topic.topic_id = served.topics[topic.topic].topic_id if topic.topic in served.topics else topic.topic_id
        return response


def _name_topics(served: Broker, api: ApiKey, topics: Iterable[Any]) -> None:
    """A fetch may know its topics by their ids alone; faults know them by name."""
    for topic in topics if api is ApiKey.FETCH else ():
        found = served.view.by_id(topic.topic_id)
        topic.topic = found.name if found is not None else topic.topic


@dataclass(frozen=True)
class Answer:
    """Given instead of asking the handler."""

    response: Any


Refused = list[tuple[str, int, ErrorCode]]


def _split(faults: Faults, api: ApiKey, topics: list[Any], name: str, index: str) -> Refused:
    """Take the refused partitions out of a request's topics."""
    refused: Refused = []
    for topic in topics:
        kept = []
        for asked in topic.partitions:
            code = faults.code(api, getattr(topic, name), getattr(asked, index))
            if code is None:
                kept.append(asked)
            else:
                refused.append((getattr(topic, name), getattr(asked, index), code))
        # What has nothing to give takes no room of the others.
        topic.partitions = sorted(kept, key=lambda asked: (getattr(topic, name), getattr(asked, index)) in faults.empty)
    topics[:] = [topic for topic in topics if topic.partitions]
    return refused


def _produce_before(faults: Faults, request: Any) -> Refused:
    refused: Refused = []
    for topic in request.topic_data:
        kept = []
        for data in topic.partition_data:
            code = faults.code(ApiKey.PRODUCE, topic.name, data.index)
            if code is None:
                kept.append(data)
            else:
                refused.append((topic.name, data.index, code))
        topic.partition_data = kept
    request.topic_data[:] = [topic for topic in request.topic_data if topic.partition_data]
    return refused


def _produce_after(_faults: Faults, response: Any, refused: Refused) -> Any:
    for name, index, code in refused:
        answered = PartitionProduceResponse(index, int(code), -1)
        response.responses.append(TopicProduceResponse(name, [answered]))
    return response


def _fetch_after(faults: Faults, response: Any, refused: Refused) -> Any:
    for topic in response.responses:
        for data in topic.partitions:
            if TopicPartition(topic.topic, data.partition_index) in faults.empty:
                data.records, data.error_code, data.diverging_epoch = b"", 0, None
            if (code := faults.late.pop(TopicPartition(topic.topic, data.partition_index), None)) is not None:
                data.records, data.error_code = b"", int(code)
    if response.session_id and response.responses:
        # It may have no news in this session, and not be named.
        refused = [*refused, *((*where, code) for where, code in faults.late.items())]
        faults.late.clear()
    for name, index, code in refused:
        response.responses.append(FetchableTopicResponse(name, partitions=[PartitionData(index, int(code), -1)]))
    return response


def _offsets_after(_faults: Faults, response: Any, refused: Refused) -> Any:
    for name, index, code in refused:
        response.topics.append(ListOffsetsTopicResponse(name, [ListOffsetsPartitionResponse(index, int(code))]))
    return response


def _add_before(faults: Faults, request: Any) -> Refused | Answer:
    """All are added or none, as in Kafka."""
    asked = [TopicPartition(t.name, number) for t in request.v3_and_below_topics for number in t.partitions]
    codes = {where: faults.code(ApiKey.ADD_PARTITIONS_TO_TXN, *where) for where in asked}
    if not any(codes.values()):
        faults.marked |= set(asked)
        return []
    results = [
        AddPartitionsToTxnTopicResult(
            where.topic,
            [AddPartitionsToTxnPartitionResult(where.partition, int(code or ErrorCode.OPERATION_NOT_ATTEMPTED))],
        )
        for where, code in codes.items()
    ]
    return Answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


def _init_before(faults: Faults, request: Any) -> Refused | Answer:
    """The markers of the transaction before cannot be written while one of its partitions takes no write."""
    code = faults.transactional_ids.get(request.transactional_id or "")
    if code is not None:
        return Answer(InitProducerIdResponse(error_code=int(code)))
    if faults.marked & (faults.leaderless | faults.short_isr):
        return Answer(InitProducerIdResponse(error_code=int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    faults.marked.clear()
    return []


def _metadata_after(faults: Faults, response: MetadataResponse, _refused: Refused) -> MetadataResponse:
    for topic in response.topics:
        code = faults.topics.get((ApiKey.METADATA, topic.name or ""))
        if code is not None:
            topic.error_code, topic.partitions = int(code), []
        for partition in topic.partitions:
            where = TopicPartition(topic.name or "", partition.partition_index)
            if where in faults.leaderless:
                partition.leader_id, partition.isr_nodes = NO_LEADER, []
            if where in faults.short_isr:
                partition.replica_nodes = [*partition.replica_nodes, 901, 902]
    return response


def _versions_after(faults: Faults, response: ApiVersionsResponse, _refused: Refused) -> ApiVersionsResponse:
    for offered in response.api_keys:
        newest = faults.newest.get(ApiKey(offered.api_key), offered.max_version)
        offered.max_version = min(newest, offered.max_version)
    return response


def _create_before(faults: Faults, request: Any) -> Refused:
    names = {t.name: code for t in request.topics if (code := faults.topics.get((ApiKey.CREATE_TOPICS, t.name)))}
    request.topics = [topic for topic in request.topics if topic.name not in names]
    return [(name, -1, code) for name, code in names.items()]


def _create_after(_faults: Faults, response: Any, refused: Refused) -> Any:
    response.topics += [CreatableTopicResult(name, error_code=int(code)) for name, _, code in refused]
    return response


def _delete_before(faults: Faults, request: Any) -> Refused:
    names = {t.name: code for t in request.topics if (code := faults.topics.get((ApiKey.DELETE_TOPICS, t.name)))}
    request.topics = [topic for topic in request.topics if topic.name not in names]
    return [(name, -1, code) for name, code in names.items()]


def _delete_after(_faults: Faults, response: Any, refused: Refused) -> Any:
    response.responses += [DeletableTopicResult(name, error_code=int(code)) for name, _, code in refused]
    return response


def _configs_after(faults: Faults, response: Any, _refused: Refused) -> Any:
    for result in response.results:
        code = faults.topics.get((ApiKey.DESCRIBE_CONFIGS, result.resource_name))
        if code is not None:
            assert isinstance(result, DescribeConfigsResult)
            result.error_code, result.configs = int(code), []
    return response


def _describe_after(faults: Faults, response: Any, _refused: Refused) -> Any:
    for group in response.groups:
        if (code := faults.groups.get((ApiKey.DESCRIBE_GROUPS, group.group_id))) is not None:
            group.error_code, group.members = int(code), []
    return response


def _list_after(faults: Faults, response: Any, _refused: Refused) -> Any:
    if faults.listing is not None:
        response.error_code, response.groups = int(faults.listing), []
    return response


def _committed_after(faults: Faults, response: Any, _refused: Refused) -> Any:
    for group in response.groups:
        if (code := faults.groups.get((ApiKey.OFFSET_FETCH, group.group_id))) is not None:
            group.error_code, group.topics = int(code), []
    return response


def _nothing(_faults: Faults, _request: Any) -> Refused:
    return []


def _as_it_is(_faults: Faults, response: Any, _refused: Refused) -> Any:
    return response


_AROUND: Mapping[ApiKey, tuple[Callable[[Faults, Any], Any], Callable[[Faults, Any, Any], Any]]] = {
    ApiKey.PRODUCE: (_produce_before, _produce_after),
    ApiKey.FETCH: (lambda f, r: _split(f, ApiKey.FETCH, r.topics, "topic", "partition"), _fetch_after),
    ApiKey.LIST_OFFSETS: (
        lambda f, r: _split(f, ApiKey.LIST_OFFSETS, r.topics, "name", "partition_index"),
        _offsets_after,
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_add_before, _as_it_is),
    ApiKey.INIT_PRODUCER_ID: (_init_before, _as_it_is),
    ApiKey.API_VERSIONS: (_nothing, _versions_after),
    ApiKey.METADATA: (_nothing, _metadata_after),
    ApiKey.CREATE_TOPICS: (_create_before, _create_after),
    ApiKey.DELETE_TOPICS: (_delete_before, _delete_after),
    ApiKey.DESCRIBE_CONFIGS: (_nothing, _configs_after),
    ApiKey.DESCRIBE_GROUPS: (_nothing, _describe_after),
    ApiKey.LIST_GROUPS: (_nothing, _list_after),
    ApiKey.OFFSET_FETCH: (_nothing, _committed_after),
}


@contextmanager
def leaderless(served: Broker, where: TopicPartition) -> Iterator[None]:
    """The broker truly does not lead the partition meanwhile: it takes no record and no marker."""
    partition = served.require_partition(*where)
    log, partition._log, partition.offline = partition.log, None, PartitionOffline("lost its leader")
    try:
        yield
    finally:
        partition._log, partition.offline = log, None


@contextmanager
def injected(monkeypatch: pytest.MonkeyPatch, faults: Mapping[Broker, Faults]) -> Iterator[None]:
    """Put `faults` before the handlers of these brokers; all others answer as they are."""

    def wrapped(handler: Handler) -> Handler:
        async def handle(served: Broker, request: Any, context: RequestContext) -> Any:
            mine = next((found for of, found in faults.items() if of is served), None)
            if mine is None:
                return await handler.handle(served, request, context)
            return await mine.answer(handler, served, request, context)

        return replace(handler, handle=handle, begin=None)

    with monkeypatch.context() as patched:
        table = MappingProxyType({key: wrapped(handler) for key, handler in HANDLERS.items()})
        patched.setattr(broker.connection, "HANDLERS", table)
        yield
