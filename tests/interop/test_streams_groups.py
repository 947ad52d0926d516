"""Groups of Kafka Streams' own protocol (KIP-1071): their offsets are groups' offsets, and who reads is not nobody."""

from __future__ import annotations

import asyncio
import datetime
import io
import struct
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest, Subtopology, Topology
from kio.schema.streams_group_heartbeat.v0.response import StreamsGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

from broker.client.cluster import Cluster
from broker.client.described_groups import DescribedConsumerGroup
from broker.client.groups import commit_offsets, committed_offsets, describe_groups
from broker.client.model import CommittedOffset
from broker.wire.vocabulary import GroupState, TopicPartition
from failover.observing.observe import observe
from failover.planning.gates import RefusalReason
from failover.planning.plan import active_at_source
from mirror.offsets.group_entries import GroupAction
from mirror.offsets.state import load_link_state, read_entries
from tests.interop.servers import KafkaServer
from tests.mirror.harness import eventually, link_between, make_topic, running, some_records, wait_for_records, write

STREAMS_GROUP_HEARTBEAT: Final = 88
LEAVES: Final = -1
RECORDS: Final = 20


@dataclass
class Streamer:
    """A member of a streams group, as far as its coordinator sees it."""

    group: str
    topic: str
    member: str = field(default_factory=lambda: str(uuid.uuid4()))

    async def join(self, cluster: Cluster) -> None:
        """As soon as there is a coordinator."""

        async def joined() -> bool:
            answer = await self._heartbeat(cluster, 0)
            return int(answer.error_code) == 0

        await committed_offsets(cluster, self.group)  # whose first asker has the topic of coordinators made
        await eventually(joined, "the group's coordinator to take a member")

    async def leave(self, cluster: Cluster) -> None:
        answer = await self._heartbeat(cluster, LEAVES)
        assert answer.error_code == 0, answer

    async def _heartbeat(self, cluster: Cluster, epoch: int) -> Any:
        joins = epoch == 0
        parts = Subtopology(
            subtopology_id="0",
            source_topics=(TopicName(self.topic),),
            state_changelog_topics=(),
            repartition_source_topics=(),
            copartition_groups=(),
        )
        asked = StreamsGroupHeartbeatRequest(
            group_id=GroupId(self.group),
            member_id=self.member,
            member_epoch=i32(epoch),
            endpoint_information_epoch=i32(-1),
            rebalance_timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=60_000 if joins else -1)),
            topology=Topology(epoch=i32(0), subtopologies=(parts,)) if joins else None,
            active_tasks=() if joins else None,
            standby_tasks=() if joins else None,
            warmup_tasks=() if joins else None,
            process_id=self.member if joins else None,
            client_tags=() if joins else None,
            task_offsets=None,
            task_end_offsets=None,
        )
        frame = io.BytesIO()
        frame.write(struct.pack(">hhihb", STREAMS_GROUP_HEARTBEAT, 0, 7, -1, 0))
        entity_writer(StreamsGroupHeartbeatRequest)(frame, asked)
        (node,) = cluster.nodes.values()
        reader, writer = await asyncio.open_connection(node.host, node.port)
        try:
            writer.write(struct.pack(">i", len(frame.getvalue())) + frame.getvalue())
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(size)
        finally:
            writer.close()
        return entity_reader(StreamsGroupHeartbeatResponse)(answer, 5)[0]


async def test_a_streams_group_is_carried_over_and_gated_as_others_are(
    kafka_43: KafkaServer, tmp_path_factory: Any
) -> None:
    tag = uuid.uuid4().hex[:6]
    topic, group = f"flights-{tag}", f"streams-{tag}"
    where = TopicPartition(topic, 0)
    with KafkaServer("4.3.0", tmp_path_factory.mktemp("west43")) as west:
        link = link_between(kafka_43.bootstrap, west.bootstrap, [topic], groups=(group,))
        async with Cluster(link.source) as source, Cluster(link.target) as target:
            await make_topic(source, topic)
            await write(source, where, some_records(0, RECORDS))
            app = Streamer(group, topic)
            await app.join(source)
            described = (await describe_groups(source, [group]))[group]
            assert isinstance(described, DescribedConsumerGroup), "it has a member, and nobody said which"
            assert [(member.member_id, member.subscribed) for member in described.members] == [(app.member, (topic,))]
            await app.leave(source)
            described = (await describe_groups(source, [group]))[group]
            assert isinstance(described, DescribedConsumerGroup)
            assert (described.state, described.members) == (GroupState.EMPTY, ())
            await commit_offsets(source, group, {where: CommittedOffset(7)})
            async with running(link):
                await wait_for_records(target, where, RECORDS)

                async def carried() -> bool:
                    there = (await load_link_state(link, target)).map.to_target(topic, 0, 7)
                    return await committed_offsets(target, group) == {where: CommittedOffset(there or -1)}

                await eventually(carried, "the group's offset at the target")
                await app.join(target)
                await commit_offsets(source, group, {where: CommittedOffset(9)})

                async def waits() -> bool:
                    entry = (await read_entries(link, target)).groups.by_group.get(group)
                    return entry is not None and entry.waiting == {where: GroupAction.SKIP_ACTIVE}

                await eventually(waits, "the group to be left alone where it has a member")
            await app.join(source)
            (seen,) = (await observe(link, source, target, (), 0)).groups
            assert (seen.source_members, seen.target_members) == (1, 1)
            assert [refusal.reason for refusal in active_at_source([seen])] == [RefusalReason.GROUP_ACTIVE_AT_SOURCE]
            await app.leave(source)
