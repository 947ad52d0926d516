"""The table of all handlers: what is not in it is not served, and ApiVersions promises just what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from broker.handlers.handler import Handler
from broker.wire.api import ApiKey

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        ApiKey.PRODUCE: produce.HANDLER,
        ApiKey.FETCH: fetch.HANDLER,
        ApiKey.LIST_OFFSETS: list_offsets.HANDLER,
        ApiKey.METADATA: metadata.HANDLER,
        ApiKey.OFFSET_COMMIT: offset_commit.HANDLER,
        ApiKey.OFFSET_FETCH: offset_fetch.HANDLER,
        ApiKey.FIND_COORDINATOR: find_coordinator.HANDLER,
        ApiKey.JOIN_GROUP: join_group.HANDLER,
        ApiKey.HEARTBEAT: heartbeat.HANDLER,
        ApiKey.LEAVE_GROUP: leave_group.HANDLER,
        ApiKey.SYNC_GROUP: sync_group.HANDLER,
        ApiKey.DESCRIBE_GROUPS: describe_groups.HANDLER,
        ApiKey.LIST_GROUPS: list_groups.HANDLER,
        ApiKey.API_VERSIONS: api_versions.HANDLER,
        ApiKey.CREATE_TOPICS: create_topics.HANDLER,
        ApiKey.DELETE_TOPICS: delete_topics.HANDLER,
        ApiKey.DELETE_RECORDS: delete_records.HANDLER,
        ApiKey.INIT_PRODUCER_ID: init_producer_id.HANDLER,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.HANDLER,
        ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.HANDLER,
        ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.HANDLER,
        ApiKey.END_TXN: end_txn.HANDLER,
        ApiKey.WRITE_TXN_MARKERS: write_txn_markers.HANDLER,
        ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.HANDLER,
        ApiKey.DESCRIBE_ACLS: describe_acls.HANDLER,
        ApiKey.CREATE_ACLS: create_acls.HANDLER,
        ApiKey.DELETE_ACLS: delete_acls.HANDLER,
        ApiKey.DESCRIBE_CONFIGS: describe_configs.HANDLER,
        ApiKey.ALTER_CONFIGS: alter_configs.HANDLER,
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.HANDLER,
        ApiKey.CREATE_PARTITIONS: create_partitions.HANDLER,
        ApiKey.DELETE_GROUPS: delete_groups.HANDLER,
        ApiKey.ELECT_LEADERS: elect_leaders.HANDLER,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.HANDLER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.HANDLER,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.HANDLER,
        ApiKey.OFFSET_DELETE: offset_delete.HANDLER,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas.HANDLER,
        ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas.HANDLER,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials.HANDLER,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.HANDLER,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster.HANDLER,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.HANDLER,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.HANDLER,
        ApiKey.DESCRIBE_PRODUCERS: describe_producers.HANDLER,
        ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.HANDLER,
        ApiKey.LIST_TRANSACTIONS: list_transactions.HANDLER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.HANDLER,
    }
)

LOGIN_HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        **HANDLERS,
        ApiKey.SASL_HANDSHAKE: sasl_handshake.HANDLER,
        ApiKey.SASL_AUTHENTICATE: sasl_authenticate.HANDLER,
    }
)
"""What is served at listeners with logins: the login before all else, and again before a session ends."""

INTER_BROKER_HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        **HANDLERS,
        ApiKey.LEADER_AND_ISR: leader_and_isr.HANDLER,
        ApiKey.STOP_REPLICA: stop_replica.HANDLER,
        ApiKey.UPDATE_METADATA: update_metadata.HANDLER,
        ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.HANDLER,
    }
)
"""What is served at the listener between brokers. Elsewhere those who order brokers about are not answered."""
