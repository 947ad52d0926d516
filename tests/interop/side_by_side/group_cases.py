"""The classic group protocol, committed offsets, and what is asked about groups."""

from __future__ import annotations

from typing import Any

from broker.wire.codec import encode_prefixed
from broker.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from broker.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.side_by_side.asking import SHORT_PATIENCE_SECONDS, Case, Peer

SUBSCRIBED = encode_prefixed(ConsumerProtocolSubscription(["somewhere"]), 1)


async def _loaded(peer: Peer, group: str) -> None:
    await peer.coordinator(group, 0)
    await peer.until_loaded(HeartbeatRequest(group, 1, "x"), 4, HeartbeatResponse, lambda answer: answer.error_code)


def _join(group: str, member: str = "", **fields: Any) -> JoinGroupRequest:
    protocols = fields.pop("protocols", [JoinGroupRequestProtocol("range", SUBSCRIBED)])
    given = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer", **fields}
    return JoinGroupRequest(group, member_id=member, protocols=protocols, **given)


async def _join_alone(peer: Peer, group: str, topic: str = "somewhere") -> tuple[str, int]:
    """-> member id and generation of a group with one member, before its sync."""
    metadata = encode_prefixed(ConsumerProtocolSubscription([topic]), 1)
    protocols = [JoinGroupRequestProtocol("range", metadata)]
    asked = await peer.prepare(_join(group, protocols=protocols), 9, JoinGroupResponse)
    joined = await peer.prepare(_join(group, asked.member_id, protocols=protocols), 9, JoinGroupResponse)
    assert joined.error_code == 0, joined
    return joined.member_id, joined.generation_id


async def find_coordinator(peer: Peer) -> None:
    for kind in (0, 1):
        await peer.coordinator("g", kind)
    for key in ("g", ""):
        for kind in (0, 1, 2, 3, -1):
            await peer.ask(f"{kind} {key!r}", FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
            await peer.ask(f"{kind} {key!r}, v3", FindCoordinatorRequest(key, kind), 3)
    await peer.ask("none", FindCoordinatorRequest(key_type=0), 4)
    await peer.ask("twice", FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "g"]), 4)


async def join(peer: Peer) -> None:
    group = peer.name("g")
    await _loaded(peer, group)
    await peer.ask("without an id", _join(group), 9)
    await peer.ask("with an id of its own", _join(group, "mine"), 9)
    await peer.ask("empty group", _join(""), 9)
    await peer.ask("short session", _join(peer.name("short"), session_timeout_ms=10), 9)
    await peer.ask("long session", _join(peer.name("long"), session_timeout_ms=2_000_000), 9)
    await peer.ask("no protocol", _join(peer.name("none"), protocols=[]), 3)
    await peer.ask("no protocol type", _join(peer.name("untyped"), protocol_type=""), 3)
    await peer.ask("v3 joins at once", _join(peer.name("v3")), 3)
    await peer.ask("static", _join(peer.name("static"), group_instance_id="i"), 9)
    await peer.ask("static without a name", _join(peer.name("static2"), group_instance_id=""), 9)


async def a_groups_life(peer: Peer) -> None:
    group = peer.name("g")
    subscribed = await peer.topic("subscribed")
    await _loaded(peer, group)
    member, generation = await _join_alone(peer, group, subscribed)
    await peer.ask("described before sync", DescribeGroupsRequest([group]), 5)
    await peer.ask("heartbeat before sync", HeartbeatRequest(group, generation, member), 4)
    await peer.ask("sync, wrong generation", SyncGroupRequest(group, 77, member), 5)
    await peer.ask("sync, wrong member", SyncGroupRequest(group, generation, "x"), 5)
    wrong = SyncGroupRequest(group, generation, member, None, "connect", "range")
    await peer.ask("sync, wrong type", wrong, 5)
    wrong = SyncGroupRequest(group, generation, member, None, "consumer", "other")
    await peer.ask("sync, wrong protocol", wrong, 5)
    assigned = [SyncGroupRequestAssignment(member, b"part")]
    await peer.ask("sync", SyncGroupRequest(group, generation, member, None, "consumer", "range", assigned), 5)
    await peer.ask("sync again", SyncGroupRequest(group, generation, member), 4)
    await peer.ask("heartbeat", HeartbeatRequest(group, generation, member), 4)
    await peer.ask("heartbeat, wrong generation", HeartbeatRequest(group, 77, member), 4)
    await peer.ask("heartbeat, wrong member", HeartbeatRequest(group, generation, "x"), 4)
    await peer.ask("heartbeat, wrong instance", HeartbeatRequest(group, generation, member, "i"), 4)
    await peer.ask("heartbeat, no group", HeartbeatRequest(peer.name("unknown"), 1, "x"), 4)
    await peer.ask("heartbeat, empty group", HeartbeatRequest("", 1, "x"), 4)
    await peer.ask("sync, empty group", SyncGroupRequest("", 1, "x"), 4)
    await peer.ask("leave, empty group", LeaveGroupRequest("", members=[MemberIdentity("x")]), 5)
    for version in range(6):
        await peer.ask(f"described, v{version}", DescribeGroupsRequest([group]), version)
    await peer.ask("described with operations", DescribeGroupsRequest([group], True), 5)
    await peer.ask("delete while it lives", DeleteGroupsRequest([group]), 2)
    topic = await peer.topic()
    await peer.ask("commit", _commit(group, topic, generation, member), 8)
    await peer.ask("commit, wrong generation", _commit(group, topic, 77, member), 8)
    await peer.ask("commit, wrong member", _commit(group, topic, generation, "x"), 8)
    await peer.ask("commit from outside", _commit(group, topic, -1, ""), 8)
    await peer.ask("delete its offset", _delete_offset(group, topic), 0)
    await peer.ask("delete an offset it is subscribed to", _delete_offset(group, subscribed), 0)
    await peer.ask("leave, wrong member", LeaveGroupRequest(group, members=[MemberIdentity("x")]), 5)
    await peer.ask("leave", LeaveGroupRequest(group, members=[MemberIdentity(member)]), 5)
    await peer.ask("leave again", LeaveGroupRequest(group, members=[MemberIdentity(member)]), 5)
    await peer.ask("leave nobody", LeaveGroupRequest(group), 5)
    await peer.ask("leave, v2", LeaveGroupRequest(group, "x"), 2)
    await peer.ask("leave, no group", LeaveGroupRequest(peer.name("unknown"), members=[MemberIdentity("x")]), 5)
    await peer.ask("sync, no group", SyncGroupRequest(peer.name("unknown"), 1, "x"), 4)
    await peer.ask("described empty", DescribeGroupsRequest([group]), 5)
    # Kafka lets anybody commit in the name of the empty group: other cases may have.
    await peer.prepare(DeleteGroupsRequest([""]), 2, DeleteGroupsResponse)
    await peer.ask("delete", DeleteGroupsRequest([group]), 2)
    await peer.ask("delete again", DeleteGroupsRequest([group, "", peer.name("unknown")]), 2)
    await peer.ask("delete twice at once", DeleteGroupsRequest([group, group]), 2)
    await peer.ask("delete none", DeleteGroupsRequest([]), 2)
    await peer.ask("described gone", DescribeGroupsRequest([group, ""]), 5)
    await peer.ask("described twice", DescribeGroupsRequest([group, group]), 5)


async def list_groups(peer: Peer) -> None:
    group = peer.name("g")
    await _loaded(peer, group)
    await _join_alone(peer, group)
    for label, states, types in (
        ("all", [], []),
        ("stable", ["Stable"], []),
        ("completing", ["CompletingRebalance"], []),
        ("other letters", ["completingrebalance"], []),
        ("unknown state", ["nonsense"], []),
        ("classic", [], ["classic"]),
        ("Classic", [], ["Classic"]),
        ("consumer", [], ["consumer"]),
        ("unknown type", [], ["nonsense"]),
    ):
        answer = await peer.prepare(ListGroupsRequest(states, types), 5, ListGroupsResponse)
        found = [(g.protocol_type, g.group_state, g.group_type) for g in answer.groups if g.group_id == group]
        peer.note(label, {"error": answer.error_code, "found": [list(one) for one in found]})


def _commit(
    group: str, topic: str, generation: int = -1, member: str = "", *, partition: int = 0, **fields: Any
) -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition, **{"committed_offset": 5, "committed_metadata": "m", **fields})
    return OffsetCommitRequest(group, generation, member, topics=[OffsetCommitRequestTopic(topic, [row])])


def _delete_offset(group: str, topic: str, partition: int = 0) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])])


async def committed_offsets(peer: Peer) -> None:
    group = peer.name("g")
    topic = await peer.topic(partitions=2)
    await _loaded(peer, group)
    for version in range(2, 10):
        await peer.ask(f"commit, v{version}", _commit(group, topic), version)
    unknown = peer.name("unknown")
    for label, request in (
        ("with a generation", _commit(group, topic, 3)),
        ("with a member", _commit(group, topic, -1, "x")),
        ("unknown group with a generation", _commit(peer.name("other"), topic, 3, "x")),
        ("unknown group with a member", _commit(peer.name("other"), topic, -1, "x")),
        ("empty group", _commit("", topic)),
        ("unknown topic", _commit(group, unknown)),
        ("bad name", _commit(group, "a b")),
        ("unknown partition", _commit(group, topic, partition=9)),
        ("negative partition", _commit(group, topic, partition=-1)),
        ("negative offset", _commit(group, topic, committed_offset=-1)),
        ("very negative offset", _commit(group, topic, committed_offset=-100)),
        ("long metadata", _commit(group, topic, committed_metadata="x" * 4097)),
        ("metadata at the limit", _commit(group, topic, committed_metadata="x" * 4096)),
        ("null metadata", _commit(group, topic, partition=1, committed_metadata=None)),
        ("nothing", OffsetCommitRequest(group, -1, "")),
        ("no partition", OffsetCommitRequest(group, -1, "", topics=[OffsetCommitRequestTopic(topic, [])])),
    ):
        await peer.ask(f"commit, {label}", request, 8)
    await peer.ask("commit at the end", _commit(group, topic, committed_offset=7, committed_leader_epoch=0), 8)


async def offset_fetch(peer: Peer) -> None:
    group = peer.name("g")
    topic = await peer.topic(partitions=2)
    await _loaded(peer, group)
    await peer.ask("commit", _commit(group, topic), 8)
    for version in range(1, 8):
        one = OffsetFetchRequestTopic(topic, [0, 1, 9])
        await peer.ask(f"v{version}", OffsetFetchRequest(group, [one]), version)
        await peer.ask(f"unknown group, v{version}", OffsetFetchRequest(peer.name("other"), [one]), version)
        if version >= 2:
            await peer.ask(f"all, v{version}", OffsetFetchRequest(group, None), version)
    await peer.ask("empty list, v7", OffsetFetchRequest(group, []), 7)

    def many(*groups: OffsetFetchRequestGroup, stable: bool = False) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=list(groups), require_stable=stable)

    rows = [OffsetFetchRequestTopics(topic, [0, 1])]
    for version in (8, 9):
        await peer.ask(f"v{version}", many(OffsetFetchRequestGroup(group, topics=rows)), version)
        await peer.ask(f"all, v{version}", many(OffsetFetchRequestGroup(group, topics=None)), version)
        other = OffsetFetchRequestGroup(peer.name("other"), topics=None)
        await peer.ask(f"unknown group, v{version}", many(other), version)
        await peer.ask(f"empty list, v{version}", many(OffsetFetchRequestGroup(group, topics=[])), version)
        await peer.ask(f"empty group, v{version}", many(OffsetFetchRequestGroup("", topics=rows)), version)
        await peer.ask(f"no group, v{version}", many(), version, SHORT_PATIENCE_SECONDS)
        await peer.ask(f"stable, v{version}", many(OffsetFetchRequestGroup(group, topics=rows), stable=True), version)
    unknown = [OffsetFetchRequestTopics(peer.name("unknown"), [0])]
    await peer.ask("unknown topic", many(OffsetFetchRequestGroup(group, topics=unknown)), 9)
    await peer.ask("with a member", many(OffsetFetchRequestGroup(group, "x", 3, rows)), 9)


async def offset_delete(peer: Peer) -> None:
    group = peer.name("g")
    topic = await peer.topic(partitions=2)
    await _loaded(peer, group)
    await peer.ask("commit", _commit(group, topic), 8)
    for label, request in (
        ("nothing", OffsetDeleteRequest(group, [])),
        ("what is not there", _delete_offset(group, topic, 1)),
        ("unknown partition", _delete_offset(group, topic, 9)),
        ("unknown topic", _delete_offset(group, peer.name("unknown"))),
        ("unknown group", _delete_offset(peer.name("other"), topic)),
        ("empty group", _delete_offset("", topic)),
        ("the last", _delete_offset(group, topic)),
        ("a group without offsets", _delete_offset(group, topic)),
    ):
        await peer.ask(label, request, 0)


CASES: tuple[Case, ...] = (
    find_coordinator, join, a_groups_life, list_groups, committed_offsets, offset_fetch, offset_delete,
)  # fmt: skip
