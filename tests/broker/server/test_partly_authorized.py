"""Requests of which a part is allowed: the rest is refused, or left out, and nothing is told of it."""

from __future__ import annotations

from pathlib import Path

from broker.wire.errors import ErrorCode
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.wire.vocabulary import LATEST, AclOperation, AclResource
from tests.broker.server.test_authorizer import LOCKED, allow, client_of, create
from tests.broker.server.test_logins import guarded
from tests.broker.wire_client import batch_of

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BOTH = ("flights", "hidden")
GROUP, ID = AclResource.GROUP, AclResource.TRANSACTIONAL_ID


async def test_topics_are_written_and_read_each_by_its_right(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        for name in BOTH:
            await owner.create_topic(name)
        rights = (AclOperation.WRITE, AclOperation.READ)
        await create(owner, *(allow("flights", one) for one in rights), allow("g", AclOperation.READ, GROUP))
        data = [TopicProduceData(name, [PartitionProduceData(0, memoryview(batch_of("a")))]) for name in BOTH]
        produced = await shop.ask(ProduceRequest(None, -1, 30_000, data), 9, ProduceResponse)
        assert [each.partition_responses[0].error_code for each in produced.responses] == [0, DENIED]
        wanted = [FetchTopic(name, [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]) for name in BOTH]
        fetched = await shop.ask(FetchRequest(topics=wanted, max_wait_ms=0), 12, FetchResponse)
        assert [each.partitions[0].error_code for each in fetched.responses] == [0, DENIED]
        asked = [ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp=LATEST)]) for name in BOTH]
        listed = await shop.ask(ListOffsetsRequest(-1, topics=asked), 7, ListOffsetsResponse)
        ends = [(each.partitions[0].error_code, each.partitions[0].offset) for each in listed.topics]
        assert ends == [(0, 1), (DENIED, -1)]
        topics = [OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(0, 1)]) for name in BOTH]
        committed = await shop.ask(OffsetCommitRequest("g", topics=topics), 8, OffsetCommitResponse)
        assert [each.partitions[0].error_code for each in committed.topics] == [0, DENIED]
        stale = OffsetCommitRequest("g", 7, "nobody", topics=topics)
        refused = await shop.ask(stale, 8, OffsetCommitResponse)
        codes = [each.partitions[0].error_code for each in refused.topics]
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, DENIED]


async def test_a_group_shows_offsets_of_topics_that_may_be_seen(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        for name in BOTH:
            await owner.create_topic(name)
        topics = [OffsetCommitRequestTopic(name, [OffsetCommitRequestPartition(0, 1)]) for name in BOTH]
        await owner.ask(OffsetCommitRequest("g", topics=topics), 8, OffsetCommitResponse)
        await create(owner, allow("g", AclOperation.DESCRIBE, GROUP), allow("flights", AclOperation.DESCRIBE))
        everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        (group,) = (await shop.ask(everything, 8, OffsetFetchResponse)).groups
        assert [topic.name for topic in group.topics] == ["flights"]


async def test_a_group_with_a_topic_that_may_not_be_seen_is_not_described(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        await owner.create_topic("hidden")
        joining = ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=5000, subscribed_topic_names=["hidden"], topic_partitions=[]
        )
        joined = await owner.ask(joining, 1, ConsumerGroupHeartbeatResponse)
        assert joined.error_code == 0, joined
        await create(owner, allow("g", AclOperation.DESCRIBE, GROUP))

        async def described() -> tuple[int, int]:
            request = ConsumerGroupDescribeRequest(["g"])
            (group,) = (await shop.ask(request, 1, ConsumerGroupDescribeResponse)).groups
            return group.error_code, len(group.members)

        assert await described() == (DENIED, 0)
        await create(owner, allow("hidden", AclOperation.DESCRIBE))
        assert await described() == (0, 1)


async def test_an_expression_matches_topics_that_may_be_seen(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        for name in BOTH:
            await owner.create_topic(name)
        await create(owner, allow("g", AclOperation.READ, GROUP), allow("flights", AclOperation.DESCRIBE))
        joining = ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=5000, subscribed_topic_regex=".*", topic_partitions=[]
        )
        joined = await shop.ask(joining, 1, ConsumerGroupHeartbeatResponse)
        assert joined.assignment is not None, joined
        names = [server.broker.topic_name(each.topic_id) for each in joined.assignment.topic_partitions]
        assert names == ["flights"]


async def test_a_transaction_shows_topics_that_may_be_seen(tmp_path: Path) -> None:
    async with guarded(tmp_path, **LOCKED) as server, client_of(server, "reader") as owner, client_of(server) as shop:
        for name in BOTH:
            await owner.create_topic(name)
        made = await owner.ask(InitProducerIdRequest("tx", 60_000), 4, InitProducerIdResponse)
        topics = [AddPartitionsToTxnTopic(name, [0]) for name in BOTH]
        adding = AddPartitionsToTxnRequest("tx", made.producer_id, made.producer_epoch, topics)
        await owner.ask(adding, 3, AddPartitionsToTxnResponse)
        await create(owner, allow("tx", AclOperation.DESCRIBE, ID), allow("flights", AclOperation.DESCRIBE))
        asked = DescribeTransactionsRequest(["tx"])
        (found,) = (await shop.ask(asked, 0, DescribeTransactionsResponse)).transaction_states
        assert (found.error_code, [topic.topic for topic in found.topics]) == (0, ["flights"])
        await create(owner, allow("tx", AclOperation.WRITE, ID), allow("flights", AclOperation.WRITE))
        answer = await shop.ask(adding, 3, AddPartitionsToTxnResponse)
        codes = [topic.results_by_partition[0].partition_error_code for topic in answer.results_by_topic_v3_and_below]
        assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, DENIED]
