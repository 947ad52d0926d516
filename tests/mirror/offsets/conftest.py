"""One of farshore's own brokers in this process, as a link's target."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from broker.server import Server
from mirror.link import Link
from tests.broker.running import running_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running_server(tmp_path) as running:
        yield running


@pytest.fixture
async def target(server: Server) -> AsyncIterator[Cluster]:
    """A cluster of one, empty, and connected."""
    async with Cluster(Site("west", server.address)) as cluster:
        yield cluster


@pytest.fixture
def link(target: Cluster) -> Link:
    """A link of topic `flights` to the target; there is nothing at its source."""
    return Link("east-west", Site("east", "127.0.0.1:1"), target.site, ("flights",))
