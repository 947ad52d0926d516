"""A coordinator's partition that cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.coordination.internal_log import TRANSACTIONS_TOPIC
from broker.errors import LogDamaged
from broker.server import Server
from broker.topics.errors import PartitionOffline
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from broker.wire.vocabulary import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from tests.broker.running import running_server
from tests.broker.wire_client import WireClient, batch_of, connect

NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("topic", "lost"), [(OFFSETS_TOPIC, "groups"), (TRANSACTIONS_TOPIC, "fenced")])
def test_a_damaged_coordinator_names_the_folder_and_the_price_of_moving_it_away(
    tmp_path: Path, topic: str, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And stops nothing else: who asks for what it keeps is told to ask again, not that there is nothing."""

    async def run() -> None:
        key_type = GROUP_COORDINATOR if topic == OFFSETS_TOPIC else TRANSACTION_COORDINATOR
        asked = FindCoordinatorRequest("g", key_type, ["g"])
        async with running_server(tmp_path) as server, connect(server.address) as client:
            await client.create_topic("t")
            assert (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators[0].error_code == 0
        folder = tmp_path / f"{topic}-0"
        (folder / "partition.metadata").write_bytes(b"")
        async with running_server(tmp_path) as server, connect(server.address) as client:
            found = (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators[0]
            assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            if topic == OFFSETS_TOPIC:
                offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
                (group,) = (await client.ask(offsets, 8, OffsetFetchResponse)).groups
                assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                listed = await client.ask(ListGroupsRequest(), 4, ListGroupsResponse)
                assert listed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await client.produce("t", batch_of("a"))).error_code == 0
        (hint,) = [text for record in caplog.records if "what it keeps is not served" in (text := record.getMessage())]
        assert str(folder) in hint
        assert lost in hint
        assert "mirror" not in hint, "there is nothing to mirror it from"
        folder.rename(tmp_path.with_name(f"{tmp_path.name}-away"))
        folder.mkdir()
        lines = [line for line in hint.split("'") if line.startswith(("version: ", "topic_id: "))]
        (folder / "partition.metadata").write_text("\n".join(lines))
        async with running_server(tmp_path) as server, connect(server.address) as client:
            here = server.broker.partition(topic, 0)
            assert here is not None
            assert here.offline is None
            assert (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators[0].error_code == 0

    asyncio.run(run())


def goes_offline(server: Server, topic: str) -> None:
    """As a read that meets damage does it: the controller's next order comes later, or never."""
    partition = server.broker.require_partition(topic, 0)
    partition.log.end_damaged(LogDamaged("a batch is not as it was written"))
    assert partition.offline is not None
    with pytest.raises(PartitionOffline):
        server.broker.require_partition(topic, 0)


async def where_is(client: WireClient, key_type: int) -> int:
    asked = FindCoordinatorRequest("g", key_type, ["g"])
    return (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators[0].error_code


async def test_what_groups_committed_is_not_told_from_memory_once_the_log_is_offline(tmp_path: Path) -> None:
    """Another replica may lead by then, and have heard of later commits."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.create_topic("t")
        assert await where_is(client, GROUP_COORDINATOR) == 0
        five = OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 5)])
        committed = OffsetCommitRequest("g", topics=[five])
        assert (await client.ask(committed, 8, OffsetCommitResponse)).topics[0].partitions[0].error_code == 0
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        (group,) = (await client.ask(asked, 8, OffsetFetchResponse)).groups
        assert group.topics[0].partitions[0].committed_offset == 5
        goes_offline(server, OFFSETS_TOPIC)
        (group,) = (await client.ask(asked, 8, OffsetFetchResponse)).groups
        assert (group.error_code, group.topics) == (NOT_AVAILABLE, [])
        answer = await client.ask(committed, 8, OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == NOT_AVAILABLE
        listed = await client.ask(ListGroupsRequest(), 4, ListGroupsResponse)
        assert (listed.error_code, listed.groups) == (NOT_AVAILABLE, [])
        assert await where_is(client, GROUP_COORDINATOR) == NOT_AVAILABLE


async def test_what_is_known_of_transactions_is_not_told_from_memory_once_the_log_is_offline(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, connect(server.address) as client:
        assert await where_is(client, TRANSACTION_COORDINATOR) == 0
        begins = InitProducerIdRequest("x", 60_000)
        assert (await client.ask(begins, 4, InitProducerIdResponse)).error_code == 0
        goes_offline(server, TRANSACTIONS_TOPIC)
        assert (await client.ask(begins, 4, InitProducerIdResponse)).error_code == NOT_AVAILABLE
        described = await client.ask(DescribeTransactionsRequest(["x"]), 0, DescribeTransactionsResponse)
        (told,) = described.transaction_states
        assert told.error_code == NOT_AVAILABLE
        listed = await client.ask(ListTransactionsRequest(), 0, ListTransactionsResponse)
        assert (listed.error_code, listed.transaction_states) == (NOT_AVAILABLE, [])
        assert await where_is(client, TRANSACTION_COORDINATOR) == NOT_AVAILABLE
