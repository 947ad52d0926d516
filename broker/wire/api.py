"""The APIs: their keys, names, messages and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from broker.wire.errors import UnsupportedVersion
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from broker.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from broker.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from broker.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from broker.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from broker.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from broker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from broker.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from broker.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from broker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from broker.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from broker.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from broker.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.fetch import FetchRequest, FetchResponse
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from broker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from broker.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from broker.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from broker.wire.messages.produce import ProduceRequest, ProduceResponse
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from broker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from broker.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from broker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from broker.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from broker.wire.schema import Message


class ApiKey(IntEnum):
    """Kafka's API keys, with Kafka's names; only those that have tables here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_DESCRIBE = 77
    STREAMS_GROUP_DESCRIBE = 89


PRODUCE_ADVERTISED_MIN_VERSION: Final = 0
"""Advertised, though decoding begins at 3: older librdkafka switches compression off otherwise (KAFKA-18659)."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `min_version` is what a broker advertises; `request.VERSIONS` is what can be decoded."""

    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    flexible_since: int


def _api(key: ApiKey, request: type[Message], response: type[Message], *, min_version: int | None = None) -> Api:
    """One row of the table; `min_version` only where it is not the lowest that can be decoded."""
    low, high = request.VERSIONS
    name = request.__name__.removesuffix("Request")
    return Api(key, name, request, response, low if min_version is None else min_version, high, request.FLEXIBLE_SINCE)


_ROWS: Final = (
    _api(ApiKey.PRODUCE, ProduceRequest, ProduceResponse, min_version=PRODUCE_ADVERTISED_MIN_VERSION),
    _api(ApiKey.FETCH, FetchRequest, FetchResponse),
    _api(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse),
    _api(ApiKey.METADATA, MetadataRequest, MetadataResponse),
    _api(ApiKey.LEADER_AND_ISR, LeaderAndIsrRequest, LeaderAndIsrResponse),
    _api(ApiKey.STOP_REPLICA, StopReplicaRequest, StopReplicaResponse),
    _api(ApiKey.UPDATE_METADATA, UpdateMetadataRequest, UpdateMetadataResponse),
    _api(ApiKey.CONTROLLED_SHUTDOWN, ControlledShutdownRequest, ControlledShutdownResponse),
    _api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse),
    _api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse),
    _api(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse),
    _api(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse),
    _api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse),
    _api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse),
    _api(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse),
    _api(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse),
    _api(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse),
    _api(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse),
    _api(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse),
    _api(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse),
    _api(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse),
    _api(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse),
    _api(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    _api(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse),
    _api(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    _api(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    _api(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse),
    _api(ApiKey.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse),
    _api(ApiKey.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse),
    _api(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse),
    _api(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse),
    _api(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse),
    _api(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse),
    _api(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse),
    _api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse),
    _api(ApiKey.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    _api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest, AlterClientQuotasResponse),
    _api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    ),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    _api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse),
    _api(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse),
    _api(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    _api(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest, ShareGroupDescribeResponse),
    _api(ApiKey.STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest, StreamsGroupDescribeResponse),
)

API: Final[Mapping[int, Api]] = MappingProxyType({int(api.key): api for api in _ROWS})


def request_header_version(key: int, version: int) -> int:
    """2 for flexible versions, else 1 (version 0 has no client id and belonged to an API that is gone)."""
    return 2 if version >= _known(key).flexible_since else 1


def response_header_version(key: int, version: int) -> int:
    """1 for flexible versions, else 0; always 0 for ApiVersions, whose reader does not know the version yet."""
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version >= _known(key).flexible_since else 0


def _known(key: int) -> Api:
    api = API.get(key)
    if api is None:
        raise UnsupportedVersion(f"API key {key} is not known")
    return api
