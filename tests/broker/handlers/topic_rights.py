"""Kafka's table of authorization in the protocol: topics, configs, ACLs and the cluster.

Names that are written to are of nothing that is there: who has the right hears so, and nothing changes.
"""

from __future__ import annotations

from typing import Any, Final

from broker.wire.api import ApiKey
from broker.wire.messages import create_acls, create_partitions, delete_acls, delete_records, describe_acls
from broker.wire.messages import create_topics as create
from broker.wire.messages import delete_topics as delete
from broker.wire.messages import describe_configs as describe
from broker.wire.messages import describe_producers as producers
from broker.wire.messages import describe_topic_partitions as pages
from broker.wire.messages import elect_leaders as elect
from broker.wire.messages import incremental_alter_configs as incremental
from broker.wire.messages import list_partition_reassignments as moving
from broker.wire.messages import offset_for_leader_epoch as epochs
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest, QuotaAlteration
from broker.wire.messages.alter_configs import AlterConfigsRequest
from broker.wire.messages.alter_configs import AlterConfigsResource as Altered
from broker.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from broker.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, EntityData
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from broker.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from broker.wire.messages.fetch import ReplicaState
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.messages.stop_replica import StopReplicaRequest
from broker.wire.messages.update_metadata import UpdateMetadataRequest
from broker.wire.schema import Message
from broker.wire.vocabulary import BROKER_RESOURCE, LATEST, TOPIC_RESOURCE
from tests.broker.handlers.rights_table import (
    C31,
    DELETED,
    FLIGHTS,
    ID,
    NONE,
    T29,
    X53,
    Case,
    Op,
    any_of,
    cluster,
    one,
    topic,
    transactional,
)
from tests.broker.wire_client import batch_of, fetch_request, produce_request


def _produce(transactional_id: str | None = None, **fields: Any) -> Message:
    return produce_request(NONE, batch_of("a", **fields), transactional_id=transactional_id)


def _metadata(name: str, *, create_it: bool) -> Message:
    return MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=create_it)


BY_NAME: Final = (3, 12)
"""Later versions of Produce have ids of topics."""
TOPIC_CASES: Final = [
    Case(ApiKey.PRODUCE, 9, _produce, one(topic(Op.WRITE, NONE)), T29, versions=BY_NAME),
    Case(
        ApiKey.PRODUCE,
        9,
        lambda: _produce(ID, producer_id=77, producer_epoch=0, base_sequence=0, transactional=True),
        one(topic(Op.WRITE, NONE), transactional(Op.WRITE)),
        X53,
        "in a transaction",
        versions=BY_NAME,
    ),
    Case(ApiKey.FETCH, 12, lambda: fetch_request(FLIGHTS, 0), one(topic(Op.READ)), T29),
    Case(
        ApiKey.FETCH,
        12,
        lambda: fetch_request(FLIGHTS, 0, replica_id=1, replica_state=ReplicaState(1)),
        one(cluster(Op.CLUSTER_ACTION)),
        T29,
        "as a broker",
    ),
    Case(
        ApiKey.LIST_OFFSETS,
        7,
        lambda: ListOffsetsRequest(-1, topics=[ListOffsetsTopic(FLIGHTS, [ListOffsetsPartition(0, -1, LATEST)])]),
        one(topic(Op.DESCRIBE)),
        T29,
    ),
    Case(ApiKey.METADATA, 12, lambda: _metadata(FLIGHTS, create_it=False), one(topic(Op.DESCRIBE)), T29),
    Case(
        ApiKey.METADATA,
        12,
        lambda: _metadata("new topic", create_it=True),
        (
            frozenset({topic(Op.DESCRIBE, "new topic"), topic(Op.CREATE, "new topic")}),
            frozenset({topic(Op.DESCRIBE, "new topic"), cluster(Op.CREATE)}),
        ),
        T29,
        "of a topic to be made",
    ),
    Case(
        ApiKey.METADATA,
        12,
        lambda: MetadataRequest(None),
        one(topic(Op.DESCRIBE)),
        T29,
        "of all topics",
        passes=lambda answer: FLIGHTS in {topic.name for topic in answer.topics},
        versions=(1, 12),
    ),
    Case(
        ApiKey.METADATA,
        8,
        lambda: MetadataRequest([], include_cluster_authorized_operations=True),
        one(cluster(Op.DESCRIBE)),
        C31,
        "with the cluster's operations",
        passes=lambda answer: answer.cluster_authorized_operations != 0,
        versions=(8, 10),
    ),
    Case(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        lambda: DescribeClusterRequest(True),
        one(cluster(Op.DESCRIBE)),
        C31,
        passes=lambda answer: answer.cluster_authorized_operations != 0,
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda: pages.DescribeTopicPartitionsRequest([pages.TopicRequest(FLIGHTS)]),
        one(topic(Op.DESCRIBE)),
        T29,
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        lambda: epochs.OffsetForLeaderEpochRequest(
            -2, [epochs.OffsetForLeaderTopic(FLIGHTS, [epochs.OffsetForLeaderPartition(0, -1, 0)])]
        ),
        any_of(topic(Op.DESCRIBE), cluster(Op.CLUSTER_ACTION)),
        T29,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        7,
        lambda: create.CreateTopicsRequest([create.CreatableTopic(NONE, 0, 1)], 1000, True),
        any_of(topic(Op.CREATE, NONE), cluster(Op.CREATE)),
        T29,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        7,
        lambda: create.CreateTopicsRequest([create.CreatableTopic(NONE, 1, 1)], 1000, True),
        (
            frozenset({topic(Op.CREATE, NONE), topic(Op.DESCRIBE_CONFIGS, NONE)}),
            frozenset({cluster(Op.CREATE), topic(Op.DESCRIBE_CONFIGS, NONE)}),
        ),
        T29,
        "and its configs",
        versions=(5, 7),
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        6,
        lambda: delete.DeleteTopicsRequest([delete.DeleteTopicState(NONE)], [NONE], 30_000),
        one(topic(Op.DESCRIBE, NONE)),
        T29,
        "of what is not there",
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        6,
        lambda: delete.DeleteTopicsRequest([delete.DeleteTopicState(DELETED)], [DELETED], 30_000),
        one(topic(Op.DELETE, DELETED)),
        T29,
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        2,
        lambda: delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic(NONE, [delete_records.DeleteRecordsPartition(0, 0)])]
        ),
        one(topic(Op.DELETE, NONE)),
        T29,
    ),
    Case(
        ApiKey.CREATE_PARTITIONS,
        3,
        lambda: create_partitions.CreatePartitionsRequest([create_partitions.CreatePartitionsTopic(NONE, 9)]),
        one(topic(Op.ALTER, NONE)),
        T29,
    ),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        lambda: producers.DescribeProducersRequest([producers.TopicRequest(FLIGHTS, [0])]),
        one(topic(Op.READ)),
        T29,
    ),
    Case(
        ApiKey.DESCRIBE_ACLS,
        3,
        lambda: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        one(cluster(Op.DESCRIBE)),
        C31,
    ),
    Case(
        ApiKey.CREATE_ACLS,
        3,
        lambda: create_acls.CreateAclsRequest([create_acls.AclCreation(2, "", 3, "User:x", "*", 3, 3)]),
        one(cluster(Op.ALTER)),
        C31,
    ),
    Case(
        ApiKey.DELETE_ACLS,
        3,
        lambda: delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(2, "none", 3, None, None, 1, 1)]),
        one(cluster(Op.ALTER)),
        C31,
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        lambda: describe.DescribeConfigsRequest([describe.DescribeConfigsResource(TOPIC_RESOURCE, FLIGHTS)]),
        one(topic(Op.DESCRIBE_CONFIGS)),
        T29,
        "of a topic",
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        lambda: describe.DescribeConfigsRequest([describe.DescribeConfigsResource(BROKER_RESOURCE, "1")]),
        one(cluster(Op.DESCRIBE_CONFIGS)),
        C31,
        "of a broker",
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        1,
        lambda: AlterConfigsRequest([Altered(TOPIC_RESOURCE, NONE, [])]),
        one(topic(Op.ALTER_CONFIGS, NONE)),
        T29,
        "of a topic",
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        1,
        lambda: AlterConfigsRequest([Altered(BROKER_RESOURCE, "1", [])], True),
        one(cluster(Op.ALTER_CONFIGS)),
        C31,
        "of a broker",
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda: incremental.IncrementalAlterConfigsRequest(
            [incremental.AlterConfigsResource(TOPIC_RESOURCE, NONE, [])]
        ),
        one(topic(Op.ALTER_CONFIGS, NONE)),
        T29,
        "of a topic",
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda: incremental.IncrementalAlterConfigsRequest(
            [incremental.AlterConfigsResource(BROKER_RESOURCE, "", [])], True
        ),
        one(cluster(Op.ALTER_CONFIGS)),
        C31,
        "of all brokers",
    ),
    Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        lambda: DescribeLogDirsRequest([]),
        one(cluster(Op.DESCRIBE)),
        C31,
        versions=(3, 4),
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        2,
        lambda: elect.ElectLeadersRequest(0, [elect.ElectLeadersTopicPartitions(NONE, [0])]),
        one(cluster(Op.ALTER)),
        C31,
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        lambda: AlterPartitionReassignmentsRequest(1000, []),
        one(cluster(Op.ALTER)),
        C31,
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda: moving.ListPartitionReassignmentsRequest(1000, None),
        one(cluster(Op.DESCRIBE)),
        C31,
    ),
    Case(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest, one(cluster(Op.DESCRIBE_CONFIGS)), C31),
    Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        lambda: AlterClientQuotasRequest([QuotaAlteration([EntityData("user", "nobody")])]),
        one(cluster(Op.ALTER_CONFIGS)),
        C31,
    ),
    Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda: DescribeUserScramCredentialsRequest([UserName("nobody")]),
        one(cluster(Op.DESCRIBE)),
        C31,
    ),
    Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda: AlterUserScramCredentialsRequest([ScramCredentialDeletion("nobody", 1)]),
        one(cluster(Op.ALTER)),
        C31,
    ),
    Case(ApiKey.LEADER_AND_ISR, 7, LeaderAndIsrRequest, one(cluster(Op.CLUSTER_ACTION)), C31),
    Case(ApiKey.STOP_REPLICA, 4, StopReplicaRequest, one(cluster(Op.CLUSTER_ACTION)), C31),
    Case(ApiKey.UPDATE_METADATA, 8, UpdateMetadataRequest, one(cluster(Op.CLUSTER_ACTION)), C31),
    Case(ApiKey.CONTROLLED_SHUTDOWN, 3, lambda: ControlledShutdownRequest(99, 0), one(cluster(Op.CLUSTER_ACTION)), C31),
]
