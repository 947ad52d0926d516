"""The consumer group protocol (KIP-848), and members of the classic protocol beside it. Against Kafka 4.3."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from broker.wire.codec import encode_prefixed
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from broker.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from broker.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.interop.side_by_side.asking import POLL_SECONDS, READY_SECONDS, Case, Peer

FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


async def _loaded(peer: Peer, group: str) -> None:
    await peer.coordinator(group, 0)
    await peer.until_loaded(HeartbeatRequest(group, 1, "x"), 4, HeartbeatResponse, lambda answer: answer.error_code)


def _beat(group: str, member: str = FIRST, epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """One that joins says everything, later ones what `fields` gives."""
    joins: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(group, member, epoch, **{**(joins if epoch == 0 else {}), **fields})


async def _knows_topic(peer: Peer, group: str, topic: str) -> None:
    """Waits until the group's coordinator knows the topic, which Kafka tells it after the leader; leaves no group."""
    await _loaded(peer, group)
    asked = _beat(group, SECOND, subscribed_topic_names=[topic])
    deadline = time.monotonic() + READY_SECONDS
    while True:
        answer = await peer.prepare(asked, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
        assert time.monotonic() < deadline, answer
        asked = _beat(group, SECOND, epoch=answer.member_epoch)
        await asyncio.sleep(POLL_SECONDS)
    await peer.prepare(_beat(group, SECOND, epoch=-1), 1, ConsumerGroupHeartbeatResponse)
    deleted = await peer.prepare(DeleteGroupsRequest([group]), 2, DeleteGroupsResponse)
    assert deleted.results[0].error_code == 0, deleted


async def consumer_heartbeat_refused(peer: Peer) -> None:
    group, topic = peer.name("g"), await peer.topic()
    await _loaded(peer, group)
    for version in (0, 1):
        for label, request in (
            ("unknown group", _beat(group, epoch=3)),
            ("leave an unknown group", _beat(group, epoch=-1)),
            ("empty group", _beat("", subscribed_topic_names=[topic])),
            ("no topics", _beat(group)),
            ("no rebalance time-out", _beat(group, subscribed_topic_names=[topic], rebalance_timeout_ms=-1)),
            ("owns something", _beat(group, subscribed_topic_names=[topic], topic_partitions=None)),
            ("epoch -3", _beat(group, epoch=-3)),
            ("static leave without an instance", _beat(group, epoch=-2)),
            ("empty instance", _beat(group, subscribed_topic_names=[topic], instance_id="")),
            ("empty rack", _beat(group, subscribed_topic_names=[topic], rack_id="")),
            ("unknown assignor", _beat(group, subscribed_topic_names=[topic], server_assignor="sticky")),
        ):
            await peer.ask(f"{label}, v{version}", request, version)
    await peer.ask("no member id", _beat(group, "", subscribed_topic_names=[topic]), 1)
    await peer.ask("bad expression", _beat(group, subscribed_topic_regex="("), 1)
    await peer.ask("described", ConsumerGroupDescribeRequest([group, ""]), 1)


async def consumer_group_of_one(peer: Peer) -> None:
    group, topic = peer.name("g"), await peer.topic(partitions=2)
    await _knows_topic(peer, group, topic)
    joined = await peer.prepare(_beat(group, subscribed_topic_names=[topic]), 1, ConsumerGroupHeartbeatResponse)
    peer.note("joined", [joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms])
    assert joined.assignment is not None
    owned = [TopicPartitions(t.topic_id, t.partitions) for t in joined.assignment.topic_partitions]
    peer.note("assigned", [t.partitions for t in owned])
    await peer.ask("stays", _beat(group, epoch=2), 1)
    full: dict[str, Any] = {"topic_partitions": owned, "subscribed_topic_names": [topic]}
    await peer.ask("stays, with all", _beat(group, epoch=2, **full), 1)
    await peer.ask("stays, as one that lost an answer", _beat(group, epoch=2, rebalance_timeout_ms=60_000, **full), 1)
    await peer.ask("joins again", _beat(group, epoch=0, subscribed_topic_names=[topic]), 1)
    await peer.ask("newer epoch", _beat(group, epoch=9), 1)
    await peer.ask("unknown member", _beat(group, SECOND, epoch=2), 1)
    for version in (0, 1):
        await peer.ask(f"described, v{version}", ConsumerGroupDescribeRequest([group, group]), version)
    await peer.ask("described with operations", ConsumerGroupDescribeRequest([group], True), 1)
    await peer.ask("described as a classic one", DescribeGroupsRequest([group]), 5)
    for label, types in (("consumer", ["consumer"]), ("classic", ["classic"])):
        answer = await peer.prepare(ListGroupsRequest([], types), 5, ListGroupsResponse)
        found = [[g.protocol_type, g.group_state, g.group_type] for g in answer.groups if g.group_id == group]
        peer.note(f"listed as {label}", found)
    for label, member, epoch in (
        ("its epoch", FIRST, 2), ("older epoch", FIRST, 1), ("newer epoch", FIRST, 3), ("unknown", SECOND, 2),
        ("from outside", "", -1),
    ):  # fmt: skip
        row = OffsetCommitRequestPartition(0, committed_offset=5, committed_metadata="m")
        commit = OffsetCommitRequest(group, epoch, member, topics=[OffsetCommitRequestTopic(topic, [row])])
        await peer.ask(f"commit, {label}", commit, 9)
        rows = [OffsetFetchRequestTopics(topic, [0])]
        asked = OffsetFetchRequestGroup(group, member or None, epoch, rows)
        await peer.ask(f"fetch, {label}", OffsetFetchRequest(groups=[asked]), 9)
    await peer.ask("delete while it lives", DeleteGroupsRequest([group]), 2)
    await peer.ask("other topics", _beat(group, epoch=2, subscribed_topic_names=[peer.name("none")]), 1)
    await peer.ask("has given up", _beat(group, epoch=2, topic_partitions=[]), 1)
    await peer.ask("leave", _beat(group, epoch=-1), 1)
    await peer.ask("leave again", _beat(group, epoch=-1), 1)
    await peer.ask("described empty", ConsumerGroupDescribeRequest([group]), 1)
    await peer.ask("delete", DeleteGroupsRequest([group]), 2)
    await peer.ask("described gone", ConsumerGroupDescribeRequest([group]), 1)


async def consumer_group_by_expression(peer: Peer) -> None:
    """Kafka resolves it in the background: what both come to."""
    group, topic = peer.name("g"), await peer.topic("t1", partitions=2)
    await peer.topic("u1")
    await _loaded(peer, group)
    epoch, count = 0, 0
    asked = _beat(group, subscribed_topic_regex=f"{topic[:-2]}t.")
    deadline = time.monotonic() + READY_SECONDS
    while not count:
        assert time.monotonic() < deadline
        answer = await peer.prepare(asked, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        told = [] if answer.assignment is None else answer.assignment.topic_partitions
        count = sum(len(t.partitions) for t in told)
        asked = _beat(group, epoch=epoch)
    peer.note("partitions", count)
    await peer.ask("another", _beat(group, epoch=epoch, subscribed_topic_regex="("), 1)


async def _assigned(peer: Peer, label: str, request: ConsumerGroupHeartbeatRequest) -> list[TopicPartitions] | None:
    """Notes error, epoch and how many partitions: which ones is the assignor's own affair."""
    answer = await peer.prepare(request, 1, ConsumerGroupHeartbeatResponse)
    told = None if answer.assignment is None else answer.assignment.topic_partitions
    count = None if told is None else sum(len(t.partitions) for t in told)
    peer.note(label, [answer.error_code, answer.member_epoch, count])
    return None if told is None else [TopicPartitions(t.topic_id, t.partitions) for t in told]


async def consumer_group_of_two(peer: Peer) -> None:
    group, topic = peer.name("g"), await peer.topic(partitions=4)
    await _knows_topic(peer, group, topic)
    everything = await _assigned(peer, "first joins", _beat(group, subscribed_topic_names=[topic]))
    await _assigned(peer, "second joins", _beat(group, SECOND, subscribed_topic_names=[topic]))
    await peer.ask("reconciling", ConsumerGroupDescribeRequest([peer.name("other")]), 1)
    half = await _assigned(peer, "first is to give up", _beat(group, epoch=2, topic_partitions=everything))
    await _assigned(peer, "first has not yet", _beat(group, epoch=2, topic_partitions=everything))
    await _assigned(peer, "second waits", _beat(group, SECOND, epoch=3, topic_partitions=[]))
    await _assigned(peer, "first has given up", _beat(group, epoch=2, topic_partitions=half))
    await _assigned(peer, "first, answer lost", _beat(group, epoch=2, topic_partitions=half))
    await _assigned(peer, "first, answer lost, more", _beat(group, epoch=2, topic_partitions=everything))
    await _assigned(peer, "second gets it", _beat(group, SECOND, epoch=3, topic_partitions=[]))
    static: dict[str, Any] = {"subscribed_topic_names": [topic], "instance_id": "i"}
    third, fourth = str(uuid.UUID(int=3)), str(uuid.UUID(int=4))
    await _assigned(peer, "static joins", _beat(group, third, **static))
    await _assigned(peer, "a thief of its name", _beat(group, fourth, **static))
    await _assigned(peer, "static goes", _beat(group, third, epoch=-2, instance_id="i"))
    await _assigned(peer, "it comes back", _beat(group, fourth, **static))
    await _assigned(peer, "it was another", _beat(group, third, epoch=4, instance_id="i"))
    await _assigned(peer, "an unknown instance", _beat(group, third, epoch=4, instance_id="j"))
    await _assigned(peer, "first leaves", _beat(group, epoch=-1))


def _join(group: str, topic: str, member: str = "", *owned: int, **fields: Any) -> JoinGroupRequest:
    mine = [TopicPartition(topic, list(owned))] if owned else []
    metadata = encode_prefixed(ConsumerProtocolSubscription([topic], None, mine), 1)
    protocols = fields.pop("protocols", [JoinGroupRequestProtocol("range", metadata)])
    given = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", **fields}
    return JoinGroupRequest(group, member_id=member, protocols=protocols, **given)


async def _classic_alone(peer: Peer, group: str, topic: str, partitions: int) -> tuple[str, int]:
    asked = await peer.prepare(_join(group, topic), 9, JoinGroupResponse)
    joined = await peer.prepare(_join(group, topic, asked.member_id), 9, JoinGroupResponse)
    assert joined.error_code == 0, joined
    mine = encode_prefixed(ConsumerProtocolAssignment([TopicPartition(topic, list(range(partitions)))]), 1)
    rows = [SyncGroupRequestAssignment(joined.member_id, mine)]
    sync = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, "consumer", "range", rows)
    await peer.ask(f"{group.rpartition('-')[2]}: the classic member alone", sync, 5)
    return joined.member_id, joined.generation_id


async def a_group_goes_over(peer: Peer) -> None:
    group, topic = peer.name("g"), await peer.topic(partitions=1)
    await _knows_topic(peer, group, topic)
    member, generation = await _classic_alone(peer, group, topic, 1)
    await peer.ask("not a consumer group yet", _beat(group, epoch=1), 1)
    await _assigned(peer, "one of the new protocol", _beat(group, subscribed_topic_names=[topic]))
    await peer.ask("it is called", HeartbeatRequest(group, generation, member), 4)
    await peer.ask("wrong generation", HeartbeatRequest(group, 77, member), 4)
    await peer.ask("wrong member", HeartbeatRequest(group, generation, "x"), 4)
    await peer.ask("of the new protocol, the old way", HeartbeatRequest(group, 2, FIRST), 4)
    await peer.ask("sync before join", SyncGroupRequest(group, generation, member, None, "consumer", "range"), 5)
    joined = await peer.ask("it joins", _join(group, topic, member), 9)
    now = joined.generation_id
    for label, kind, name in (("wrong type", "connect", "range"), ("wrong protocol", "consumer", "sticky")):
        await peer.ask(f"sync, {label}", SyncGroupRequest(group, now, member, None, kind, name), 5)
    await peer.ask("sync, old generation", SyncGroupRequest(group, generation, member, None, "consumer", "range"), 5)
    await peer.ask("sync", SyncGroupRequest(group, now, member, None, "consumer", "range"), 5)
    await peer.ask("sync, v4", SyncGroupRequest(group, now, member), 4)
    await peer.ask("heartbeat", HeartbeatRequest(group, now, member), 4)
    row = OffsetCommitRequestPartition(0, committed_offset=5, committed_metadata="m")
    rows = [OffsetCommitRequestTopic(topic, [row])]
    await peer.ask("commit", OffsetCommitRequest(group, now, member, topics=rows), 8)
    await peer.ask("commit, old generation", OffsetCommitRequest(group, generation, member, topics=rows), 8)
    for label, request in (
        ("another type", _join(group, topic, protocol_type="connect")),
        ("another protocol", _join(group, topic, protocols=[JoinGroupRequestProtocol("other", b"")])),
        ("short session", _join(group, topic, session_timeout_ms=10)),
        ("no protocol", _join(group, topic, protocols=[])),
        ("a static one, with an id", _join(group, topic, "x", group_instance_id="i")),
        ("a new one", _join(group, topic)),
    ):
        await peer.ask(f"join, {label}", request, 9)
    await peer.ask("described", ConsumerGroupDescribeRequest([group]), 1)
    await peer.ask("described the old way", DescribeGroupsRequest([group]), 5)
    leavers = [MemberIdentity("x"), MemberIdentity(FIRST), MemberIdentity("", "i")]
    await peer.ask("who cannot leave the old way", LeaveGroupRequest(group, members=leavers), 5)
    await peer.ask("the last of the new protocol leaves", _beat(group, epoch=-1), 1)
    await peer.ask("it is called again", HeartbeatRequest(group, now, member), 4)
    again = await peer.ask("it joins the old way", _join(group, topic, member), 9)
    await peer.ask("it leads", SyncGroupRequest(group, again.generation_id, member, None, "consumer", "range"), 5)
    await peer.ask("described classic", DescribeGroupsRequest([group]), 5)


async def groups_that_do_not_go_over(peer: Peer) -> None:
    topic = await peer.topic()
    for label, protocol_type, metadata in (("connect", "connect", b"\0"), ("broken", "consumer", b"\0")):
        group = peer.name(label)
        await _loaded(peer, group)
        protocols = [JoinGroupRequestProtocol("range", metadata)]
        asked = await peer.prepare(
            _join(group, topic, protocol_type=protocol_type, protocols=protocols), 3, JoinGroupResponse
        )
        assert asked.error_code == 0
        await peer.ask(label, _beat(group, subscribed_topic_names=[topic]), 1)
        await peer.ask(f"{label}: it lives", HeartbeatRequest(group, asked.generation_id, asked.member_id), 4)


CASES_OF_KAFKA_43: tuple[Case, ...] = (
    consumer_heartbeat_refused, consumer_group_of_one, consumer_group_by_expression,
    consumer_group_of_two, a_group_goes_over,
    groups_that_do_not_go_over,
)  # fmt: skip
