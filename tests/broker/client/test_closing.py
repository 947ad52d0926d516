"""What is left of a cluster's connections when it was left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from tests.broker.running import running_broker


async def test_who_is_cancelled_while_it_closes_leaves_no_connection_open(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as bootstrap:
        cluster = Cluster(Site("here", bootstrap))
        await cluster.__aenter__()
        (node_id,) = cluster.nodes
        opened = [
            await cluster.connection(node_id),
            await cluster.connection(node_id, "fetch"),
            await cluster.connection(node_id, "produce"),
        ]
        closing = asyncio.ensure_future(cluster.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [connection.is_open for connection in opened] == [False] * 3
