"""Kafka's table of authorization in the protocol: groups and transactions.

Names that are written to are of nothing that is there, as in topic_rights.py.
"""

from __future__ import annotations

from typing import Final

from broker.wire.api import ApiKey
from broker.wire.messages import add_partitions_to_txn as add
from broker.wire.messages import consumer_group_heartbeat as heartbeat
from broker.wire.messages import offset_commit as commit
from broker.wire.messages import offset_delete as forget
from broker.wire.messages import offset_fetch as fetched
from broker.wire.messages import txn_offset_commit as txn
from broker.wire.messages import write_txn_markers as markers
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.messages.sync_group import SyncGroupRequest
from broker.wire.schema import Message
from tests.broker.handlers.rights_table import (
    C31,
    DELETED,
    FLIGHTS,
    G30,
    GROUP,
    ID,
    NONE,
    PRODUCER,
    X53,
    Case,
    Op,
    any_of,
    cluster,
    group,
    one,
    topic,
    transactional,
)


def _write_markers() -> Message:
    topics = [markers.WritableTxnMarkerTopic(NONE, [0])]
    return markers.WriteTxnMarkersRequest([markers.WritableTxnMarker(*PRODUCER, False, topics, 0)])


GROUP_CASES: Final = [
    Case(
        ApiKey.OFFSET_COMMIT,
        9,
        lambda: commit.OffsetCommitRequest(
            GROUP,
            topics=[commit.OffsetCommitRequestTopic(NONE, [commit.OffsetCommitRequestPartition(0, 7)])],
        ),
        one(group(Op.READ), topic(Op.READ, NONE)),
        G30,
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        9,
        lambda: fetched.OffsetFetchRequest(
            GROUP,
            [fetched.OffsetFetchRequestTopic(FLIGHTS, [0])],
            [fetched.OffsetFetchRequestGroup(GROUP, topics=[fetched.OffsetFetchRequestTopics(FLIGHTS, [0])])],
        ),
        one(group(Op.DESCRIBE), topic(Op.DESCRIBE)),
        G30,
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        0,
        lambda: forget.OffsetDeleteRequest(
            GROUP, [forget.OffsetDeleteRequestTopic(NONE, [forget.OffsetDeleteRequestPartition(0)])]
        ),
        one(group(Op.DELETE), topic(Op.READ, NONE)),
        G30,
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        4,
        lambda: FindCoordinatorRequest(GROUP, 0, [GROUP]),
        one(group(Op.DESCRIBE)),
        G30,
        "of a group",
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        4,
        lambda: FindCoordinatorRequest(ID, 1, [ID]),
        one(transactional(Op.DESCRIBE)),
        X53,
        "of a transactional id",
        versions=(1, 4),
    ),
    Case(
        ApiKey.JOIN_GROUP,
        9,
        lambda: JoinGroupRequest(
            GROUP, 10_000, 10_000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"")]
        ),
        one(group(Op.READ)),
        G30,
        versions=(4, 9),
    ),
    Case(
        ApiKey.JOIN_GROUP,
        3,
        lambda: JoinGroupRequest(GROUP, 10_000, 10_000, protocol_type="consumer"),
        one(group(Op.READ)),
        G30,
        "without a protocol",
    ),
    Case(ApiKey.HEARTBEAT, 4, lambda: HeartbeatRequest(GROUP, 1, "nobody"), one(group(Op.READ)), G30),
    Case(
        ApiKey.LEAVE_GROUP,
        5,
        lambda: LeaveGroupRequest(GROUP, "nobody", [MemberIdentity("nobody")]),
        one(group(Op.READ)),
        G30,
    ),
    Case(
        ApiKey.SYNC_GROUP,
        5,
        lambda: SyncGroupRequest(GROUP, 1, "nobody", None, "consumer", "range"),
        one(group(Op.READ)),
        G30,
    ),
    Case(ApiKey.DESCRIBE_GROUPS, 5, lambda: DescribeGroupsRequest([GROUP]), one(group(Op.DESCRIBE)), G30),
    Case(
        ApiKey.LIST_GROUPS,
        5,
        ListGroupsRequest,
        any_of(group(Op.DESCRIBE), cluster(Op.DESCRIBE)),
        G30,
        passes=lambda answer: [each.group_id for each in answer.groups] == [GROUP],
    ),
    Case(ApiKey.DELETE_GROUPS, 2, lambda: DeleteGroupsRequest([GROUP]), one(group(Op.DELETE)), G30),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        lambda: heartbeat.ConsumerGroupHeartbeatRequest(GROUP, "nobody", 5, subscribed_topic_names=[FLIGHTS]),
        one(group(Op.READ), topic(Op.DESCRIBE)),
        G30,
    ),
    Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE, 1, lambda: ConsumerGroupDescribeRequest([GROUP]), one(group(Op.DESCRIBE)), G30
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        lambda: InitProducerIdRequest(ID, 60_000, 5, -1),
        one(transactional(Op.WRITE)),
        X53,
        "of a transactional id",
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        lambda: InitProducerIdRequest(None, 60_000),
        any_of(cluster(Op.IDEMPOTENT_WRITE), topic(Op.WRITE), topic(Op.WRITE, NONE), topic(Op.WRITE, DELETED)),
        C31,
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        lambda: add.AddPartitionsToTxnRequest(ID, *PRODUCER, [add.AddPartitionsToTxnTopic(NONE, [0])]),
        one(transactional(Op.WRITE), topic(Op.WRITE, NONE)),
        X53,
        versions=(0, 3),
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        4,
        lambda: add.AddPartitionsToTxnRequest(
            transactions=[
                add.AddPartitionsToTxnTransaction(ID, *PRODUCER, True, [add.AddPartitionsToTxnTopic(FLIGHTS, [0])])
            ]
        ),
        one(cluster(Op.CLUSTER_ACTION)),
        C31,
        "between brokers",
        versions=(4, 4),
    ),
    Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        lambda: AddOffsetsToTxnRequest(ID, *PRODUCER, GROUP),
        one(transactional(Op.WRITE), group(Op.READ)),
        X53,
    ),
    Case(ApiKey.END_TXN, 3, lambda: EndTxnRequest(ID, *PRODUCER, False), one(transactional(Op.WRITE)), X53),
    Case(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        _write_markers,
        any_of(cluster(Op.ALTER), cluster(Op.CLUSTER_ACTION)),
        C31,
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        lambda: txn.TxnOffsetCommitRequest(
            ID,
            GROUP,
            *PRODUCER,
            topics=[txn.TxnOffsetCommitRequestTopic(NONE, [txn.TxnOffsetCommitRequestPartition(0, 7)])],
        ),
        one(transactional(Op.WRITE), group(Op.READ), topic(Op.READ, NONE)),
        X53,
    ),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        lambda: DescribeTransactionsRequest([ID]),
        one(transactional(Op.DESCRIBE)),
        X53,
    ),
    Case(
        ApiKey.LIST_TRANSACTIONS,
        1,
        ListTransactionsRequest,
        one(transactional(Op.DESCRIBE)),
        X53,
        passes=lambda answer: [each.transactional_id for each in answer.transaction_states] == [ID],
    ),
]
