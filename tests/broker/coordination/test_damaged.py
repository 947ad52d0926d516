"""A coordinator's partition that cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.coordination.internal_log import TRANSACTIONS_TOPIC
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.errors import ErrorCode
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from broker.wire.vocabulary import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from tests.broker.running import running_server
from tests.broker.wire_client import batch_of, connect


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
            assert server.broker.require_partition(topic, 0).offline is None
            assert (await client.ask(asked, 4, FindCoordinatorResponse)).coordinators[0].error_code == 0

    asyncio.run(run())
