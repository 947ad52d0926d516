"""Share groups (KIP-932): they commit no offsets, and are in a move's way only where they read what it is about."""

from __future__ import annotations

import asyncio
import io
import struct
import uuid
from typing import Any, Final

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from broker.client.cluster import Cluster
from broker.client.described_groups import SHARE_TYPE, DescribedConsumerGroup
from broker.client.groups import committed_offsets, describe_groups
from broker.wire.vocabulary import TopicPartition
from failover.observing.observe import observe
from failover.observing.what_stays import other_groups, what_stays
from failover.planning.gates import GateRefusal, RefusalReason
from failover.planning.links import source_names
from failover.planning.plan import active_at_source
from failover.planning.staying import StayReason
from tests.interop.servers import KafkaServer
from tests.mirror.harness import eventually, link_between, make_topic, running, some_records, wait_for_records, write

SHARE_GROUP_HEARTBEAT: Final = 76
RECORDS: Final = 5


async def join(cluster: Cluster, group: str, member: str, topic: str) -> int:
    """As a member that reads the topic -> the error code."""
    await committed_offsets(cluster, group)  # whose first asker has the topic of coordinators made
    asked = ShareGroupHeartbeatRequest(
        group_id=GroupId(group),
        member_id=member,
        member_epoch=i32(0),
        rack_id=None,
        subscribed_topic_names=(TopicName(topic),),
    )
    frame = io.BytesIO()
    frame.write(struct.pack(">hhihb", SHARE_GROUP_HEARTBEAT, 1, 7, -1, 0))
    entity_writer(ShareGroupHeartbeatRequest)(frame, asked)
    (node,) = cluster.nodes.values()
    reader, writer = await asyncio.open_connection(node.host, node.port)
    try:
        writer.write(struct.pack(">i", len(frame.getvalue())) + frame.getvalue())
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(size)
    finally:
        writer.close()
    return int(entity_reader(ShareGroupHeartbeatResponse)(answer, 5)[0].error_code)


async def test_a_share_group_of_another_topic_is_in_no_switchovers_way(
    kafka_43: KafkaServer, tmp_path_factory: Any
) -> None:
    tag = uuid.uuid4().hex[:6]
    topic, other = f"flights-{tag}", f"other-{tag}"
    with KafkaServer("4.3.0", tmp_path_factory.mktemp("west43")) as west:
        link = link_between(kafka_43.bootstrap, west.bootstrap, [topic], groups=(f".*{tag}",))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            for name in (topic, other):
                await make_topic(source, name)
            await write(source, TopicPartition(topic, 0), some_records(0, RECORDS))
            async with running(link):
                await wait_for_records(target, TopicPartition(topic, 0), RECORDS)
            members = {name: str(uuid.uuid4()) for name in (topic, other)}
            for name, member in members.items():

                async def joined(name: str = name, member: str = member) -> bool:
                    return await join(source, f"share-{name}", member, name) == 0

                await eventually(joined, "the group's coordinator to take a member", 60.0)
            described = (await describe_groups(source, [f"share-{other}"]))[f"share-{other}"]
            assert isinstance(described, DescribedConsumerGroup)
            assert described.protocol_type == SHARE_TYPE
            assert [member.subscribed for member in described.members] == [(other,)]
            snapshot = await observe(link, source, target, (), 0)
            seen, others = snapshot.groups, await other_groups(link, source)
            assert {f"share-{topic}", f"share-{other}"} <= {
                stay.subject for stay in what_stays(snapshot, others) if stay.reason is StayReason.NOT_KNOWN
            }, "a plan named neither, and its applications began at the target's end"
            names = await source_names(source)
            assert {f"share-{topic}", f"share-{other}"} <= names.shared - (names.groups or frozenset())
            assert active_at_source(seen) == (GateRefusal(RefusalReason.GROUP_ACTIVE_AT_SOURCE, f"share-{topic}"),)
            assert active_at_source(seen, (f"share-{topic}",)) == ()
