"""What is named many times in a request is described once: an answer is not a thousand times what was asked."""

from __future__ import annotations

from pathlib import Path

from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from broker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from broker.wire.vocabulary import TOPIC_RESOURCE
from tests.broker.bombs import counted_lines
from tests.broker.running import running_broker
from tests.broker.wire_client import connect

TIMES = 1_000
LINES_MAX = 400_000


async def test_each_thing_is_described_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("t", partitions=50)
        with counted_lines() as lines:
            topics = MetadataRequest([MetadataRequestTopic(name="t")] * TIMES)
            assert len((await client.ask(topics, 12, MetadataResponse)).topics) == 1
            configs = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, "t", None)] * TIMES)
            assert len((await client.ask(configs, 4, DescribeConfigsResponse)).results) == 1
        assert lines.count < LINES_MAX
        groups = DescribeGroupsRequest(["g"] * TIMES)
        assert len((await client.ask(groups, 5, DescribeGroupsResponse)).groups) == 1
        consumers = ConsumerGroupDescribeRequest(["g"] * TIMES)
        assert len((await client.ask(consumers, 0, ConsumerGroupDescribeResponse)).groups) == 1
        producers = DescribeProducersRequest([TopicRequest("t", [0, 1] * TIMES)] * 3)
        (named,) = (await client.ask(producers, 0, DescribeProducersResponse)).topics
        assert [partition.partition_index for partition in named.partitions] == [0, 1]
        offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g")] * TIMES)
        assert len((await client.ask(offsets, 8, OffsetFetchResponse)).groups) == 1
