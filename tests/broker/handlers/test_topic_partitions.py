"""DescribeTopicPartitions: pages of partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import describe_topic_partitions
from broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.running import running_broker
from tests.broker.wire_client import WireClient, connect

ALL = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


async def page(
    client: WireClient, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
    return await client.ask(request, 0, DescribeTopicPartitionsResponse)


def rows(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, partition.partition_index) for topic in answer.topics for partition in topic.partitions]


@pytest.mark.parametrize("limit", range(1, 8))
@pytest.mark.parametrize("names", [(), ("c", "a", "b")], ids=["all", "named"])
async def test_the_pages_together_are_every_partition_once(tmp_path: Path, limit: int, names: tuple[str, ...]) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        for name, partitions in (("b", 1), ("c", 2), ("a", 3)):
            await client.create_topic(name, partitions)
        found, cursor = [], None
        while True:
            answer = await page(client, *names, limit=limit, cursor=cursor)
            assert len(rows(answer)) <= limit
            assert all(topic.error_code == 0 and topic.partitions for topic in answer.topics)
            found += rows(answer)
            if answer.next_cursor is None:
                break
            assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ALL[len(found)]
            cursor = answer.next_cursor
        assert found == ALL


async def test_a_page_has_a_limit_of_the_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_topic_partitions, "DESCRIBED_PARTITIONS_MAX", 2)
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("a", 3)
        for limit in (2000, -1):
            assert len(rows(await page(client, limit=limit))) == min(2, max(limit, 1))


async def test_what_cannot_be_described(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, connect(address) as client:
        await client.create_topic("a", 3)
        answer = await page(client, "a", "nowhere", "no/where")
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("a", 0),
            ("no/where", 17),
            ("nowhere", 3),
        ]
        for cursor in (Cursor("a", -1), Cursor("b", 0)):
            assert [topic.error_code for topic in (await page(client, "a", cursor=cursor)).topics] == [42]
        # Without names the topic of the cursor may be gone.
        assert rows(await page(client, cursor=Cursor("Z", 7))) == [("a", 0), ("a", 1), ("a", 2)]
