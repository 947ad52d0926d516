"""Sites of farshore's own brokers: two that are processes, three in this one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.site import Site
from tests.broker.running import running_broker
from tests.interop.servers import FarshoreBroker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap servers of east and west; tests use topics of their own."""
    with (
        FarshoreBroker(tmp_path_factory.mktemp("east")) as east,
        FarshoreBroker(tmp_path_factory.mktemp("west")) as west,
    ):
        yield east.bootstrap, west.bootstrap


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[Mapping[str, Cluster]]:
    """Three sites of our own broker in this process."""
    async with AsyncExitStack() as stack:
        found = {}
        for name in ("east", "north", "west"):
            address = await stack.enter_async_context(running_broker(tmp_path / name))
            found[name] = await stack.enter_async_context(Cluster(Site(name, address)))
        yield found
