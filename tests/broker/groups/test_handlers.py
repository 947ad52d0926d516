"""Every version that is promised can be answered: each handler, each version, from bytes to bytes, on real logs.

The answers' contents have their own tests; here it is that no version gets a value it has no form for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from broker.cluster.peers import Peers
from broker.cluster.view import ClusterView
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.handlers.table import HANDLERS
from broker.transactions.verification import Verification
from broker.wire.api import API, ApiKey
from broker.wire.codec import decode, encode_bytes
from broker.wire.errors import ErrorCode
from broker.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    delete_groups,
    describe_groups,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from tests.broker.coordinator_host import Host, start

OWN = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
)
VERSIONS = [
    pytest.param(key, version, id=f"{key.name}-v{version}")
    for key in OWN
    for version in range(HANDLERS[key].versions[0], HANDLERS[key].versions[1] + 1)
]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = start(tmp_path)
    host.create_topic("flights", 2)
    return host


class Front:
    """The host as handlers see a broker: all coordinators, not those of the only partitions."""

    def __init__(self, host: Host) -> None:
        self.groups, self.transactions, self._host = host.all_groups, host.all_transactions, host
        alone = ClusterView()
        self.verification = Verification(self.transactions, alone, Peers(alone, 1))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


async def ask(host: Host, request: Any, version: int) -> Any:
    """The request through its bytes, the handler, and the response through its bytes."""
    handler: Handler = HANDLERS[request.API_KEY]
    encoded = encode_bytes(request, version)
    received, end = decode(type(request), version, encoded)
    assert end == len(encoded)
    context = RequestContext(version, "client", "/127.0.0.1", HANDLERS)
    response = await handler.handle(cast("Any", Front(host)), received, context)
    answer = encode_bytes(response, version)
    return decode(API[request.API_KEY].response, version, answer)[0]


async def join(host: Host, version: int) -> Any:
    protocols = [
        join_group.JoinGroupRequestProtocol("range", b"\x00\x00\x00\x00\x00\x01\x00\x07flights\xff\xff\xff\xff")
    ]
    request = join_group.JoinGroupRequest("g", 10_000, 30_000, "", None, "consumer", protocols)
    first = await ask(host, request, version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = first.member_id
        first = await ask(host, request, version)
    assert first.error_code == ErrorCode.NONE
    return first


async def stable(host: Host) -> tuple[str, int]:
    joined = await join(host, 9)
    part = [sync_group.SyncGroupRequestAssignment(joined.member_id, b"part")]
    await ask(host, sync_group.SyncGroupRequest("g", 1, joined.member_id, None, "consumer", "range", part), 5)
    return joined.member_id, joined.generation_id


async def run(host: Host, key: ApiKey, version: int) -> int:
    """A request that must succeed -> its error code."""
    match key:
        case ApiKey.FIND_COORDINATOR:
            found = await ask(host, find_coordinator.FindCoordinatorRequest("g", 0, ["g"]), version)
            one = found.coordinators[0] if version >= 4 else found
            assert (one.node_id, one.host, one.port) == (1, "127.0.0.1", 9092)
            return int(one.error_code)
        case ApiKey.JOIN_GROUP:
            joined = await join(host, version)
            assert joined.members[0].member_id == joined.leader
            return int(joined.error_code)
        case ApiKey.SYNC_GROUP:
            joined = await join(host, 9)
            part = [sync_group.SyncGroupRequestAssignment(joined.member_id, b"part")]
            request = sync_group.SyncGroupRequest("g", 1, joined.member_id, None, "consumer", "range", part)
            synced = await ask(host, request, version)
            assert synced.assignment == b"part"
            return int(synced.error_code)
        case ApiKey.HEARTBEAT:
            member, generation = await stable(host)
            return int((await ask(host, heartbeat.HeartbeatRequest("g", generation, member), version)).error_code)
        case ApiKey.LEAVE_GROUP:
            member, _ = await stable(host)
            left = await ask(
                host, leave_group.LeaveGroupRequest("g", member, [leave_group.MemberIdentity(member)]), version
            )
            return int(left.members[0].error_code if version >= 3 else left.error_code)
        case _:
            return await run_offsets(host, key, version)


async def run_offsets(host: Host, key: ApiKey, version: int) -> int:
    offsets = [offset_commit.OffsetCommitRequestTopic("flights", [offset_commit.OffsetCommitRequestPartition(1, 5)])]
    match key:
        case ApiKey.OFFSET_COMMIT:
            request = offset_commit.OffsetCommitRequest("g", -1, "", topics=offsets)
            return int((await ask(host, request, version)).topics[0].partitions[0].error_code)
        case ApiKey.OFFSET_FETCH:
            return await fetch_offsets(host, version)
        case ApiKey.DESCRIBE_GROUPS:
            await stable(host)
            described = (await ask(host, describe_groups.DescribeGroupsRequest(["g", "nobody"]), version)).groups
            assert [group.group_state for group in described] == ["Stable", "Dead"]
            assert (described[0].protocol_data, described[0].members[0].member_assignment) == ("range", b"part")
            return int(described[0].error_code)
        case ApiKey.LIST_GROUPS:
            await stable(host)
            listed = await ask(host, list_groups.ListGroupsRequest(["sTABLE"], ["classic"]), version)
            assert [(group.group_id, group.protocol_type) for group in listed.groups] == [("g", "consumer")]
            if version >= 4:
                assert (await ask(host, list_groups.ListGroupsRequest(["Empty"]), version)).groups == []
            return int(listed.error_code)
        case ApiKey.DELETE_GROUPS:
            await ask(host, offset_commit.OffsetCommitRequest("g", -1, "", topics=offsets), 9)
            return int((await ask(host, delete_groups.DeleteGroupsRequest(["g"]), version)).results[0].error_code)
        case ApiKey.OFFSET_DELETE:
            await ask(host, offset_commit.OffsetCommitRequest("g", -1, "", topics=offsets), 9)
            topic = offset_delete.OffsetDeleteRequestTopic("flights", [offset_delete.OffsetDeleteRequestPartition(1)])
            deleted = await ask(host, offset_delete.OffsetDeleteRequest("g", [topic]), version)
            assert not host.groups.offsets.has_any("g")
            return int(deleted.topics[0].partitions[0].error_code)
        case ApiKey.WRITE_TXN_MARKERS:
            producer = (host.allocate_producer_id(), 0)
            where = [write_txn_markers.WritableTxnMarkerTopic("flights", [1])]
            marker = write_txn_markers.WritableTxnMarker(*producer, False, where, 0)
            written = await ask(host, write_txn_markers.WriteTxnMarkersRequest([marker]), version)
            assert host.log("flights", 1).log_end_offset == 1
            return int(written.markers[0].topics[0].partitions[0].error_code)
        case _:
            return await transact(host, key, version)


async def fetch_offsets(host: Host, version: int) -> int:
    part = [offset_commit.OffsetCommitRequestPartition(1, 5, -1, "note")]
    commit = offset_commit.OffsetCommitRequest(
        "g", -1, "", topics=[offset_commit.OffsetCommitRequestTopic("flights", part)]
    )
    await ask(host, commit, 9)
    old = [offset_fetch.OffsetFetchRequestTopic("flights", [0, 1])]
    new = [offset_fetch.OffsetFetchRequestTopics("flights", [0, 1])]
    groups = [offset_fetch.OffsetFetchRequestGroup(name, topics=new) for name in ("g", "nobody")]
    found = await ask(host, offset_fetch.OffsetFetchRequest("g", old, groups, require_stable=version >= 7), version)
    topics = found.groups[0].topics if version >= 8 else found.topics
    assert [(p.committed_offset, p.metadata) for p in topics[0].partitions] == [(-1, ""), (5, "note")]
    if version >= 8:
        assert [p.error_code for p in found.groups[1].topics[0].partitions] == [0, 0]
    if version >= 2:
        groups = [offset_fetch.OffsetFetchRequestGroup("g", topics=None)]
        everything = await ask(host, offset_fetch.OffsetFetchRequest("g", None, groups), version)
        topics = everything.groups[0].topics if version >= 8 else everything.topics
        assert [p.partition_index for p in topics[0].partitions] == [1]
    return int(topics[0].partitions[0].error_code)


async def transact(host: Host, key: ApiKey, version: int) -> int:
    init = init_producer_id.InitProducerIdRequest("txn", 60_000)
    made = await ask(host, init, version if key is ApiKey.INIT_PRODUCER_ID else 4)
    producer = (made.producer_id, made.producer_epoch)
    flights = [add_partitions_to_txn.AddPartitionsToTxnTopic("flights", [0, 1])]
    add = add_partitions_to_txn.AddPartitionsToTxnRequest("txn", *producer, flights)
    if key is ApiKey.INIT_PRODUCER_ID:
        return int(made.error_code)
    if key is ApiKey.ADD_PARTITIONS_TO_TXN and version >= 4:
        return await add_as_brokers(host, producer, flights, version)
    if key is ApiKey.ADD_PARTITIONS_TO_TXN:
        added = await ask(host, add, version)
        add.v3_and_below_topics.append(add_partitions_to_txn.AddPartitionsToTxnTopic("gone", [0]))
        refused = (await ask(host, add, version)).results_by_topic_v3_and_below
        assert [t.results_by_partition[0].partition_error_code for t in refused] == [55, 3]
        return int(added.results_by_topic_v3_and_below[0].results_by_partition[1].partition_error_code)
    if key is ApiKey.END_TXN:
        await ask(host, add, 3)
        stale = end_txn.EndTxnRequest("txn", producer[0], 9, True)
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await ask(host, stale, version)).error_code == fenced
        return int((await ask(host, end_txn.EndTxnRequest("txn", *producer, True), version)).error_code)
    offsets = add_offsets_to_txn.AddOffsetsToTxnRequest("txn", *producer, "g")
    if key is ApiKey.ADD_OFFSETS_TO_TXN:
        return int((await ask(host, offsets, version)).error_code)
    part = [txn_offset_commit.TxnOffsetCommitRequestPartition(1, 5)]
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic("flights", part)]
    commit = txn_offset_commit.TxnOffsetCommitRequest("txn", "g", *producer, topics=topics)
    early = await ask(host, commit, version)
    assert early.topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE, "the group was not added"
    await ask(host, offsets, 3)
    done = await ask(host, commit, version)
    unstable = await ask(host, offset_fetch.OffsetFetchRequest("g", None, [], require_stable=True), 7)
    assert unstable.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    return int(done.topics[0].partitions[0].error_code)


async def add_as_brokers(
    host: Host, producer: tuple[int, int], topics: list[add_partitions_to_txn.AddPartitionsToTxnTopic], version: int
) -> int:
    """The question whether they are in the transaction, before and after they are added to it."""
    codes = []
    for verify_only in (True, False, True):
        one = add_partitions_to_txn.AddPartitionsToTxnTransaction("txn", *producer, verify_only, topics)
        answer = await ask(host, add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[one]), version)
        (result,) = answer.results_by_transaction
        codes.append([part.partition_error_code for part in result.topic_results[0].results_by_partition])
    assert codes == [[ErrorCode.INVALID_TXN_STATE] * 2, [ErrorCode.NONE] * 2, [ErrorCode.NONE] * 2]
    return int(answer.error_code)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_each_version_is_served(host: Host, key: ApiKey, version: int) -> None:
    try:
        assert await run(host, key, version) == ErrorCode.NONE
    except BrokerError as error:
        pytest.fail(f"{key.name} v{version}: {error}")
