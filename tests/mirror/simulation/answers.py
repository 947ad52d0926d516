"""What a node of a simulated cluster answers to each request that the mirror's client sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.client.log import FETCH_BY_ID_VERSION
from broker.errors import BrokerError
from broker.topics.fetch_sessions import FetchSessionError, FetchSessions
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages import (
    add_partitions_to_txn,
    create_partitions,
    create_topics,
    describe_configs,
    describe_producers,
    end_txn,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from broker.wire.messages.alter_configs import AlterConfigsResourceResponse
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from broker.wire.messages.metadata import MetadataResponseTopic
from broker.wire.messages.produce import PartitionProduceResponse
from broker.wire.vocabulary import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TOPIC_RESOURCE,
    ConfigOperation,
    ConfigSource,
    TopicPartition,
)
from tests.mirror.simulation.cluster import SimulatedCluster
from tests.mirror.simulation.fetching import ParkedFetch, require_leader
from tests.mirror.simulation.group_answers import GroupAnswers
from tests.mirror.simulation.network import Respond

CONFIG_DEFAULTS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "compression.type": "producer",
}
VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.PRODUCE: (3, 11),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (0, 12),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (8, 9),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.END_TXN: (0, 4),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.TXN_OFFSET_COMMIT: (0, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
}
_BY_NAME: Final = ApiVersionsResponse(api_keys=[ApiVersion(key, *span) for key, span in VERSIONS.items()])
_NEWER: Final = {**VERSIONS, ApiKey.FETCH: (4, FETCH_BY_ID_VERSION)}
_BY_ID: Final = ApiVersionsResponse(api_keys=[ApiVersion(key, *span) for key, span in _NEWER.items()])
SESSIONS_DROPPED: Final = 0.01
"""How often a fetch finds that the node forgot all fetch sessions."""
TRANSIENT: Final = ErrorCode.REQUEST_TIMED_OUT
"""What a node answers where its fate is to refuse: a produce may have been done all the same."""


class SimulatedNode(GroupAnswers):
    """One broker of a cluster."""

    def __init__(self, cluster: SimulatedCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.name = f"{cluster.name}/{node_id}"
        self.sessions = self._no_sessions()

    def serve(self, api_key: int, version: int, request: Any, respond: Respond, *, refuse: bool) -> None:
        if api_key == ApiKey.API_VERSIONS:
            respond(_BY_ID if self.cluster.fetches_by_id else _BY_NAME)
        elif api_key == ApiKey.FETCH:
            self.fetch(request, respond, by_id=version >= FETCH_BY_ID_VERSION, refuse=refuse)
        else:
            respond(_ANSWERS[ApiKey(api_key)](self, request, refuse))

    # -- the data path

    def fetch(self, request: fetch.FetchRequest, respond: Respond, *, by_id: bool, refuse: bool) -> None:
        if self.cluster.rng.random() < SESSIONS_DROPPED:
            self.sessions = self._no_sessions()
        try:
            plan = self.sessions.plan(request, by_id=by_id)
        except FetchSessionError as error:
            respond(fetch.FetchResponse(error_code=error.error_code))
            return
        ParkedFetch(self.cluster, self.node_id, self.sessions, request, plan, respond, refuse=refuse).look()

    def _no_sessions(self) -> FetchSessions:
        return FetchSessions(self.cluster.clock, lambda: self.cluster.rng.randrange(1, 2**31))

    def produce(self, request: produce.ProduceRequest, refuse: bool) -> produce.ProduceResponse:
        return produce.ProduceResponse(
            [
                produce.TopicProduceResponse(
                    topic.name, [self._append(topic.name, data, refuse) for data in topic.partition_data]
                )
                for topic in request.topic_data
            ]
        )

    def _append(self, topic: str, data: Any, refuse: bool) -> PartitionProduceResponse:
        rng = self.cluster.rng
        try:
            partition = require_leader(self.cluster, self.node_id, topic, data.index)
            if refuse and rng.random() < 0.5:
                return PartitionProduceResponse(data.index, ErrorCode.NOT_ENOUGH_REPLICAS, -1)
            base_offset = partition.append(data.records)
        except BrokerError as error:
            self.cluster.trace(f"  {self.name} refuses {topic}-{data.index}:", error.error_code.name, error)
            return PartitionProduceResponse(data.index, error.error_code, -1)
        if refuse:
            return PartitionProduceResponse(data.index, TRANSIENT, -1)
        return PartitionProduceResponse(data.index, 0, base_offset, log_start_offset=partition.log_start)

    def list_offsets(self, request: list_offsets.ListOffsetsRequest, refuse: bool) -> list_offsets.ListOffsetsResponse:
        def answer(topic: str, asked: Any) -> list_offsets.ListOffsetsPartitionResponse:
            try:
                partition = require_leader(self.cluster, self.node_id, topic, asked.partition_index)
            except BrokerError as error:
                return list_offsets.ListOffsetsPartitionResponse(asked.partition_index, error.error_code)
            if refuse:
                return list_offsets.ListOffsetsPartitionResponse(asked.partition_index, TRANSIENT)
            end = partition.visible_end(request.isolation_level)
            found = {
                LATEST: lambda: (end, NO_TIMESTAMP),
                EARLIEST: lambda: (partition.log_start, NO_TIMESTAMP),
                MAX_TIMESTAMP: partition.latest_timestamp,
            }.get(asked.timestamp, lambda: partition.at_timestamp(asked.timestamp, end))()
            return list_offsets.ListOffsetsPartitionResponse(
                asked.partition_index, 0, found[1], found[0], partition.leader_epoch
            )

        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(t.name, [answer(t.name, asked) for asked in t.partitions])
                for t in request.topics
            ]
        )

    def offset_for_leader_epoch(
        self, request: Any, refuse: bool
    ) -> offset_for_leader_epoch.OffsetForLeaderEpochResponse:
        def answer(topic: str, asked: Any) -> offset_for_leader_epoch.EpochEndOffset:
            try:
                partition = require_leader(
                    self.cluster, self.node_id, topic, asked.partition, asked.current_leader_epoch
                )
            except BrokerError as error:
                return offset_for_leader_epoch.EpochEndOffset(error.error_code, asked.partition)
            if refuse or not partition.tells_epochs:
                return offset_for_leader_epoch.EpochEndOffset(TRANSIENT, asked.partition)
            epoch, end = partition.epochs.end_offset_for(asked.leader_epoch, partition.log_end)
            return offset_for_leader_epoch.EpochEndOffset(0, asked.partition, epoch, end)

        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopicResult(t.topic, [answer(t.topic, p) for p in t.partitions])
                for t in request.topics
            ]
        )

    def describe_producers(self, request: describe_producers.DescribeProducersRequest, refuse: bool) -> Any:
        def answer(topic: str, index: int) -> describe_producers.PartitionResponse:
            try:
                partition = require_leader(self.cluster, self.node_id, topic, index)
            except BrokerError as error:
                return describe_producers.PartitionResponse(index, error.error_code)
            if refuse:
                return describe_producers.PartitionResponse(index, TRANSIENT)
            states = [
                describe_producers.ProducerState(state.producer_id, state.producer_epoch, state.last_sequence)
                for state in partition.producers
            ]
            return describe_producers.PartitionResponse(index, active_producers=states)

        return describe_producers.DescribeProducersResponse(
            topics=[
                describe_producers.TopicResponse(t.name, [answer(t.name, index) for index in t.partition_indexes])
                for t in request.topics
            ]
        )

    # -- topics

    def metadata(self, request: metadata.MetadataRequest, _refuse: bool) -> metadata.MetadataResponse:
        cluster = self.cluster
        names = list(cluster.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        brokers = [metadata.MetadataResponseBroker(n, *cluster.address(n)) for n in cluster.node_ids]
        return metadata.MetadataResponse(
            brokers=brokers,
            cluster_id=cluster.cluster_id,
            controller_id=cluster.node_ids[0],
            topics=[self._described(name) for name in names],
        )

    def _described(self, name: str) -> MetadataResponseTopic:
        topic = self.cluster.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        nodes = list(self.cluster.node_ids)
        partitions = [
            metadata.MetadataResponsePartition(0, p.where.partition, p.leader, p.leader_epoch, nodes, nodes)
            for p in topic.partitions
        ]
        return MetadataResponseTopic(0, name, topic.topic_id, partitions=partitions)

    def create_topics(self, request: create_topics.CreateTopicsRequest, refuse: bool) -> Any:
        def answer(asked: create_topics.CreatableTopic) -> create_topics.CreatableTopicResult:
            if asked.name in self.cluster.topics:
                return create_topics.CreatableTopicResult(asked.name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
            self.cluster.create_topic(
                asked.name, max(1, asked.num_partitions), {c.name: c.value or "" for c in asked.configs}
            )
            return create_topics.CreatableTopicResult(asked.name, error_code=TRANSIENT if refuse else 0)

        return create_topics.CreateTopicsResponse(topics=[answer(asked) for asked in request.topics])

    def create_partitions(self, request: create_partitions.CreatePartitionsRequest, _refuse: bool) -> Any:
        def answer(asked: create_partitions.CreatePartitionsTopic) -> create_partitions.CreatePartitionsTopicResult:
            topic = self.cluster.topics.get(asked.name)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return create_partitions.CreatePartitionsTopicResult(asked.name, code)
            if len(topic.partitions) >= asked.count:
                return create_partitions.CreatePartitionsTopicResult(asked.name, ErrorCode.INVALID_PARTITIONS)
            self.cluster.grow_topic(asked.name, asked.count)
            return create_partitions.CreatePartitionsTopicResult(asked.name)

        return create_partitions.CreatePartitionsResponse(results=[answer(asked) for asked in request.topics])

    def describe_configs(self, request: describe_configs.DescribeConfigsRequest, refuse: bool) -> Any:
        def answer(asked: describe_configs.DescribeConfigsResource) -> describe_configs.DescribeConfigsResult:
            topic = self.cluster.topics.get(asked.resource_name)
            if topic is None or refuse:
                code = TRANSIENT if refuse else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return describe_configs.DescribeConfigsResult(code, None, TOPIC_RESOURCE, asked.resource_name)
            configs = [
                describe_configs.DescribeConfigsResourceResult(
                    name,
                    topic.configs.get(name, default),
                    config_source=ConfigSource.TOPIC if name in topic.configs else ConfigSource.DEFAULT,
                )
                for name, default in CONFIG_DEFAULTS.items()
            ]
            return describe_configs.DescribeConfigsResult(0, None, TOPIC_RESOURCE, asked.resource_name, configs)

        return describe_configs.DescribeConfigsResponse(results=[answer(asked) for asked in request.resources])

    def alter_configs(self, request: incremental_alter_configs.IncrementalAlterConfigsRequest, _refuse: bool) -> Any:
        for resource in request.resources:
            configs = self.cluster.topics[resource.resource_name].configs
            for change in resource.configs:
                if change.config_operation == ConfigOperation.DELETE:
                    configs.pop(change.name, None)
                else:
                    configs[change.name] = change.value or ""
        return incremental_alter_configs.IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(0, None, TOPIC_RESOURCE, r.resource_name) for r in request.resources
            ]
        )

    # -- coordinators

    def find_coordinator(self, request: find_coordinator.FindCoordinatorRequest, refuse: bool) -> Any:
        def answer(key: str) -> find_coordinator.Coordinator:
            if refuse:
                return find_coordinator.Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            node_id = self.cluster.coordinator_id
            return find_coordinator.Coordinator(key, node_id, *self.cluster.address(node_id))

        return find_coordinator.FindCoordinatorResponse(coordinators=[answer(key) for key in request.coordinator_keys])

    def init_producer_id(self, request: init_producer_id.InitProducerIdRequest, refuse: bool) -> Any:
        error = self._coordinator_error(refuse)
        if error:
            return init_producer_id.InitProducerIdResponse(error_code=error)
        claims = (request.producer_id, request.producer_epoch)
        answer = self.cluster.init_producer(request.transactional_id, request.transaction_timeout_ms, claims)
        return init_producer_id.InitProducerIdResponse(0, *answer)

    def add_partitions_to_txn(self, request: add_partitions_to_txn.AddPartitionsToTxnRequest, refuse: bool) -> Any:
        asked = [TopicPartition(t.name, n) for t in request.v3_and_below_topics for n in t.partitions]
        unknown = {where for where in asked if self.cluster.partition(*where) is None}
        error = self._coordinator_error(refuse)
        if not error and not unknown:
            producer = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            error = self.cluster.add_partitions(request.v3_and_below_transactional_id, producer, asked)
        elif not error:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED

        def code(where: TopicPartition) -> int:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if where in unknown else error

        return add_partitions_to_txn.AddPartitionsToTxnResponse(
            0,
            [
                add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                    t.name,
                    [
                        add_partitions_to_txn.AddPartitionsToTxnPartitionResult(n, code(TopicPartition(t.name, n)))
                        for n in t.partitions
                    ],
                )
                for t in request.v3_and_below_topics
            ],
        )

    def end_txn(self, request: end_txn.EndTxnRequest, refuse: bool) -> end_txn.EndTxnResponse:
        producer = (request.producer_id, request.producer_epoch)
        error = self._coordinator_error(refuse) or self.cluster.end_transaction(
            request.transactional_id, producer, commit=request.committed
        )
        return end_txn.EndTxnResponse(error_code=error)


_ANSWERS: Final[Mapping[ApiKey, Callable[[SimulatedNode, Any, bool], Any]]] = {
    ApiKey.PRODUCE: SimulatedNode.produce,
    ApiKey.LIST_OFFSETS: SimulatedNode.list_offsets,
    ApiKey.METADATA: SimulatedNode.metadata,
    ApiKey.OFFSET_COMMIT: SimulatedNode.offset_commit,
    ApiKey.OFFSET_FETCH: SimulatedNode.offset_fetch,
    ApiKey.FIND_COORDINATOR: SimulatedNode.find_coordinator,
    ApiKey.DESCRIBE_GROUPS: SimulatedNode.describe_groups,
    ApiKey.LIST_GROUPS: SimulatedNode.list_groups,
    ApiKey.CREATE_TOPICS: SimulatedNode.create_topics,
    ApiKey.INIT_PRODUCER_ID: SimulatedNode.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: SimulatedNode.offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: SimulatedNode.add_partitions_to_txn,
    ApiKey.END_TXN: SimulatedNode.end_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: SimulatedNode.add_offsets_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: SimulatedNode.txn_offset_commit,
    ApiKey.DESCRIBE_CONFIGS: SimulatedNode.describe_configs,
    ApiKey.DESCRIBE_PRODUCERS: SimulatedNode.describe_producers,
    ApiKey.CREATE_PARTITIONS: SimulatedNode.create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: SimulatedNode.alter_configs,
}
